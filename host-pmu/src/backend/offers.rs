//! Events that only some PMUs have, and that the kernel opens on any: they would count something else, or nothing.
//!
//! Without TSX the kernel drops IN_TX and IN_TXCP from a raw event (`x86_pmu_get_event_config` masks them, `hsw_hw_config` adds
//! them on hosts with TSX). Event 0, umask 4 is TOPDOWN.SLOTS where there is a fixed counter 3 (since Ice Lake); elsewhere a
//! general-purpose counter takes it and stays at 0. The kernel lists both in sysfs where it has them. Reference cycles, which it refuses to open
//! where it has no event for them, are told from a PMU that is not there.

use std::path::Path;

use arch_pmu::spec::{Source, Spec};

use super::HostError;

/// Directory in which the kernel lists the PMUs.
const DEVICES: &str = "/sys/bus/event_source/devices";
/// The processor's PMU; on hybrid processors that of the cores that have either.
const CORE_PMUS: [&str; 2] = ["cpu", "cpu_core"];

/// Abilities of the host's PMU that not every PMU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offers {
    /// IN_TX and IN_TXCP.
    transactions: bool,
    /// TOPDOWN.SLOTS, what fixed counter 3 counts.
    slots: bool,
    /// The kernel lists its events, and reference cycles are not among them (AMD before Zen 4).
    no_reference: bool,
}

impl Offers {
    /// Reads the abilities of this host's PMU.
    pub(super) fn of_this_host() -> Self {
        Self::listed_in(Path::new(DEVICES))
    }

    fn listed_in(devices: &Path) -> Self {
        let has = |what: &str| CORE_PMUS.iter().any(|pmu| devices.join(pmu).join(what).exists());
        let no_reference = has("events/cpu-cycles") && !has("events/ref-cycles");
        Self { transactions: has("format/in_tx_cp"), slots: has("events/slots"), no_reference }
    }

    /// Checks that a hardware event for `spec` would count what the guest asks for.
    pub(super) fn check(self, spec: Spec) -> Result<(), HostError> {
        match spec.0 {
            Source::Fixed { index: 3, .. } if !self.slots => {
                Err(HostError::Absent { what: "pipeline slots (fixed counter 3, TOPDOWN.SLOTS)" })
            }
            Source::Fixed { index: 2, .. } if self.no_reference => {
                Err(HostError::Absent { what: "reference cycles (fixed counter 2), which AMD's have since Zen 4" })
            }
            Source::Selector(_) if spec.is_transactional() && !self.transactions => {
                Err(HostError::Absent { what: "events of transactions (IN_TX, IN_TXCP)" })
            }
            Source::Fixed { .. } | Source::Selector(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    const SLOTS: Spec = Spec(Source::Fixed { index: 3, control: 0xb });
    const IN_TX: Spec = PerfEvtSel::from_bits(1 << 32 | 0x53_003c).spec();
    const IN_TXCP: Spec = PerfEvtSel::from_bits(1 << 33 | 0x53_003c).spec();
    const PLAIN: [Spec; 2] = [PerfEvtSel::from_bits(0x53_003c).spec(), Spec(Source::Fixed { index: 2, control: 0xb })];

    #[test]
    fn what_a_host_does_not_list_is_refused() {
        let devices = tempfile::tempdir().unwrap();
        for (listed, refused) in [
            ("cpu/type", &[SLOTS, IN_TX, IN_TXCP][..]),
            ("cpu_core/events/slots", &[IN_TX]),
            ("cpu/format/in_tx_cp", &[]),
        ] {
            let path = devices.path().join(listed);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "event=0x00").unwrap();
            let offers = Offers::listed_in(devices.path());
            for spec in PLAIN.into_iter().chain([SLOTS, IN_TX, IN_TXCP]) {
                let refuses = refused.contains(&spec) || spec == IN_TXCP && refused.contains(&IN_TX);
                assert_eq!(offers.check(spec).is_err(), refuses, "{spec:?} where {listed} is listed");
            }
        }
    }

    #[test]
    fn an_amd_without_reference_cycles_says_so() {
        let reference = Spec(Source::Fixed { index: 2, control: 0xb });
        let devices = tempfile::tempdir().unwrap();
        let events = devices.path().join("cpu/events");
        std::fs::create_dir_all(&events).unwrap();
        std::fs::write(events.join("cpu-cycles"), "event=0x76").unwrap();
        let error = Offers::listed_in(devices.path()).check(reference).unwrap_err().to_string();
        assert!(error.contains("Zen 4"), "{error}");
        std::fs::write(events.join("ref-cycles"), "event=0x120").unwrap();
        assert!(Offers::listed_in(devices.path()).check(reference).is_ok());
    }

    #[test]
    fn a_refusal_names_the_event() {
        let error = Offers::default().check(IN_TXCP).unwrap_err().to_string();
        assert!(error.contains("IN_TXCP"), "{error}");
    }
}
