//! Tells what a backend would count for a selected event, without opening one.

use arch_pmu::spec::{Spec, Vendor};

use super::offers::Offers;
use super::{BackendKey, HostError, encoding, retired};

/// The event that a backend would count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The event itself.
    Itself,
    /// Something else counts in its place, whatever the guest selects.
    StandIn,
    /// Nothing: the backend refuses it, or it stays at zero.
    Nothing(String),
}

/// Returns what `key` would count for `spec` on this host, if its events open at all.
#[must_use]
pub fn answer(key: &BackendKey, spec: Spec) -> Answer {
    match key {
        BackendKey::Hardware => hardware(spec, Offers::of_this_host(), encoding::host_vendor()),
        BackendKey::Step if retired::shows(spec) => Answer::Itself,
        BackendKey::Step => Answer::Nothing("single steps do not show it; it stays at 0".to_owned()),
        other if other.is_stand_in() => Answer::StandIn,
        other => Answer::Nothing(format!("it is not known which events {other} counts")),
    }
}

fn hardware(spec: Spec, offers: Offers, vendor: Option<Vendor>) -> Answer {
    let refused = |error: HostError| Answer::Nothing(error.to_string());
    let checked = encoding::on_host(spec, vendor).and_then(|spec| offers.check(spec));
    checked.map_or_else(refused, |()| Answer::Itself)
}

#[cfg(test)]
mod tests {
    use arch_pmu::amd::PerfCtl;
    use arch_pmu::intel::PerfEvtSel;
    use arch_pmu::spec::Source;

    use super::*;

    const CYCLES: Spec = PerfEvtSel::from_bits(0x53_003c).spec();
    const INSTRUCTIONS: Spec = PerfEvtSel::from_bits(0x53_00c0).spec();

    #[test]
    fn steps_show_instructions_and_no_cycles() {
        assert_eq!(answer(&BackendKey::Step, INSTRUCTIONS), Answer::Itself);
        assert!(matches!(answer(&BackendKey::Step, CYCLES), Answer::Nothing(why) if why.contains("stays at 0")));
    }

    #[test]
    fn it_is_known_what_each_backend_counts() {
        for (key, _) in BackendKey::all() {
            assert!(!matches!(answer(&key, INSTRUCTIONS), Answer::Nothing(why) if why.contains("not known")), "{key}");
        }
    }

    #[test]
    fn a_clock_stands_in_for_every_event() {
        for key in ["cpu-clock", "cpu-clock:20MHz", "task-clock", "tracepoint:kvm/kvm_exit", "none"] {
            assert_eq!(answer(&key.parse().unwrap(), CYCLES), Answer::StandIn, "{key}");
        }
    }

    #[test]
    fn hardware_has_what_the_hosts_vendor_has() {
        let offers = Offers::default();
        let answer_of = |spec, vendor| hardware(spec, offers, Some(vendor));
        assert_eq!(
            [answer_of(CYCLES, Vendor::Intel), answer_of(CYCLES, Vendor::Amd)],
            [Answer::Itself, Answer::Itself]
        );
        let foreign = PerfCtl::from_bits(0x53_02d6).spec();
        assert!(matches!(answer_of(foreign, Vendor::Intel), Answer::Nothing(why) if why.contains("--cpu")));
        let slots = Spec(Source::Fixed { index: 3, control: 0xb });
        assert!(matches!(answer_of(slots, Vendor::Intel), Answer::Nothing(why) if why.contains("slots")));
    }
}
