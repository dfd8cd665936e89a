//! Published figures beside what this host does.

use crate::account::{Account, Rate, Sampling, Speedup, Status, figure_row};
use crate::workloads::setup::DISKS;
use results::stats::interval::Interval;
use serde::Serialize;
use toml::{Table, Value};

/// A figure that is measured by workloads of triage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Threads in `rand()`.
    Rand,
    /// Page faults of several copies of a program.
    SpinlockShare,
    /// Probing devices one after the other, and at once.
    ParallelProbing,
}

/// Draws of the published program: 8 jobs of 100 sums over a million each.
const DRAWS: f64 = 8.0 * 100.0 * 1e6;
/// Every function of a kernel that hides its addresses.
const HIDDEN: &str = "(hidden)";
/// Functions of the kernel that are a spin lock, or wait for one, have one of these in their names.
const SPIN_LOCK: [&str; 2] = ["spin_lock", "queued_spin"];

impl Figure {
    /// Its id in the published figures.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Rand => "event-practice.rand",
            Self::SpinlockShare => "spinlock-share",
            Self::ParallelProbing => "parallel-probing",
        }
    }

    /// Threads of the published run: adapters, for devices; of the copies it says only that there were several.
    pub const fn threads(self) -> usize {
        match self {
            Self::Rand => 8,
            Self::SpinlockShare | Self::ParallelProbing => 4,
        }
    }
}

/// A number that was published, and what it is here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Description of the figure.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// As published; `None`: it was not.
    pub published: Option<f64>,
    /// As measured here; `None`: it could not be.
    pub measured: Option<f64>,
    /// Its 95 % interval; none of too few rounds.
    pub interval: Option<[f64; 2]>,
    /// Derivation from the measurement.
    pub by: String,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Practice {
    /// The published figure.
    pub figure: &'static str,
    /// Description of the figure, as published.
    pub what: String,
    /// The source that it is from, as far as that is known.
    pub source: String,
    /// The numbers.
    pub lines: Vec<Line>,
    /// Why they differ.
    pub reasons: Vec<String>,
    /// Accounts of the triages.
    pub accounts: Vec<Account>,
}

impl Practice {
    /// Builds the document from the accounts of a figure, in the order in which a practice runs them. `None`: the
    /// published figures lack it.
    pub fn of(figure: Figure, accounts: Vec<Account>) -> Option<Self> {
        let row = figure_row(figure.id())?;
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let lines = match figure {
            Figure::Rand => rand(&row, &accounts),
            Figure::SpinlockShare => spinlock(&row, &accounts),
            Figure::ParallelProbing => probing(&row, &accounts),
        };
        let reasons = reasons(figure, &accounts);
        let (what, source) = (text("what"), text("source"));
        Some(Self { figure: figure.id(), what, source, lines, reasons, accounts })
    }

