//! Runs arms whose guest is Linux: a fresh one for each turn.

use guest::abi::{LOG_NMI, LogEntry, MAGIC, Report};
use host_pmu::backend::BackendKey;
use host_pmu::kernel;
use results::document::{ArmKind, Counts, LinuxArm, Parameters};
use results::error::Error;
use vmm::machine::CounterSource;
use vmm::outcome::{Account, End, PayloadLeft, RunOutcome, TscMap, VcpuOutcome};

use super::session::{Recorded, Shell, carry_out};
use super::task::Task;
use super::trace::Handler;
use crate::arms::arm::counters::behind;
use crate::arms::arm::runner::{Arm, ArmRunner, LinuxTurn, Opened, TurnOutcome};
use crate::engine::Turn;

/// Guest times are in ns: a TSC of 1 GHz.
const KHZ: u64 = 1_000_000;

/// Results of a guest that is over.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its run, without reports and logs.
    pub run: RunOutcome,
    /// RDPMCs that were answered.
    pub rdpmcs: u64,
    /// Complaints on its console: their number, and a line for each kind.
    pub complaints: u64,
    /// The lines.
    pub complained: Vec<String>,
}

/// Boots guests.
pub trait Boots {
    /// Boots a guest with `behind` its counters, hands its agent to `work` once it is up, and waits for its end. The
    /// answer of `work` is part of the result: the guest is ended in any case.
    ///
    /// # Errors
    /// Conditions that make further guests pointless.
    fn boot(
        &mut self,
        behind: CounterSource,
        work: &mut dyn FnMut(&mut dyn Shell) -> Result<(), String>,
    ) -> Result<(Left, Result<(), String>), Error>;

    /// Checks that guests can have an arm's counters.
    ///
    /// # Errors
    /// Says why not.
    fn available(&mut self, arm: &Arm) -> Result<(), String>;
}

/// Runs Linux guests.
#[derive(Debug)]
pub struct LinuxRunner<B> {
    boots: B,
    parameters: Parameters,
    task: Task,
    /// Counts per millisecond of the floor, where the arms beside it do not count at the TSC's rate.
    paced: Option<u64>,
}

impl<B: Boots> LinuxRunner<B> {
    /// Creates a runner of guests of these parameters that do `task`, with strategies on `backend`.
    pub fn new(boots: B, parameters: &Parameters, task: Task, backend: &BackendKey) -> Self {
        let paced = backend.pace(parameters.period);
        Self { boots, parameters: parameters.clone(), task, paced }
    }
}

impl<B: Boots> ArmRunner for LinuxRunner<B> {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        self.boots.available(arm)
    }

    fn run(&mut self, arm: &Arm, _turn: Turn, samples: u64) -> Result<TurnOutcome, Error> {
        let mut recorded = None;
        let mut work = |shell: &mut dyn Shell| {
            recorded = Some(carry_out(shell, &self.task, &self.parameters, samples)?);
            Ok(())
        };
        let (left, worked) = self.boots.boot(behind(arm, self.paced)?, &mut work)?;
        let Left { mut run, rdpmcs, complaints, complained } = left;
        if let Err(why) = worked
            && run.end != End::Stopped
        {
            let ended = if run.end.is_complete() { String::new() } else { format!(" ({})", run.end) };
            run.end = End::Host(format!("{why}{ended}"));
        }
        let recorded = recorded.unwrap_or_default();
        if run.end.is_complete() {
            report(&mut run, &recorded);
            if arm.kind == ArmKind::Kvm && arm.definition.is_some() && created_no_event(&run, &recorded) {
                run.end = End::Host(kernel::PASSED_BY.to_owned());
            }
        }
        let Recorded { trace, records, event_samples, set_up_ns, .. } = recorded;
        let left =
            LinuxArm { perf_records: records, event_samples, trace_lost: trace.lost, rdpmcs, complaints, complained };
        Ok(TurnOutcome { linux: Some(LinuxTurn { left, set_up_ns }), ..run.into() })
    }

    fn open(&mut self, _arm: &Arm, _number: u64, _samples: u64) -> Result<Opened, Error> {
        Err(Error::usage("a Linux guest does not live over several rounds", "", "leave --guest-rounds out"))
    }
}

