//! A fleet with a known truth, as runs and as documents: what statistics by host must find, and what they must not.
//!
//! Logarithms of times are sums: host class, host, boot, day, run, and what a host, boot or run has for one arm alone. All spreads
//! are standard deviations of logarithms. Some hosts are slow, a change reaches each host on a day of its own, some runs are
//! disturbed, some are missing.

#![expect(clippy::unwrap_used, reason = "a test helper fails the test")]
#![expect(clippy::cast_sign_loss, reason = "a time is positive")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use results::document::{Arm, Document, GuestRun, Summary, latency_histogram};
use trials::fixture;
use trials::synthetic::Random;

use crate::run::{Figure, Labels, Level, Run};

/// Strategies of each run; the floor follows them.
pub const STRATEGIES: [&str; 3] = ["recreate", "reuse", "reuse-lazy"];
/// Arms of each run.
pub(super) const ARMS: usize = STRATEGIES.len() + 1;
/// Metrics of each arm.
pub(super) const METRICS: [&str; 3] = ["nmi_handler_ns", "pmi_delivery_ns", "exit_path_ns"];
/// First day: 1 November 2026, 02:00 UTC.
const BEGIN: u64 = 1_793_498_400;
/// Seconds of a day.
const DAY: u64 = 86_400;

/// A change of the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Its first day, from 1.
    pub day: u64,
    /// Share by which everything gets slower, such as 0.03.
    pub by: f64,
    /// Days that its roll-out takes; a host's own day is one of them at random.
    pub roll_out: u64,
    /// A new kernel comes with it; without one no fact changes.
    pub kernel: bool,
}

/// A fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Hosts.
    pub hosts: usize,
    /// Days, with one run of each host.
    pub days: u64,
    /// Host classes that the hosts belong to in turn.
    pub classes: usize,
    /// Share of slow hosts.
    pub slow_share: f64,
    /// Share by which they are slow.
    pub slow_by: f64,
    /// The arm that is slow on them; `None`: all.
    pub slow_arm: Option<usize>,
    /// The change, if there is one.
    pub change: Option<Change>,
    /// Spread of hosts of a class.
    pub between_hosts: f64,
    /// Spread of a host's boots.
    pub between_boots: f64,
    /// Spread of a boot's runs.
    pub between_runs: f64,
    /// Spread of one arm alone for all three, as a share of the above.
    pub own: f64,
    /// Spread of days, shared by all hosts.
    pub between_days: f64,
    /// Standard error of a figure within its run.
    pub within_run: f64,
    /// Share of runs that something disturbs.
    pub outliers: f64,
    /// Largest share of an outlier.
    pub outlier_by: f64,
    /// Share of runs that are missing.
    pub missing: f64,
    /// Mean days between reboots; 0: none but for a kernel.
    pub reboot_every: f64,
    /// Hosts with a clock five hours off.
    pub clocks_off: usize,
    /// Seed.
    pub seed: u64,
}

impl Default for Fleet {
    /// Describes 1000 hosts of two classes and 30 days, 1 % of the hosts 5 % slow, a kernel that makes all 3 % slower
    /// on day 17; hosts and boots differ by 0.5 %, runs by 2 %; 3 % of the runs are up to 30 % too slow, 5 % are
    /// missing.
    fn default() -> Self {
        Self {
            hosts: 1000,
            days: 30,
            classes: 2,
            slow_share: 0.01,
            slow_by: 0.05,
            slow_arm: None,
            change: Some(Change { day: 17, by: 0.03, roll_out: 1, kernel: true }),
            between_hosts: 0.005,
            between_boots: 0.005,
            between_runs: 0.02,
            own: 0.3,
            between_days: 0.002,
            within_run: 0.01,
            outliers: 0.03,
            outlier_by: 0.3,
            missing: 0.05,
            reboot_every: 0.0,
            clocks_off: 0,
            seed: 1,
        }
    }
}

