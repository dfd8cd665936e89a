//! Exits and host operations by the guest's phase, as whoever runs the guest counts them.

use crate::abi::PHASES;

/// Kinds of host operations.
const OPS: usize = 6;

/// Exits and host operations of one phase, over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTally {
    /// Number of times that it began.
    pub begun: u64,
    /// RDMSR exits.
    pub msr_reads: u64,
    /// WRMSR exits.
    pub msr_writes: u64,
    /// Host operations by kind.
    pub ops: [u64; OPS],
    /// Sum of their cost, ns.
    pub ops_ns: u64,
}

/// The phases of one vCPU. [`PHASE_NONE`](crate::abi::PHASE_NONE) is the time outside any phase.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    lines: [PhaseTally; PHASES],
    now: usize,
    /// Operations when the current phase began, and their cost.
    before: ([u64; OPS], u64),
}

impl Phases {
    /// Counts MSR accesses that exited.
    #[inline]
    pub const fn exits(&mut self, reads: u64, writes: u64) {
        let line = &mut self.lines[self.now];
        line.msr_reads += reads;
        line.msr_writes += writes;
    }

    /// Begins phase `next`; `ops` are the host operations so far, by kind, and the sum of their costs. A number out of range is phase 0.
    pub fn begin(&mut self, next: usize, ops: ([u64; OPS], u64)) {
        let line = &mut self.lines[self.now];
        for (kind, sum) in line.ops.iter_mut().enumerate() {
            *sum += ops.0[kind] - self.before.0[kind];
        }
        line.ops_ns += ops.1 - self.before.1;
        self.before = ops;
        self.now = if next < PHASES { next } else { 0 };
        self.lines[self.now].begun += 1;
    }

    /// Ends the current phase and returns all.
    pub fn finish(mut self, ops: ([u64; OPS], u64)) -> [PhaseTally; PHASES] {
        self.begin(0, ops);
        self.lines[0].begun -= 1;
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{PHASE_ENABLE, PHASE_NONE, PHASE_READ};

    #[test]
    fn each_phase_has_its_own_exits_and_operations() {
        let mut phases = Phases::default();
        phases.exits(0, 1);
        phases.begin(PHASE_ENABLE as usize, ([1, 0, 0, 0, 0, 0], 100));
        phases.exits(0, 1);
        phases.exits(1, 0);
        // One that does not exist is none.
        phases.begin(usize::MAX, ([2, 0, 0, 1, 0, 0], 134));
        phases.begin(PHASE_READ as usize, ([2, 0, 0, 1, 0, 0], 134));
        phases.exits(1, 0);
        let lines = phases.finish(([2, 0, 0, 1, 0, 1], 136));
        let line = |begun, msr_reads, msr_writes, ops, ops_ns| PhaseTally { begun, msr_reads, msr_writes, ops, ops_ns };
        assert_eq!(lines[PHASE_NONE as usize], line(1, 0, 1, [1, 0, 0, 0, 0, 0], 100));
        assert_eq!(lines[PHASE_ENABLE as usize], line(1, 1, 1, [1, 0, 0, 1, 0, 0], 34));
        assert_eq!(lines[PHASE_READ as usize], line(1, 1, 0, [0, 0, 0, 0, 0, 1], 2));
        assert_eq!(lines.iter().map(|line| line.begun).sum::<u64>(), 3);
    }
}
