//! The guests, and what each must end in.

use anyhow::Result;
use arch_pmu::msr;
use arch_pmu::spec::Vendor;

use crate::counted::assemble;

/// Required end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The guest ends itself, with code 0.
    Itself,
    /// The time limit ends it.
    TimeLimit,
    /// A fault that KVM reports ends it: which one depends on whether ring 0 is emulated.
    Fault,
}

/// A guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    define: &'static str,
    pub(crate) ending: Ending,
    /// Further words that the report must have.
    pub(crate) says: &'static str,
}

const fn guest(name: &'static str, define: &'static str, ending: Ending, says: &'static str) -> Hostile {
    Hostile { name, define, ending, says }
}

/// All of them.
pub(crate) const ALL: [Hostile; 11] = [
    guest("garbage_in_every_pmu_register", "CASE_GARBAGE", Ending::Itself, ""),
    guest("global_ctrl_flood", "CASE_FLOOD", Ending::TimeLimit, ""),
    guest("lvtpc_masked_for_ever", "CASE_MASKED", Ending::TimeLimit, "masked"),
    guest("period_one_on_all_counters", "CASE_PERIOD_ONE", Ending::TimeLimit, ""),
    guest("triple_fault", "CASE_TRIPLE_FAULT", Ending::Fault, ""),
    guest("interrupts_off_for_ever", "CASE_INTERRUPTS_OFF", Ending::TimeLimit, ""),
    guest("halted_for_ever", "CASE_HALTED", Ending::TimeLimit, ""),
    guest("memory_and_ports_that_are_not_there", "CASE_ABSENT", Ending::Itself, "does not have"),
    guest("runs_where_nothing_is", "CASE_NOWHERE", Ending::Fault, ""),
    guest("serial_flood", "CASE_SERIAL", Ending::TimeLimit, ""),
    guest("a_vcpu_that_is_never_started", "CASE_ENDS", Ending::Itself, ""),
];

impl Hostile {
    /// Assembles the image.
    pub(crate) fn build(&self) -> Result<Vec<u8>> {
        let ranges =
            msr::ranges(Vendor::Intel).into_iter().map(|(first, count)| format!("\tregisters {first}, {count}\n"));
        let source = include_str!("hostile.S").replace("RANGES\n", &ranges.collect::<String>());
        assemble(&source, 32, &[self.define], &["--oformat=binary"])
    }
}
