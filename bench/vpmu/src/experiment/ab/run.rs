//! Pairs of turns, until there are enough.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_pmu::stats::ns;
use results::document::{KVM_ARMS, Status, Tool};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::paired::{Looks, are_few};
use results::verdict::{Limits, Verdict};
use results::write::now_unix;
use serde::Serialize;

use super::judge::{self, AbArm, AbPair, Row};
use super::turn::{self, Parameters, ROUNDS, Turn, TurnArm};
use super::{AbSpec, Side};
use crate::arms::rounds::schedule::Schedule;
use crate::setting::process;
use crate::terminal::progress::Progress;

/// Name and version of the schema.
pub const SCHEMA: &str = "vpmu-ab/2";
/// Steps of the progress display.
const STEPS: u64 = 100;

/// The two sides, BASE first.
type Both<T> = [T; 2];

/// Everything that was measured, and the verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The build that started both sides.
    pub tool: Tool,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Start, seconds since 1970.
    pub started_unix: u64,
    /// Time from the start to the last whole pair.
    pub wall_ns: u64,
    /// Outcome of the whole.
    pub status: Status,
    /// Seed of all orders.
    pub seed: u64,
    /// The host.
    pub host: HostFacts,
    /// The reference.
    pub base: AbSide,
    /// Side that is judged.
    pub new: AbSide,
    /// Both sides are one file with the same options.
    pub same_build: bool,
    /// Rules of the verdicts.
    pub rules: Limits,
    /// Pairs of turns.
    pub pairs: u64,
    /// The verdict of the whole.
    pub verdict: Verdict,
    /// The verdict for each arm and metric.
    pub rows: Vec<Row>,
    /// Reasons why nothing but SLOWER can be said: an arm lacks too many pairs or a side, or is not known as well as wanted.
    pub doubts: Vec<String>,
    /// Pairs that are left out of an arm, where they are few.
    pub left_out: Vec<String>,
    /// The arms with their pairs.
    pub arms: Vec<AbArm>,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbSide {
    /// The build's path.
    pub binary: String,
    /// The build.
    pub tool: Tool,
    /// Options of its own.
    pub args: Vec<String>,
    /// The parameters of its runs.
    #[serde(flatten)]
    pub parameters: Parameters,
    /// True if its backend stands in for hardware events.
    pub stand_in: bool,
}

/// Runs both sides on this host, whose facts are those before the run; `stop` is set when the user wants it to end.
///
/// # Errors
/// A side that fails before there is a pair. A later failure ends the run; the pairs before it count.
pub fn run(
    spec: &AbSpec,
    (mut host, fs): (HostFacts, &HostFs),
    command_line: Vec<String>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<(AbDocument, Option<Error>), Error> {
    let (started_unix, began) = (now_unix(), Instant::now());
    let mut run = Run {
        spec,
        began,
        first: None,
        places: Vec::new(),
        arms: Vec::new(),
        pairs: 0,
        wall: Duration::ZERO,
        bad: Vec::new(),
        alone: Vec::new(),
    };
    let stopped = || stop.load(Ordering::Relaxed);
    progress.begin(STEPS);
    let ended = run.pairs(&stopped, progress);
    progress.end();
    let error = ended.err();
    let (Some([base, new]), 1..) = (&run.first, run.pairs) else {
        return Err(
            error.unwrap_or_else(|| Error::new(Exit::Inconclusive, "interrupted before there was a pair", "", ""))
        );
    };
    if is_simulated(new) {
        // Nothing of this machine enters the result.
        host = HostFacts { class: new.host().0, ..HostFacts::default() };
    } else {
        host.finish(fs);
    }
    let status = match (&error, stopped()) {
        (_, true) => Status::Interrupted,
        (Some(_), _) => Status::Incomplete,
        (None, false) => Status::Complete,
    };
    let rows = judge::rows(&run.arms, &spec.rules);
    let (mut doubts, left_out) = (run.left_out(false), run.left_out(true));
    doubts.append(&mut run.alone);
    if spec.until_ci.is_some_and(|share| !judge::known_to(&rows, share)) {
        doubts.push("--until-ci was not reached: a longer --duration has more pairs".to_owned());
    }
    let [base_side, new_side] = &spec.sides;
    let document = AbDocument {
        schema: SCHEMA,
        tool: process::tool(),
        command_line,
        started_unix,
        wall_ns: ns(run.wall),
        status,
        seed: spec.seed,
        host,
        base: side(base_side, base),
        new: side(new_side, new),
        same_build: same(base_side, new_side),
        rules: spec.rules,
        pairs: run.pairs,
        verdict: judge::overall(&rows, status != Status::Complete || !doubts.is_empty()),
        rows,
        doubts,
        left_out,
        arms: run.arms,
    };
    Ok((document, error))
}

fn side(of: &Side, turn: &Turn) -> AbSide {
    AbSide {
        binary: of.binary.display().to_string(),
        tool: turn.tool.clone(),
        args: of.args.clone(),
        parameters: turn.parameters.clone(),
        stand_in: turn.host().1,
    }
}

struct Run<'a> {
    spec: &'a AbSpec,
    began: Instant,
    /// The turns of the first pair.
    first: Option<Both<Turn>>,
    /// The place of each arm on both sides.
    places: Vec<Both<usize>>,
    arms: Vec<AbArm>,
    pairs: u64,
    wall: Duration,
    /// The number of rounds of each arm that are not whole, and why the first is not.
    bad: Vec<(usize, Option<String>)>,
    /// The arms that run on one side alone.
    alone: Vec<String>,
}

