//! Trials of the payload's `perf stat` set-ups. None asserts a time.

use guest::abi::{
    BootPage, EventSpec, FLAG_ENABLE_ONCE, FLAG_STAT_SETUP, PHASE_DISABLE, PHASE_ENABLE, PHASE_NONE, PHASE_PROGRAM,
    PHASE_READ, PHASE_ROTATE, PHASES,
};
use host_pmu::stats::PhaseTally;
use vmm::machine::CounterSource;
use vmm::machine::payload::PayloadPlan;
use vmm::outcome::{End, VcpuOutcome};

use crate::guests::{fixed, gp, plan, report, run};

/// Counting events, as `perf stat` without options begins with: three with a fixed counter, the others without.
fn events(count: usize) -> Vec<EventSpec> {
    let first = [fixed(1, 0x3c, 0), fixed(0, 0xc0, 0), fixed(2, 0x300, 0)];
    let others = (0..).map(|n| gp(0xc4 + (n << 8), 0));
    first.into_iter().chain(others).take(count).collect()
}

fn set_ups(events: &[EventSpec], cycles: u64) -> PayloadPlan {
    let plan = plan(CounterSource::Floor, events, cycles);
    PayloadPlan {
        log_entries: cycles * 4 * events.len() as u64 + 4096,
        boot: BootPage {
            flags: FLAG_STAT_SETUP,
            tick_count: 1_000_000,
            window_ticks: 2,
            gap_ticks: 1,
            limit_us: 20_000_000,
            ..plan.boot
        },
        ..plan
    }
}

/// RDMSR and WRMSR exits of each phase per cycle.
fn accesses(vcpu: &VcpuOutcome) -> [[u64; 2]; PHASES] {
    let cycles = report(vcpu).cycles;
    let mut lines = vcpu.account.phases;
    // Outside of phases the run begins and ends.
    lines[PHASE_NONE as usize] = PhaseTally::default();
    lines.map(|line| {
        assert!(
            line.msr_reads % cycles == 0 && line.msr_writes % cycles == 0,
            "each cycle is like the others: {line:?}"
        );
        [line.msr_reads / cycles, line.msr_writes / cycles]
    })
}

fn one(plan: &PayloadPlan) -> VcpuOutcome {
    let mut outcome = run(plan);
    assert_eq!((&outcome.end, outcome.vcpus.len()), (&End::Done, 1));
    let vcpu = outcome.vcpus.remove(0);
    assert_eq!(report(&vcpu).cycles, plan.boot.sample_target);
    assert_eq!(vcpu.account.msr_exits.iter().map(|line| line.faults).sum::<u64>(), 0);
    vcpu
}

/// A register is touched for a counter that there is: seven of ten events, and each enable starts what counts again.
pub(crate) fn accesses_of_ten_events() {
    let accesses_with = |flags| {
        let mut plan = set_ups(&events(10), 6);
        plan.boot.flags |= flags;
        accesses(&one(&plan))
    };
    // Stops and starts of an event: two writes, with a fixed counter a read each beside them; a stop reads the value.
    let (three_fixed, four_gp) = ([3, 2 * 3], [0, 2 * 4]);
    let all_started = [3, 2 * 7];
    // perf fills counters up to the first event that finds none: after a rotation six count, two of them with a fixed counter.
    let six_stopped = [2 + 6, 6];
    let each = accesses_with(0);
    assert_eq!(each[PHASE_PROGRAM as usize], [three_fixed[0], three_fixed[1] + four_gp[1]]);
    assert_eq!(each[PHASE_READ as usize], [6, 0]);
    assert_eq!(each[PHASE_DISABLE as usize], [six_stopped[0], six_stopped[1] + 2 * 10]);
    assert_eq!(each[PHASE_ROTATE as usize], [3 + 7 + 2, 7 + 2 * 6 + 2], "one rotation in a window of two ticks");
    // The k-th enable stops k - 1 events (7 at most) and starts k.
    let (mut reads, mut writes) = (0, 0);
    for k in 1..=10_u64 {
        let (stopped, started) = ((k - 1).min(7), k.min(7));
        reads += stopped.min(3) + stopped + started.min(3);
        writes += stopped + 2 * started + 2;
    }
    assert_eq!(each[PHASE_ENABLE as usize], [reads, writes]);
    let once = accesses_with(FLAG_ENABLE_ONCE);
    assert_eq!(once[PHASE_ENABLE as usize], [all_started[0], all_started[1] + 2]);
    assert_eq!(once[PHASE_DISABLE as usize], each[PHASE_DISABLE as usize]);
}
