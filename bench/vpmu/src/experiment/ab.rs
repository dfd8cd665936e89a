//! `ab`: two builds, or two sets of options, take turns.
//!
//! Two runs minutes apart meet different hosts, and what differs between them is mostly that. Here each round has a turn of
//! BASE and one of NEW, in random order. A turn is a whole process, `vpmu nmi-latency` with six rounds, so that the layout
//! of one process is not taken for a difference of builds, and any build with that command can be a side. The two turns of
//! a round are a block for each arm of theirs, as pairs of runs are to `compare`, which judges both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use results::compare::{self, CompareSpec, Comparison, ROUNDS, doubt_of, per_pmi};
use results::document::{KVM_ARMS, MsrCount, Record, Status, Tool};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::metric::{EXIT_PATH, is_main};
use results::paired::p50;
use results::table::layout::time;
use results::verdict::Limits;
use serde_json::{Value, json};

use crate::engine::Rounds;
use crate::engine::plain::{Experiment, Plain, Sample, Save};
use crate::setting::program;
use crate::terminal::progress::Progress;

/// The experiment's name in documents.
pub const NAME: &str = "ab";
/// Pairs of a run that its time bounds.
const OPEN_ENDED: u64 = 1_000_000;
/// The parameter that has the definitions of strategies.
const STRATEGIES: &str = "strategies";
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

/// The document, the comparison of its turns, and the error that ended it early. The sides are the document's arms, their figures
/// `ARM/METRIC` its metrics, and what is to be said of pairs and arms the notes of NEW.
pub type Outcome = (Record, Comparison, Option<Error>);

/// PMIs that counts of a turn are for.
const PMIS: f64 = 1000.0;
/// Bound on a turn, or the whole run's if that is longer.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// The remedy where a side failed.
const ALONE: &str = "run that build's nmi-latency alone, with these options";
/// The remedy where a side does not start.
const PATH: &str = "give the path of a vpmu that can be executed; a bare name is a file of this folder, not of PATH";

/// One of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// BASE or NEW.
    pub name: &'static str,
    /// The build.
    pub binary: PathBuf,
    /// Options of its own.
    pub args: Vec<String>,
    /// The exit of a failure of this build, in place of its own.
    pub failure: Option<Exit>,
}

/// Returns a parameter of a turn's document; "none" stands for an absent one.
fn parameter(turn: &Record, name: &str) -> String {
    turn.parameter(name).filter(|value| value != "null").unwrap_or_else(|| "none".to_owned())
}

/// Returns what every turn of a side has in common.
fn is_of(turn: &Record) -> (&Tool, [String; 2]) {
    (&turn.tool, ["backend", "workload"].map(|name| parameter(turn, name)))
}

