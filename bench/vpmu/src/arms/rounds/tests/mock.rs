//! A runner without guests, for tests: outcomes made by a function of arm and round.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guest::abi::{LOG_NMI, LogEntry, MAGIC, Report};
use host_pmu::stats::{OpKind, OpStats, ns_histogram};
use vmm::outcome::{Account, End, HostSide, MsrExits, PayloadLeft, RunOutcome, TscMap, VcpuOutcome};

use crate::arms::arm::runner::{ArmGuests, Runner, TurnOutcome};
use crate::arms::rounds::options::HostOptions;
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::run::run;
use crate::engine::{Context, Measured, Turn};
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::setting::backend::Chosen;
use crate::setting::parse::options;
use crate::terminal::progress::Silent;
use results::document::{ArmKind, Counts, Document};
use results::error::Error;
use results::host::HostFacts;
use trials::hosts;

/// 2 GHz: two ticks per ns.
pub(crate) const KHZ: u64 = 2_000_000;
/// Guest TSC − host TSC.
pub(crate) const OFFSET: i64 = -1_000_000;

/// Returns a vCPU that took `nmis` NMIs of `handler_ns` each, 500 ns after delivery, and lost nothing.
pub(crate) fn vcpu(nmis: u64, handler_ns: u64) -> VcpuOutcome {
    let entry = |k: u64| 10_000_000 + k * 2_000_000;
    let mut report = Report {
        magic: MAGIC,
        nmis,
        logged: nmis,
        baseline_begin: 0,
        baseline_end: 80_000_000,
        baseline_units: 40_000,
        measure_begin: 80_000_000,
        measure_end: 280_000_000,
        measure_units: 50_000,
        ..Report::default()
    };
    report.overflows[0] = nmis;
    let mut ops = OpStats::default();
    ops.record(OpKind::Open, 30_000);
    let mut exit_path_ns = ns_histogram();
    exit_path_ns.saturating_record(250);
    let log = (0..nmis).map(|k| LogEntry {
        kind: LOG_NMI,
        tsc_entry: entry(k),
        tsc_exit: entry(k) + handler_ns * 2,
        status: 1,
        rip: 0x40_0000,
        rearmed: 1,
    });
    VcpuOutcome {
        end: End::Done,
        left: PayloadLeft {
            booted: None,
            report: Some(Box::new(report)),
            log: log.collect(),
            tsc: TscMap { khz: KHZ, offset: OFFSET, uncertainty: 100 },
            held_at_tail_tick: vec![3, 0],
        },
        account: Account {
            counts: Counts {
                overflows: nmis,
                pmi_requests: nmis,
                pmis: nmis,
                nmis_injected: nmis,
                signals: nmis,
                opens: ops.count(OpKind::Open),
                held_max: 7,
                held_ns: 300,
                time_ns: 100,
                entries: 10,
                held_at_end: 1,
                ..Counts::default()
            },
            host: HostSide { ops, ..HostSide::default() },
            msr_exits: vec![MsrExits { msr: 0x38f, reads: 0, writes: 2 * nmis, faults: 0 }],
            deliveries: (0..nmis).map(|k| entry(k) - 1000 + OFFSET.unsigned_abs()).collect(),
            exit_path_ns,
            phases: <_>::default(),
            turned_on: 0,
        },
        steps: None,
    }
}

/// Returns a run of these vCPUs.
pub(crate) fn outcome(vcpus: Vec<VcpuOutcome>) -> RunOutcome {
    let end = vcpus.iter().map(|vcpu| vcpu.end.clone()).find(|end| !end.is_complete()).unwrap_or(End::Done);
    RunOutcome { end, vcpus, wall: Duration::from_millis(5), start: Duration::from_millis(2) }
}

/// A turn that a mock is asked for: of a guest that is kept alive its number, and the number of the turn in its life.
pub(crate) struct Call<'a> {
    pub(crate) arm: &'a str,
    pub(crate) guest: Option<u64>,
    pub(crate) turn: u64,
    pub(crate) warmup: bool,
}

