//! The source of a guest's samples: a host event on its vCPU's thread, or something that the VMM itself sees.

use std::fmt;
use std::str::FromStr;

use host_pmu::sampler::{Rate, SampledEvent};

/// An event to sample by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A host event; its overflow interrupts the guest.
    Host(SampledEvent),
    /// A PMI of the guest's own counters, where the guest takes it.
    Pmi,
    /// An exit to the VMM, at the instruction that made it.
    Exit(ExitKinds),
}

/// Kind of an exit to the VMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitKind {
    /// RDMSR.
    Rdmsr,
    /// WRMSR.
    Wrmsr,
    /// IN, OUT.
    Io,
    /// An access to memory without a slot.
    Mmio,
    /// Any other.
    Other,
}

/// One kind of exits, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExitKinds(Option<ExitKind>);

struct Row {
    name: &'static str,
    about: &'static str,
    kinds: ExitKinds,
}

impl Row {
    const fn of(name: &'static str, about: &'static str, kind: Option<ExitKind>) -> Self {
        Self { name, about, kinds: ExitKinds(kind) }
    }
}

const TABLE: [Row; 6] = [
    Row::of("exit", "exits to the VMM, of any kind", None),
    Row::of("exit:rdmsr", "reads of MSRs that the VMM answers, the PMU's among them", Some(ExitKind::Rdmsr)),
    Row::of("exit:wrmsr", "writes of such MSRs", Some(ExitKind::Wrmsr)),
    Row::of("exit:io", "accesses to I/O ports", Some(ExitKind::Io)),
    Row::of("exit:mmio", "accesses to the memory of devices", Some(ExitKind::Mmio)),
    Row::of("exit:other", "every other exit to the VMM", Some(ExitKind::Other)),
];

/// Name and meaning of the guest's PMIs.
const PMI: (&str, &str) = ("pmi", "PMIs that the guest's own counters raise, where it takes them");

impl ExitKinds {
    /// Returns whether exits of this kind are among them.
    pub fn has(self, kind: ExitKind) -> bool {
        self.0.is_none_or(|only| only == kind)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.kinds == self).unwrap_or(&TABLE[0])
    }
}

impl Event {
    /// Lists the events that the VMM sees without a host event, each with its description.
    pub fn of_vmm() -> impl Iterator<Item = (&'static str, &'static str)> {
        std::iter::once(PMI).chain(TABLE.iter().map(|row| (row.name, row.about)))
    }

    /// Returns the host event, if it is one.
    pub const fn host(&self) -> Option<&SampledEvent> {
        match self {
            Self::Host(event) => Some(event),
            Self::Pmi | Self::Exit(_) => None,
        }
    }

    /// Returns `sample_period` or `sample_freq`, and whether it is the latter. Events that the VMM itself sees are
    /// counted one by one: without a period each is a sample.
    pub fn rate(&self, rate: Rate) -> (u64, bool) {
        match (self, rate) {
            (Self::Host(event), rate) => rate.of(event),
            (Self::Pmi | Self::Exit(_), Rate::Period(period)) => (period.max(1), false),
            (Self::Pmi | Self::Exit(_), Rate::Hertz(_)) => (1, false),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(event) => event.fmt(f),
            Self::Pmi => f.write_str(PMI.0),
            Self::Exit(kinds) => f.write_str(kinds.row().name),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == PMI.0 {
            return Ok(Self::Pmi);
        }
        if let Some(row) = TABLE.iter().find(|row| row.name == text) {
            return Ok(Self::Exit(row.kinds));
        }
        let own = || Self::of_vmm().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        if text.starts_with("exit:") {
            return Err(format!("no such kind of exits; give {}", own()));
        }
        text.parse().map(Self::Host).map_err(|why: String| format!("{why}; or {}", own()))
    }
}

/// Counts occurrences that the VMM sees: one in a period is a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Countdown {
    /// The event's number in the recording.
    pub(super) event: usize,
    period: u64,
    left: u64,
}

impl Countdown {
    pub(super) const fn new(event: usize, period: u64) -> Self {
        Self { event, period, left: period }
    }

    /// Counts an occurrence. Returns the counts that its sample stands for, if it is one.
    pub(super) const fn count(&mut self) -> Option<u64> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.left = self.period;
        Some(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_what_they_name() {
        for (name, about) in Event::of_vmm() {
            let event: Event = name.parse().unwrap();
            assert_eq!((event.to_string().as_str(), event.host(), about.is_empty()), (name, None, false));
        }
        let clock: Event = "cpu-clock".parse().unwrap();
        assert!(clock.host().is_some_and(SampledEvent::is_clock));
        for wrong in ["", "exit:", "exit:vmx", "pmis", "cycels"] {
            assert!(wrong.parse::<Event>().unwrap_err().contains("pmi, exit, exit:rdmsr"), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_exits_has_a_name_and_all_have_one() {
        let kinds = [ExitKind::Rdmsr, ExitKind::Wrmsr, ExitKind::Io, ExitKind::Mmio, ExitKind::Other];
        for kind in kinds {
            assert_eq!(TABLE.iter().filter(|row| row.kinds.has(kind)).count(), 2, "{kind:?}");
        }
        assert!(kinds.iter().all(|&kind| TABLE[0].kinds.has(kind)));
    }

    #[test]
    fn one_in_so_many_is_a_sample() {
        let mut countdown = Countdown::new(3, 4);
        let samples: Vec<_> = (0..9).filter_map(|at| countdown.count().map(|period| (at, period))).collect();
        assert_eq!(samples, [(3, 4), (7, 4)]);
        let pmi = Event::Pmi;
        assert_eq!((pmi.rate(Rate::Hertz(999)), pmi.rate(Rate::Period(7))), ((1, false), (7, false)));
    }
}
