//! Counts of work: host operations by kind, exits, and PMIs of a sample. They need no quiet host.
//!
//! With one event a guest makes the same operations for each PMI at nearly any load, so counts that repeat, from round to round or in most
//! turns, are compared exactly. With more events than counters they follow the tick, and the host's load with it; then all operations
//! together are compared at the same exits, by how runs differ there, and only what is clearly more is said.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{DiscreteCDF, Hypergeometric};

use super::change::{Change, Level, of_few};
use super::group::{Both, Pair, SIDES};
use super::row::{Question, Row, SideLevel, is_same};
use crate::document::{Arm, Record};
use crate::metric::EXIT_PATH;
use crate::paired::groups::groups;
use crate::stats::jackknife::{Estimate, known, over_groups};
use crate::stats::{mean, median};
use crate::verdict::Limits;

/// All host operations of a PMI.
pub(super) const OPERATIONS: &str = "operations/PMI";
/// How operations for a PMI differ from run to run at the same exits: with ten events 20 default runs at loads to 10 show standard
/// deviations of a logarithm of 0.5 to 1.2 %, turns of `ab` 1.3 to 2 %.
const BETWEEN: Estimate = Estimate { value: 0.0, error: 0.015, freedom: 10.0 };
/// Share of a difference in exits for a PMI, a logarithm, by which operations for a PMI differ alike, as both follow the tick, and how
/// unsure it is: these runs give 0.3 to 0.7. Not at the same exits default runs differ by up to 5 %,
/// turns by 6 %.
const OF_EXITS: (f64, f64) = (0.5, 0.25);
/// Most such difference that is the host's, a logarithm: between loads of 3 and 10 exits differ by 37 to 41 %.
const MOST_EXITS: f64 = 0.35;
/// Share of the rounds in which one operation too many is a build's, where the other side's rounds repeat, and the least number of
/// them: at a load of 10 one or two rounds of a hundred have some.
const SPORADIC: (f64, f64) = (0.125, 8.0);
/// Parameters that counts of a PMI depend on, beside those that must be equal anyway.
pub(super) const CONDITIONS: [&str; 4] = ["samples", "warmup_samples", "warmup_rounds", "rounds_per_guest"];

/// Returns the counts of an arm by their names, each for a PMI; `None` where nothing was counted, as below KVM's own vPMU.
pub fn per_pmi(arm: &Arm) -> Option<BTreeMap<String, f64>> {
    let (own, pmis) = (&arm.own, arm.own.counts.nmis as f64);
    if pmis <= 0.0 || own.host_ops.is_empty() {
        return None;
    }
    let mut counts: BTreeMap<String, f64> =
        own.host_ops.iter().map(|(kind, op)| (format!("{kind}/PMI"), op.count as f64 / pmis)).collect();
    counts.insert(OPERATIONS.to_owned(), own.all_ops() as f64 / pmis);
    if !own.msr_exits.is_empty() {
        counts.insert("exits/PMI".to_owned(), own.all_exits() as f64 / pmis);
    }
    let (_, main) = arm.headline()?;
    counts.insert("PMIs/sample".to_owned(), pmis / main.count.max(1) as f64);
    Some(counts)
}

/// Counts of one arm in one run.
struct Work {
    /// Start of the run.
    started: u64,
    /// By name, each for a PMI.
    counts: BTreeMap<String, f64>,
    /// Each of its rounds has the same exits, opens and PMIs.
    repeats: bool,
    /// Its operations of each kind could be the same in each round.
    even: bool,
    /// Logarithm of its operations, with the error that its rounds' exits leave at given exits.
    operations: Estimate,
    pmis: f64,
    /// Logarithm of its exits for a PMI.
    exits: f64,
    rounds: usize,
}

impl Work {
    /// Returns the counts of an arm; `None` where nothing was counted, as below KVM's own vPMU.
    fn of(started: u64, arm: &Arm) -> Option<Self> {
        let (counts, rounds) = (per_pmi(arm)?, &arm.rounds);
        let exits = rounds.metrics.get(EXIT_PATH.key).map_or(&[][..], |column| &column.count);
        let whole = |column: &[u64]| -> Vec<u64> {
            column.iter().zip(&rounds.complete).filter(|(_, complete)| **complete).map(|(count, _)| *count).collect()
        };
        let [exits, opens, nmis] = [exits, &rounds.counts.opens, &rounds.counts.nmis].map(whole);
        let repeats = exits.len() == nmis.len()
            && [&exits, &opens, &nmis].iter().all(|all| all.iter().all(|count| *count == all[0]));
        let guests: Vec<u64> = rounds.iter().filter(|round| round.complete).map(|round| round.guest).collect();
        let logs: Vec<f64> =
            exits.iter().zip(&nmis).map(|(e, n)| ((*e).max(1) as f64 / (*n).max(1) as f64).ln()).collect();
        let spread = (logs.len() == guests.len()).then(|| over_groups(&logs, &groups(&guests).group, mean)).flatten();
        let exits = mean(&logs)?;
        let value = counts[OPERATIONS].max(f64::MIN_POSITIVE).ln();
        let operations = spread.map(|spread| Estimate { value, error: OF_EXITS.1 * spread.error, ..spread })?;
        let even = arm.own.host_ops.values().all(|op| op.count.is_multiple_of(nmis.len() as u64));
        let pmis = nmis.iter().sum::<u64>() as f64;
        Some(Self { started, counts, repeats, pmis, even, operations, exits, rounds: nmis.len() })
    }