/// One run of the fleet before it is a document or a [`Run`](crate::Run).
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Number of the host.
    pub host: usize,
    /// Its class.
    pub class: usize,
    /// Day, from 0.
    pub day: u64,
    /// Number of the boot.
    pub boot: u64,
    /// The new kernel runs.
    pub new_kernel: bool,
    /// Start by the host's clock.
    pub started_unix: u64,
    /// Logarithm of each arm's time over its usual one, for each metric.
    pub logs: [[f64; METRICS.len()]; ARMS],
}

/// Names a host.
pub fn name(host: usize) -> String {
    format!("node{host:04}")
}

impl Fleet {
    /// Lists the slow hosts, by number.
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    pub fn slow(&self) -> BTreeSet<usize> {
        let mut random = Random::new(self.seed ^ 0x51_0b);
        let wanted = (self.slow_share * self.hosts as f64).round() as usize;
        let mut slow = BTreeSet::new();
        while slow.len() < wanted.min(self.hosts) {
            slow.insert(random.below(self.hosts));
        }
        slow
    }

    /// Draws the runs of one host, in order.
    pub fn of_host(&self, host: usize, slow: bool) -> Vec<Cell> {
        let mut random = Random::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(host as u64));
        let begin = self
            .change
            .map(|change| change.day.saturating_sub(1) + random.below(change.roll_out.max(1) as usize) as u64);
        let clock = if host < self.clocks_off { 5 * 3600 } else { 0 };
        let of_host = self.effect(self.between_hosts, &mut random);
        let (mut of_boot, mut boot) = (self.effect(self.between_boots, &mut random), 0);
        let mut cells = Vec::new();
        for day in 0..self.days {
            let changed = begin.is_some_and(|begin| day >= begin);
            let new_kernel = changed && self.change.is_some_and(|change| change.kernel);
            let rebooted = self.reboot_every > 0.0 && random.uniform() < 1.0 / self.reboot_every;
            if day > 0 && (rebooted || (new_kernel && begin == Some(day))) {
                boot += 1;
                of_boot = self.effect(self.between_boots, &mut random);
            }
            let of_run = self.effect(self.between_runs, &mut random);
            let disturbed =
                if random.uniform() < self.outliers { (1.0 + self.outlier_by * random.uniform()).ln() } else { 0.0 };
            let minute = random.below(3600) as u64;
            let mut logs = [[0.0; METRICS.len()]; ARMS];
            for (arm, logs) in logs.iter_mut().enumerate() {
                let is_slow = slow && self.slow_arm.is_none_or(|slow| slow == arm);
                let truth = if is_slow { self.slow_by.ln_1p() } else { 0.0 };
                let change = self.change.filter(|_| changed).map_or(0.0, |change| change.by.ln_1p());
                let shared = truth + change + self.of_day(day) + of_host[arm] + of_boot[arm] + of_run[arm] + disturbed;
                for log in logs {
                    *log = shared + self.within_run * random.normal();
                }
            }
            if random.uniform() < self.missing {
                continue;
            }
            let started_unix = BEGIN + day * DAY + minute + clock;
            cells.push(Cell { host, class: host % self.classes.max(1), day, boot, new_kernel, started_unix, logs });
        }
        cells
    }

    /// Draws the part that the arms share, and each arm's own.
    fn effect(&self, spread: f64, random: &mut Random) -> [f64; ARMS] {
        let shared = spread * random.normal();
        std::array::from_fn(|_| shared + self.own * spread * random.normal())
    }

    fn of_day(&self, day: u64) -> f64 {
        self.between_days * Random::new(self.seed ^ (day << 20)).normal()
    }
}

/// Rounds of a guest, as a default run has them.
const PER_GUEST: u64 = 20;
/// Usual time of each metric, ns.
const USUAL: [f64; METRICS.len()] = [150_000.0, 40_000.0, 1_500.0];
/// Usual ratio of each arm to the floor.
const RATIO: [f64; ARMS] = [1.06, 1.03, 1.04, 1.0];
/// Spread of rounds.
const ROUNDS: f64 = 0.04;

