//! Options that every comparison of arms takes, whatever its guest does.

use std::time::Duration;

use vmm::machine::Cpu;

use crate::arms::rounds::pin::PinChoice;
use crate::setting::backend::BackendChoice;
use crate::setting::strategy::StrategyChoice;

/// Rounds of an experiment that something else ends: the duration, or the width of its intervals.
pub const OPEN_ENDED: u64 = 1_000_000;

/// Rounds by default in which an arm's guest lives on: starts take little of the run, and layouts of single guests are averaged.
pub const ROUNDS_PER_GUEST: u64 = 20;

/// Parameters that all experiments with arms and rounds have.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonSpec {
    /// Strategies to compare; the floor and KVM's own vPMU are added.
    pub strategies: Vec<StrategyChoice>,
    /// Host events of the strategies' arms.
    pub backend: BackendChoice,
    /// The guest's tick: rotation of multiplexed events, task switches.
    pub mux_interval: Duration,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPU of each vCPU.
    pub pin: PinChoice,
    /// Rounds that count; every arm runs once in each.
    pub rounds: u64,
    /// Rounds before those; their figures are discarded.
    pub warmup: u64,
    /// Rounds in which an arm's guest lives on before a fresh one replaces it; 1: each round has guests of its own. `None`:
    /// [`ROUNDS_PER_GUEST`], or 1 where guests that live at the same time spare each other a cost.
    pub rounds_per_guest: Option<u64>,
    /// Samples per arm, round and vCPU.
    pub samples: u64,
    /// Bound on a guest's measured phase.
    pub time_limit: Duration,
    /// Wanted half-width of the 95 % intervals of ratios, a share: the experiment ends when all have it.
    pub until_ci: Option<f64>,
    /// True if it is a short run whose figures are indicative only.
    pub quick: bool,
    /// Bound on the whole experiment: it ends after the round in which this time passes.
    pub duration: Option<Duration>,
    /// Seed of the order of arms within each round.
    pub seed: u64,
    /// The guest's processor.
    pub cpu: Cpu,
    /// Architectural PMU version of a guest with an Intel processor: 2 or 4.
    pub pmu_version: u64,
    /// True if vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

impl Default for CommonSpec {
    fn default() -> Self {
        Self {
            strategies: StrategyChoice::presets(&["recreate", "reuse", "reuse-lazy"]),
            backend: BackendChoice::Auto,
            mux_interval: Duration::from_millis(4),
            vcpus: 1,
            pin: PinChoice::Auto,
            rounds: 10,
            warmup: 1,
            rounds_per_guest: Some(1),
            samples: 800,
            time_limit: Duration::from_millis(1100),
            until_ci: None,
            quick: false,
            duration: None,
            seed: 1,
            cpu: Cpu::default(),
            pmu_version: 2,
            seccomp: true,
        }
    }
}