    fn count(&self, name: &str) -> f64 {
        self.counts.get(name).copied().unwrap_or(0.0)
    }
}

/// Returns whether two sides have unlike shares of runs with a count, of as many runs, by Fisher's exact test.
fn are_unlike([base, new]: Both<[usize; 2]>, alpha: f64) -> bool {
    let [[of_base, drawn], [of_new, others]] = [base, new].map(|side| side.map(|n| n as u64));
    let Ok(law) = Hypergeometric::new(drawn + others, of_base + of_new, drawn) else { return false };
    2.0 * law.cdf(of_base).min(of_base.checked_sub(1).map_or(1.0, |less| law.sf(less))) < alpha
}

/// Returns the number of a side's runs that have this count.
fn have(works: &[Work], name: &str, one: f64) -> usize {
    works.iter().filter(|work| is_same(work.count(name), one)).count()
}

/// Returns the count that a side repeats; of turns that of most of them, if most have the same of each of these kinds, as the host disturbs
/// some.
fn usual(works: &[Work], names: &BTreeSet<&String>, name: &str, pair: &Pair<'_>) -> Option<f64> {
    if pair.turns {
        let most = |name: &str| {
            let counts: Vec<f64> = works.iter().map(|work| work.count(name)).collect();
            median(&counts).filter(|usual| works.len() > 1 && 2 * have(works, name, *usual) > works.len())
        };
        return most(name).filter(|_| names.iter().all(|name| most(name).is_some()));
    }
    // Two runs with the same operations show that they repeat; of one they must be a whole number a round.
    let same = |name: &&String| have(works, name, works[0].count(name)) == works.len();
    let even = works.len() > 1 || works[0].even || pair.simulated();
    (even && works.iter().all(|work| work.repeats) && names.iter().all(same)).then(|| works[0].count(name))
}

/// Compares the operations of both sides at the exits of BASE.
fn at_exits(sides: &Both<Vec<Work>>) -> Change {
    let exits = sides.each_ref().map(|works| works.iter().map(|work| work.exits).sum::<f64>() / works.len() as f64);
    let apart = |exits_of: f64| (exits_of - exits[0]).clamp(-MOST_EXITS, MOST_EXITS);
    let operations: Both<Vec<Level>> = sides.each_ref().map(|works| {
        let of = |work: &Work| work.operations.value - OF_EXITS.0 * apart(work.exits);
        works.iter().map(|work| (work.started, Estimate { value: of(work), ..work.operations })).collect()
    });
    let found = of_few(&operations, Some(BETWEEN));
    Change { log: found.log.less(&known(OF_EXITS.1 * apart(exits[1]))), ..found }
}

/// Compares the counts of one arm; those of figures that are not whole are no counts of a PMI.
pub(super) fn rows(arm: &str, pair: &Pair<'_>, limits: Limits) -> Vec<Row> {
    let of_run = |record: &&Record| Work::of(record.started_unix, pair.arm(record, arm)?);
    let sides: Both<Vec<Work>> = pair.sides.each_ref().map(|side| side.iter().filter_map(of_run).collect());
    let names: BTreeSet<&String> = sides.iter().flatten().flat_map(|work| work.counts.keys()).collect();
    let one_sided = |name: &str, at: usize| {
        let row = Row::new(Question::Counts, (arm, name), limits, <_>::default());
        row.doubted(Some(format!("one-sided: {} has no counts of it", SIDES[at])))
    };
    if let Some(at) = sides.iter().position(Vec::is_empty) {
        return if names.is_empty() { Vec::new() } else { vec![one_sided(OPERATIONS, at)] };
    }
    // No load disturbs a simulation: what its runs have more is the build's, in whatever round.
    let (share, least) = if pair.simulated() { (0.0, 1.0) } else { SPORADIC };
    let operations = at_exits(&sides);
    let row = |name: &&String| {
        if let Some(at) = sides.iter().position(|works| works.iter().any(|work| !work.counts.contains_key(*name))) {
            return one_sided(name, at);
        }
        let usual = sides.each_ref().map(|works| usual(works, &names, name, pair));
        let shares = |one| sides.each_ref().map(|works| [have(works, name, one), works.len()]);
        // What only some turns have more may be a build's, too; there are some ten kinds.
        let moved = pair.turns && usual.iter().flatten().any(|one| are_unlike(shares(*one), limits.alpha / 10.0));
        let levels = [0, 1].map(|side: usize| {
            let (works, runs) = (&sides[side], sides[side].len());
            let mean = works.iter().map(|work| work.count(name)).sum::<f64>() / runs as f64;
            let value = usual[side].filter(|_| usual[0] != usual[1] || !moved).or(Some(mean));
            SideLevel { value, n: works.iter().map(|work| work.rounds).sum(), runs }
        });
        let [base, new] = levels.map(|level| level.value.unwrap_or_default());
        let extra = (new - base).abs() * sides[1].iter().map(|work| work.pmis).sum::<f64>();
        // What some turn of the other side has, too, may be the host's.
        let unseen = usual.iter().flatten().all(|one| shares(*one).iter().any(|[have, _]| *have == 0));
        let exact = match usual {
            [Some(of_base), Some(of_new)] => moved || unseen || is_same(of_base, of_new),
            [Some(_), None] => moved || !pair.turns && extra >= least.max(share * levels[1].n as f64),
            [None, _] => false,
        };
        let is_judged = **name == OPERATIONS && levels.iter().all(|level| level.value > Some(0.0));
        Row::of_counts((arm, name), limits, levels, exact, (is_judged && !exact).then_some(operations))
    };
    names.iter().map(row).collect()
}
