//! Runs of the project's payload that the tests share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, EventSpec, FLAG_TASK_SWITCH, LOG_NMI, MAX_EVENTS, Report};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use vmm::kvm::Host;
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{CounterSource, Cpu, MachineError, Plan};
use vmm::outcome::{End, RunOutcome, VcpuOutcome};

/// USR, OS and INT of PERFEVTSEL.
const SAMPLING: u64 = 0x13_0000;
/// 1 ms of cycles at 2 GHz.
pub(crate) const PERIOD: u64 = 2_000_000;

/// An event on a general-purpose counter.
pub(crate) const fn gp(code: u64, period: u64) -> EventSpec {
    EventSpec { selector: SAMPLING | code, fixed: 0, period }
}

/// An event that prefers fixed counter `n`.
pub(crate) const fn fixed(n: u64, code: u64, period: u64) -> EventSpec {
    EventSpec { selector: SAMPLING | code, fixed: n + 1, period }
}

/// One sampling event.
pub(crate) const SINGLE: &[EventSpec] = &[gp(0x3c, PERIOD)];

/// The sampling run published for July 2021: two fixed, two general-purpose, one of them rare.
pub(crate) const JULY_2021: &[EventSpec] =
    &[fixed(1, 0x3c, PERIOD), fixed(0, 0xc0, PERIOD * 19 / 16), gp(0x4f2e, PERIOD * 22 / 16), gp(0xc5, PERIOD * 6)];

/// A plan for `samples` NMIs of `events`.
pub(crate) fn plan(behind: CounterSource, events: &[EventSpec], samples: u64) -> PayloadPlan {
    let mut slots = [EventSpec::default(); MAX_EVENTS];
    slots[..events.len()].copy_from_slice(events);
    PayloadPlan {
        machine: Plan {
            behind,
            cpu: Cpu::default(),
            pmu: PmuCaps::default(),
            vcpus: 1,
            pin: Vec::new(),
            time_limit: Duration::from_secs(300),
            sampling: None,
            trace: None,
        },
        log_entries: 2 * samples + 4096,
        boot: BootPage {
            tick_count: 4_000_000,
            baseline_ticks: 2,
            max_ticks: 2500,
            tail_ticks: 6,
            sample_target: samples,
            flags: if events.len() > 1 { FLAG_TASK_SWITCH } else { 0 },
            event_count: events.len() as u64,
            events: slots,
            ..BootPage::default()
        },
        steps: Arc::default(),
    }
}

/// A preset over the CPU clock.
pub(crate) fn clock(preset: &str) -> CounterSource {
    CounterSource::Events { backend: BackendKey::CpuClock, strategy: Strategy::preset(preset).expect("a preset") }
}

/// This host's KVM.
pub(crate) fn host() -> Host {
    Host::open().expect("the trial is skipped without KVM")
}

/// Runs a plan that nobody interrupts.
pub(crate) fn run_on(host: &Host, plan: &PayloadPlan) -> Result<RunOutcome, MachineError> {
    payload::run(host, guest::PMU_PAYLOAD, plan, &AtomicBool::new(false))
}

pub(crate) fn run(plan: &PayloadPlan) -> RunOutcome {
    run_on(&host(), plan).expect("a run that begins")
}

/// The guest's report.
pub(crate) fn report(vcpu: &VcpuOutcome) -> &Report {
    vcpu.left.report.as_deref().expect("the payload wrote its report")
}

/// Every overflow that the VMM saw reached the guest's driver, and every NMI its handler and its log.
pub(crate) fn balanced(vcpu: &VcpuOutcome) {
    let (report, account) = (report(vcpu), &vcpu.account);
    let logged = vcpu.left.log.iter().filter(|entry| entry.kind == LOG_NMI).count() as u64;
    let (counts, deliveries) = (&account.counts, account.deliveries.len() as u64);
    let nmis = [report.nmis, logged, deliveries];
    assert_eq!((&vcpu.end, nmis), (&End::Done, [counts.nmis_injected; 3]), "taken, logged, delivered: {counts:?}");
    assert_eq!(report.overflows.iter().sum::<u64>(), counts.overflows, "overflows on both sides: {counts:?}");
    let faults = account.msr_exits.iter().map(|line| line.faults).sum::<u64>();
    assert_eq!((counts.undeliverable, report.dropped, faults), (0, 0, 0));
}
