//! Distance of NEW from BASE: one arm against the reference arm, and all arms together.
//!
//! | runs a side | one arm against the reference | all arms together |
//! |---|---|---|
//! | 8 and more, in turns | what leaving out a block of neighbouring runs changes | the same |
//! | 8 and more, else | what leaving out a run changes, and the correlation of neighbours | the same, and that of stretches |
//! | fewer | what leaving out guests changes, and how runs differ: as both sides show it, pooled with [`Spread::between_runs`] | an allowance of [`DRIFT`] for each run |

use serde::Serialize;

use super::sample::{MIN_RUNS, Run, Sides};

use crate::paired::groups::groups;
use crate::paired::{LAYOUT, MIN_ROUNDS, Pair, Spread, centre, logarithms};
use crate::stats::change_points::of_related;
use crate::stats::jackknife::{Estimate, known, leave_one_out, of_leave_one_out, over_groups};
use crate::stats::leave_one_out;

/// Allowance for what differs between two runs in all arms together, standard deviation of a logarithm.
pub const DRIFT: f64 = 0.12;
/// Spread of the layouts of processes that a host may have, standard deviation of a logarithm.
const LAYOUTS: f64 = 0.03;
/// Share of the values that is left out at each end of a run.
const TRIM: f64 = 0.1;
/// Share of the runs that must have a neighbour of the other side.
const BLOCKED: f64 = 0.8;

/// A run's start, and by round the guest and a logarithm.
type Rounds = (u64, Vec<(u64, f64)>);

/// A change and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Logarithm of NEW over BASE.
    pub(super) log: Estimate,
    /// Logarithms of the two, whose difference it is.
    pub(super) sides: [f64; 2],
    /// The part of its error that more rounds of the same runs do not make smaller.
    pub(super) allowance: Estimate,
    /// Blocks of neighbouring runs; 0: runs were not taken in turns.
    pub(super) blocks: usize,
}

impl Change {
    /// Returns whether processes' layouts of 3 % an arm may explain the change at this level, where what is between runs rests more on
    /// the default, which is of one host, than on what these runs showed.
    pub(super) fn may_be_layout(&self, alpha: f64) -> bool {
        let by_default = self.allowance.freedom < 2.0 * Spread::FREEDOM;
        // Two arms of a run differ by it, and two runs.
        by_default && self.log.widened(2.0 * LAYOUTS).p() >= alpha
    }
}

/// Order in which the runs of two sides were taken, by their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Neighbours are of different sides, so that both met the same host.
    InTurns,
    /// All of one side, then all of the other.
    OneAfterTheOther,
    /// Neither.
    Mixed,
    /// All have one start.
    Unknown,
}

impl Order {
    /// Finds the order of runs with these starts; `None` of one run a side.
    pub fn of(base: &[u64], new: &[u64]) -> Option<Self> {
        let ends = |side: &[u64]| Some((*side.iter().min()?, *side.iter().max()?));
        let ((first, last), (new_first, new_last)) = ends(base).zip(ends(new))?;
        let found = if first.min(new_first) == last.max(new_last) {
            Self::Unknown
        } else if neighbours(base, new).is_some() {
            Self::InTurns
        } else if last <= new_first || new_last <= first {
            Self::OneAfterTheOther
        } else {
            Self::Mixed
        };
        (base.len() + new.len() > 2).then_some(found)
    }

    /// Describes it behind a number of runs.
    pub const fn about(self) -> &'static str {
        match self {
            Self::InTurns => "in turns",
            Self::OneAfterTheOther => "one side after the other",
            Self::Mixed => "in mixed order",
            Self::Unknown => "in unknown order",
        }
    }
}

/// Returns the block of each run of BASE and NEW, if at least eight neighbours of different sides make one each.
fn blocks(base: &[u64], new: &[u64]) -> Option<(Vec<usize>, Vec<usize>, usize)> {
    neighbours(base, new).filter(|(.., count)| *count >= MIN_RUNS)
}

