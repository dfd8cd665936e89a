//! Makes a checked plan of arms and rounds from a specification.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use cpu_list::CpuList;
use guest::abi::{BootPage, EventSpec, FLAG_REPLAY, MAX_EVENTS, PMI_WAIT_US};
use host_pmu::backend::BackendKey;
use host_pmu::stats::ns;
use results::document::{ArmKind, BELOW_KVM, EventParameter, KVM_ARMS, Parameters, REPLAY, StrategyParameter, kvm_arm};
use results::error::Error;
use results::host::HostFs;
use results::paired::narrowest;
use results::table::layout::percent;
use sim::guest::Timer;
use sim::model::Model;
use trace::read::Trace;
use vmm::machine::payload::PayloadPlan;
use vmm::machine::{self, CounterSource, Cpu};

use super::options::{ArmsOptions, HostOptions, LengthOptions, OPEN_ENDED};
use crate::arms::arm::play;
use crate::arms::arm::real::RealRunner;
use crate::arms::arm::replay::{Parts, ReplayRunner};
use crate::arms::arm::runner::{Arm, ArmRunner};
use crate::arms::arm::sim::SimRunner;
use crate::engine::Rounds;
use crate::setting::backend::Chosen;
use crate::setting::strategy::resolve_arms;
use crate::setting::workload::{Workload, event_spec};

/// Guest time without counters before the measured phase.
const BASELINE: Duration = Duration::from_millis(40);
/// Ticks of the tail: the first ends the last turn the guest sampled in, the others show what lazy release left.
const TAIL_TICKS: u64 = 4;
/// Most vCPUs a payload has room for; KVM's own limit is checked when the VM is made.
const MAX_VCPUS: u64 = guest::abi::MAX_VCPUS as u64;
/// Most samples of a round over all vCPUs: each is a log entry of 48 bytes in guest memory.
const MAX_LOG: u64 = 20_000_000;
/// Most samples of a warm-up run.
const WARMUP_SAMPLES: u64 = 500;
/// Rounds by default in which an arm's guest lives on: starts take little of the run, and layouts of single guests are averaged.
const ROUNDS_PER_GUEST: u64 = 20;

/// The guest's part in an experiment: its work, and the events that its driver programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTask {
    /// Event set and guest work.
    pub workload: Workload,
    /// The events.
    pub events: Vec<EventParameter>,
    /// `FLAG_*` bits of the boot page.
    pub flags: u64,
    /// The sampling period that the events' periods are made from; 0 if they only count.
    pub period: u64,
    /// Sampling frequency, if the guest adjusts periods.
    pub freq_hz: Option<u64>,
}

/// A checked plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment's name in documents.
    pub experiment: &'static str,
    /// Strategies in the order given, then the floor, then `kvm`.
    pub arms: Vec<Arm>,
    /// The backend of the strategies' arms; never `auto`.
    pub backend: BackendKey,
    /// Plan that the guests of all arms have in common. An arm's counters, and its samples and log, are those of each run.
    pub guest: PayloadPlan,
    /// True if time is that of simulated guests, not this host's.
    pub simulated: bool,
    /// The timer of simulated guests.
    pub timer: Timer,
    /// True if it ends once the order of the strategies is sure.
    pub until_order: bool,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Rounds, samples and bounds, as the result document has them.
    pub parameters: Parameters,
    /// The trace that is replayed on a model, if one is.
    pub replayed: Option<Parts>,
}

impl Plan {
    /// Returns the runner of its arms on this host.
    ///
    /// # Errors
    /// Exit 4 where this host cannot run guests.
    pub fn on_this_host(&self) -> Result<RealRunner, Error> {
        RealRunner::new(&self.guest, &self.backend, self.parameters.period, self.keeps_guests())
    }

    /// Returns the runner of its arms on hosts of a model.
    ///
    /// # Errors
    /// Exit 2 for parameters that a simulated host does not have.
    pub fn on_model(&self, model: Model) -> Result<Box<dyn ArmRunner>, Error> {
        if let Some(parts) = &self.replayed {
            return Ok(Box::new(ReplayRunner::new(parts, model, self.seed)));
        }
        let runner = SimRunner::new(model, &self.guest, self.parameters.period, self.seed)?;
        Ok(Box::new(runner.with(self.parameters.cpus, self.timer)))
    }

