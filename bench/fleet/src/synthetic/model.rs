//! A fleet with a known truth: what statistics by host must find, and what they must not.
//!
//! Logarithms of times are sums: host class, host, boot, day, run, and what a host, boot or run has for one arm alone. All spreads
//! are standard deviations of logarithms. Some hosts are slow, a change reaches each host on a day of its own, some runs are
//! disturbed, some are missing.

use std::collections::BTreeSet;

use results::synthetic::Random;

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
    /// 1000 hosts of two classes and 30 days, 1 % of the hosts 5 % slow, a kernel that makes all 3 % slower on day 17; hosts and boots
    /// differ by 0.5 %, runs by 2 %; 3 % of the runs are up to 30 % too slow, 5 % are missing.
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

/// Name of a host.
#[must_use]
pub fn name(host: usize) -> String {
    format!("node{host:04}")
}

impl Fleet {
    /// The slow hosts, by number.
    #[must_use]
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

    /// The runs of one host, in order.
    #[must_use]
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
}