/// Returns the block of each run of BASE and NEW, if most neighbours are of different sides.
fn neighbours(base: &[u64], new: &[u64]) -> Option<(Vec<usize>, Vec<usize>, usize)> {
    let sides = [base, new];
    let mut order: Vec<(u64, usize, usize)> =
        (0..2).flat_map(|side| sides[side].iter().enumerate().map(move |(run, at)| (*at, side, run))).collect();
    order.sort_unstable();
    let mut of = [vec![usize::MAX; base.len()], vec![usize::MAX; new.len()]];
    let (mut count, mut at) = (0, 0);
    let mut alone = Vec::new();
    while at < order.len() {
        let (_, side, run) = order[at];
        match order.get(at + 1) {
            Some(&(_, other, next)) if other != side => {
                of[side][run] = count;
                of[other][next] = count;
                count += 1;
                at += 2;
            }
            _ => {
                // It goes to the block before it.
                alone.push((side, run, count.saturating_sub(1)));
                at += 1;
            }
        }
    }
    for (side, run, block) in alone {
        of[side][run] = block;
    }
    let matched = 2.0 * count as f64 / order.len().max(1) as f64;
    let [base, new] = of;
    (matched >= BLOCKED).then_some((base, new, count))
}

/// Computes a difference of two figures with runs as groups: by blocks if there are any, else of sides whose runs are
/// related. `without` gives the figures without each of so many groups.
fn by_runs<T: Copy>(
    base: &[(u64, Vec<T>)],
    new: &[(u64, Vec<T>)],
    simulated: bool,
    figure: impl Fn(&[T]) -> Option<f64>,
    without: impl Fn(&[T], &[usize], usize) -> Option<Vec<f64>>,
) -> Option<(Estimate, usize)> {
    let side = |runs: &[(u64, Vec<T>)], groups: &[usize], count: usize| -> Option<(f64, Vec<f64>)> {
        let of_run =
            |((_, values), group): (&(u64, Vec<T>), &usize)| values.iter().map(|value| (*value, *group)).collect();
        let (values, group): (Vec<T>, Vec<usize>) = runs.iter().zip(groups).flat_map::<Vec<_>, _>(of_run).unzip();
        Some((figure(&values)?, without(&values, &group, count)?))
    };
    let starts = |runs: &[(u64, Vec<T>)]| runs.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    if let Some((of_base, of_new, count)) = blocks(&starts(base), &starts(new)) {
        let ((one, without_one), (two, without_two)) = (side(base, &of_base, count)?, side(new, &of_new, count)?);
        let differences: Vec<f64> = without_two.iter().zip(&without_one).map(|(two, one)| two - one).collect();
        return Some((of_leave_one_out(two - one, &differences)?, count));
    }
    // A side, and what each run makes of it, in order of time.
    let alone = |runs: &[(u64, Vec<T>)]| -> Option<(Estimate, Vec<f64>)> {
        let (value, without) = side(runs, &(0..runs.len()).collect::<Vec<_>>(), runs.len())?;
        let more = runs.len() as f64 - 1.0;
        let mut shares: Vec<(u64, f64)> =
            runs.iter().zip(&without).map(|((at, _), without)| (*at, value + more * (value - without))).collect();
        shares.sort_by_key(|(at, _)| *at);
        Some((of_leave_one_out(value, &without)?, shares.into_iter().map(|(_, share)| share).collect()))
    };
    let ((one, of_base), (two, of_new)) = (alone(base)?, alone(new)?);
    let apart = two.less(&one);
    if simulated {
        return Some((apart, 0));
    }
    let (error, freedom) = of_related([&of_base, &of_new]);
    Some((Estimate { error: apart.error.max(error), freedom: apart.freedom.min(freedom), ..apart }, 0))
}

