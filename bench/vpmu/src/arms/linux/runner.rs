//! Runs arms whose guest is Linux: a fresh one for each turn.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use guest::abi::{LogEntry, MAGIC, Report};
use host_pmu::kernel;
use results::document::{ArmKind, Counts, LinuxArm, LinuxParameters, Parameters};
use results::error::Error;
use vmm::boot::linux::Kernel;
use vmm::kvm::{Host, linux_refusal};
use vmm::machine::Plan as Machine;
use vmm::machine::linux::{LinuxPlan, PcOutcome};
use vmm::outcome::{Account, End, PayloadLeft, RunOutcome, TscMap, VcpuOutcome};

use super::perf;
use super::session::{FTEST, PERF, Recorded, carry_out, command};
use super::spec::LinuxGuestOptions;
use crate::arms::arm::real;
use crate::arms::arm::runner::{Arm, ArmGuests, Runner, TurnOutcome};
use crate::arms::rounds::plan::Plan;
use crate::engine::Turn;
use crate::machine::linux::guest::{Failure, Worked, with_agent};
use crate::machine::linux::place::Placed;
use crate::machine::linux::userland;
use crate::machine::rdpmcs_elsewhere;
use crate::setting::backend::open_kvm;
use crate::setting::program::perf_version;
use crate::sys;

/// Guest times are in ns: a TSC of 1 GHz.
const KHZ: u64 = 1_000_000;
/// Time for a kernel to come up.
const BOOT: Duration = Duration::from_secs(300);
/// A guest is ended after this time: perf alone may take minutes on an emulated host.
const LONGEST: Duration = Duration::from_secs(1800);

/// Runs guests of one kernel with one userland: reads the kernel and makes the initial RAM disk. What the document says of the guest is
/// added to the plan.
///
/// # Errors
/// Exit 2 for a kernel or a perf that cannot be used, 4 where this host cannot boot Linux.
pub fn runner(options: &LinuxGuestOptions, plan: &mut Plan) -> Result<Runner, Error> {
    real::raise_limits();
    linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
    let host = open_kvm()?;
    let path = options.kernel.as_deref().unwrap_or(Path::new(""));
    let (kernel, boot) = (userland::kernel(path)?, &options.boot);
    let perf = perf::find(&options.perf, std::env::var_os("PATH").as_deref())?;
    let version = perf_version(&perf).map_err(|why| {
        Error::usage(format!("cannot run {}", perf.display()), why, "name a perf of this host with --perf")
    })?;
    let perf = Placed { host: perf, guest: Some(PERF.to_owned()) };
    let mut files = userland::initramfs((path, kernel.release()), boot, &[], &[perf])?;
    files
        .file(FTEST, 0o755, guest::FTEST)
        .map_err(|error| Error::usage("cannot put the workload into the guest", error.to_string(), ""))?;
    plan.parameters.linux = Some(LinuxParameters {
        release: Some(kernel.release().to_owned()),
        cpu: plan.guest.machine.cpu.name().to_owned(),
        perf: version,
        memory: boot.memory,
        command: command(&plan.parameters, plan.parameters.samples).join(" "),
    });
    let guest_plan = boot.plan(Machine { time_limit: LONGEST, ..plan.guest.machine.clone() }, files)?;
    let shared = Rc::new(Shared { host, kernel, plan: guest_plan, parameters: plan.parameters.clone() });
    Ok(Box::new(move |arm| {
        arm.available(&shared.host, shared.plan.machine.cpu)?;
        Ok(Box::new(LinuxGuests { shared: Rc::clone(&shared), arm }))
    }))
}

/// All guests share this.
struct Shared {
    host: Host,
    kernel: Kernel,
    /// The machine, without what stands behind an arm's counters.
    plan: LinuxPlan,
    /// The document records these.
    parameters: Parameters,
}

/// The guests of an arm: a fresh one for each turn.
struct LinuxGuests<'a> {
    shared: Rc<Shared>,
    arm: &'a Arm,
}