impl Run<'_> {
    fn pairs(&mut self, stopped: &dyn Fn() -> bool, progress: &mut dyn Progress) -> Result<(), Error> {
        let (mut order, mut looks, mut steps) = (Schedule::new(self.spec.seed), Looks::default(), 0);
        loop {
            progress.run(&format!("pair {}", self.pairs + 1));
            let mut turns: Both<Option<Turn>> = [None, None];
            for at in order.next_round(2) {
                let seed = self.spec.seed.wrapping_add(self.pairs);
                let side = &self.spec.sides[at];
                let Some(turn) = turn::take(side, &self.spec.common, seed, self.spec.duration, stopped)? else {
                    return Ok(());
                };
                turns[at] = Some(turn);
            }
            let [Some(base), Some(new)] = turns else { return Ok(()) };
            self.add([base, new])?;
            let share = self.share();
            while steps < STEPS && (steps as f64) < share * STEPS as f64 {
                steps += 1;
                progress.step();
            }
            let known = |share| judge::known_to(&judge::rows(&self.arms, &self.spec.rules), share);
            if share >= 1.0 || self.spec.until_ci.is_some_and(|share| looks.are_enough(|| known(share))) {
                return Ok(());
            }
        }
    }

    /// Returns how much of the run is over.
    fn share(&self) -> f64 {
        let by_time = self.began.elapsed().as_secs_f64() / self.spec.duration.as_secs_f64();
        by_time.max(self.spec.pairs.map_or(0.0, |bound| self.pairs as f64 / bound.max(1) as f64))
    }

    /// Adds a pair of turns.
    fn add(&mut self, turns: Both<Turn>) -> Result<(), Error> {
        let arms = [turns[0].arms(), turns[1].arms()];
        if self.first.is_none() {
            check(&turns, self.spec)?;
            let names = arms.each_ref().map(|arms| arms.iter().map(|arm| arm.name.clone()).collect::<Vec<_>>());
            let is_here =
                |[b, n]: &Both<usize>| [&arms[0][*b], &arms[1][*n]].iter().all(|arm| arm.not_available.is_none());
            self.places = paired(&names)?.into_iter().filter(is_here).collect();
            self.alone = alone(&arms, &self.places, &self.spec.sides);
            if self.places.is_empty() {
                let why: Vec<&str> = arms.iter().flatten().filter_map(|arm| arm.not_available.as_deref()).collect();
                return Err(Error::host(
                    "no arm runs on both sides",
                    why.join("; "),
                    "`vpmu doctor` says what is missing",
                ));
            }
            let name = |[b, n]: &Both<usize>| {
                let (base, new) = (&names[0][*b], &names[1][*n]);
                if base == new { base.clone() } else { format!("{base} → {new}") }
            };
            let arm = |places| AbArm { name: name(places), pairs: Vec::new(), left_out: 0 };
            self.arms = self.places.iter().map(arm).collect();
            self.bad = vec![(0, None); self.arms.len()];
            self.first = Some(turns);
        }
        for ((arm, bad), places) in self.arms.iter_mut().zip(&mut self.bad).zip(&self.places) {
            let medians = |side: usize| {
                let found = arms[side].get(places[side]);
                let medians = found.map_or_else(|| Err("it was gone".to_owned()), |arm| arm.medians.clone());
                let about = |why| format!("{}: {}: {why}", self.spec.sides[side].name, arm.name);
                medians.map_err(|why| (about(why), found.map_or(ROUNDS, |arm| arm.bad)))
            };
            match (medians(0), medians(1)) {
                (Ok(base), Ok(new)) => arm.pairs.push(AbPair { pair: self.pairs, base, new }),
                (base, new) => {
                    arm.left_out += 1;
                    for (why, rounds) in [base.err(), new.err()].into_iter().flatten() {
                        bad.0 += rounds;
                        bad.1.get_or_insert(why);
                    }
                }
            }
        }
        self.pairs += 1;
        self.wall = self.began.elapsed();
        Ok(())
    }

    /// Lists the arms with pairs that are left out: those with `few`, or those with so many that their figures are not whole.
    fn left_out(&self, few: bool) -> Vec<String> {
        let pairs = usize::try_from(self.pairs).unwrap_or(usize::MAX);
        let rounds = pairs.saturating_mul(2 * ROUNDS);
        let arms = self.arms.iter().zip(&self.bad).filter(|(_, bad)| are_few(bad.0, rounds) == few);
        let line = |(arm, (_, why)): (&AbArm, &(usize, Option<String>))| {
            why.as_ref().map(|why| format!("{} of {pairs} pairs are left out: {why}", arm.left_out))
        };
        arms.filter_map(line).collect()
    }
}

