//! Makes a checked plan of arms and rounds from a specification.

use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use std::time::Duration;
use vmm::machine::Cpu;

use guest::abi::EventSpec;
use host_pmu::backend::BackendKey;

use super::spec::{CommonSpec, OPEN_ENDED, ROUNDS_PER_GUEST};
use crate::arms::arm::guest::GuestPlan;
use crate::arms::arm::real::RealRunner;
use crate::arms::arm::runner::Arm;
use crate::setting::backend::Chosen;
use crate::setting::strategy::resolve;
use crate::setting::workload::Workload;
use cpu_list::CpuList;
use results::document::ArmKind;
use results::document::{EventParameter, Parameters, StrategyParameter};
use results::error::Error;
use results::host::{HostFs, kvm_arm};

/// Guest time without counters before the measured phase.
const BASELINE: Duration = Duration::from_millis(40);
/// Ticks of the tail: the first ends the last turn the guest sampled in, the others show what lazy release left.
const TAIL_TICKS: u64 = 4;
/// Most samples of a round over all vCPUs: each is a log entry of 48 bytes in guest memory.
const MAX_LOG: u64 = 20_000_000;
/// Most samples of a warm-up run.
const WARMUP_SAMPLES: u64 = 500;

/// The guest's part in an experiment: its work, and the events that its driver programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTask {
    /// Event set and guest work.
    pub workload: Workload,
    /// The events, for the boot page and for the document.
    pub events: Vec<(EventSpec, EventParameter)>,
    /// `FLAG_*` bits of the boot page.
    pub flags: u64,
    /// The sampling period that the events' periods are made from; 0 if they only count.
    pub period: u64,
    /// Sampling frequency, if the guest adjusts periods.
    pub freq_hz: Option<u64>,
}

/// A checked plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The experiment's name in documents.
    pub experiment: &'static str,
    /// Strategies in the order given, then the floor, then `kvm`.
    pub arms: Vec<Arm>,
    /// The backend of the strategies' arms; never `auto`.
    pub backend: BackendKey,
    /// The guest.
    pub guest: GuestPlan,
    /// Rounds that count.
    pub rounds: u64,
    /// Warm-up rounds: of each session, or of the run where no guest lives on.
    pub warmup: u64,
    /// Samples of a turn and vCPU.
    pub samples: u64,
    /// Samples of a warm-up turn and vCPU.
    pub warmup_samples: u64,
    /// Rounds that count in which an arm's guest lives on; 1: each turn has a guest of its own.
    pub rounds_per_guest: u64,
    /// It ends at the end of a session in which every ratio judged has a 95 % interval of at most this half-width, a share.
    pub until_ci: Option<f64>,
    /// Bound on the whole experiment.
    pub duration: Option<Duration>,
    /// True if time is that of simulated guests, not this host's.
    pub simulated: bool,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Parameters for the result document.
    pub parameters: Parameters,
}

impl Plan {
    /// Returns the runner of its arms on this host.
    ///
    /// # Errors
    /// Exit 4 where this host cannot run guests.
    pub fn on_this_host(&self) -> Result<RealRunner, Error> {
        RealRunner::new(&self.guest, &self.backend, self.parameters.period, self.keeps_guests())
    }

