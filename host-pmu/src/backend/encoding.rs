//! Selected events, and what a backend counts for them.
//!
//! **Encodings.** An encoding of one vendor counts something else on the other's PMU, or nothing. The architectural
//! events have a counterpart, by which Linux maps its generic events (`intel_perfmon_event_map`,
//! `amd_zen2_perfmon_event_map`); any other is refused.
//!
//! **Offers.** Some events are only on some PMUs, and the kernel opens them on any: they would count something else, or
//! nothing. Without TSX the kernel drops IN_TX and IN_TXCP from a raw event (`x86_pmu_get_event_config` masks them,
//! `hsw_hw_config` adds them on hosts with TSX). Event 0, umask 4 is TOPDOWN.SLOTS where there is a fixed counter 3
//! (since Ice Lake); elsewhere a general-purpose counter takes it and stays at 0. The kernel lists both in sysfs where
//! it has them. Reference cycles, which it refuses to open where it has no event for them, are told from a PMU that is
//! not there.

use std::io::Read as _;
use std::path::Path;

use arch_pmu::spec::{Selection, Source, Spec, Vendor};

use super::HostError;

/// Select and unit mask of the same event on an Intel and on an AMD of family 17h or later: cycles, instructions, branches, branch
/// misses, references to the last level of cache that is the core's, and its misses.
const SAME: [[(u16, u8); 2]; 6] = [
    [(0x3c, 0x00), (0x76, 0x00)],
    [(0xc0, 0x00), (0xc0, 0x00)],
    [(0xc4, 0x00), (0xc2, 0x00)],
    [(0xc5, 0x00), (0xc3, 0x00)],
    [(0x2e, 0x4f), (0x60, 0xff)],
    [(0x2e, 0x41), (0x64, 0x09)],
];

/// AMD's first family whose events these are; Hygon's are of 18h.
const ZEN: u32 = 0x17;

/// Bytes of /proc/cpuinfo in which the first processor's vendor and family are.
const CPUINFO: u64 = 4096;

/// Returns this host's vendor, if it is one of both whose events are known. Hygon's processors have AMD's PMU.
pub(super) fn host_vendor() -> Option<Vendor> {
    let mut text = Vec::new();
    std::fs::File::open("/proc/cpuinfo").ok()?.take(CPUINFO).read_to_end(&mut text).ok()?;
    vendor_in(&String::from_utf8_lossy(&text))
}

/// Returns the vendor; `None` for an AMD before family 17h, too: an event with AMD's newer encoding would count
/// something else there.
fn vendor_in(cpuinfo: &str) -> Option<Vendor> {
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| (key.trim() == name).then(|| value.trim()))
    };
    match field("vendor_id")? {
        "GenuineIntel" => Some(Vendor::Intel),
        "AuthenticAMD" | "HygonGenuine" if field("cpu family")?.parse::<u32>().ok()? >= ZEN => Some(Vendor::Amd),
        _ => None,
    }
}

/// Returns `spec` in the encoding of a host of this vendor.
pub(super) fn on_host(spec: Spec, host: Option<Vendor>) -> Result<Spec, HostError> {
    // For a fixed counter the kernel is asked for a generic event, which needs no translation.
    let Source::Selector(selection) = spec.0 else { return Ok(spec) };
    if Some(selection.vendor()) == host {
        return Ok(spec);
    }
    let translated = host.and_then(|host| translated(selection, host));
    let foreign = HostError::Foreign { config: selection.raw_config(), vendor: selection.vendor() };
    translated.map(|selection| Spec(Source::Selector(selection))).ok_or(foreign)
}

/// Returns the same architectural event for `host`; `None` for any other event, or one that is counted in another way
/// than each time it occurs.
fn translated(selection: Selection, host: Vendor) -> Option<Selection> {
    if selection.edge() || selection.invert() || selection.cmask() != 0 || selection.in_tx() || selection.in_txcp() {
        return None;
    }
    let (from, to) = (selection.vendor() as usize, host as usize);
    let same = SAME.iter().find(|same| same[from] == (selection.select(), selection.umask()))?;
    Some(selection.with_vendor(host).with_select(same[to].0).with_umask(same[to].1))
}

