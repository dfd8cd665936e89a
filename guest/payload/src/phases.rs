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

    #[test]
    fn each_phase_has_its_own_exits_and_operations() {
        let (mut phases, ops) = (Phases::default(), |n| [n, 0, 0, 0, 0, 2 * n]);
        // A phase that does not exist is none.
        for (next, n, ns, reads, writes) in [(2, 1, 100, 1, 1), (usize::MAX, 2, 134, 0, 1), (3, 2, 134, 1, 0)] {
            phases.begin(next, (ops(n), ns));
            phases.exits(reads, writes);
        }
        let all = phases.finish((ops(5), 136)).map(|of| (of.begun, of.msr_reads, of.msr_writes, of.ops, of.ops_ns));
        let none = (0, 0, 0, ops(0), 0);
        assert_eq!(all, [(1, 0, 1, ops(1), 100), none, (1, 1, 1, ops(1), 34), (1, 1, 0, ops(3), 2), none, none]);
    }
}
