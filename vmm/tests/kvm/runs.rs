//! The trials. None asserts a time.

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use guest::abi::{LOG_NMI, WORKLOAD_IO};
use host_pmu::backend::BackendKey;
use host_pmu::stats::OpKind;
use host_pmu::strategy::{PRESETS, Strategy};
use vmm::machine::payload::PayloadPlan;
use vmm::machine::{CounterSource, Cpu, MachineError};
use vmm::outcome::{End, RunOutcome, VcpuOutcome};

use crate::guests::{JULY_2021, PERIOD, SINGLE, balanced, clock, gp, host, plan, report, run, run_on};
use crate::sys;

/// The tracepoint of docs/nmi-latency.md.
pub(crate) fn userspace_exit() -> BackendKey {
    BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() }
}

fn only(mut outcome: RunOutcome) -> VcpuOutcome {
    assert_eq!((&outcome.end, outcome.vcpus.len()), (&End::Done, 1));
    outcome.vcpus.remove(0)
}

/// Runs a plan of one vCPU to its end, with [`balanced`] accounts.
fn whole(plan: &PayloadPlan) -> VcpuOutcome {
    let vcpu = only(run(plan));
    balanced(&vcpu);
    vcpu
}

/// The published run (July 2021): 7 250 PMIs and, by its PERFEVTSEL writes, 597 stops and restarts of all events.
const RESTARTS_PER_PMI: f64 = 597.0 / 7250.0;
/// Its counter writes per PMI without those of a restart.
const OVERFLOWS_PER_PMI: f64 = 1.01;

/// The figures of the published run, per PMI: writes and reads by register.
///
/// The number of PMIs between two restarts is the host's speed, so each register's accesses are split into those of a
/// restart, which are counted exactly, and those of a PMI, and put together again at the published ratio. Likewise how many
/// counters overflow within one PMI: the floor's clock runs on while the vCPU has no CPU. A counter's accesses are those of an
/// overflow, and a further acknowledgement within a PMI, with its read of STATUS, is that of a further overflow.
pub(crate) fn mix_of_exits() {
    let vcpu = &whole(&plan(CounterSource::Floor, JULY_2021, 1200));
    // A PMI that meets the driver off, in the middle of a restart, is acknowledged and no more.
    let met_off = || vcpu.left.log.iter().filter(|entry| entry.kind == LOG_NMI && entry.rearmed == 0);
    let (off, late) =
        (met_off().count() as f64, met_off().map(|entry| f64::from(entry.status.count_ones())).sum::<f64>());
    let (nmis, restarts) = (report(vcpu).nmis as f64, report(vcpu).rotations as f64);
    let pmis = nmis - off;
    let sum = |range: std::ops::RangeInclusive<u32>, write: bool| {
        let lines = vcpu.account.msr_exits.iter().filter(|line| range.contains(&line.msr));
        lines.map(|line| if write { line.writes } else { line.reads }).sum::<u64>() as f64
    };
    let counters = |write| sum(0xc1..=0xc8, write) + sum(0x309..=0x30c, write);
    let overflows = report(vcpu).overflows.iter().sum::<u64>() as f64;
    let acknowledged = sum(0x390..=0x390, true);
    assert!(acknowledged >= nmis && acknowledged <= overflows, "{acknowledged} of {overflows} overflows, {nmis} PMIs");
    let further = acknowledged - nmis;
    // As many as there would be with the published overflows per PMI.
    let usual =
        |counters: f64| (counters - 4.0 * restarts) * (pmis / (overflows - late)) * OVERFLOWS_PER_PMI + 4.0 * restarts;
    for (what, seen, per_restart, published, tolerance) in [
        ("GLOBAL_CTRL writes", sum(0x38f..=0x38f, true) - off, 2.0, 2.18, 0.05),
        ("GLOBAL_STATUS reads", sum(0x38e..=0x38e, false) - further - off, 0.0, 2.0, 0.05),
        ("counter writes", usual(counters(true)), 4.0, 1.34, 0.1),
        ("counter reads", usual(counters(false)), 4.0, 1.34, 0.1),
        ("FIXED_CTR_CTRL writes", sum(0x38d..=0x38d, true), 4.0, 0.33, 0.1),
        ("FIXED_CTR_CTRL reads", sum(0x38d..=0x38d, false), 4.0, 0.33, 0.1),
        ("PERFEVTSEL writes", sum(0x186..=0x18d, true), 4.0, 0.33, 0.1),
    ] {
        let per_pmi = (seen - per_restart * restarts) / pmis;
        let mixed = per_pmi + per_restart * RESTARTS_PER_PMI;
        let error = mixed / published - 1.0;
        assert!(error.abs() <= tolerance, "{what} per PMI: {mixed:.3}, published {published}, error {error:+.2}");
    }
}