/// Directory in which the kernel lists the PMUs.
pub(super) const DEVICES: &str = "/sys/bus/event_source/devices";
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
    /// Reads the abilities of the host's PMU, whose PMUs are listed in this directory.
    pub(super) fn listed_in(devices: &Path) -> Self {
        let has = |what: &str| CORE_PMUS.iter().any(|pmu| devices.join(pmu).join(what).exists());
        let no_reference = has("events/cpu-cycles") && !has("events/ref-cycles");
        Self { transactions: has("format/in_tx_cp"), slots: has("events/slots"), no_reference }
    }

    /// Checks that a hardware event for `spec` would count what the guest asks for.
    pub(super) fn check(self, spec: Spec) -> Result<(), HostError> {
        Err(HostError::Absent(match spec.0 {
            Source::Fixed { index: 3, .. } if !self.slots => "pipeline slots (fixed counter 3, TOPDOWN.SLOTS)",
            Source::Fixed { index: 2, .. } if self.no_reference => {
                "reference cycles (fixed counter 2), which AMD's have since Zen 4"
            }
            Source::Selector(_) if spec.is_transactional() && !self.transactions => {
                "events of transactions (IN_TX, IN_TXCP)"
            }
            Source::Fixed { .. } | Source::Selector(_) => return Ok(()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::amd::PerfCtl;
    use arch_pmu::intel::PerfEvtSel;
    use arch_pmu::spec::Source;
    use perf_event_open_sys::bindings::PERF_TYPE_RAW;

    use super::super::attr::{EventKind, event_attr};
    use super::*;

    /// EN, INT, USR.
    const SAMPLED: u64 = 0x51_0000;

    fn opened(spec: Spec, host: Vendor) -> Option<(u32, u64, u64, u64)> {
        let attr = event_attr(EventKind::Hardware, on_host(spec, Some(host)).ok()?, 1000);
        Some((attr.type_, attr.config, attr.exclude_user(), attr.exclude_kernel()))
    }

    #[test]
    fn architectural_events_are_opened_in_the_hosts_encoding() {
        for (intel, amd) in [(0x3c, 0x76), (0xc0, 0xc0), (0xc4, 0xc2), (0xc5, 0xc3), (0x4f2e, 0xff60), (0x412e, 0x0964)]
        {
            let specs = [PerfEvtSel::from_bits(intel | SAMPLED).spec(), PerfCtl::from_bits(amd | SAMPLED).spec()];
            for spec in specs {
                assert_eq!(opened(spec, Vendor::Intel), Some((PERF_TYPE_RAW, intel, 0, 1)), "{spec:x?}");
                assert_eq!(opened(spec, Vendor::Amd), Some((PERF_TYPE_RAW, amd, 0, 1)), "{spec:x?}");
            }
        }
    }

    #[test]
    fn the_hosts_own_events_are_left_as_they_are_and_all_12_bits_of_a_select_are_raw() {
        let amd = PerfCtl::from_bits(1 << 32 | 0x02d6 | SAMPLED).spec();
        assert_eq!(opened(amd, Vendor::Amd), Some((PERF_TYPE_RAW, 0x1_0000_02d6, 0, 1)));
        let intel = PerfEvtSel::from_bits(0x0151 | SAMPLED).spec();
        assert_eq!(opened(intel, Vendor::Intel), Some((PERF_TYPE_RAW, 0x0151, 0, 1)));
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        let foreign = [
            (PerfEvtSel::from_bits(0x0151 | SAMPLED).spec(), Vendor::Amd),
            (PerfEvtSel::from_bits(1 << 24 | 0x3c | SAMPLED).spec(), Vendor::Amd),
            (PerfCtl::from_bits(1 << 32 | 0xc0 | SAMPLED).spec(), Vendor::Intel),
            (PerfCtl::from_bits(0x3c | SAMPLED).spec(), Vendor::Intel),
        ];
        for (spec, host) in foreign {
            let error = on_host(spec, Some(host)).unwrap_err();
            assert!(error.to_string().contains("--cpu"), "{error}");
        }
        let cycles = PerfEvtSel::from_bits(0x3c | SAMPLED).spec();
        assert!(on_host(cycles, None).is_err(), "a host of neither vendor");
    }

    #[test]
    fn the_vendor_is_that_of_the_first_processor() {
        let named = |name: &str| vendor_in(&format!("processor\t: 0\nvendor_id\t: {name}\ncpu family\t: 25\n"));
        assert_eq!([named("GenuineIntel"), named("AuthenticAMD")], [Some(Vendor::Intel), Some(Vendor::Amd)]);
        assert_eq!([named("HygonGenuine"), named("CentaurHauls")], [Some(Vendor::Amd), None]);
        let opteron = "vendor_id\t: AuthenticAMD\ncpu family\t: 21\n";
        assert_eq!([vendor_in(opteron), vendor_in("vendor_id\t: AuthenticAMD\n")], [None, None]);
        assert_eq!(vendor_in("vendor_id\t: GenuineIntel\n"), Some(Vendor::Intel));
    }

    /// Each file that the host lists in addition leaves less that is refused.
    #[test]
    fn what_a_host_does_not_list_is_refused() {
        const SLOTS: Spec = Spec(Source::Fixed { index: 3, control: 0xb });
        const REFERENCE: Spec = Spec(Source::Fixed { index: 2, control: 0xb });
        const PLAIN: u64 = 0x53_003c;
        let [plain, in_tx, in_txcp] =
            [PLAIN, 1 << 32 | PLAIN, 1 << 33 | PLAIN].map(|bits| PerfEvtSel::from_bits(bits).spec());
        let devices = tempfile::tempdir().unwrap();
        for (listed, refused) in [
            ("cpu/type", &[SLOTS, in_tx, in_txcp][..]),
            ("cpu_core/events/slots", &[in_tx, in_txcp]),
            ("cpu/format/in_tx_cp", &[]),
            // An AMD before Zen 4.
            ("cpu/events/cpu-cycles", &[REFERENCE]),
            ("cpu/events/ref-cycles", &[]),
        ] {
            let path = devices.path().join(listed);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "event=0x00").unwrap();
            let offers = Offers::listed_in(devices.path());
            for spec in [plain, REFERENCE, SLOTS, in_tx, in_txcp] {
                assert_eq!(offers.check(spec).is_err(), refused.contains(&spec), "{spec:?} where {listed} is listed");
            }
        }
    }
}
