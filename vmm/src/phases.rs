//! What the phases of a guest's `perf stat` set-ups take: exits and host operations, told apart by the guest's doorbells.

use guest::abi::PHASES;
use host_pmu::stats::{OpKind, OpStats};

/// What one phase took, over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTally {
    /// How often it began.
    pub begun: u64,
    /// RDMSR exits.
    pub msr_reads: u64,
    /// WRMSR exits.
    pub msr_writes: u64,
    /// Host operations, in the order of [`OpKind::ALL`].
    pub ops: [u64; OpKind::ALL.len()],
    /// What they cost together, ns.
    pub ops_ns: u64,
}

/// The phases of one vCPU, by `PHASE_*`.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    lines: [PhaseTally; PHASES],
    now: usize,
    /// Operations when the phase that is under way began.
    ops: [u64; OpKind::ALL.len()],
    ops_ns: u64,
}

impl Phases {
    /// An MSR access exited.
    #[inline]
    pub const fn exit(&mut self, write: bool) {
        let line = &mut self.lines[self.now];
        if write {
            line.msr_writes += 1;
        } else {
            line.msr_reads += 1;
        }
    }

    /// Phase `next` begins; `ops` are the host operations so far, if there are any. A phase that does not exist is none.
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
        self.now = if next < PHASES { next } else { 0 };
        self.lines[self.now].begun += 1;
    }

    /// What each phase took; the one that is under way ends.
    #[must_use]
    pub fn finish(mut self, ops: Option<&OpStats>) -> [PhaseTally; PHASES] {
        self.begin(0, ops);
        self.lines[0].begun -= 1;
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use guest::abi::{PHASE_ENABLE, PHASE_NONE, PHASE_READ};

    use super::*;

    #[test]
    fn each_phase_has_its_own_exits_and_operations() {
        let (mut phases, mut ops) = (Phases::default(), OpStats::default());
        ops.record(OpKind::Open, 100);
        phases.exit(true);
        phases.begin(PHASE_ENABLE as usize, Some(&ops));
        ops.record(OpKind::Open, 30);
        ops.record(OpKind::Resume, 4);
        phases.exit(true);
        phases.exit(false);
        phases.begin(PHASE_NONE as usize, Some(&ops));
        phases.begin(PHASE_READ as usize, Some(&ops));
        phases.exit(false);
        ops.record(OpKind::Read, 2);
        let lines = phases.finish(Some(&ops));
        let line = |begun, msr_reads, msr_writes, ops, ops_ns| PhaseTally { begun, msr_reads, msr_writes, ops, ops_ns };
        assert_eq!(lines[PHASE_NONE as usize], line(1, 0, 1, [1, 0, 0, 0, 0, 0], 100));
        assert_eq!(lines[PHASE_ENABLE as usize], line(1, 1, 1, [1, 0, 0, 1, 0, 0], 34));
        assert_eq!(lines[PHASE_READ as usize], line(1, 1, 0, [0, 0, 0, 0, 0, 1], 2));
        assert_eq!(lines.iter().map(|line| line.begun).sum::<u64>(), 3);
    }

    #[test]
    fn a_phase_that_does_not_exist_is_none() {
        let mut phases = Phases::default();
        phases.begin(usize::MAX, None);
        phases.exit(true);
        assert_eq!(phases.finish(None)[0].msr_writes, 1);
    }
}
