//! Exits and host operations of a vCPU by phase. The guest's doorbells say when a phase begins.

use super::ops::{OpKind, OpStats};

/// Exits and host operations of one phase, over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTally {
    /// Number of times that it began.
    pub begun: u64,
    /// RDMSR exits.
    pub msr_reads: u64,
    /// WRMSR exits.
    pub msr_writes: u64,
    /// Host operations, in the order of [`OpKind::ALL`].
    pub ops: [u64; OpKind::ALL.len()],
    /// Sum of their cost, ns.
    pub ops_ns: u64,
}

/// The `N` phases of one vCPU. Phase 0 is the time outside any phase.
#[derive(Clone, Debug)]
pub struct Phases<const N: usize> {
    lines: [PhaseTally; N],
    now: usize,
    /// Operations when the current phase began.
    ops: [u64; OpKind::ALL.len()],
    ops_ns: u64,
}

impl<const N: usize> Default for Phases<N> {
    fn default() -> Self {
        Self { lines: [PhaseTally::default(); N], now: 0, ops: [0; OpKind::ALL.len()], ops_ns: 0 }
    }
}

impl<const N: usize> Phases<N> {
    /// Counts an MSR access that exited.
    #[inline]
    pub const fn exit(&mut self, write: bool) {
        let line = &mut self.lines[self.now];
        if write {
            line.msr_writes += 1;
        } else {
            line.msr_reads += 1;
        }
    }

    /// Counts MSR accesses that exited.
    pub const fn exits_more(&mut self, reads: u64, writes: u64) {
        let line = &mut self.lines[self.now];
        line.msr_reads += reads;
        line.msr_writes += writes;
    }

    /// Returns the RDMSR and WRMSR exits of all phases.
    #[must_use]
    pub fn exits(&self) -> (u64, u64) {
        self.lines.iter().fold((0, 0), |(reads, writes), line| (reads + line.msr_reads, writes + line.msr_writes))
    }

    /// Begins phase `next`; `ops` are the host operations so far, if there are any. A number out of range is phase 0.
    pub fn begin(&mut self, next: usize, ops: Option<&OpStats>) {
        let line = &mut self.lines[self.now];
        if let Some(ops) = ops {
            let mut ops_ns = 0;
            for (at, kind) in OpKind::ALL.into_iter().enumerate() {
                let count = ops.count(kind);
                line.ops[at] += count - self.ops[at];
                self.ops[at] = count;
                ops_ns += ops.total_ns(kind);
            }
            line.ops_ns += ops_ns - self.ops_ns;
            self.ops_ns = ops_ns;
        }
        self.now = if next < N { next } else { 0 };
        self.lines[self.now].begun += 1;
    }

    /// Ends the current phase and returns all.
    #[must_use]
    pub fn finish(mut self, ops: Option<&OpStats>) -> [PhaseTally; N] {
        self.begin(0, ops);
        self.lines[0].begun -= 1;
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASE_NONE: usize = 0;
    const PHASE_ENABLE: usize = 1;
    const PHASE_READ: usize = 2;

    #[test]
    fn each_phase_has_its_own_exits_and_operations() {
        let (mut phases, mut ops) = (Phases::<3>::default(), OpStats::default());
        ops.record(OpKind::Open, 100);
        phases.exit(true);
        phases.begin(PHASE_ENABLE, Some(&ops));
        ops.record(OpKind::Open, 30);
        ops.record(OpKind::Resume, 4);
        phases.exit(true);
        phases.exit(false);
        phases.begin(PHASE_NONE, Some(&ops));
        phases.begin(PHASE_READ, Some(&ops));
        phases.exit(false);
        ops.record(OpKind::Read, 2);
        assert_eq!(phases.exits(), (2, 2));
        let lines = phases.finish(Some(&ops));
        let line = |begun, msr_reads, msr_writes, ops, ops_ns| PhaseTally { begun, msr_reads, msr_writes, ops, ops_ns };
        assert_eq!(lines[PHASE_NONE], line(1, 0, 1, [1, 0, 0, 0, 0, 0], 100));
        assert_eq!(lines[PHASE_ENABLE], line(1, 1, 1, [1, 0, 0, 1, 0, 0], 34));
        assert_eq!(lines[PHASE_READ], line(1, 1, 0, [0, 0, 0, 0, 0, 1], 2));
        assert_eq!(lines.iter().map(|line| line.begun).sum::<u64>(), 3);
    }

    #[test]
    fn a_phase_that_does_not_exist_is_none() {
        let mut phases = Phases::<3>::default();
        phases.begin(usize::MAX, None);
        phases.exit(true);
        assert_eq!(phases.finish(None)[0].msr_writes, 1);
    }
}