/// Returns the usual time of an arm.
pub(super) fn usual_ns(arm: usize, metric: usize) -> f64 {
    USUAL[metric] * RATIO[arm]
}

/// Builds a template of a class and kernel, reduced: facts and parameters of every such run.
pub(super) fn reduced(fleet: &Fleet, class: usize, new_kernel: bool) -> Run {
    let cell = fleet.of_host(0, false).into_iter().next();
    let none =
        || Cell { host: 0, class, day: 0, boot: 0, new_kernel, started_unix: 1, logs: [[0.0; METRICS.len()]; ARMS] };
    let cell = Cell { class, new_kernel, ..cell.unwrap_or_else(none) };
    let (_dir, record) = fixture::written(&document(&template(2), &cell, 1));
    Run::of(&record, "", Labels::default())
}

/// Builds a document of so many rounds that [`document`] turns into that of a cell.
fn template(rounds: u64) -> Document {
    let mut template = fixture::of_strategies(rounds, &STRATEGIES);
    "release".clone_into(&mut template.tool.profile);
    let host = &mut template.host;
    host.microcode = Some("0x5003604".to_owned());
    host.governor = Some("performance".to_owned());
    // The histograms of arms have the width of measured ones.
    let mut random = Random::new(3);
    for arm in &mut template.arms {
        for (place, metric) in METRICS.iter().enumerate() {
            let Some(summary) = arm.metrics.get_mut(*metric) else { continue };
            let mut histogram = latency_histogram();
            for _ in 0..summary.count {
                histogram.saturating_record((USUAL[place] * (0.1 * random.normal()).exp()) as u64);
            }
            *summary = Summary::of(&histogram).unwrap();
        }
    }
    template
}

/// Builds the document of a cell.
pub fn document(template: &Document, cell: &Cell, seed: u64) -> Document {
    let mut document = template.clone();
    let mut random = Random::new(seed ^ ((cell.host as u64) << 20) ^ cell.day);
    document.started_unix = cell.started_unix;
    document.seed = seed;
    let host = &mut document.host;
    host.name = Some(name(cell.host));
    host.boot = Some(format!("{:08x}-0000-4000-8000-{:012x}", cell.host, cell.boot));
    host.kernel = Some(if cell.new_kernel { "6.1.0-32-amd64" } else { "6.1.0-31-amd64" }.to_owned());
    host.class = ["bare-metal host (Cascade Lake, kvm_intel, hardware PMU)", "bare-metal host (kvm_amd, hardware PMU)"]
        .get(cell.class)
        .map_or_else(|| format!("bare-metal host (class {})", cell.class), |class| (*class).to_owned());
    host.cpu_model = Some(format!("Processor of class {}", cell.class));
    for (place, arm) in document.arms.iter_mut().take(ARMS).enumerate() {
        fill(arm, place, &cell.logs[place], &mut random);
    }
    document
}