impl ArmGuests for LinuxGuests<'_> {
    fn turn(&mut self, _: Turn, samples: u64) -> Result<TurnOutcome, Error> {
        let (arm, Shared { host, kernel, plan, parameters }) = (self.arm, &*self.shared);
        let behind = arm.source(&plan.machine.behind)?;
        let plan = LinuxPlan { machine: Machine { behind, ..plan.machine.clone() }, ..plan.clone() };
        let Worked { mut outcome, made, .. } =
            with_agent(host, kernel.clone(), plan, BOOT, |agent, _| carry_out(agent, parameters, samples))?;
        if outcome.end == End::Stopped && !sys::stopped() {
            // Nobody else stopped it: why its work failed says more.
            outcome.end = End::Done;
        }
        Ok(turn_of(arm, outcome, made.map_err(|Failure { what, why, .. }| format!("{what}: {why}"))))
    }
}

/// The turn of a guest that is over and what was recorded in it, or why nothing was.
fn turn_of(arm: &Arm, outcome: PcOutcome, worked: Result<Recorded, String>) -> TurnOutcome {
    let PcOutcome { end, vcpus, complaints, wall, .. } = outcome;
    let end = if end == End::PowerOff { End::Done } else { end };
    let (mut whole, recorded) = match worked {
        Ok(recorded) => (end.clone(), recorded),
        Err(_) if end == End::Stopped => (End::Stopped, Recorded::default()),
        Err(why) if end.is_complete() => (End::Host(why), Recorded::default()),
        Err(why) => (End::Host(format!("{why} ({end})")), Recorded::default()),
    };
    let sum = |of: fn(&Counts) -> u64| vcpus.iter().map(|vcpu| of(&vcpu.account.counts)).sum::<u64>();
    let elsewhere = sum(|counts| counts.rdpmcs_elsewhere);
    // New events, and those that perf refused.
    let events = sum(|counts| counts.opens + counts.failed_opens);
    let mut complained = complaints.lines();
    complained.extend((elsewhere > 0).then(|| rdpmcs_elsewhere(elsewhere)));
    let (count, is_complete) = (vcpus.len(), whole.is_complete());
    let vcpus = vcpus.into_iter().enumerate().map(|(cpu, vcpu)| {
        let account = Account { deliveries: Vec::new(), ..vcpu.account };
        VcpuOutcome { end: end.clone(), left: left((cpu, count), &recorded, is_complete), account, steps: vcpu.steps }
    });
    let vcpus = vcpus.collect();
    // The guest's counters served perf, and KVM created no event by the kernel module in the guest's life.
    let counted = recorded.trace.handlers.iter().any(|(_, entry)| entry.rearmed > 0);
    if is_complete && counted && events == 0 && arm.kind == ArmKind::Kvm && arm.definition.is_some() {
        whole = End::Host(kernel::PASSED_BY.to_owned());
    }
    let left = LinuxArm {
        perf_records: recorded.records,
        trace_lost: recorded.trace.lost,
        complaints: complaints.grave() + elsewhere,
        complained,
    };
    let run = RunOutcome { end: whole, vcpus, wall, start: Duration::ZERO };
    TurnOutcome { linux: Some(left), ..run.into() }
}

/// Puts what the guest recorded of a CPU where a payload's report and log are.
fn left((cpu, cpus): (usize, usize), recorded: &Recorded, is_complete: bool) -> PayloadLeft {
    if !is_complete {
        return PayloadLeft::default();
    }
    // A guest with a CPU that the machine has not would be wrong in all its figures.
    let handlers = recorded.trace.handlers.iter().filter(|(of, _)| (*of).min(cpus - 1) == cpu);
    let log: Vec<LogEntry> = handlers.map(|(_, entry)| *entry).collect();
    let mut report = Report {
        magic: MAGIC,
        nmis: log.len() as u64,
        nmis_without_status: log.iter().filter(|entry| entry.rearmed == 0).count() as u64,
        logged: log.len() as u64,
        // Whose CPU the lost entries were is not known.
        dropped: if cpu == 0 { recorded.trace.lost } else { 0 },
        ..Report::default()
    };
    report.overflows[0] = log.iter().map(|entry| entry.rearmed).sum();
    let tsc = TscMap { khz: KHZ, offset: 0, uncertainty: 0 };
    PayloadLeft { report: Some(Box::new(report)), log, tsc, ..PayloadLeft::default() }
}