type Change = Rc<dyn Fn(&Call<'_>, &mut VcpuOutcome)>;

/// Runs guests whose turns end well, but for what is changed, and notes what it was asked for. One that is stopped was the user's
/// to stop.
#[derive(Clone)]
pub(crate) struct MockRunner {
    change: Change,
    pub(crate) absent: Vec<ArmKind>,
    /// Turns, and events in the lives of guests that are kept alive, in order.
    pub(crate) asked: Rc<RefCell<Vec<String>>>,
    stop: Rc<AtomicBool>,
}

impl MockRunner {
    /// Creates a runner with a change of each turn's vCPU; `recreate` takes twice as long as the others.
    pub(crate) fn changed(change: impl Fn(&Call<'_>, &mut VcpuOutcome) + 'static) -> Self {
        Self { change: Rc::new(change), absent: vec![ArmKind::Kvm], asked: <_>::default(), stop: <_>::default() }
    }

    fn note(&self, what: String) {
        self.asked.borrow_mut().push(what);
    }

    pub(crate) fn runner(&self) -> Runner {
        let of = self.clone();
        Box::new(move |arm| {
            if of.absent.contains(&arm.kind) {
                return Err("the mock has no vPMU of its own".to_owned());
            }
            Ok(Box::new(MockGuests { of: of.clone(), name: &arm.strategy, live: None }))
        })
    }
}

/// The guests of an arm of [`MockRunner`].
struct MockGuests<'a> {
    of: MockRunner,
    name: &'a str,
    /// Number of the guest that lives, and of its turns so far.
    live: Option<(u64, u64)>,
}

impl ArmGuests for MockGuests<'_> {
    fn open(&mut self, number: u64, _samples: u64) -> Result<Option<RunOutcome>, Error> {
        self.of.note(format!("{} {number} opens", self.name));
        self.live = Some((number, 0));
        Ok(Some(outcome(vec![vcpu(0, 0)])))
    }

    fn turn(&mut self, at: Turn, samples: u64) -> Result<TurnOutcome, Error> {
        let Self { of, name, live } = self;
        let turn = live.map_or(at.index, |(_, turns)| turns);
        of.note(match live {
            Some((number, turns)) => format!("{name} {number}.{turns}"),
            None => format!("{name} {}{turn} at {}", if at.warmup { "w" } else { "" }, at.position),
        });
        let mut vcpu = vcpu(samples, if *name == "recreate" { 2000 } else { 1000 });
        (of.change)(&Call { arm: name, guest: live.map(|live| live.0), turn, warmup: at.warmup }, &mut vcpu);
        of.stop.fetch_or(vcpu.end == End::Stopped, Ordering::Relaxed);
        *live = live.filter(|_| vcpu.end.is_complete()).map(|(number, turns)| (number, turns + 1));
        Ok(outcome(vec![vcpu]).into())
    }

    fn close(&mut self) -> Result<Option<RunOutcome>, Error> {
        let Some((number, _)) = self.live.take() else { return Ok(None) };
        self.of.note(format!("{} {number} closes", self.name));
        let mut vcpu = vcpu(0, 0);
        vcpu.left.held_at_tail_tick = vec![2, 1];
        Ok(Some(outcome(vec![vcpu])))
    }
}

/// Runs a plan on the development-host fixture; each save is noted.
pub(crate) fn experiment(plan: &Plan, runner: &MockRunner) -> Result<Measured, Error> {
    let (_dir, fs) = hosts::tree(&hosts::PVM);
    let context = Context {
        stop: &runner.stop,
        fs: &fs,
        host: HostFacts::read(&fs),
        command_line: &["vpmu".to_owned()],
        progress: &mut Silent,
        save: &mut |document: &Document| {
            runner.note(format!("saved {}", document.arms[0].rounds.len()));
            Ok(())
        },
    };
    run(plan, &runner.runner(), context)
}

/// Options of a plan.
#[derive(clap::Args)]
struct Line {
    #[command(flatten)]
    spec: NmiLatencySpec,
    #[command(flatten)]
    host: HostOptions,
}

/// Returns a plan of these options, on cpu-clock.
pub(crate) fn plan(line: &[&str]) -> Result<Plan, Error> {
    let usual = ["--rounds", "10", "--samples", "800"];
    let Line { spec, host } = options(&[&usual[..], line].concat()).unwrap();
    let chosen = Chosen::here(host_pmu::backend::BackendKey::CpuClock, "test".into());
    let mut plan = spec.plan(&PAYLOAD, &host, &chosen, Some(&[0, 1, 2, 3]))?;
    plan.parameters.rounds_per_guest = None;
    Ok(plan)
}

/// Returns the document of a finished experiment of these options, 40 samples a round unless they say otherwise.
pub(crate) fn finished(line: &[&str]) -> Document {
    let plan = plan(&[&["--samples", "40"], line].concat()).unwrap();
    experiment(&plan, &MockRunner::changed(|_, _| ())).unwrap().0
}
