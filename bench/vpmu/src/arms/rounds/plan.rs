//! Makes a checked plan of arms and rounds from a specification.

use std::sync::Arc;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use cpu_list::CpuList;
use guest::abi::{BootPage, FLAG_REPLAY, MAX_EVENTS, PMI_WAIT_US};
use host_pmu::backend::BackendKey;
use host_pmu::stats::ns;
use results::document::{ArmKind, BELOW_KVM, KVM_ARMS, Parameters, REPLAY, StrategyParameter, kvm_arm};
use results::error::Error;
use results::host::HostFs;
use results::paired::narrowest;
use results::table::layout::percent;
use sim::guest::Timer;
use sim::host;
use sim::model::{CountBase, Model};
use trace::read::Trace;
use vmm::machine::payload::PayloadPlan;
use vmm::machine::{self, CounterSource, Cpu};

use super::options::{ArmsOptions, HostOptions, LengthOptions, OPEN_ENDED, Usual};
use crate::arms::arm::replay::Parts;
use crate::arms::arm::runner::{Arm, Runner};
use crate::arms::arm::{play, replay, sim as simulated};
use crate::engine::Rounds;
use crate::setting::backend::Chosen;
use crate::setting::strategy::{StrategyChoice, resolve_arms};
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
/// Rounds in which an arm's guest lives on: starts take little of the run, and layouts of single guests are averaged.
const ROUNDS_PER_GUEST: u64 = 20;
/// Time limit of a phase where creating an event takes tens of ms.
const LIMIT_OF_TRACEPOINTS: Duration = Duration::from_secs(10);