    /// Returns whether every published number has one of this host beside it.
    pub fn is_whole(&self) -> bool {
        self.accounts.iter().all(|account| account.status == Status::Complete)
            && self.lines.iter().all(|line| line.measured.is_some())
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// Computes the time that so many operations take at a rate.
fn time(what: &str, published: Option<f64>, operations: f64, rate: Option<Rate>, by: String) -> Line {
    let of = |per_second: f64| operations / per_second;
    let rate = rate.filter(|rate| rate.per_second > 0.0);
    let interval = rate.and_then(|rate| rate.interval).filter(|interval| interval.low > 0.0);
    Line {
        what: what.to_owned(),
        unit: "s",
        published,
        measured: rate.map(|rate| of(rate.per_second)),
        interval: interval.map(|Interval { low, high }| [of(high), of(low)]),
        by,
    }
}

fn ratio(what: &str, published: Option<f64>, found: Option<&Speedup>) -> Line {
    Line {
        what: what.to_owned(),
        unit: "x",
        published,
        measured: found.map(|found| found.ratio),
        interval: found.and_then(|found| found.interval).map(|Interval { low, high }| [low, high]),
        by: "within rounds".to_owned(),
    }
}

fn rand(row: &Table, accounts: &[Account]) -> Vec<Line> {
    let found = accounts.first().and_then(|account| account.ratio.as_ref());
    let of = |key: &str| row.get(key).and_then(number);
    let by = |draws: f64| format!("the time of {draws:.0} draws at the rate of its turns");
    vec![
        time("one locked rand()", of("before"), DRAWS, found.map(|found| found.workload), by(DRAWS)),
        time("a generator per thread", of("after"), DRAWS, found.map(|found| found.apart), by(DRAWS)),
        ratio("ratio", of("ratio"), found),
    ]
}

/// Computes the share of samples in a spin lock, percent, with its 95 % interval by Wilson.
fn share(sampling: &Sampling) -> Option<(f64, [f64; 2])> {
    /// The 97.5 % quantile of the normal distribution.
    const Z: f64 = 1.96;
    let n = sampling.samples as f64;
    // A kernel that hides its addresses shows no lock.
    if sampling.samples == 0 || sampling.functions.iter().any(|leaf| leaf.function.symbol == HIDDEN) {
        return None;
    }
    let in_lock = sampling
        .functions
        .iter()
        .filter(|leaf| leaf.function.in_kernel() && SPIN_LOCK.iter().any(|name| leaf.function.symbol.contains(name)));
    let p = in_lock.map(|leaf| leaf.samples).sum::<usize>() as f64 / n;
    let (centre, scale) = (p + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some((100.0 * p, [(centre - half).max(0.0) / scale, (centre + half) / scale].map(|bound| 100.0 * bound)))
}

fn spinlock(row: &Table, accounts: &[Account]) -> Vec<Line> {
    let line = |what: &str, published: Option<f64>, at: usize| {
        let sampling = accounts.get(at).and_then(|account| account.sampling.as_ref());
        let found = sampling.and_then(share);
        let by = sampling.map_or_else(String::new, |sampling| {
            let most = sampling.functions.first().map_or_else(String::new, |leaf| {
                let percent = 100.0 * leaf.samples as f64 / sampling.samples.max(1) as f64;
                format!("; most are in {} ({}), {percent:.1} %", leaf.function.symbol, leaf.function.module)
            });
            let share = if found.is_some() { "in spin locks of the kernel" } else { "the kernel hides its functions" };
            format!("{share}, of {} samples by {}{most}", sampling.samples, sampling.event)
        });
        let (measured, interval) = found.unzip();
        Line { what: what.to_owned(), unit: "percent", published, measured, interval, by }
    };
    vec![line("a process per copy", row.get("after").and_then(number), 0), line("threads of one process", None, 1)]
}

fn probing(row: &Table, accounts: &[Account]) -> Vec<Line> {
    let rows: Vec<f64> = row.get("rows").and_then(Value::as_array).into_iter().flatten().filter_map(number).collect();
    let published = |at: usize| rows.get(at).copied();
    let [all, disks] = [0, 1].map(|at| accounts.get(at).and_then(|account| account.ratio.as_ref()));
    let adapters = accounts.first().map_or(0, |account| account.subject.threads);
    let devices = (adapters * (1 + DISKS)) as f64;
    let by = || format!("the time of {devices:.0} devices at the rate of its turns");
    let quotient = |over: usize, under: usize| Some(published(over)? / published(under)?);
    vec![
        time("all one by one", published(0), devices, all.map(|found| found.workload), by()),
        time("adapters at once", published(1), devices, disks.map(|found| found.workload), by()),
        time("all at once", published(2), devices, all.map(|found| found.apart), by()),
        ratio("one by one over all at once", quotient(0, 2), all),
        ratio("adapters over all at once", quotient(1, 2), disks),
    ]
}

/// Says why what was found here is not what was published.
fn reasons(figure: Figure, accounts: &[Account]) -> Vec<String> {
    let Some(subject) = accounts.first().map(|account| &account.subject) else { return Vec::new() };
    let (threads, cpus, kernel) = (subject.threads, subject.cpus, &subject.kernel);
    let mut reasons = match figure {
        Figure::Rand => vec![
            "published: 8 threads on CPUs 0 to 7 of a larger machine; each draw there is also divided and put into sin()".to_owned(),
            format!("here {threads} threads on {cpus} CPUs draw and do nothing else, on Linux {kernel}"),
        ],
        Figure::SpinlockShare => vec![
            "published: Linux 2.6.31, whose memory cgroups counted every page under one global spin lock; it went with their counters per CPU".to_owned(),
            format!("here Linux {kernel} with {threads} copies on {cpus} CPUs: each page is counted per CPU, and a fault takes locks of its own page table"),
            "a clock's interrupt waits while a lock holds interrupts off: time there shows where they are turned on again".to_owned(),
        ],
        Figure::ParallelProbing => vec![
            "published: a POWER5 with 4 adapters and 13 disks that spin up, from boot to user space".to_owned(),
            format!("here {threads} simulated adapters with {DISKS} disks each, every device a wait of the same length that is fitted to nothing: only the ratios are alike"),
            "a serial phase is as long as its devices are many, so that the ratios follow from their numbers; a wait ends later than it is asked to, on a busy host much later".to_owned(),
        ],
    };
    if threads > cpus && figure != Figure::ParallelProbing {
        reasons.push(format!(
            "{threads} threads cannot run at once on {cpus} CPUs, and those that do not run do not contend"
        ));
    }
    for account in accounts {
        for note in &account.notes {
            let reason = format!("{}: {note}", account.subject.workload);
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    reasons
}

#[cfg(test)]
pub(super) mod tests {
    use crate::account::{Leaf, Subject};
    use crate::show::tests::planted;
    use crate::symbols::{Frame, KERNEL};
    use results::host::HostFacts;

    use super::*;

    pub(crate) fn account(workload: f64, apart: f64, locked: usize) -> Account {
        let rate = |per_second: f64| Rate {
            per_second,
            interval: Some(Interval { low: per_second * 0.8, high: per_second * 1.25 }),
        };
        let leaf = |samples: usize, symbol: &str, module: &str| Leaf {
            samples,
            function: Frame { symbol: symbol.into(), module: module.into() },
        };
        let functions = vec![
            leaf(200 - 2 * locked, "clear_page", KERNEL),
            leaf(locked, "native_queued_spin_lock_slowpath", KERNEL),
            leaf(locked, "spin_lock", "a program's own"),
        ];
        let base = planted();
        let interval = Some(Interval { low: 1.5, high: 9.0 });
        let (workload, apart, ratio) = (rate(workload), rate(apart), apart / workload);
        Account {
            subject: Subject { workload: "w".into(), threads: 8, kernel: "6.18".into(), ..base.subject },
            host: HostFacts::default(),
            sampling: Some(Sampling { event: "cpu-clock".into(), samples: 200, functions, ..base.sampling.unwrap() }),
            ratio: Some(Speedup { workload, apart, ratio, interval, rounds: 10 }),
            notes: vec!["a note".into()],
            ..base
        }
    }

    #[test]
    fn a_kernel_that_hides_its_functions_has_no_share() {
        let mut hidden = account(1.0, 1.0, 50);
        hidden.sampling.as_mut().unwrap().functions[0].function.symbol = HIDDEN.to_owned();
        let found = Practice::of(Figure::SpinlockShare, vec![hidden]).unwrap();
        assert!(!found.is_whole() && found.lines[0].by.contains("hides"), "{:?}", found.lines);
    }
}
