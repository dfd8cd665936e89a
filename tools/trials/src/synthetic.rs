//! Rounds of a host with a known truth: what statistics must withstand, and how often they are right.
//!
//! The noise is that of the development host (docs/decisions.md): the CPU's throughput has two modes, 1.42 × apart, each
//! of them 0.25 s to 2 s long and shared by whatever runs meanwhile; runs drift; guests and processes have a layout.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use results::paired::Pair;
use serde::Deserialize;

/// A host and how it is measured. Spreads are standard deviations of logarithms.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Rounds of a run.
    pub rounds: usize,
    /// Rounds of a guest.
    pub rounds_per_guest: usize,
    /// Time of one arm in one round, s.
    pub turn: f64,
    /// Whether the CPU's throughput changes in time: neighbouring turns mostly share a mode.
    pub modes: bool,
    /// Spread of a turn.
    pub noise: f64,
    /// Spread of guests' layouts.
    pub guests: f64,
    /// Spread of processes' layouts, by arm.
    pub processes: f64,
    /// Spread of runs, shared by all arms.
    pub drift: f64,
    /// Share of turns that something else disturbs, up to three times as long.
    pub outliers: f64,
}

impl Default for Host {
    /// Describes 160 rounds of 40 ms turns, ten of a guest, modes in time.
    fn default() -> Self {
        Self {
            rounds: 160,
            rounds_per_guest: 10,
            turn: 0.04,
            modes: true,
            noise: 0.04,
            guests: 0.01,
            processes: 0.0,
            drift: 0.05,
            outliers: 0.02,
        }
    }
}

/// Natural logarithm of the ratio of the modes.
const MODES: f64 = 0.35;
/// Share of the fast mode.
const FAST: f64 = 0.31;

/// A source of random numbers.
#[derive(Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Draws a number between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws a number below `bound`; the bias of the multiplication is below 2^-32 for any sample that fits memory.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Draws a normal number, with mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Draws normal numbers whose neighbours have this correlation.
    pub fn related(&mut self, count: usize, correlation: f64) -> Vec<f64> {
        let mut state = self.normal();
        let next = |_| {
            let next = correlation * state + (1.0 - correlation * correlation).sqrt() * self.normal();
            std::mem::replace(&mut state, next)
        };
        (0..count).map(next).collect()
    }
}

/// Pairs the turns of two arms.
pub fn paired(arm: &[Pair], base: &[Pair]) -> Vec<Pair> {
    arm.iter().zip(base).map(|(arm, base)| Pair { log: arm.log - base.log, ..*arm }).collect()
}

/// The CPU's mode over time.
struct Throughput {
    fast: bool,
    left: f64,
}

impl Throughput {
    fn new(random: &mut Random) -> Self {
        let mut now = Self { fast: random.uniform() < FAST, left: 0.0 };
        now.left = now.length(random) * random.uniform();
        now
    }

    /// Modes last 0.25 s to 2 s, the fast ones shorter.
    fn length(&self, random: &mut Random) -> f64 {
        let length = 0.25 * 8.0_f64.powf(random.uniform());
        if self.fast { length * FAST / (1.0 - FAST) * 1.2 } else { length * 1.2 }
    }

    fn pass(&mut self, seconds: f64, random: &mut Random) {
        self.left -= seconds;
        while self.left < 0.0 {
            self.fast = !self.fast;
            self.left += self.length(random);
        }
    }
}

impl Host {
    /// Draws a run: the turns of each arm by round, each with the logarithm of its median latency. Arms with the logarithms `truth`
    /// take turns in a random order.
    pub fn run(&self, truth: &[f64], random: &mut Random) -> Vec<Vec<Pair>> {
        let level = random.normal();
        self.run_at(level, truth, random)
    }

    /// Draws a run of a host that is so many times its drift off its usual level.
    pub fn run_at(&self, level: f64, truth: &[f64], random: &mut Random) -> Vec<Vec<Pair>> {
        let drift = self.drift * level;
        let process: Vec<f64> = truth.iter().map(|_| self.processes * random.normal()).collect();
        let mut layout = vec![0.0; truth.len()];
        let mut arms = vec![Vec::with_capacity(self.rounds); truth.len()];
        let mut cpu = Throughput::new(random);
        for round in 0..self.rounds {
            if round % self.rounds_per_guest == 0 {
                layout.fill_with(|| self.guests * random.normal());
            }
            let first = random.below(truth.len());
            for turn in 0..truth.len() {
                let arm = (first + turn) % truth.len();
                cpu.pass(self.turn, random);
                let mode = if self.modes && cpu.fast { -MODES } else { 0.0 };
                let disturbed = if random.uniform() < self.outliers { random.uniform() * 3.0_f64.ln() } else { 0.0 };
                let noise = self.noise * random.normal();
                let log = truth[arm] + drift + process[arm] + layout[arm] + mode + noise + disturbed;
                arms[arm].push(Pair { round: round as u64, guest: (round / self.rounds_per_guest) as u64, log });
            }
        }
        arms
    }
}