fn fill(arm: &mut Arm<GuestRun>, place: usize, logs: &[f64; METRICS.len()], random: &mut Random) {
    // Rounds of one arm take the same shape around their p50.
    let shape = |p50: f64, count: u64| {
        let at = |factor: f64| Some((p50 * factor) as u64);
        let (min, p10, p90, p99, max) = (at(0.78), at(0.85), at(1.15), at(1.4), at(1.7));
        Summary {
            count,
            min,
            p10,
            p50: p50 as u64,
            p90,
            p99,
            max,
            mean: Some(p50 * 1.031_234_567),
            ..Summary::default()
        }
    };
    let mut most = [0; METRICS.len()];
    let rounds = &mut arm.rounds;
    rounds.guest = rounds.index.iter().map(|index| Some(index / PER_GUEST)).collect();
    rounds.guest_start_us = rounds.index.iter().map(|index| if index % PER_GUEST == 0 { 15_055 } else { 0 }).collect();
    rounds.probe_ns = rounds.index.iter().map(|_| Some(11_393.0 + random.uniform() * 1000.0)).collect();
    for (metric, name) in METRICS.iter().enumerate() {
        let Some(column) = rounds.metrics.get_mut(*name) else { continue };
        for count in std::mem::take(column).count {
            let p50 = (usual_ns(place, metric).ln() + logs[metric] + ROUNDS * random.normal()).exp();
            let summary = shape(p50, count);
            most[metric] = most[metric].max(summary.max.unwrap_or(0));
            column.push(Some(&summary));
        }
    }
    for (metric, name) in METRICS.iter().enumerate() {
        let Some(summary) = arm.metrics.get_mut(*name) else { continue };
        let (count, histogram) = (summary.count, summary.histogram.take());
        let all = shape((usual_ns(place, metric).ln() + logs[metric]).exp(), count);
        *summary = Summary { max: Some(most[metric]), p99_9: all.p99, histogram, ..all };
    }
}

/// Bytes of one document of so many rounds.
pub fn size_of(fleet: &Fleet, rounds: u64) -> u64 {
    let cell = fleet.of_host(0, false).into_iter().next();
    cell.map_or(0, |cell| document(&template(rounds), &cell, 1).to_json().unwrap().len() as u64)
}