/// Returns whether the guest's counters served perf though KVM created no event by the kernel module in the guest's life: neither a new
/// one nor a parked one, and none that perf refused.
fn created_no_event(run: &RunOutcome, recorded: &Recorded) -> bool {
    let counted = recorded.trace.handlers.iter().any(|handler| handler.handled > 0) || !recorded.set_up_ns.is_empty();
    let created = |Counts { opens, reused, failed_opens, .. }: Counts| opens + reused + failed_opens;
    counted && run.vcpus.iter().all(|vcpu| created(vcpu.account.counts) == 0)
}

/// Puts what the guest recorded where a payload's report and log are.
fn report(run: &mut RunOutcome, recorded: &Recorded) {
    let last = run.vcpus.len().saturating_sub(1);
    for (cpu, vcpu) in run.vcpus.iter_mut().enumerate() {
        // A guest with a CPU that the machine has not would be wrong in all its figures.
        let handlers: Vec<_> = recorded.trace.handlers.iter().filter(|handler| handler.cpu.min(last) == cpu).collect();
        let work = |of: &[(u64, u64)]| of.get(cpu).copied().unwrap_or_default();
        let ((units_without, ns_without), (units_with, ns_with)) = (work(&recorded.without), work(&recorded.with));
        // Whose CPU the lost entries were is not known.
        let dropped = if cpu == 0 { recorded.trace.lost } else { 0 };
        let mut report = Report {
            magic: MAGIC,
            nmis: handlers.len() as u64,
            nmis_without_status: handlers.iter().filter(|handler| handler.handled == 0).count() as u64,
            logged: handlers.len() as u64,
            dropped,
            baseline_end: ns_without,
            baseline_units: units_without,
            measure_end: ns_with,
            measure_units: units_with,
            ..Report::default()
        };
        report.overflows[0] = handlers.iter().map(|handler| handler.handled).sum();
        vcpu.left.log = handlers.into_iter().map(entry).collect();
        vcpu.left.report = Some(Box::new(report));
        vcpu.left.tsc = TscMap { khz: KHZ, offset: 0, uncertainty: 0 };
    }
}

fn entry(handler: &Handler) -> LogEntry {
    LogEntry {
        kind: LOG_NMI,
        tsc_entry: handler.end_ns.saturating_sub(handler.took_ns),
        tsc_exit: handler.end_ns.max(handler.took_ns),
        status: u64::from(handler.handled > 0),
        rip: 0,
        rearmed: handler.handled,
    }
}