/// A checked plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment's name in documents.
    pub experiment: &'static str,
    /// Strategies in the order given, then the floor, then `kvm`.
    pub arms: Vec<Arm>,
    /// The backend of the strategies' arms; never `auto`.
    pub backend: BackendKey,
    /// Plan of the floor's guests, and what those of all arms have in common. Samples and log are those of each run.
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
    /// Returns the runner of its arms on hosts of a model.
    ///
    /// # Errors
    /// Exit 2 for parameters that a simulated host does not have.
    pub fn on_model(&self, model: Model) -> Result<Runner, Error> {
        Ok(match &self.replayed {
            Some(parts) => replay::runner(parts, model, self.seed),
            None => self.floor(&model).map(|floor| simulated::runner(model, floor))?,
        })
    }

    /// Returns the plan of the floor's host by a model.
    ///
    /// # Errors
    /// Exit 2 for parameters that a simulated host does not have.
    pub fn floor(&self, model: &Model) -> Result<host::Plan, Error> {
        let PayloadPlan { machine, boot, .. } = &self.guest;
        if !machine.pin.is_empty() {
            let what = "--pin is not supported by a simulated host";
            return Err(Error::usage(what, "each vCPU has its own CPU", "leave it out"));
        }
        let (vcpus, paced) = (machine.vcpus as u64, model.base == CountBase::Exits);
        Ok(host::Plan {
            behind: host::CounterSource::Floor { counts_per_ms: paced.then_some(self.parameters.period) },
            pmu: machine.pmu,
            vcpus,
            cpus: self.parameters.cpus.unwrap_or(vcpus),
            boot: *boot,
            timer: self.timer,
            limit_ns: ns(machine.time_limit),
            seed: self.seed,
            trace: None,
        })
    }

    /// Makes the plan of these options, and checks what cannot be checked value by value. `parameters` has the events of the
    /// workload and their period, `flags` are of the boot page, and `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for options that contradict each other or the host.
    pub fn new(
        (experiment, usual): (&'static str, &Usual),
        (arms, length, HostOptions { behind, cpu }): (&ArmsOptions, &LengthOptions, &HostOptions),
        (workload, flags, parameters): (Workload, u64, Parameters),
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Self, Error> {
        let presets = StrategyChoice::presets(usual.strategies);
        let strategies = resolve_arms(if arms.strategy.is_empty() { &presets } else { &arms.strategy })?;
        let (vcpus, samples) = (arms.guest.vcpus, arms.samples.unwrap_or(usual.samples));
        let pin = behind.pin.clone().unwrap_or_default().cpus(vcpus, usable)?;
        if vcpus > MAX_VCPUS && !chosen.simulated {
            let what = format!("--vcpus {vcpus} is out of range");
            return Err(Error::usage(what, "a payload has room for fewer", format!("give 1 to {MAX_VCPUS}")));
        }
        if samples.saturating_mul(vcpus) > MAX_LOG {
            let what = format!("{samples} samples on {vcpus} vCPUs do not fit the guest's log");
            return Err(Error::usage(what, "", "take fewer --samples and more --rounds"));
        }
        let least = narrowest();
        if let Some(share) = length.until_ci.filter(|share| !chosen.simulated && *share < least) {
            let what = format!("--until-ci {}% cannot be met by one run", percent(share));
            let why = format!("runs differ: a ratio to the floor is known to ± {:.2} % at best", 100.0 * least);
            return Err(Error::usage(what, why, "take 1%, or compare several runs (vpmu compare)"));
        }
        let backend = chosen.backend.clone();
        let (rounds, duration) = length.rounds(arms, usual, chosen.simulated);
        let tick = arms.mux_interval.unwrap_or(usual.mux_interval);
        let limit = match backend {
            BackendKey::Tracepoint { .. } => usual.time_limit.max(LIMIT_OF_TRACEPOINTS),
            _ => usual.time_limit,
        };
        if let Some(given) = arms.time_limit.filter(|given| *given < 2 * tick) {
            let what = format!("--time-limit {given:?} is shorter than two ticks");
            let why = format!("--mux-interval is {tick:?}");
            return Err(Error::usage(what, why, "raise the one or lower the other"));
        }
        let limit = arms.time_limit.unwrap_or(limit).max(2 * tick);
        let ticks = |time: Duration| (ns(time) / ns(tick).max(1)).max(1);
        let mut parameters = Parameters {
            strategies: strategies.clone(),
            backend_requested: behind.backend.to_string(),
            backend: backend.to_string(),
            backend_why: chosen.why.clone(),
            workload: workload.to_string(),
            mux_interval_ns: ns(tick),
            vcpus,
            pin: (!pin.is_empty()).then(|| CpuList(pin.clone()).to_string()),
            rounds,
            // Guests that live on would spare each other the first event. A single round needs none that does.
            rounds_per_guest: (!chosen.shares_first && rounds > 1).then_some(ROUNDS_PER_GUEST),
            until_ci: length.until_ci,
            quick: length.quick,
            samples,
            warmup_samples: samples.div_ceil(4).min(WARMUP_SAMPLES),
            warmup_rounds: arms.warmup.unwrap_or(usual.warmup),
            duration_ns: duration.map(ns),
            time_limit_ns: ns(limit),
            baseline_ticks: ticks(BASELINE),
            tail_ticks: TAIL_TICKS,
            ..parameters
        };
        describe(&mut parameters, *cpu, cpu.pmu());
        let mut boot = BootPage {
            workload: workload.work.abi,
            flags,
            // Ticks of KVM's LAPIC timer, which runs at 1 GHz and has 32 bits.
            tick_count: ns(tick).min(u32::MAX.into()),
            baseline_ticks: parameters.baseline_ticks,
            max_ticks: ticks(limit),
            tail_ticks: TAIL_TICKS,
            freq_hz: parameters.freq_hz.unwrap_or(0),
            event_count: parameters.events.len().min(MAX_EVENTS) as u64,
            ..BootPage::default()
        };
        for (slot, event) in boot.events.iter_mut().zip(&parameters.events) {
            *slot = event_spec(event);
        }
        let paced = backend.pace(parameters.period).map(|counts_per_ms| CounterSource::PacedFloor { counts_per_ms });
        let machine = machine::Plan {
            behind: paced.unwrap_or(CounterSource::Floor),
            cpu: *cpu,
            pmu: cpu.pmu(),
            vcpus: vcpus as usize,
            pin,
            // Ticks merge while a handler takes longer than one, so the guest's own end may come late.
            time_limit: limit * 2 + tick * 16 + Duration::from_secs(5),
            sampling: None,
            trace: None,
        };
        Ok(Self {
            experiment,
            arms: arms_of(strategies, &backend),
            backend,
            guest: PayloadPlan { machine, log_entries: 0, boot, steps: Arc::default() },
            simulated: false,
            timer: Timer::default(),
            until_order: false,
            seed: arms.seed.seed,
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
        if self.backend == BackendKey::CpuClock {
            // Its counts are ns.
            machine.behind = CounterSource::PacedFloor { counts_per_ms: 1_000_000 };
        }
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
            warmup: self.parameters.warmup_rounds,
            session: self.parameters.rounds_per_guest,
            duration: self.duration(),
            simulated: self.simulated,
            ..Rounds::of(self.parameters.rounds, self.seed)
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
    parameters.pmu_version = pmu.version().into();
    (parameters.gp_counters, parameters.fixed_counters) = (gp_counters.into(), fixed_counters.into());
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