    /// Checks what cannot be checked value by value. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other or the host.
    pub fn new(
        experiment: &'static str,
        spec: &CommonSpec,
        task: GuestTask,
        chosen: &Chosen,
        usable: Option<&[u32]>,
    ) -> Result<Self, Error> {
        let strategies = resolve(&spec.strategies)?;
        let pin = spec.pin.cpus(spec.vcpus, usable)?;
        check(spec)?;
        let backend = chosen.backend.clone();
        let alone = if chosen.shares_first { 1 } else { ROUNDS_PER_GUEST };
        let rounds_per_guest = spec.rounds_per_guest.unwrap_or(alone);
        let ticks = |time: Duration| {
            let ticks = time.as_nanos() / spec.mux_interval.as_nanos().max(1);
            u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
        };
        let (events, event_parameters) = task.events.into_iter().unzip();
        let pmu = spec.cpu.pmu();
        let (gp_counters, fixed_counters) = pmu.count();
        let guest = GuestPlan {
            workload: task.workload,
            events,
            flags: task.flags,
            freq_hz: task.freq_hz.unwrap_or(0),
            mux_interval: spec.mux_interval,
            baseline_ticks: ticks(BASELINE),
            tail_ticks: TAIL_TICKS,
            max_ticks: ticks(spec.time_limit),
            window_ticks: 0,
            gap_ticks: 0,
            limit_us: 0,
            // Ticks merge while a handler takes longer than one, so the guest's own end may come late.
            hard_limit: spec.time_limit * 2 + spec.mux_interval * 16 + Duration::from_secs(5),
            vcpus: spec.vcpus,
            pin,
            cpu: spec.cpu,
            pmu_version: spec.pmu_version,
            seccomp: spec.seccomp,
            gp_counters: gp_counters.into(),
            fixed_counters: fixed_counters.into(),
        };
        let warmup_samples = spec.samples.div_ceil(4).min(WARMUP_SAMPLES);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let parameters = Parameters {
            strategies: strategies.clone(),
            backend_requested: spec.backend.to_string(),
            backend: backend.to_string(),
            backend_why: chosen.why.clone(),
            workload: task.workload.to_string(),
            events: event_parameters,
            period: task.period,
            freq_hz: task.freq_hz,
            mux_interval_ns: nanos(spec.mux_interval),
            vcpus: spec.vcpus,
            pin: (!guest.pin.is_empty()).then(|| CpuList(guest.pin.clone()).to_string()),
            rounds: spec.rounds,
            rounds_per_guest: (rounds_per_guest > 1).then_some(rounds_per_guest),
            until_ci: spec.until_ci,
            quick: spec.quick,
            samples: spec.samples,
            warmup_samples,
            warmup_rounds: spec.warmup,
            duration_ns: spec.duration.map(nanos),
            time_limit_ns: nanos(spec.time_limit),
            cpu: spec.cpu.name().to_owned(),
            pmu_version: match pmu {
                PmuCaps::Intel(_) => spec.pmu_version,
                PmuCaps::Amd(caps) => caps.version().into(),
            },
            gp_counters: gp_counters.into(),
            fixed_counters: fixed_counters.into(),
            baseline_ticks: guest.baseline_ticks,
            tail_ticks: guest.tail_ticks,
            set_up: None,
            linux: None,
        };
        Ok(Self {
            experiment,
            arms: arms(strategies, &backend),
            backend,
            guest,
            rounds: spec.rounds,
            warmup: spec.warmup,
            samples: spec.samples,
            warmup_samples,
            rounds_per_guest,
            until_ci: spec.until_ci,
            duration: spec.duration,
            simulated: false,
            seed: spec.seed,
            parameters,
        })
    }

    /// Returns whether something else than the number of rounds ends it.
    #[must_use]
    pub const fn is_open_ended(&self) -> bool {
        self.rounds >= OPEN_ENDED
    }

    /// Returns whether guests live over several turns.
    #[must_use]
    pub const fn keeps_guests(&self) -> bool {
        self.rounds_per_guest > 1
    }

    /// Makes it a plan for a simulated host: the model's name replaces the backend's, so that no simulated
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

fn check(spec: &CommonSpec) -> Result<(), Error> {
    check_version(spec.cpu, spec.pmu_version)?;
    if spec.samples.saturating_mul(spec.vcpus) > MAX_LOG {
        return Err(Error::usage(
            format!("{} samples on {} vCPUs do not fit the guest's log", spec.samples, spec.vcpus),
            "",
            "take fewer --samples and more --rounds",
        ));
    }
    if spec.time_limit < spec.mux_interval * 2 {
        return Err(Error::usage(
            format!("--time-limit {:?} is shorter than two ticks", spec.time_limit),
            format!("--mux-interval is {:?}", spec.mux_interval),
            "raise the one or lower the other",
        ));
    }
    Ok(())
}

/// Checks that the processor's PMU has versions to choose from, if another one than the default is asked for.
///
/// # Errors
/// Exit 2 if it has none.
pub fn check_version(cpu: Cpu, version: u64) -> Result<(), Error> {
    if cpu.vendor() == Vendor::Amd && version != CommonSpec::default().pmu_version {
        return Err(Error::usage(
            format!("--pmu-version {version} is not for --cpu {}", cpu.name()),
            "it is the version of Intel's PMU",
            "leave it out",
        ));
    }
    Ok(())
}

fn arms(strategies: Vec<StrategyParameter>, backend: &BackendKey) -> Vec<Arm> {
    let mut arms: Vec<Arm> = strategies
        .into_iter()
        .map(|strategy| Arm {
            strategy: strategy.name,
            backend: backend.to_string(),
            kind: ArmKind::Strategy,
            definition: strategy.definition,
        })
        .collect();
    let kvm = kvm_arm(&HostFs::default());
    for (name, backend, kind) in [("floor", "none", ArmKind::Floor), (kvm, kvm, ArmKind::Kvm)] {
        arms.push(Arm { strategy: name.to_owned(), backend: backend.to_owned(), kind, definition: None });
    }
    arms
}