/// Takes a turn of a side: `None` if the user ended it meanwhile.
///
/// # Errors
/// It does not start, fails, takes longer than `limit`, or writes no document.
fn take_turn(side: &Side, common: &[String], seed: u64, limit: Duration) -> Result<Option<Record>, Error> {
    let Side { name, binary, args, failure } = side;
    let what = format!("{name} ({})", binary.display());
    let failed = |exit: Option<Exit>, why: String| match exit {
        Some(exit) => Error::new(failure.unwrap_or(exit), &*what, why, ALONE),
        None => Error::usage(format!("cannot start {what}"), why, PATH),
    };
    let mut command = Command::new(binary);
    command.arg0("vpmu").args(["nmi-latency", "--json", "--quiet", "--no-save", "--warmup=1"]);
    // A later word of an option takes the place of an earlier one.
    command.args([format!("--rounds={ROUNDS}"), format!("--seed={seed}")]).args(common).args(args);
    // A whole document that is inconclusive, or of a regression that the side knows of, is a turn.
    let ends = [Exit::Done, Exit::Regression, Exit::Inconclusive];
    let Some(ran) = program::ended(&mut command, limit.max(LEAST_LIMIT), &ends, &failed)? else { return Ok(None) };
    let exit = failure.unwrap_or(Exit::Usage);
    let wrong = |why| Error::new(exit, format!("{what} wrote no result"), why, "is it a vpmu of this version?");
    let mut record: Record = ran.document().map_err(wrong)?;
    // How the process ended holds, whatever its document says of it: it was cut short, or its periods say little.
    if ran.exit() == Some(Exit::Inconclusive) && record.arms.iter().all(|arm| doubt_of(&record, arm).is_none()) {
        let measured = record.arms.iter_mut().filter(|arm| arm.not_available.is_none());
        measured.for_each(|arm| arm.incomplete.push("its run is inconclusive".to_owned()));
    }
    Ok(Some(record))
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
    if first[0].is_simulated() != first[1].is_simulated() {
        let [base, new] = first.each_ref().map(|turn| parameter(turn, "backend"));
        let why = format!("BASE has backend {base}, NEW has {new}");
        return Err(Error::usage("a simulation and real guests do not compare", why, "give both the same --backend"));
    }
    // Each process would choose CPUs anew.
    let pin = parameter(&first[1], "pin");
    let mut words = common.iter().chain(spec.sides.iter().flat_map(|side| &side.args));
    let has_pin = words.any(|word| word.starts_with("--pin"));
    common.extend((!has_pin && pin != "none").then(|| format!("--pin={pin}")));
    let names = names(&first)?;
    let turns = RefCell::new([const { Vec::new() }; 2]);
    let arm = |side: usize| {
        let (names, first, turns, common) = (&names, &first[side], &turns, &common);
        Plain::new(spec.sides[side].name, &parameter(first, "backend"), move |at| {
            let Some(turn) = take(common, side, spec.seed.wrapping_add(at.index))? else { return Ok(None) };
            if is_of(&turn) != is_of(first) {
                return Err(Error::host(
                    format!("{} is another than at the first turn", spec.sides[side].name),
                    "its build, backend or workload changed",
                    "leave builds, strategy files and the host as they are while it runs",
                ));
            }
            let turn = Record { started_unix: at.index, path: PathBuf::new(), ..named(turn, names) };
            let sample = sample(&turn);
            let of_side = &mut turns.borrow_mut()[side];
            of_side.push(kept(turn, of_side.first()));
            Ok(Some(sample))
        })
    };
    let mut sides = [arm(0), arm(1)];
    let pairs = spec.pairs.unwrap_or(OPEN_ENDED);
    let experiment = Experiment {
        name: NAME,
        parameters: parameters(spec, &first),
        // Counts are seen to repeat although the host disturbs one of them.
        rounds: Rounds { least: 3, duration: Some(spec.duration), ..Rounds::of(pairs, spec.seed) },
    };
    // Nothing of this machine enters the result of a simulation.
    let (own, nowhere) = (&first[1], HostFs::at("/nonexistent"));
    let facts = if own.is_simulated() { (own.host.clone(), &nowhere) } else { (host, fs) };
    let (mut document, error) = experiment.measure(&mut sides, facts, command_line, progress, save)?;
    for (arm, turn) in document.arms.iter_mut().zip(&first) {
        arm.stand_in = turn.arms.iter().any(|arm| arm.stand_in);
    }
    // The last pair may have been cut short: it is not kept.
    let turns = turns.take().map(|side| side.into_iter().take(document.arms[0].rounds.len()).collect());
    let found = judged(spec, &document, &turns)?;
    document.answer = found.answer.iter().map(|row| json!(row)).collect();
    document.arms[1].notes.clone_from(&found.notes);
    Ok((document, found, error))
}