/// Computes the change of an arm's ratio to the reference arm; `between`: how runs differ, `None` of simulated ones. `None` with too
/// few rounds for an interval.
pub(super) fn of_arm(base: &[Run], new: &[Run], between: Option<Spread>) -> Option<Change> {
    let runs = |side: &[Run]| -> Vec<(u64, Vec<Pair>)> {
        side.iter().filter(|run| !run.pairs.is_empty()).map(|run| (run.started, run.pairs.clone())).collect()
    };
    let (base, new) = (runs(base), runs(new));
    let all = |side: &[(u64, Vec<Pair>)]| side.iter().flat_map(|(_, pairs)| pairs.clone()).collect::<Vec<Pair>>();
    let (pooled_base, pooled_new) = (all(&base), all(&new));
    if pooled_base.len() < MIN_ROUNDS || pooled_new.len() < MIN_ROUNDS {
        return None;
    }
    let sides = [centre(&pooled_base)?, centre(&pooled_new)?];
    if base.len().min(new.len()) >= MIN_RUNS {
        let without =
            |pairs: &[Pair], group: &[usize], count: usize| leave_one_out::centres(&logarithms(pairs), group, count);
        let (log, blocks) = by_runs(&base, &new, between.is_none(), centre, without)?;
        return Some(Change { log, sides, allowance: known(0.0), blocks });
    }
    // The estimate over all rounds of a side, and that of each of its runs.
    let side = |runs: &[(u64, Vec<Pair>)], pooled: &[Pair]| -> Option<(Estimate, Vec<Estimate>)> {
        let (mut group, mut first, mut few, mut alone) = (Vec::new(), 0, 0_usize, Vec::new());
        for (_, pairs) in runs {
            let found = groups(&pairs.iter().map(|pair| pair.guest).collect::<Vec<_>>());
            alone.extend(over_groups(pairs, &found.group, centre));
            group.extend(found.group.iter().map(|own| own + first));
            first = group.last().map_or(0, |last| last + 1);
            few += if found.by_guest { 0 } else { found.guests };
        }
        let layout = if few > 0 && between.is_some() { LAYOUT * (2.0 / few as f64).sqrt() } else { 0.0 };
        Some((over_groups(pooled, &group, centre)?.widened(layout), alone))
    };
    let ((one, runs_one), (two, runs_two)) = (side(&base, &pooled_base)?, side(&new, &pooled_new)?);
    let log = two.less(&one);
    let Some(between) = between else { return Some(Change { log, sides, allowance: known(0.0), blocks: 0 }) };
    let seen: Vec<(f64, f64)> = [runs_one, runs_two].iter().filter_map(|runs| between.seen(runs)).collect();
    let runs = between.pooled(&seen).error(1.0 / base.len() as f64 + 1.0 / new.len() as f64);
    Some(Change { log: log.less(&runs), sides, allowance: runs, blocks: 0 })
}