/// Beside those of PMIs: starts of the counters, their end, and a host that does not let a vCPU run for a while.
const TIMER_SPARE: u64 = 12;

pub(crate) fn floor_timer() {
    let vcpu = &whole(&plan(CounterSource::Floor, SINGLE, 400));
    let (calls, pmis) = (vcpu.account.counts.timer_calls, vcpu.account.counts.nmis_injected);
    assert!(calls > pmis / 2, "the timer raises them: {calls} calls for {pmis} PMIs");
    assert!(calls <= pmis + TIMER_SPARE, "{calls} calls for {pmis} PMIs");
    // At each tick all counters stop and start.
    let vcpu = &whole(&plan(CounterSource::Floor, JULY_2021, 400));
    let (calls, pmis, restarts) =
        (vcpu.account.counts.timer_calls, vcpu.account.counts.nmis_injected, report(vcpu).rotations);
    assert!(calls <= pmis + 2 * restarts + TIMER_SPARE, "{calls} calls for {pmis} PMIs and {restarts} restarts");
}

/// AMD's drivers, with and without a global control: every overflow is handled, and each NMI that was sent is taken.
pub(crate) fn nothing_is_lost_on_amd() {
    for (cpu, exits) in [(Cpu::Milan, 2.0), (Cpu::Genoa, 6.0)] {
        for behind in [CounterSource::Floor, clock("reuse-lazy"), clock("deferred")] {
            for events in [SINGLE, JULY_2021] {
                let mut plan = plan(behind.clone(), events, 300);
                (plan.machine.cpu, plan.machine.pmu) = (cpu, cpu.pmu());
                let vcpu = &whole(&plan);
                assert_eq!(
                    (vcpu.account.counts.deferred, vcpu.account.counts.masked),
                    (0, 0),
                    "a delivery masks nothing"
                );
                if behind == CounterSource::Floor && events == SINGLE {
                    let (calls, pmis) = (vcpu.account.counts.timer_calls, vcpu.account.counts.nmis_injected);
                    // Handlers of this guest end with a write of a running counter, of which some are worth a call.
                    let expected = pmis / 2..=2 * pmis;
                    assert!(expected.contains(&calls), "{cpu:?}: {calls} calls of the timer for {pmis} PMIs");
                }
                let accesses = vcpu.account.msr_exits.iter().map(|line| line.reads + line.writes).sum::<u64>() as f64;
                if events == SINGLE {
                    // A start and an end beside the PMIs.
                    let per_pmi = (accesses - 20.0) / vcpu.account.counts.nmis_injected as f64;
                    assert!((exits - 0.2..exits + 0.3).contains(&per_pmi), "{cpu:?}: {per_pmi:.2} accesses per PMI");
                }
            }
        }
    }
}

/// Overflows seen by a read, and the last ones, may have no latency.
const FEW: u64 = 8;

/// Each overflow's signal has a latency where the time of the overflow is known.
pub(crate) fn signals_have_latencies() {
    for behind in [clock("recreate"), clock("reuse"), clock("gate")] {
        let outcome = run(&plan(behind.clone(), SINGLE, 300));
        let (wall, vcpu) = (outcome.wall, only(outcome));
        let (nmis, sent, signals) =
            (report(&vcpu).nmis, vcpu.account.counts.signals, vcpu.account.host.signal_ns.histogram());
        let seen = signals.len();
        assert!(seen + FEW >= nmis && seen <= sent + FEW, "{behind:?}: {seen} of {nmis} NMIs, {sent} signals");
        // It is part of the time in which the guest was running: the clocks of both sides agree.
        assert!(signals.value_at_quantile(0.5) < u64::try_from(wall.as_nanos()).expect("short") / 300);
    }
}

pub(crate) fn lazy_release() {
    for events in [SINGLE, JULY_2021] {
        let vcpu = &whole(&plan(clock("reuse-lazy"), events, 300));
        assert!(vcpu.account.counts.held_max >= events.len() as u64);
        // The slice in which sampling ended is touched; the next is not, and after it nothing is left.
        let tail = &vcpu.left.held_at_tail_tick;
        assert_eq!(tail.last(), Some(&0), "{tail:?}");
        assert!(vcpu.account.counts.sched_ins >= 2);
    }
}