/// Writes the documents of a fleet, `HOST/DAY.json` each, and gives how many there are.
///
/// # Errors
/// Returns the errors of the file system.
pub fn write(fleet: &Fleet, rounds: u64, folder: &Path) -> io::Result<usize> {
    let (slow, template, written) = (fleet.slow(), template(rounds), AtomicUsize::new(0));
    (0..fleet.hosts).into_par_iter().try_for_each(|host| -> io::Result<()> {
        let folder = folder.join(name(host));
        std::fs::create_dir_all(&folder)?;
        for cell in fleet.of_host(host, slow.contains(&host)) {
            let text = document(&template, &cell, fleet.seed).to_json().map_err(io::Error::other)?;
            std::fs::write(folder.join(format!("{:03}.json", cell.day + 1)), text)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(written.into_inner())
}

/// Draws all runs of a fleet, by host and day, as they would be read from its documents.
pub fn runs(fleet: &Fleet) -> Vec<Run> {
    let slow = fleet.slow();
    let template = Template::new(fleet);
    (0..fleet.hosts)
        .into_par_iter()
        .flat_map_iter(|host| {
            let cells = fleet.of_host(host, slow.contains(&host));
            let name: Arc<str> = name(host).into();
            cells.into_iter().map(|cell| template.run(&name, &cell)).collect::<Vec<_>>()
        })
        .collect()
}

/// Parts that runs of a fleet share.
struct Template {
    run: Run,
    /// Facts by class and kernel.
    facts: Vec<[Arc<BTreeMap<String, String>>; 2]>,
    arms: [Arc<str>; ARMS],
    metrics: [Arc<str>; METRICS.len()],
    /// Logarithm of the usual time of each arm, for each metric.
    usual: [[f64; METRICS.len()]; ARMS],
    within: f64,
}

impl Template {
    fn new(fleet: &Fleet) -> Self {
        let run = reduced(fleet, 0, false);
        let facts = |class| [false, true].map(|new| reduced(fleet, class, new).facts);
        let arm = |arm: usize| STRATEGIES.get(arm).copied().unwrap_or("floor");
        Self {
            facts: (0..fleet.classes.max(1)).map(facts).collect(),
            arms: std::array::from_fn(|n| arm(n).into()),
            metrics: METRICS.map(Into::into),
            usual: std::array::from_fn(|arm| std::array::from_fn(|metric| usual_ns(arm, metric).ln())),
            within: fleet.within_run,
            run,
        }
    }

    fn run(&self, host: &Arc<str>, cell: &Cell) -> Run {
        let mut figures = Vec::with_capacity(ARMS * METRICS.len());
        for (arm, logs) in cell.logs.iter().enumerate() {
            for (metric, log) in logs.iter().enumerate() {
                let at = |arm: usize, log: f64| self.usual[arm][metric] + log;
                let floor = at(ARMS - 1, cell.logs[ARMS - 1][metric]);
                let ratio = (arm < ARMS - 1)
                    .then(|| Level { log: at(arm, *log) - floor, error: Some(self.within * std::f64::consts::SQRT_2) });
                figures.push(Figure {
                    arm: Arc::clone(&self.arms[arm]),
                    metric: Arc::clone(&self.metrics[metric]),
                    rounds: 10,
                    time: Level { log: at(arm, *log), error: Some(self.within) },
                    ratio,
                    doubt: None,
                });
            }
        }
        Run {
            file: format!("{host}/{:03}.json", cell.day),
            labels: Labels { repetition: Some(cell.day), ..Labels::default() },
            started_unix: cell.started_unix,
            host: Arc::clone(host),
            boot: format!("{host}-{}", cell.boot).into(),
            facts: Arc::clone(&self.facts[cell.class][usize::from(cell.new_kernel)]),
            figures,
            ..self.run.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_has_the_effects_it_is_said_to_have() {
        let calm = Fleet {
            hosts: 10,
            days: 20,
            slow_share: 0.1,
            between_hosts: 0.0,
            between_boots: 0.0,
            between_runs: 0.0,
            between_days: 0.0,
            within_run: 0.0,
            outliers: 0.0,
            missing: 0.0,
            ..Fleet::default()
        };
        let slow = calm.slow();
        assert_eq!(slow.len(), 1);
        for host in 0..10 {
            let cells = calm.of_host(host, slow.contains(&host));
            assert_eq!(cells.len(), 20);
            let base = if slow.contains(&host) { 1.05_f64.ln() } else { 0.0 };
            assert!((cells[15].logs[0][0] - base).abs() < 1e-9 && !cells[15].new_kernel);
            assert!((cells[16].logs[0][0] - base - 1.03_f64.ln()).abs() < 1e-9 && cells[16].new_kernel);
            assert_eq!((cells[15].boot, cells[16].boot), (0, 1));
        }
        assert_eq!(calm.of_host(3, false), calm.of_host(3, false));
        let noisy = Fleet { missing: 0.5, ..calm };
        assert!(noisy.of_host(3, false).len() < 18);
    }

    #[test]
    fn a_default_document_is_small() {
        let size = size_of(&Fleet::default(), 240);
        assert!((50_000..200_000).contains(&size), "{size} bytes");
    }

    #[test]
    fn documents_are_read_back_with_the_figures_they_were_made_of() {
        let fleet = Fleet { hosts: 2, days: 2, missing: 0.0, outliers: 0.0, ..Fleet::default() };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write(&fleet, 12, dir.path()).unwrap(), 4);
        let record = results::read::record(&dir.path().join("node0001/002.json")).unwrap();
        let run = Run::of(&record, "x", Labels::default());
        let made = &crate::synthetic::runs(&fleet)[3];
        assert_eq!(
            (&run.host, &run.key, &run.facts),
            (&made.host, &made.key.replace("\"rounds\":2", "\"rounds\":12").into(), &made.facts)
        );
        for (figure, wanted) in
            made.figures.iter().filter_map(|wanted| Some((run.figure(&wanted.arm, &wanted.metric)?, wanted)))
        {
            assert!((figure.time.log - wanted.time.log).abs() < 0.05, "{figure:?} {wanted:?}");
            assert_eq!(figure.ratio.is_some(), wanted.ratio.is_some());
        }
        assert_eq!(run.figures.len(), made.figures.len());
    }
}
