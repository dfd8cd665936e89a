//! `ab`: two builds, or two sets of options, take turns.
//!
//! Two runs minutes apart meet different hosts, and what differs between them is mostly that. Here each round has a turn of
//! BASE and one of NEW, in random order. A turn is a whole process, `vpmu nmi-latency` with six rounds, so that the layout
//! of one process is not taken for a difference of builds, and any build with that command can be a side. The two turns of
//! a round are a block for each arm of theirs, as pairs of runs are to `compare`, which judges both.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use results::compare::{COUNTS, PMIS, Row, add, conclude, per_pmi, remarks, turns};
use results::document::{Arm, KVM_ARMS, Record, Status, Tool};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::metric::{self, EXIT_PATH, NMI_HANDLER, PMI_DELIVERY, ROTATION};
use results::paired::are_few;
use results::stats::median;
use results::table::Report;
use results::table::layout::{plural, time};
use results::verdict::Limits;
use serde_json::{Value, json};

use crate::engine::Rounds;
use crate::engine::plain::{Experiment, Plain, Sample, Save};
use crate::setting::tool;
use crate::sys;
use crate::terminal::console::internal;
use crate::terminal::progress::Progress;

/// The experiment's name in documents.
pub const NAME: &str = "ab";
/// Names of the sides, which are the arms of the document.
pub const SIDES: [&str; 2] = ["BASE", "NEW"];
/// Pairs of a run that its time bounds.
const OPEN_ENDED: u64 = 1_000_000;
/// Arms that are on both sides whatever was asked for.
const NO_STRATEGY: [&str; 3] = ["floor", KVM_ARMS[0], KVM_ARMS[1]];

/// The two sides, BASE first.
type Both<T> = [T; 2];

/// Parameters of `ab`.
#[derive(Clone, Debug, PartialEq)]
pub struct AbSpec {
    /// The reference, and the side that is judged.
    pub sides: Both<Side>,
    /// Options that both sides get before their own.
    pub common: Vec<String>,
    /// Bound on the whole run: it ends with the pair in which this time passes.
    pub duration: Duration,
    /// Bound on the pairs.
    pub pairs: Option<u64>,
    /// Seed of all orders.
    pub seed: u64,
    /// Rules of the verdicts.
    pub rules: Limits,
}

/// The document, the ratios with their verdicts, and the error that ended it early. The sides are the document's arms, their
/// figures `ARM/METRIC` its metrics, and what is to be said of pairs and arms the notes of NEW.
pub type Outcome = (Record, Vec<Row>, Option<Error>);

/// Begin of a note that keeps anything but SLOWER from being said: an arm lacks too many pairs or a side.
const DOUBT: &str = "doubt: ";

/// An arm that both sides have: its name on each, and in the document, BASE → NEW where the two differ.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shared {
    sides: Both<String>,
    name: String,
}

/// Turns of an arm whose figures are not whole: why the first is not, and the pairs with the number of rounds that are to blame.
#[derive(Debug, Default)]
struct LeftOut {
    why: String,
    pairs: BTreeMap<u64, usize>,
}

/// Rounds of a turn.
const ROUNDS: usize = 6;
/// Bound on a turn, or the whole run's if that is longer.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// One of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// BASE or NEW.
    pub name: &'static str,
    /// The build.
    pub binary: PathBuf,
    /// Options of its own.
    pub args: Vec<String>,
}

/// Returns a parameter of a turn's document; "none" stands for an absent one.
fn parameter(turn: &Record, name: &str) -> String {
    turn.parameter(name).filter(|value| value != "null").unwrap_or_else(|| "none".to_owned())
}

/// Returns what every turn of a side has in common.
fn is_of(turn: &Record) -> (&Tool, [String; 2]) {
    (&turn.tool, ["backend", "workload"].map(|name| parameter(turn, name)))
}