pub(crate) fn nothing_is_lost() {
    let of_two_vcpus = ["recreate", "reuse-lazy", "deferred"].map(|preset| (clock(preset), 2));
    let all = PRESETS.iter().map(|preset| (clock(preset), 1)).chain(of_two_vcpus);
    for (behind, vcpus) in all.chain([1, 2].map(|vcpus| (CounterSource::Floor, vcpus))) {
        let mut plan = plan(behind, JULY_2021, 400);
        plan.machine.vcpus = vcpus;
        let outcome = run(&plan);
        assert_eq!((&outcome.end, outcome.vcpus.len()), (&End::Done, vcpus));
        outcome.vcpus.iter().for_each(balanced);
    }
}

pub(crate) fn tracepoint() {
    let strategy = Strategy::preset("reuse").expect("a preset");
    let mut plan = plan(CounterSource::Events { backend: userspace_exit(), strategy }, &[gp(0x3c, 50)], 100);
    plan.boot.workload = WORKLOAD_IO;
    let vcpu = &whole(&plan);
    assert_eq!(vcpu.account.host.ops.count(OpKind::Open), 1);
    assert!(report(vcpu).nmis >= 100);
}

pub(crate) fn counting() {
    let mut plan = plan(clock("reuse-lazy"), &[gp(0xc5, 0)], 50);
    plan.boot.flags = guest::abi::FLAG_TASK_SWITCH;
    // Nearly all of the run counts.
    (plan.boot.baseline_ticks, plan.boot.tail_ticks) = (1, 1);
    let before = sys::cpu_ns();
    let vcpu = only(run(&plan));
    let cpu_ns = sys::cpu_ns() - before;
    let report = report(&vcpu);
    assert_eq!((report.nmis, vcpu.account.counts.overflows), (0, 0));
    assert!(report.rotations >= 50);
    // The stand-in counts at the rate of the TSC while its thread has a CPU; it stands still while the driver switches. Trials run
    // one by one, and the vCPU is all that the process does.
    let (counted, ran) = (report.counts[0] as f64, report.running[0] as f64);
    let on_cpu = ran.min(cpu_ns as f64 * vcpu.left.tsc.khz as f64 / 1e6);
    assert!(
        counted > 0.3 * on_cpu && counted < 1.5 * ran,
        "{counted} counts in {ran} ticks, {on_cpu} of them on a CPU"
    );
}

pub(crate) fn frequency_mode() {
    // The guest's time passes while its vCPU has no CPU, and its event then stands still. 50 Hz is 20 ms; with a tenth
    // of a CPU 2 ms.
    let mut plan = plan(clock("reuse-lazy"), SINGLE, 60);
    plan.boot.freq_hz = 50;
    let vcpu = &whole(&plan);
    assert!(report(vcpu).periods[0] > PERIOD, "50 Hz is a longer period than 1 ms: {}", report(vcpu).periods[0]);
}

pub(crate) fn full_log() {
    let mut plan = plan(CounterSource::Floor, SINGLE, 60);
    plan.log_entries = 20;
    let vcpu = &only(run(&plan));
    let report = report(vcpu);
    assert_eq!((vcpu.left.log.len() as u64, report.logged), (20, 20));
    assert_eq!(report.logged + report.dropped, report.nmis);
    assert_eq!(report.nmis, vcpu.account.counts.nmis_injected);
}

pub(crate) fn no_allocation() {
    for preset in ["recreate", "reuse-lazy", "pool"] {
        let allocations = |samples: u64| {
            let mut plan = plan(clock(preset), JULY_2021, samples);
            plan.log_entries = 8192;
            let before = sys::count();
            let outcome = run(&plan);
            assert!(report(&only(outcome)).nmis >= samples);
            sys::count() - before
        };
        allocations(50);
        let (few, many) = (allocations(100), allocations(800));
        // 700 more PMIs are some 10 000 more exits. The main thread's waiting is the only other thing that takes longer.
        assert!(many.abs_diff(few) < 50, "{preset}: {few} allocations with 100 PMIs, {many} with 800");
    }
}

/// No counter of the payload's asks for the mode of a guest's guests, which tracepoints would tell.
pub(crate) fn svm_without_tracepoints() {
    let mut plan = plan(CounterSource::Floor, SINGLE, 20);
    (plan.machine.cpu, plan.machine.pmu) = (Cpu::Milan, PmuCaps::Amd(AmdCaps { svm: true, ..AmdCaps::default() }));
    let host = host();
    let ran = sys::without_files(|| run_on(&host, &plan));
    balanced(&only(ran.expect("a run that begins")));
}

pub(crate) fn too_many_vcpus() {
    let mut plan = plan(CounterSource::Floor, SINGLE, 1);
    plan.machine.vcpus = 100_000;
    let error = run_on(&host(), &plan).expect_err("too many");
    assert!(matches!(error, MachineError::Kvm(_)) && error.to_string().contains("--vcpus"), "{error}");
}
