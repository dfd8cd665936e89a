//! Which facts of hosts changed, on which hosts, and when.

use std::collections::{BTreeMap, BTreeSet};

use super::grid::Grid;

/// A fact's change from one value to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) fact: String,
    pub(super) from: String,
    pub(super) to: String,
}

impl Step {
    pub(super) fn text(&self) -> String {
        format!("{} {} → {}", self.fact, self.from, self.to)
    }
}

/// Facts that changed together, and the period of the first run after it, by host.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) steps: Vec<Step>,
    pub(super) hosts: BTreeMap<usize, usize>,
}

/// A host whose fact changes more often than this has it changing all the time.
const MOST: usize = 3;
/// Facts that change on this share of each other's hosts at the same time changed together.
const TOGETHER: f64 = 0.8;

/// The last run of each period, by host. Variants that take turns have binaries of their own: each is followed by itself.
fn by_host(grid: &Grid<'_>) -> BTreeMap<(usize, Option<String>), BTreeMap<usize, usize>> {
    let mut all: BTreeMap<_, BTreeMap<usize, usize>> = BTreeMap::new();
    for (run, meta) in grid.meta.iter().enumerate() {
        let variant = grid.runs[run].labels.variant.clone();
        all.entry((meta.host, variant)).or_default().insert(meta.period, run);
    }
    all
}

/// Every change of facts, those on most hosts first; and facts that change all the time, with the number of hosts.
pub(super) fn turns(grid: &Grid<'_>) -> (Vec<Turn>, BTreeMap<String, usize>) {
    let mut single: BTreeMap<Step, BTreeMap<usize, usize>> = BTreeMap::new();
    let mut restless: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for ((host, _), runs) in by_host(grid) {
        let mut own: BTreeMap<&str, Vec<(Step, usize)>> = BTreeMap::new();
        for ((_, before), (period, after)) in runs.iter().zip(runs.iter().skip(1)) {
            let (before, after) = (&grid.runs[*before].facts, &grid.runs[*after].facts);
            // Runs that were reduced together share their facts.
            if std::sync::Arc::ptr_eq(before, after) {
                continue;
            }
            for (fact, to) in after.iter() {
                let from = before.get(fact).map_or("unknown", String::as_str);
                if from != to {
                    let step = Step { fact: fact.clone(), from: from.to_owned(), to: to.clone() };
                    own.entry(fact).or_default().push((step, *period));
                }
            }
        }
        for (fact, steps) in own {
            if steps.len() > MOST {
                restless.entry(fact.to_owned()).or_default().insert(host);
                continue;
            }
            for (step, period) in steps {
                single.entry(step).or_default().entry(host).or_insert(period);
            }
        }
    }
    let mut turns: Vec<Turn> = Vec::new();
    for (step, hosts) in single {
        let alike = |turn: &&mut Turn| {
            let both = hosts.iter().filter(|(host, period)| turn.hosts.get(host) == Some(period)).count() as f64;
            both >= TOGETHER * hosts.len().max(turn.hosts.len()) as f64
        };
        match turns.iter_mut().find(alike) {
            Some(turn) => turn.steps.push(step),
            None => turns.push(Turn { steps: vec![step], hosts }),
        }
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.hosts.len()));
    (turns, restless.into_iter().map(|(fact, hosts)| (fact, hosts.len())).collect())
}