/// Compares the turns of both sides, with what a reader must know of them.
fn judged(spec: &AbSpec, document: &Record, turns: &Both<Vec<Record>>) -> Result<Comparison, Error> {
    let names = spec.sides.each_ref().map(|side| format!("{} {}", side.binary.display(), side.args.join(" ")));
    let request = CompareSpec {
        limits: spec.rules,
        metrics: turns[1].first().and_then(Record::metric).map(str::to_owned).into_iter().collect(),
        unlike_hosts_allowed: true,
        turns: true,
        ..CompareSpec::default()
    };
    let [base, new] = [0, 1].map(|side| (names[side].trim_end(), &turns[side][..]));
    let mut found = compare::compare(base, new, &request)?;
    let stand_in = if document.arms.iter().any(|arm| arm.stand_in) { ", a stand-in" } else { "" };
    found.notes.extend([
        "a pair is one process of each build; its six rounds' median counts".to_owned(),
        format!("backend: {}{stand_in}", document.parameter("backend").unwrap_or_default()),
        format!("{}, seed {}", time(document.wall_ns as f64), document.seed),
    ]);
    if document.status != Status::Complete {
        found.doubt("it ended early: whole pairs only");
    }
    Ok(found)
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

/// Returns a turn whose arms have these names.
fn named(mut turn: Record, names: &BTreeMap<String, String>) -> Record {
    for arm in &mut turn.arms {
        names.get(&arm.name).iter().for_each(|name| arm.name.clone_from(name));
    }
    turn
}

/// Returns what `compare` reads of a turn: a night has tens of thousands. What strategies are is that of the first turn if it is the
/// same.
fn kept(turn: Record, first: Option<&Record>) -> Record {
    let Record { mut arms, mut parameters, mut host, .. } = turn;
    for arm in &mut arms {
        arm.metrics.retain(|key, _| is_main(key));
        arm.metrics.values_mut().for_each(|summary| summary.histogram = None);
        arm.rounds.metrics.retain(|key, _| is_main(key) || key == EXIT_PATH.key);
        let columns = std::mem::take(&mut arm.rounds.counts);
        (arm.rounds.counts.opens, arm.rounds.counts.nmis) = (columns.opens, columns.nmis);
        let exits = MsrCount { reads: arm.own.all_exits(), ..<_>::default() };
        arm.own.msr_exits = BTreeMap::from([("all".to_owned(), exits)]);
    }
    if first.is_some_and(|first| first.parameters.get(STRATEGIES) == parameters.get(STRATEGIES)) {
        parameters.remove(STRATEGIES);
    }
    (host.tuning, host.perf_pmus) = <_>::default();
    Record { arms, parameters, host, command_line: Vec::new(), warnings: Vec::new(), answer: Vec::new(), ..turn }
}

/// Returns the figures of a turn's arms that are whole.
#[expect(clippy::cast_sign_loss, reason = "neither a time nor a count is negative")]
fn sample(turn: &Record) -> Sample {
    let mut sample = Sample::default();
    for arm in turn.arms.iter().filter(|arm| doubt_of(turn, arm).is_none()) {
        let times = arm.metrics.keys().filter_map(|key| Some((key.clone(), p50(arm, key)?.max(1.0))));
        let counts = per_pmi(arm).into_iter().flatten();
        for (key, value) in times.chain(counts.map(|(count, value)| (format!("counts/{count}"), value * PMIS))) {
            sample.add(&format!("{}/{key}", arm.name), [value.round() as u64]);
        }
    }
    sample
}

/// Returns names of both sides, BASE → NEW, for the arms that only one side has, if both have as many arms: the two run in one place.
fn names(sides: &Both<Record>) -> Result<BTreeMap<String, String>, Error> {
    let of = |side: usize| sides[side].arms.iter().map(|arm| arm.name.as_str());
    let is_lone = |side: usize, name: &str| sides[1 - side].arm(name).is_none();
    let (as_many, lone) = (of(0).count() == of(1).count(), of(0).filter(|name| is_lone(0, name)).count());
    let in_place = of(0).zip(of(1)).filter(|(base, new)| as_many && is_lone(0, base) && is_lone(1, new));
    let both: Vec<(&str, &str)> = in_place.collect();
    let is_shared = of(0).any(|name| !NO_STRATEGY.contains(&name) && !is_lone(0, name));
    if both.len() < lone && (as_many || !is_shared) {
        return Err(Error::usage(
            "the arms of BASE and NEW cannot be paired",
            [0, 1].map(|side| of(side).collect::<Vec<_>>().join(", ")).join(" against "),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let named = |(base, new): (&str, &str)| [base, new].map(|name| (name.to_owned(), format!("{base} → {new}")));
    Ok(both.into_iter().flat_map(named).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use results::document::Arm;
    use trials::fixture::{document, record};

    #[test]
    fn arms_are_paired_by_name_or_by_place() {
        let side = |names: &str| {
            let mut record = record(1, 1, |_, _| 1000);
            let sample = record.arms[0].clone();
            let arm = |name: &str| Arm { name: name.to_owned(), ..sample.clone() };
            record.arms = names.split(' ').map(arm).collect();
            record
        };
        let pairs = |base: &str, new: &str| {
            let both = [side(base), side(new)];
            let names = names(&both)?;
            let [base, new] =
                both.map(|side| named(side, &names).arms.into_iter().map(|arm| arm.name).collect::<Vec<_>>());
            Ok::<_, Error>(base.into_iter().filter(|name| new.contains(name)).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(pairs("a floor", "a floor").as_deref(), Ok("a, floor"));
        assert_eq!(pairs("a b floor", "b a floor").as_deref(), Ok("a, b, floor"));
        assert_eq!(pairs("a floor", "mine floor").as_deref(), Ok("a → mine, floor"));
        assert_eq!(pairs("a b floor", "a c floor").as_deref(), Ok("a, b → c, floor"));
        assert_eq!(pairs("a b floor", "b floor").as_deref(), Ok("b, floor"));
        let crossed = pairs("a b floor", "b c floor").unwrap_err();
        assert_eq!((crossed.exit, &*crossed.why), (Exit::Usage, "a, b, floor against b, c, floor"));
        let floor_alone = pairs("a b floor kvm", "c floor kvm").unwrap_err();
        assert_eq!((floor_alone.exit, &*floor_alone.why), (Exit::Usage, "a, b, floor, kvm against c, floor, kvm"));
    }

    /// Returns a side that is a shell script.
    fn script(body: &str) -> (tempfile::TempDir, Side) {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("side");
        std::fs::write(&binary, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, Side { name: "NEW", binary, args: Vec::new(), failure: None })
    }

    fn taken(body: &str) -> Result<Option<Record>, Error> {
        let (_dir, side) = script(body);
        take_turn(&side, &[], 1, LEAST_LIMIT)
    }

    #[test]
    fn a_turn_is_its_whole_arms() {
        let document = serde_json::to_value(document(6)).unwrap();
        let turn = |code: u8, change: &dyn Fn(&mut Value)| {
            let mut document = document.clone();
            change(&mut document);
            taken(&format!("cat <<'E'\n{document}\nE\nexit {code}")).unwrap().unwrap()
        };
        let doubts =
            |turn: &Record| -> Vec<Option<String>> { turn.arms.iter().map(|arm| doubt_of(turn, arm)).collect() };
        let (sound, regressed) = (turn(0, &|_| ()), turn(1, &|_| ()));
        assert!(doubts(&sound).iter().chain(&doubts(&regressed)).all(Option::is_none));
        let keys = |turn: &Record| format!("{:?}", sample(turn));
        assert!(keys(&sound).contains("recreate/nmi_handler_ns") && keys(&sound).contains("reuse/counts/open/PMI"));
        let failed = turn(3, &|document| document["arms"][0]["incomplete"] = json!(["a guest failed"]));
        assert_eq!(doubts(&failed)[..2], [Some("incomplete: a guest failed".to_owned()), None], "it is that arm's");
        assert!(!keys(&failed).contains("recreate/") && keys(&failed).contains("reuse/"));
        let cut = doubts(&turn(3, &|_| ()));
        assert!(cut.iter().flatten().all(|why| why == "incomplete: its run is inconclusive") && cut[0].is_some());
        let other = turn(0, &|document| document["parameters"]["backend"] = json!("c"));
        assert!(is_of(&other) != is_of(&sound) && is_of(&regressed) == is_of(&sound));
    }

    #[test]
    fn what_is_kept_of_turns_compares_as_they_do() {
        let turns = |side: u64| {
            let time = move |pair: u64, round: u64| 70_000 + pair * 37 % 11 * 90 + round + side * 3_000;
            (0..8).map(move |pair| record(6, pair, |_, round| time(pair, round))).collect::<Vec<Record>>()
        };
        let sides = [turns(0), turns(1)];
        let compared = |[base, new]: &Both<Vec<Record>>| {
            let metrics = vec!["nmi_handler_ns".to_owned()];
            let asked = CompareSpec { metrics, turns: true, unlike_hosts_allowed: true, ..CompareSpec::default() };
            compare::compare(("a", base), ("b", new), &asked).unwrap()
        };
        let kept = sides.clone().map(|turns| {
            turns.into_iter().fold(Vec::new(), |mut all: Vec<Record>, turn| {
                all.push(kept(turn, all.first()));
                all
            })
        });
        let found = compared(&sides);
        assert_eq!(found, compared(&kept));
        assert!(found.exit == 1 && found.rows().any(|row| row.metric == "exits/PMI"), "{}", found.verdict);
        assert!(kept[0][0].parameters.contains_key(STRATEGIES) && !kept[0][1].parameters.contains_key(STRATEGIES));
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
        let absent = Side { name: "NEW", binary: "/no/such/vpmu".into(), args: Vec::new(), failure: None };
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