/// Computes the change of the times of all arms together: their mean logarithm over arms, by round, and its trimmed
/// mean over rounds. `arms` are the runs of each arm, BASE and NEW.
pub(super) fn of_all(arms: &[Sides<'_>], simulated: bool) -> Option<Change> {
    let side = |pick: for<'a> fn(&Sides<'a>) -> &'a [Run]| -> Option<Vec<Rounds>> {
        let arms: Vec<&[Run]> = arms.iter().map(pick).collect();
        let (first, others) = arms.split_first()?;
        let rounds_of = |run: &Run| -> Option<(u64, Vec<(u64, f64)>)> {
            let others: Option<Vec<&Run>> = others.iter().map(|runs| of_document(runs, run.document)).collect();
            let others = others?;
            let mean = |(round, (guest, own)): (&u64, &(u64, f64))| {
                let logs: Option<Vec<f64>> = others.iter().map(|run| Some(run.logs.get(round)?.1)).collect();
                Some((*guest, (own + logs?.iter().sum::<f64>()) / (others.len() + 1) as f64))
            };
            let rounds: Vec<(u64, f64)> = run.logs.iter().filter_map(mean).collect();
            (!rounds.is_empty()).then_some((run.started, rounds))
        };
        Some(first.iter().filter_map(rounds_of).collect())
    };
    let (base, new) = (side(|both| both.0)?, side(|both| both.1)?);
    // Each run counts once, however many rounds it has.
    let levels = |runs: &[Rounds]| -> Vec<(u64, Vec<f64>)> {
        runs.iter().filter_map(|(at, rounds)| Some((*at, vec![trimmed(&logs(rounds))?]))).collect()
    };
    let (base_levels, new_levels) = (levels(&base), levels(&new));
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let mean_of = |levels: &[(u64, Vec<f64>)]| {
        mean(&levels.iter().flat_map(|(_, level)| level.iter().copied()).collect::<Vec<_>>())
    };
    if base_levels.len().min(new_levels.len()) >= MIN_RUNS {
        let without = |values: &[f64], group: &[usize], count: usize| leave_one_out(values, group, count, mean);
        let (log, blocks) = by_runs(&base_levels, &new_levels, simulated, mean, without)?;
        return Some(Change {
            log,
            sides: [mean_of(&base_levels)?, mean_of(&new_levels)?],
            allowance: known(0.0),
            blocks,
        });
    }
    let within = |runs: &[Rounds]| {
        let rounds: Vec<(u64, f64)> = runs.iter().flat_map(|(_, rounds)| rounds.clone()).collect();
        let group = groups(&rounds.iter().map(|(guest, _)| *guest).collect::<Vec<_>>()).group;
        (rounds.len() >= MIN_ROUNDS).then(|| over_groups(&logs(&rounds), &group, trimmed)).flatten()
    };
    let runs = 1.0 / base.len().max(1) as f64 + 1.0 / new.len().max(1) as f64;
    let allowance = known(if simulated { 0.0 } else { DRIFT * runs.sqrt() });
    let (one, two) = (within(&base)?, within(&new)?);
    let sides = [one.value, two.value];
    Some(Change { log: two.less(&one).widened(allowance.error), sides, allowance, blocks: 0 })
}

fn of_document(runs: &[Run], document: usize) -> Option<&Run> {
    // They are in order of their documents.
    runs.binary_search_by_key(&document, |run| run.document).ok().map(|found| &runs[found])
}

fn logs(rounds: &[(u64, f64)]) -> Vec<f64> {
    rounds.iter().map(|(_, log)| *log).collect()
}

/// Computes the mean without the ends.
fn trimmed(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = (0..sorted.len()).take_while(|n| (*n as f64) < TRIM * sorted.len() as f64).count().saturating_sub(1);
    let kept = &sorted[cut..sorted.len() - cut];
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_both_sides_make_blocks() {
        let (even, odd): (Vec<u64>, Vec<u64>) = ((0..8).map(|n| 2 * n).collect(), (0..8).map(|n| 2 * n + 1).collect());
        let (base, new, count) = blocks(&even, &odd).unwrap();
        assert_eq!((base, new, count), ((0..8).collect(), (0..8).collect(), 8));
        // One side after the other: nothing to pair.
        assert_eq!(blocks(&(0..8).collect::<Vec<_>>(), &(8..16).collect::<Vec<_>>()), None);
        assert_eq!(blocks(&even[..7], &odd[..7]), None);
        let more: Vec<u64> = even.iter().copied().chain([16, 18]).collect();
        let (base, _, count) = blocks(&more, &odd).unwrap();
        assert_eq!((count, base[9]), (8, 7));
    }

    #[test]
    fn the_order_is_that_of_the_starts() {
        let of = |base: &[u64], new: &[u64]| Order::of(base, new);
        assert_eq!(of(&[1, 4, 5, 8], &[2, 3, 6, 7]), Some(Order::InTurns));
        assert_eq!(of(&[5, 6, 7, 8], &[1, 2, 3, 5]), Some(Order::OneAfterTheOther));
        assert_eq!(of(&[1, 2, 5, 6], &[3, 4, 7, 8]), Some(Order::Mixed));
        assert_eq!((of(&[3, 3], &[3, 3]), of(&[1], &[2]), of(&[1], &[])), (Some(Order::Unknown), None, None));
    }
}