/// Returns a vCPU's part without what its guest recorded.
pub fn vcpu<L>(run: VcpuOutcome<L>, end: End) -> VcpuOutcome {
    let left = PayloadLeft {
        booted: None,
        report: None,
        log: Vec::new(),
        tsc: TscMap::default(),
        held_at_tail_tick: Vec::new(),
    };
    let account = Account { deliveries: Vec::new(), ..run.account };
    VcpuOutcome { end, left, account, steps: run.steps }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host_pmu::strategy::Apply;

    use super::super::session::tests::Fake;
    use super::*;
    use crate::arms::fold::arm::ArmFold;
    use crate::arms::rounds::mock;
    use results::metric::NMI_HANDLER;

    /// Guests whose agent is a fake; their vCPU took three NMIs.
    struct FakeBoots {
        fails: &'static str,
        end: End,
        booted: Vec<CounterSource>,
        opens: u64,
    }

    impl Boots for FakeBoots {
        fn boot(
            &mut self,
            behind: CounterSource,
            work: &mut dyn FnMut(&mut dyn Shell) -> Result<(), String>,
        ) -> Result<(Left, Result<(), String>), Error> {
            self.booted.push(behind);
            let worked = work(&mut Fake { fails: self.fails, ..Fake::default() });
            let mut run = mock::outcome(vec![mock::vcpu(3, 100)]);
            run.end = self.end.clone();
            run.vcpus[0].left.report = None;
            let counts = &mut run.vcpus[0].account.counts;
            (counts.opens, counts.reused, counts.failed_opens) = (self.opens, 0, 0);
            Ok((Left { run, rdpmcs: 5, complaints: 1, complained: vec!["Uhhuh: 1".to_owned()] }, worked))
        }

        fn available(&mut self, _arm: &Arm) -> Result<(), String> {
            Ok(())
        }
    }

    type Ran = (RunOutcome, LinuxTurn, Vec<CounterSource>);

    fn ran(fails: &'static str, end: End) -> Ran {
        ran_as(fails, end, Arm::clone, 1)
    }

    fn ran_as(fails: &'static str, end: End, of: fn(&Arm) -> Arm, opens: u64) -> Ran {
        let plan = mock::plan(&[]).unwrap();
        let boots = FakeBoots { fails, end, booted: Vec::new(), opens };
        let task = Task::Record { events: Vec::new(), freq_hz: None, limit: Duration::from_secs(1) };
        let mut runner = LinuxRunner::new(boots, &plan.parameters, task, &plan.backend);
        let outcome = runner.run(&of(&plan.arms[0]), Turn::default(), 3).unwrap();
        (outcome.run, outcome.linux.unwrap(), runner.boots.booted)
    }

    #[test]
    fn a_guests_trace_is_the_arms_histogram() {
        let (run, left, booted) = ran("", End::Done);
        assert!(matches!(booted[..], [CounterSource::Events { .. }]));
        assert_eq!((left.left.records("SAMPLE"), left.left.rdpmcs, left.left.complaints), (3, 5, 1));
        let plan = mock::plan(&[]).unwrap();
        let mut fold = ArmFold::new(&plan.arms[0], true).without_deliveries();
        fold.add(Turn::default(), &TurnOutcome { linux: Some(left.clone()), ..run.clone().into() });
        let arm = fold.result();
        let handler = arm.metric(&NMI_HANDLER).unwrap();
        assert_eq!((handler.count, handler.min), (2, Some(4000)), "the third handled nothing");
        assert_eq!(
            (arm.own.counts.nmis, arm.own.counts.nmis_without_status, arm.own.counts.guest_overflows),
            (3, 1, 3)
        );
        assert_eq!((arm.own.lost, arm.own.overflows_lost, arm.own.counts.delivery_unmatched), (Some(0), Some(0), 0));
        assert!((arm.own.workload.unwrap().slowdown - 1.0).abs() < 1e-9);
        assert_eq!(arm.own.linux.unwrap().complained, ["Uhhuh: 1"]);
        assert!(arm.incomplete.is_empty());
    }

    #[test]
    fn a_guest_that_fails_says_why() {
        let end = |end| ran("record", end).0.end.to_string();
        assert!(end(End::Done).contains("no such event"), "{}", end(End::Done));
        assert!(end(End::TimedOut).ends_with("no such event (the time limit passed)"), "{}", end(End::TimedOut));
        assert_eq!(end(End::Stopped), End::Stopped.to_string(), "the user's interruption");
    }

    #[test]
    fn a_guest_whose_events_pass_the_module_by_is_told() {
        let below = |arm: &Arm| {
            let stock = kernel::preset("stock", Apply::Deferred).unwrap();
            let definition = Some(toml::to_string(&stock).unwrap());
            Arm { strategy: "kvm:stock".to_owned(), kind: ArmKind::Kvm, definition, ..arm.clone() }
        };
        let end = |of: fn(&Arm) -> Arm, opens| ran_as("", End::Done, of, opens).0.end;
        assert_eq!((end(below, 2), end(below, 0)), (End::Done, End::Host(kernel::PASSED_BY.to_owned())));
        let kvm = |arm: &Arm| Arm { kind: ArmKind::Kvm, definition: None, ..arm.clone() };
        assert_eq!(end(kvm, 0), End::Done, "of KVM as it is nothing is counted");
    }
}