/// Returns the median over rounds of each metric of an arm of a turn.
///
/// # Errors
/// Says why the figures of this turn do not count.
fn medians<'a>(turn: &Record, arm: &'a Arm) -> Result<BTreeMap<&'a str, f64>, String> {
    if let Some(why) = arm.not_available.clone().or_else(|| arm.doubt()) {
        return Err(why);
    }
    // A run that was cut short, or whose periods say little, is inconclusive although each arm has its rounds.
    if turn.exit == Some(Exit::Inconclusive.code())
        && turn.arms.iter().all(|arm| arm.not_available.is_some() || arm.doubt().is_none())
    {
        return Err("its run is inconclusive".to_owned());
    }
    let columns = arm.rounds.metrics.iter();
    let medians = columns.filter_map(|(key, column)| Some((&**key, median(&column.medians().collect::<Vec<_>>())?)));
    let found: BTreeMap<&'a str, f64> = medians.filter(|(_, ns)| *ns > 0.0).collect();
    let is_judged = [NMI_HANDLER, ROTATION].iter().any(|metric| found.contains_key(metric.key));
    if is_judged { Ok(found) } else { Err("it has no latency".to_owned()) }
}

/// Returns the number of an arm's rounds that are not whole: all of them, if none of its own is to blame.
fn bad(arm: &Arm) -> usize {
    let bad = arm.rounds.complete.iter().filter(|complete| !**complete).count();
    if arm.rounds.len() > 1 && bad > 0 { bad } else { ROUNDS }
}

/// Takes a turn of a side: `None` if the user ended it meanwhile.
///
/// # Errors
/// It does not start, fails, takes longer than `limit`, or writes no document.
fn take_turn(side: &Side, common: &[String], seed: u64, limit: Duration) -> Result<Option<Record>, Error> {
    let Side { name, binary, args } = side;
    let what = format!("{name} ({})", binary.display());
    let failed = |exit, why: String| {
        Error::new(exit, what.clone(), why, "run that build's nmi-latency alone, with these options")
    };
    // A bare name is a file of this folder, as it is for every other command: not one of PATH.
    let mut command = Command::new(Path::new(".").join(binary));
    command.arg0("vpmu").args(["nmi-latency", "--json", "--quiet", "--no-save", "--warmup=1"]);
    // A later word of an option takes the place of an earlier one.
    command.args([format!("--rounds={ROUNDS}"), format!("--seed={seed}")]).args(common).args(args);
    let limit = limit.max(LEAST_LIMIT);
    let until = Instant::now() + limit;
    let ran = tool::run(&mut command, || sys::stopped() || Instant::now() >= until).map_err(|error| {
        let remedy = "give the path of a vpmu that can be executed";
        Error::usage(format!("cannot start {what}"), error.to_string(), remedy)
    })?;
    if sys::stopped() {
        return Ok(None);
    }
    if Instant::now() >= until {
        return Err(failed(Exit::Inconclusive, format!("it did not end in {} s", limit.as_secs())));
    }
    match ran.exit() {
        // A whole document that is inconclusive, or of a regression that the side knows of, is a turn.
        Some(exit @ (Exit::Done | Exit::Regression | Exit::Inconclusive)) => {
            let wrong = |why| Error::usage(format!("{what} wrote no result"), why, "give a vpmu with these documents");
            let record: Record = ran.document().map_err(wrong)?;
            // How the process ended holds, whatever its document says of it.
            Ok(Some(Record { exit: Some(exit.code()), ..record }))
        }
        exit => Err(failed(exit.unwrap_or(Exit::Inconclusive), ran.why())),
    }
}