/// Lists the arms that run on one side alone.
fn alone(arms: &Both<Vec<TurnArm>>, places: &[Both<usize>], sides: &Both<Side>) -> Vec<String> {
    let of_side = |side: usize| {
        let here = arms[side].iter().enumerate().filter(|(_, arm)| arm.not_available.is_none());
        let alone = here.filter(move |(at, _)| !places.iter().any(|pair| pair[side] == *at));
        alone.map(move |(_, arm)| format!("{} runs on {} alone", arm.name, sides[side].name))
    };
    of_side(0).chain(of_side(1)).collect()
}

fn is_simulated(turn: &Turn) -> bool {
    turn.parameters.backend.starts_with("sim:")
}

/// Checks that the sides are comparable: figures of a simulation and of real guests have nothing in common, and a
/// simulation is judged only where it was asked for.
fn check(turns: &Both<Turn>, spec: &AbSpec) -> Result<(), Error> {
    let wanted = |side: &Side| spec.common.iter().chain(&side.args).any(|word| word.contains("sim:"));
    if turns.iter().zip(&spec.sides).any(|(turn, side)| is_simulated(turn) && !wanted(side)) {
        return Err(Error::host(
            "nothing can be measured here",
            "with --backend auto a side fell back to a simulation, in which builds do not differ",
            "`vpmu doctor` says what is missing; --backend sim:MODEL compares simulations",
        ));
    }
    if is_simulated(&turns[0]) == is_simulated(&turns[1]) {
        return Ok(());
    }
    let [base, new] = turns.each_ref().map(|turn| &turn.parameters.backend);
    Err(Error::usage(
        "a simulation and real guests cannot be compared",
        format!("BASE has backend {base}, NEW has {new}"),
        "give both the same --backend",
    ))
}

/// Arms that are on both sides whatever was asked for.
const NO_STRATEGY: [&str; 3] = ["floor", KVM_ARMS[0], KVM_ARMS[1]];

/// Pairs arms of both sides, by their places: by name, or by place where each side has as many with its own names.
fn paired([base, new]: &Both<Vec<String>>) -> Result<Vec<Both<usize>>, Error> {
    let by_name = |name: &String| new.iter().position(|other| other == name);
    let many = base.len() == new.len();
    let places = base.iter().enumerate().filter_map(|(at, name)| Some([at, by_name(name).or(many.then_some(at))?]));
    let pairs: Vec<Both<usize>> = places.collect();
    let is_strategy = |name: &String| !NO_STRATEGY.contains(&name.as_str());
    let strategies = |names: &[String]| names.iter().any(is_strategy);
    let lacks = strategies(base) && strategies(new) && !pairs.iter().any(|&[at, _]| is_strategy(&base[at]));
    let mut seen: Vec<usize> = pairs.iter().map(|[_, new]| *new).collect();
    seen.sort_unstable();
    seen.dedup();
    if lacks || seen.len() < pairs.len() {
        return Err(Error::usage(
            "the arms of BASE and NEW cannot be paired",
            format!("{} against {}", base.join(", "), new.join(", ")),
            "give both the same strategies, or as many in the same order",
        ));
    }
    Ok(pairs)
}

/// Returns whether two sides are one file with the same options.
fn same(base: &Side, new: &Side) -> bool {
    let file = |side: &Side| side.binary.metadata().map(|about| (about.dev(), about.ino())).ok();
    base.args == new.args && file(base) == file(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_paired_by_name_or_by_place() {
        let pairs = |base: &[&str], new: &[&str]| {
            paired(&[base, new].map(|names| names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(pairs(&["a", "floor"], &["a", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "a", "floor"]), Ok(vec![[0, 1], [1, 0], [2, 2]]));
        assert_eq!(pairs(&["a", "floor"], &["mine", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "floor"]), Ok(vec![[1, 0], [2, 1]]));
        assert_eq!(pairs(&["a", "b"], &["b", "c"]).unwrap_err().exit, Exit::Usage);
        let floor_alone = pairs(&["a", "b", "floor", "kvm"], &["c", "floor", "kvm"]).unwrap_err();
        assert_eq!(
            (floor_alone.exit, floor_alone.why.as_str()),
            (Exit::Usage, "a, b, floor, kvm against c, floor, kvm")
        );
    }
}