#[cfg(test)]
mod tests {
    use guest::abi::LOG_NMI;
    use host_pmu::strategy::Apply;
    use results::metric::NMI_HANDLER;

    use vmm::devices::oops::Watch;
    use vmm::machine::linux::{Faults, Output};

    use super::super::trace::Trace;
    use super::*;
    use crate::arms::fold::arm::{ArmFold, Checks};
    use crate::arms::rounds::mock;

    const BAD: Result<Recorded, &str> = Err("no such event");

    fn recorded() -> Recorded {
        let of = |end, took, rearmed| {
            (0, LogEntry { kind: LOG_NMI, tsc_entry: end - took, tsc_exit: end, rearmed, ..LogEntry::default() })
        };
        let handlers = vec![of(10_000, 4000, 2), of(30_000, 90, 0), of(90_000, 5000, 1)];
        let records = [("SAMPLE".to_owned(), 3)].into();
        Recorded { trace: Trace { handlers, lost: 0 }, records }
    }

    /// The turn of a guest whose vCPU took three NMIs.
    fn turn(arm: &Arm, end: End, opens: u64, worked: Result<Recorded, &str>) -> TurnOutcome {
        let VcpuOutcome { mut account, steps, .. } = mock::vcpu(3, 100);
        (account.counts.opens, account.counts.reused, account.counts.failed_opens) = (opens, 0, 0);
        let mut watch = Watch::default();
        watch.read(b"[   99.000000] Dazed and confused, but trying to continue\n");
        let outcome = PcOutcome {
            vcpus: vec![VcpuOutcome { end: end.clone(), left: <_>::default(), account, steps }],
            end,
            rewritten: 1,
            console: Output { error: None, dropped: 0 },
            complaints: watch.finish(),
            channel: Faults::default(),
            wall: Duration::from_secs(1),
        };
        turn_of(arm, outcome, worked.map_err(str::to_owned))
    }

    fn arm() -> Arm {
        mock::plan(&[]).unwrap().arms.swap_remove(0)
    }

    #[test]
    fn a_guests_trace_is_the_arms_histogram() {
        let turn = turn(&arm(), End::PowerOff, 1, Ok(recorded()));
        let left = turn.linux.as_ref().unwrap();
        assert_eq!((left.perf_records["SAMPLE"], left.complaints), (3, 1));
        let checks = Checks { overflows: true, periods: false, deliveries: false };
        let mut fold = ArmFold::new(&arm(), true, checks);
        fold.add(Turn::default(), &turn);
        let arm = fold.result();
        let handler = arm.metric(&NMI_HANDLER).unwrap();
        assert_eq!((handler.count, handler.min), (2, Some(4000)), "the third handled nothing");
        assert_eq!(
            (arm.own.counts.nmis, arm.own.counts.nmis_without_status, arm.own.counts.guest_overflows),
            (3, 1, 3)
        );
        assert_eq!((arm.own.lost, arm.own.overflows_lost, arm.own.counts.delivery_unmatched), (Some(0), Some(0), 0));
        assert!(arm.own.linux.unwrap().complained[0].contains("Dazed") && arm.incomplete.is_empty());
    }

    #[test]
    fn a_guest_says_why_it_failed_also_when_its_events_pass_the_module_by() {
        let stock = toml::to_string(&kernel::preset("stock", Apply::Deferred).unwrap()).unwrap();
        let below = Arm { kind: ArmKind::Kvm, definition: Some(stock), ..arm() };
        let kvm = Arm { definition: None, ..below.clone() };
        for (arm, end, opens, worked, expected) in [
            (arm(), End::Done, 1, BAD, End::Host("no such event".to_owned())),
            (arm(), End::TimedOut, 1, BAD, End::Host("no such event (the time limit passed)".to_owned())),
            (arm(), End::Stopped, 1, BAD, End::Stopped),
            (below.clone(), End::Done, 2, Ok(recorded()), End::Done),
            (below, End::Done, 0, Ok(recorded()), End::Host(kernel::PASSED_BY.to_owned())),
            // KVM without the module counts no opens: that there are none says nothing.
            (kvm, End::Done, 0, Ok(recorded()), End::Done),
        ] {
            assert_eq!(turn(&arm, end, opens, worked).run.end, expected);
        }
    }
}