/// Runs both sides on this host, whose facts are those before the run; `stop` is set when the user wants it to end. Each side is
/// tried once before the first pair: what they are is known then, and what they read is cached. `save` is called with the document as it
/// grows.
///
/// # Errors
/// Sides that cannot be compared; a side that fails before there is a pair. A later failure ends the run; the pairs before it count.
pub fn run(
    spec: &AbSpec,
    (host, fs): (HostFacts, &HostFs),
    command_line: &[String],
    (progress, save): (&mut dyn Progress, Save<'_>),
) -> Result<Outcome, Error> {
    let mut common = spec.common.clone();
    let take = |common: &[String], side: usize, seed| take_turn(&spec.sides[side], common, seed, spec.duration);
    let none = || Error::new(Exit::Inconclusive, "interrupted before there was a pair", "", "");
    let first = [take(&common, 0, spec.seed)?.ok_or_else(none)?, take(&common, 1, spec.seed)?.ok_or_else(none)?];
    let is_unasked = |turn: &Record| turn.is_simulated() && !parameter(turn, "backend_requested").contains("sim:");
    if first.iter().any(is_unasked) {
        return Err(Error::host(
            "nothing can be measured here",
            "a side fell back to a simulation, in which builds do not differ",
            "`vpmu doctor` says what is missing; --backend sim:MODEL compares simulations",
        ));
    }
    if first[0].is_simulated() != first[1].is_simulated() {
        let [base, new] = first.each_ref().map(|turn| parameter(turn, "backend"));
        let why = format!("BASE has backend {base}, NEW has {new}");
        return Err(Error::usage(
            "a simulation and real guests cannot be compared",
            why,
            "give both the same --backend",
        ));
    }
    // Each process would choose CPUs anew.
    let pin = parameter(&first[1], "pin");
    let mut words = common.iter().chain(spec.sides.iter().flat_map(|side| &side.args));
    let has_pin = words.any(|word| word.starts_with("--pin"));
    common.extend((!has_pin && pin != "none").then(|| format!("--pin={pin}")));
    let (shared, alone) = shared(&first.each_ref().map(|turn| &turn.arms[..]))?;
    let left_out = RefCell::new(BTreeMap::new());
    let arm = |side: usize| {
        let (shared, first, left_out, common) = (&shared, &first[side], &left_out, &common);
        Plain::new(SIDES[side], &parameter(first, "backend"), move |at| {
            let Some(turn) = take(common, side, spec.seed.wrapping_add(at.index))? else { return Ok(None) };
            if is_of(&turn) != is_of(first) {
                return Err(Error::host(
                    format!("{} is another than at the first turn", SIDES[side]),
                    "its build, backend or workload changed",
                    "leave builds, strategy files and the host as they are while it runs",
                ));
            }
            Ok(Some(sample(&turn, (side, at.index), shared, &mut left_out.borrow_mut())))
        })
    };
    let mut sides = [arm(0), arm(1)];
    let experiment = Experiment {
        name: NAME,
        parameters: parameters(spec, &first).as_object().cloned().unwrap_or_default(),
        rounds: Rounds { duration: Some(spec.duration), ..Rounds::of(spec.pairs.unwrap_or(OPEN_ENDED), spec.seed) },
    };
    // Nothing of this machine enters the result of a simulation.
    let (own, nowhere) = (&first[1], HostFs::at("/nonexistent"));
    let facts = if own.is_simulated() { (own.host.clone(), &nowhere) } else { (host, fs) };
    let (mut document, error) = experiment.measure(&mut sides, facts, command_line, progress, save)?;
    let names: Vec<&str> = shared.iter().map(|shared| shared.name.as_str()).collect();
    let rows = rows(&document, &names, &spec.rules);
    let (pairs, mut notes) = (document.arms[0].rounds.len(), Vec::new());
    notes.extend(alone.iter().map(|why| format!("{DOUBT}{why}")));
    for LeftOut { why, pairs: out } in left_out.borrow().values() {
        // The last pair may have been cut short: it is not kept.
        let bad: Vec<usize> = out.range(..pairs as u64).map(|(_, rounds)| *rounds).collect();
        if !bad.is_empty() {
            let begin = if are_few(bad.iter().sum(), 2 * ROUNDS * pairs) { "left out: " } else { DOUBT };
            notes.push(format!("{begin}{} of {pairs} pairs are left out: {why}", bad.len()));
        }
    }
    let answer = serde_json::to_value(&rows).map_err(|error| internal("a row has no JSON", error))?;
    document.answer = answer.as_array().cloned().unwrap_or_default();
    for (arm, turn) in document.arms.iter_mut().zip(&first) {
        arm.stand_in = turn.arms.iter().any(|arm| arm.stand_in);
    }
    document.arms[1].notes = notes;
    Ok((document, rows, error))
}

/// Returns a row for each arm of these names, one for all together, and those of counts.
fn rows(document: &Record, names: &[&str], rules: &Limits) -> Vec<Row> {
    let [Some(base), Some(new)] = SIDES.map(|side| document.arm(side)) else { return Vec::new() };
    let sampled = names.iter().any(|name| base.metrics.contains_key(&format!("{name}/{}", NMI_HANDLER.key)));
    turns([base, new], names, if sampled { NMI_HANDLER.key } else { ROTATION.key }, rules)
}

fn parameters(spec: &AbSpec, first: &Both<Record>) -> Value {
    let side = |at: usize| {
        let (side, run) = (&spec.sides[at], &first[at]);
        json!({"binary": side.binary.display().to_string(), "args": side.args, "tool": run.tool, "parameters": run.parameters})
    };
    json!({
        "workload": parameter(&first[1], "workload"),
        "backend": parameter(&first[1], "backend"),
        "base": side(0),
        "new": side(1),
        "rules": spec.rules,
        "duration_ns": host_pmu::stats::ns(spec.duration),
    })
}

/// Returns the figures of the shared arms in a turn of a side in this pair; those that are not whole are left out.
#[expect(clippy::cast_sign_loss, reason = "neither a time nor a count is negative")]
fn sample(
    turn: &Record,
    (side, pair): (usize, u64),
    shared: &[Shared],
    left_out: &mut BTreeMap<String, LeftOut>,
) -> Sample {
    let mut sample = Sample::default();
    for Shared { sides, name } in shared {
        let arm = turn.arm(&sides[side]);
        match arm.map_or_else(|| Err("it was gone".to_owned()), |arm| medians(turn, arm)) {
            Ok(medians) => {
                for (count, value) in arm.and_then(per_pmi).into_iter().flatten() {
                    sample.add(&format!("{name}/{COUNTS}{count}"), [(value * PMIS).round() as u64]);
                }
                for metric in [&NMI_HANDLER, &ROTATION, &PMI_DELIVERY, &EXIT_PATH] {
                    if let Some(ns) = medians.get(metric.key) {
                        sample.add(&format!("{name}/{}", metric.key), [ns.round().max(1.0) as u64]);
                    }
                }
            }
            Err(why) => {
                let out = left_out.entry(name.clone()).or_default();
                if out.pairs.is_empty() {
                    out.why = format!("{}: {name}: {why}", SIDES[side]);
                }
                *out.pairs.entry(pair).or_default() += arm.map_or(ROUNDS, bad);
            }
        }
    }
    sample
}

/// Returns the arms that run on both sides: those of one name, or in one place where each side has as many with its own names; and
/// what is to be said of those that run on one alone.
fn shared([base, new]: &Both<&[Arm]>) -> Result<(Vec<Shared>, Vec<String>), Error> {
    let is_strategy = |arm: &Arm| !NO_STRATEGY.contains(&arm.name.as_str());
    let runs = |arm: &Arm| arm.not_available.is_none();
    let in_place = |at: usize| new.get(at).filter(|_| base.len() == new.len());
    let other = |at: usize, arm: &Arm| new.iter().find(|other| other.name == arm.name).or_else(|| in_place(at));
    let pairs = base.iter().enumerate().filter_map(|(at, arm)| Some([arm, other(at, arm)?]));
    let pairs: Vec<Both<&Arm>> = pairs.collect();
    let lacks =
        [base, new].iter().all(|arms| arms.iter().any(is_strategy)) && !pairs.iter().any(|[arm, _]| is_strategy(arm));
    if lacks || pairs.iter().map(|[_, other]| &other.name).collect::<BTreeSet<_>>().len() < pairs.len() {
        let names = [base, new].map(|arms| arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", "));
        return Err(Error::usage(
            "the arms of BASE and NEW cannot be paired",
            names.join(" against "),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let shared = |pair: Both<&Arm>| {
        let sides = pair.map(|arm| arm.name.clone());
        let name = if sides[0] == sides[1] { sides[0].clone() } else { sides.join(" → ") };
        Shared { sides, name }
    };
    let both = pairs.into_iter().filter(|pair| pair.iter().all(|arm| runs(arm)));
    let found: Vec<Shared> = both.map(shared).collect();
    if found.is_empty() {
        let why: Vec<&str> = base.iter().chain(*new).filter_map(|arm| arm.not_available.as_deref()).collect();
        return Err(Error::host("no arm runs on both sides", why.join("; "), "`vpmu doctor` says what is missing"));
    }
    let mut alone = Vec::new();
    for (side, arms) in [base, new].into_iter().enumerate() {
        let here = arms.iter().filter(|arm| runs(arm) && !found.iter().any(|shared| shared.sides[side] == arm.name));
        alone.extend(here.map(|arm| format!("{} runs on {} alone", arm.name, SIDES[side])));
    }
    Ok((found, alone))
}

/// Returns the verdicts, and what was run, as they are shown; `all`: with counts that are the same.
pub fn report(document: &Record, rows: &[Row], all: bool) -> Report {
    let mut report = Report::new("vpmu ab");
    let name = rows.first().map_or_else(|| "no figures".to_owned(), |row| metric::name(&row.metric));
    let parameter = |name| document.parameter(name).unwrap_or_default();
    let workload = parameter("workload");
    let pairs = plural(document.arms.first().map_or(0, |arm| arm.rounds.len()), "pair");
    let heading = format!("NEW against BASE: {name}, {workload}; {pairs} of turns; 95 % intervals");
    if rows.is_empty() {
        report.note(heading);
    } else {
        add(&mut report, &heading, workload.as_str(), rows, all);
    }
    let rows: Vec<_> = rows.iter().collect();
    report.notes(remarks(&rows));
    let mut notes = document.arms.iter().flat_map(|arm| arm.notes.iter().map(String::as_str));
    report.notes(notes.clone());
    report.note(
        "change: NEW over BASE over pairs; a pair is a turn of both, one right after the other, and a turn a process of six rounds, \
         whose median counts",
    );
    for (side, key) in [("BASE", "base"), ("NEW", "new")] {
        report.note(format!("{side}: {}", describe(document, key)));
    }
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) { ", a stand-in" } else { "" };
    report.note(format!("backend: {}{stand_in}", parameter("backend")));
    report.note(format!("host: {}", document.host.class));
    report.note(format!("{}, seed {}", time(document.wall_ns as f64), document.seed));
    let ended = match document.status {
        Status::Running | Status::Complete => None,
        Status::Interrupted => Some("interrupted: whole pairs only"),
        Status::Incomplete => Some("incomplete: a side failed"),
    };
    if let Some(how) = ended {
        report.note(how);
    }
    report.verdict = Some(conclude(&rows, notes.find_map(|note| note.strip_prefix(DOUBT)).or(ended)));
    report
}

fn describe(document: &Record, side: &str) -> String {
    let side = &document.parameters[side];
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    let args: Vec<String> = side["args"].as_array().into_iter().flatten().map(text).collect();
    let tool = ["version", "git_revision", "profile"].map(|key| text(&side["tool"][key])).join(", ");
    format!("{} ({tool})", [vec![text(&side["binary"])], args].concat().join(" "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::terminal::progress::Silent;
    use results::compare::ALL_ARMS;
    use results::verdict::Verdict;

    const NAMES: [&str; 4] = ["arm0", "arm1", "arm2", "arm3"];

    /// Returns a document of arms whose NEW takes these times as long, with some per cent of spread from pair to pair; of the second arm
    /// the first pairs are left out.
    fn document(ratios: &[f64], rounds: u64, lacks: u64) -> Record {
        let noise = |pair: u64, arm: usize| 1.0 + 0.02 * ((((pair * 37 + arm as u64 * 11) % 41) as f64) / 20.0 - 1.0);
        let take = |side: usize, pair: u64| {
            let mut sample = Sample::default();
            for (at, ratio) in ratios.iter().enumerate().filter(|(at, _)| *at != 1 || pair >= lacks) {
                let ns = if side == 0 { noise(pair, at) } else { ratio * noise(pair + 5, at + 3) };
                #[expect(clippy::cast_sign_loss, reason = "no time is negative")]
                let ns = (100_000.0 * ns) as u64;
                sample.add(&format!("{}/{}", NAMES[at], NMI_HANDLER.key), [ns]);
            }
            sample
        };
        let side = |side: usize| Plain::new(SIDES[side], "none", move |turn| Ok(Some(take(side, turn.index))));
        let (mut arms, fs) = ([side(0), side(1)], HostFs::at("/nonexistent"));
        let rounds = Rounds::of(rounds, 1);
        let experiment = Experiment { name: "ab", parameters: serde_json::Map::new(), rounds };
        let facts = (HostFacts::default(), &fs);
        experiment.measure(&mut arms, facts, &[], &mut Silent, &mut |_| Ok(())).unwrap().0
    }

    fn of(ratios: &[f64], rounds: u64) -> Vec<Row> {
        rows(&document(ratios, rounds, 0), &NAMES[..ratios.len()], &Limits::default())
    }

    #[test]
    fn verdicts_are_of_each_arm_and_of_all_together() {
        let judged =
            |ratios: &[f64]| -> Vec<_> { of(ratios, 60).into_iter().map(|row| (row.arm, row.verdict)).collect() };
        assert!(judged(&[1.0, 1.0, 1.0]).iter().all(|(_, verdict)| *verdict == Verdict::NoChange));
        assert_eq!(judged(&[1.0])[0].0, "arm0", "one arm needs no row for all");
        let one = judged(&[1.0, 1.06, 1.0, 1.0]);
        assert_eq!(one[0], (ALL_ARMS.into(), Verdict::NoChange));
        assert_eq!(one[2], ("arm1".into(), Verdict::Slower));
        assert!(judged(&[1.06, 1.06, 1.06]).iter().all(|(_, verdict)| *verdict == Verdict::Slower));
        assert_eq!(judged(&[0.9, 1.0])[1].1, Verdict::Faster);
        // Pairs that one arm lacks are not common.
        let all = rows(&document(&[1.1, 1.1], 60, 20), &NAMES[..2], &Limits::default());
        assert_eq!((all[0].arm.as_str(), all[0].blocks, all[1].blocks), (ALL_ARMS, 40, 60));
    }

    #[test]
    fn few_pairs_and_doubts_keep_a_pass_from_being_said_and_hide_no_slow_down() {
        let found = of(&[1.0], 3);
        assert_eq!((found[0].verdict, found[0].p_value), (Verdict::Inconclusive, None));
        assert!(found[0].why.starts_with("too few pairs: an interval needs 5"), "{found:?}");
        let of = |ratio, doubt| conclude(&of(&[ratio], 60).iter().collect::<Vec<_>>(), doubt).0;
        assert_eq!((of(1.0, None), of(1.0, Some("x"))), (Exit::Done, Exit::Inconclusive));
        assert_eq!((of(1.06, None), of(1.06, Some("x"))), (Exit::Regression, Exit::Regression));
        assert_eq!(conclude(&[], None).0, Exit::Inconclusive);
    }

    #[test]
    fn counts_that_repeat_are_exact_and_others_go_by_pairs() {
        let judged = |count: &dyn Fn(usize, u64) -> u64| {
            let mut document = document(&[1.0], 30, 0);
            for (side, arm) in document.arms.iter_mut().enumerate() {
                let mut column = arm.rounds.metrics.values().next().unwrap().clone();
                column.p50 = (0..30).map(|pair| count(side, pair)).collect();
                arm.rounds.metrics.insert(format!("arm0/{COUNTS}operations/PMI"), column);
            }
            let rows = rows(&document, &NAMES[..1], &Limits::default());
            let (exit, words) = conclude(&rows.iter().collect::<Vec<_>>(), None);
            (rows.last().unwrap().verdict, exit, words)
        };
        assert_eq!(judged(&|_, _| 7240).0, Verdict::NoChange);
        let (verdict, exit, words) = judged(&|side, _| 7240 + side as u64);
        assert_eq!((verdict, exit), (Verdict::Slower, Exit::Regression));
        assert!(words.contains("same time, 0.014 % more host operations (arm0: 7.240 → 7.241 of a PMI)"), "{words}");
        let noisy = |more: u64| move |side: usize, pair: u64| 40_000 + pair * 37 % 13 * 60 + more * side as u64;
        assert_eq!((judged(&noisy(0)).0, judged(&noisy(4000)).0), (Verdict::NotJudged, Verdict::Slower));
    }

    #[test]
    fn arms_are_paired_by_name_or_by_place() {
        let sample = document(&[1.0], 1, 0).arms.remove(0);
        let arms = |names: &[&str]| -> Vec<Arm> {
            names.iter().map(|name| Arm { name: (*name).to_owned(), ..sample.clone() }).collect()
        };
        let pairs = |base: &[&str], new: &[&str]| {
            let found = shared(&[&arms(base), &arms(new)]);
            found.map(|(all, _)| all.into_iter().map(|one| one.name).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(pairs(&["a", "floor"], &["a", "floor"]).as_deref(), Ok("a, floor"));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "a", "floor"]).as_deref(), Ok("a, b, floor"));
        assert_eq!(pairs(&["a", "floor"], &["mine", "floor"]).as_deref(), Ok("a → mine, floor"));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "floor"]).as_deref(), Ok("b, floor"));
        assert_eq!(pairs(&["a", "b"], &["b", "c"]).unwrap_err().exit, Exit::Usage);
        let floor_alone = pairs(&["a", "b", "floor", "kvm"], &["c", "floor", "kvm"]).unwrap_err();
        assert_eq!(floor_alone.why, "a, b, floor, kvm against c, floor, kvm");
    }

    /// Returns a side that is a shell script.
    fn script(body: &str) -> (tempfile::TempDir, Side) {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("side");
        std::fs::write(&binary, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, Side { name: "NEW", binary, args: Vec::new() })
    }

    fn taken(body: &str) -> Result<Option<Record>, Error> {
        let (_dir, side) = script(body);
        take_turn(&side, &[], 1, LEAST_LIMIT)
    }

    #[test]
    fn a_document_is_its_medians_unless_something_is_not_whole() {
        let document = serde_json::to_value(trials::fixture::document(6)).unwrap();
        let turn = |code: u8, change: &dyn Fn(&mut Value)| {
            let mut document = document.clone();
            document["exit"] = json!(code);
            change(&mut document);
            taken(&format!("cat <<'E'\n{document}\nE\nexit {code}")).unwrap().unwrap()
        };
        let of = |turn: &Record| medians(turn, &turn.arms[0]).map(|medians| medians[NMI_HANDLER.key] > 0.0);
        let sound = turn(0, &|_| ());
        assert_eq!((of(&sound), of(&turn(1, &|_| ()))), (Ok(true), Ok(true)));
        let failed = turn(3, &|document| document["arms"][0]["incomplete"] = json!(["a guest failed"]));
        assert_eq!(of(&failed), Err("incomplete: a guest failed".to_owned()));
        assert!(medians(&failed, &failed.arms[1]).is_ok(), "the run's doubt is that arm's");
        assert_eq!(of(&turn(3, &|_| ())), Err("its run is inconclusive".to_owned()), "and each arm has its figures");
        let none = turn(0, &|document| document["arms"][0]["rounds"]["metrics"] = json!({}));
        assert_eq!(of(&none), Err("it has no latency".to_owned()));
        let other = turn(0, &|document| document["parameters"]["backend"] = json!("c"));
        assert!(is_of(&other) != is_of(&sound) && is_of(&turn(0, &|_| ())) == is_of(&sound));
    }

    #[test]
    fn a_side_that_is_no_build_dies_or_floods_is_one_clear_error() {
        for (body, exit, needle) in [
            ("echo hello", Exit::Usage, "wrote no result: expected value"),
            ("exit 0", Exit::Usage, "wrote no result"),
            ("yes | head -c 70000000; exit 0", Exit::Usage, "more than 64 MiB"),
            (
                "echo 'vpmu: error: bad value for --pin; mend it' >&2; exit 2",
                Exit::Usage,
                "bad value for --pin; mend it",
            ),
            ("echo 'vpmu: error: no KVM' >&2; exit 4", Exit::Host, "no KVM"),
            ("echo the last words >&2; exit 70", Exit::Internal, "the last words"),
            ("kill -9 $$", Exit::Inconclusive, "signal: 9"),
        ] {
            let error = taken(body).unwrap_err();
            assert!(error.exit == exit && error.to_string().contains(needle), "{error} lacks {needle}");
        }
        let absent = Side { name: "NEW", binary: "/no/such/vpmu".into(), args: Vec::new() };
        let error = take_turn(&absent, &[], 1, LEAST_LIMIT).unwrap_err();
        assert!(error.exit == Exit::Usage && error.to_string().contains("cannot start NEW (/no/such/vpmu)"), "{error}");
    }

    #[test]
    fn an_option_of_its_own_comes_after_the_common_ones() {
        let (_dir, mut side) = script("echo \"vpmu: error: $*\" >&2; exit 2");
        side.args = vec!["--pin".to_owned(), "1".to_owned(), "--strategy=gate".to_owned()];
        let common = ["--pin=0", "--samples=9", "--strategy=reuse"].map(str::to_owned);
        let words = take_turn(&side, &common, 7, LEAST_LIMIT).unwrap_err().to_string();
        assert!(words.contains("--seed=7 --pin=0 --samples=9 --strategy=reuse --pin 1 --strategy=gate"), "{words}");
    }
}