    /// Makes the plan of these options, and checks what cannot be checked value by value. `usable` are the CPUs that
    /// this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for options that contradict each other or the host.
    pub fn new(
        experiment: &'static str,
        (arms, length, host): (&ArmsOptions, &LengthOptions, &HostOptions),
        task: GuestTask,
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Self, Error> {
        let strategies = resolve_arms(&arms.strategy)?;
        let pin = host.behind.pin.clone().unwrap_or_default().cpus(arms.guest.vcpus, usable)?;
        check(arms, chosen.simulated)?;
        let least = narrowest();
        if let Some(share) = length.until_ci.filter(|share| !chosen.simulated && *share < least) {
            let what = format!("--until-ci {}% cannot be met by one run", percent(share));
            let why = format!("runs differ: a ratio to the floor is known to ± {:.2} % at best", 100.0 * least);
            return Err(Error::usage(what, why, "take 1%, or compare several runs (vpmu compare)"));
        }
        let backend = chosen.backend.clone();
        let alone = if chosen.shares_first { 1 } else { ROUNDS_PER_GUEST };
        let rounds_per_guest = length.guest_rounds.unwrap_or(alone);
        let (rounds, duration) = length.rounds(arms, chosen.simulated);
        let tick_ns = ns(arms.mux_interval);
        let ticks = |time: Duration| (ns(time) / tick_ns.max(1)).max(1);
        let (baseline_ticks, max_ticks) = (ticks(BASELINE), ticks(arms.time_limit));
        let mut events = [EventSpec::default(); MAX_EVENTS];
        for (slot, event) in events.iter_mut().zip(&task.events) {
            *slot = event_spec(event);
        }
        let mut parameters = Parameters {
            strategies: strategies.clone(),
            backend_requested: host.behind.backend.to_string(),
            backend: backend.to_string(),
            backend_why: chosen.why.clone(),
            workload: task.workload.to_string(),
            period: task.period,
            freq_hz: task.freq_hz,
            mux_interval_ns: tick_ns,
            vcpus: arms.guest.vcpus,
            cpus: None,
            altered: BTreeMap::new(),
            pin: (!pin.is_empty()).then(|| CpuList(pin.clone()).to_string()),
            rounds,
            rounds_per_guest: (rounds_per_guest > 1).then_some(rounds_per_guest),
            until_ci: length.until_ci,
            quick: length.quick,
            samples: arms.samples,
            warmup_samples: arms.samples.div_ceil(4).min(WARMUP_SAMPLES),
            warmup_rounds: arms.warmup,
            duration_ns: duration.map(ns),
            time_limit_ns: ns(arms.time_limit),
            cpu: String::new(),
            pmu_version: 0,
            gp_counters: 0,
            fixed_counters: 0,
            baseline_ticks,
            tail_ticks: TAIL_TICKS,
            set_up: None,
            linux: None,
            events: task.events,
        };
        describe(&mut parameters, host.cpu, host.cpu.pmu());
        let guest = PayloadPlan {
            machine: machine::Plan {
                behind: CounterSource::Floor,
                cpu: host.cpu,
                pmu: host.cpu.pmu(),
                vcpus: arms.guest.vcpus as usize,
                pin,
                // Ticks merge while a handler takes longer than one, so the guest's own end may come late.
                time_limit: arms.time_limit * 2 + arms.mux_interval * 16 + Duration::from_secs(5),
                sampling: None,
                trace: None,
            },
            log_entries: 0,
            boot: BootPage {
                workload: task.workload.work.abi(),
                flags: task.flags,
                // Ticks of KVM's LAPIC timer, which runs at 1 GHz and has 32 bits.
                tick_count: tick_ns.min(u32::MAX.into()),
                baseline_ticks,
                max_ticks,
                tail_ticks: TAIL_TICKS,
                freq_hz: task.freq_hz.unwrap_or(0),
                event_count: parameters.events.len().min(MAX_EVENTS) as u64,
                events,
                ..BootPage::default()
            },
            steps: Arc::default(),
        };
        let (arms, seed) = (arms_of(strategies, &backend), arms.seed.seed);
        Ok(Self {
            experiment,
            arms,
            backend,
            guest,
            simulated: false,
            timer: Timer::default(),
            until_order: false,
            seed,
            parameters,
            replayed: None,
        })
    }

    /// Makes its guests play a trace back, in place of a workload.
    ///
    /// # Errors
    /// Exit 2: as of [`play::played`].
    pub fn play(&mut self, trace: &Trace) -> Result<(), Error> {
        let (cpu, pmu, steps) = play::played(trace)?;
        self.of_trace(&trace.name(), cpu, pmu);
        let (machine, boot) = (&mut self.guest.machine, &mut self.guest.boot);
        // A PMI that does not come is waited for.
        let waits = self.parameters.samples.saturating_mul(PMI_WAIT_US);
        machine.time_limit = machine.time_limit.saturating_add(Duration::from_micros(waits));
        (boot.flags, boot.event_count) = (FLAG_REPLAY, 0);
        boot.limit_us = self.parameters.time_limit_ns / 1000;
        self.guest.steps = steps;
        Ok(())
    }

    /// Makes it the replay of a trace on a model, a round for each part: one guest, from the trace's begin to its end.
    pub fn replay(&mut self, parts: &Parts) {
        self.of_trace(&parts.trace.name(), parts.cpu, parts.pmu);
        self.parameters.rounds = parts.rounds;
        self.parameters.rounds_per_guest = Some(parts.rounds);
        self.parameters.samples = parts.samples / parts.rounds;
        self.parameters.warmup_rounds = 0;
        // A part is not the whole.
        (self.until_order, self.parameters.duration_ns) = (false, None);
        self.replayed = Some(parts.clone());
    }

    fn of_trace(&mut self, name: &str, cpu: Cpu, pmu: PmuCaps) {
        self.parameters.workload = format!("{REPLAY}{name}");
        (self.parameters.events, self.parameters.period) = (Vec::new(), 0);
        describe(&mut self.parameters, cpu, pmu);
        (self.guest.machine.cpu, self.guest.machine.pmu) = (cpu, pmu);
    }

    /// Returns its rounds.
    pub(super) fn rounds(&self) -> Rounds {
        Rounds {
            rounds: self.parameters.rounds,
            warmup: self.parameters.warmup_rounds,
            session: self.keeps_guests().then(|| self.rounds_per_guest()),
            duration: self.duration(),
            seed: self.seed,
            simulated: self.simulated,
        }
    }

    /// Returns whether something else than the number of rounds ends it.
    pub const fn is_open_ended(&self) -> bool {
        self.parameters.rounds >= OPEN_ENDED
    }

    /// Returns the bound on the whole experiment.
    pub fn duration(&self) -> Option<Duration> {
        self.parameters.duration_ns.map(Duration::from_nanos)
    }

    /// Returns the rounds that count in which an arm's guest lives on; 1: each turn has a guest of its own.
    pub fn rounds_per_guest(&self) -> u64 {
        self.parameters.rounds_per_guest.unwrap_or(1)
    }

    /// Returns whether guests live over several turns.
    pub const fn keeps_guests(&self) -> bool {
        self.parameters.rounds_per_guest.is_some()
    }

    /// Makes this a plan for a simulated host: the model's name replaces the backend's, so that no simulated
    /// figure carries the name of a real backend.
    pub fn simulate(&mut self, model: &str) {
        let backend = format!("sim:{model}");
        for arm in self.arms.iter_mut().filter(|arm| arm.kind == ArmKind::Strategy) {
            arm.backend.clone_from(&backend);
        }
        self.parameters.backend = backend;
        self.simulated = true;
    }
}

/// Says which processor the guests have, with which PMU.
fn describe(parameters: &mut Parameters, cpu: Cpu, pmu: PmuCaps) {
    let (gp_counters, fixed_counters) = pmu.count();
    cpu.name().clone_into(&mut parameters.cpu);
    parameters.pmu_version = match pmu {
        PmuCaps::Intel(caps) => caps.version.into(),
        PmuCaps::Amd(caps) => caps.version().into(),
    };
    (parameters.gp_counters, parameters.fixed_counters) = (gp_counters.into(), fixed_counters.into());
}

fn check(arms: &ArmsOptions, simulated: bool) -> Result<(), Error> {
    if arms.guest.vcpus > MAX_VCPUS && !simulated {
        let what = format!("--vcpus {} is out of range", arms.guest.vcpus);
        return Err(Error::usage(what, "a payload has room for fewer", format!("give 1 to {MAX_VCPUS}")));
    }
    if arms.samples.saturating_mul(arms.guest.vcpus) > MAX_LOG {
        return Err(Error::usage(
            format!("{} samples on {} vCPUs do not fit the guest's log", arms.samples, arms.guest.vcpus),
            "",
            "take fewer --samples and more --rounds",
        ));
    }
    if arms.time_limit < arms.mux_interval * 2 {
        return Err(Error::usage(
            format!("--time-limit {:?} is shorter than two ticks", arms.time_limit),
            format!("--mux-interval is {:?}", arms.mux_interval),
            "raise the one or lower the other",
        ));
    }
    Ok(())
}

fn arms_of(strategies: Vec<StrategyParameter>, backend: &BackendKey) -> Vec<Arm> {
    let strategies = strategies.into_iter().map(|StrategyParameter { name, definition }| {
        let (kind, backend) = match name.strip_prefix(BELOW_KVM) {
            Some(_) => (ArmKind::Kvm, KVM_ARMS[0].to_owned()),
            None => (ArmKind::Strategy, backend.to_string()),
        };
        Arm { strategy: name, backend, kind, definition }
    });
    let kvm = kvm_arm(&HostFs::default());
    let others = [("floor", "none", ArmKind::Floor), (kvm, kvm, ArmKind::Kvm)].map(|(name, backend, kind)| Arm {
        strategy: name.to_owned(),
        backend: backend.to_owned(),
        kind,
        definition: None,
    });
    strategies.chain(others).collect()
}
