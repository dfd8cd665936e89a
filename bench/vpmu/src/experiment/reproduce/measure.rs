//! Published figures measured on this host by commands of this tool, beside what a model of this host predicts.
//!
//! The published regimes of the series of 2019 differ in whether another host event is there already, which the NMI watchdog's is: a
//! guest's event is then not the first, and cheap to create. Without a PMU two stand-ins have the two costs: a tracepoint, whose last
//! close and first open take tens of ms, and a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use host_pmu::backend::BackendKey;
use host_pmu::kernel;
use results::document::{Record, Status};
use results::error::{Error, Exit};
use results::host::noise::load;
use results::host::{HostFacts, HostFs};
use results::table::layout::plural;
use results::verdict::{Tally, Verdict};
use sim::model::Number;
use triage::child::this_program;

use super::published::{Here, Judged, Reproduction, Row};
use super::recipe::{ALL, Recipe, recipe, rows};
use super::recording;
use crate::experiment::stat_setup;
use crate::setting::backend::{Probe, guest_cpu, open_kvm};
use crate::setting::options::SeedOption;
use crate::setting::parse::{folder, number_in};
use crate::setting::program::{self, Ran};
use crate::sys;
use crate::terminal::progress::Progress;

/// The figures of the series of 2019.
const SERIES: &str = "vpmu-reuse";
/// Its workloads.
const WORKLOADS: [&str; 2] = ["sampling10", "counting1"];
/// Stands for the published list in a recipe's words: 700 software events, seven of ten in a weak group. Clocks are left out: the time
/// that a busy host takes from a group's clock looks like a wrong count.
const LIST: &str = "LIST";
const TEN: &str = "page-faults,context-switches,cpu-migrations,\
    {minor-faults,dummy,page-faults,context-switches,cpu-migrations,minor-faults,dummy}:W";

/// A request to measure figures on this host.
#[derive(Clone, Debug, Args)]
pub struct Asked {
    /// Folder for the documents of --run
    #[arg(short = 'o', long = "output", value_name = "DIR", requires = "run", value_parser = folder)]
    pub output: Option<PathBuf>,

    /// Rounds of --run, with everything once; five have an interval [default: as many as the command has]
    #[arg(long, value_name = "N", requires = "run", value_parser = number_in(1..=1000))]
    pub rounds: Option<u64>,

    /// Seed of the simulations; with --run of the order of what is measured.
    #[command(flatten)]
    pub seed: SeedOption,
}

/// The measurements so far, by the words or the regime of their rows.
#[derive(Debug, Default)]
struct Found {
    measured: BTreeMap<String, Record>,
    predicted: BTreeMap<String, Record>,
    notes: Vec<String>,
    missing: Vec<String>,
    error: Option<Error>,
}

impl Found {
    /// Keeps what a command found, and why a part of it is missing.
    fn keep(&mut self, id: &str, found: Result<Record, Error>) {
        match found {
            Ok(document) => {
                // The exit of stat-setup says whether its events were counted, and counted right.
                let is_open = document.experiment == stat_setup::NAME && document.exit != Some(Exit::Done.code());
                let early = (document.status != Status::Complete).then_some("it ended early");
                let doubt = early.or(is_open.then_some("it is inconclusive"));
                self.missing.extend(doubt.map(|why| format!("a part of {id}, because {why}")));
                self.measured.insert(id.to_owned(), document);
            }
            Err(error) => {
                self.missing.push(format!("{id}, because {error}"));
                self.error.get_or_insert(error);
            }
        }
    }
}

/// Names the run that measures the numbers of a recipe.
fn id(recipe: &Recipe) -> &str {
    recipe.run.as_ref().unwrap_or(&recipe.regime)
}

/// Measures a figure, or those whose ids begin so. What was measured before an error or Ctrl-C is in the result.
///
/// # Errors
/// The first error, if nothing was measured.
pub fn measure(
    figure: &str,
    asked: &Asked,
    probe: Probe<'_>,
    progress: &mut dyn Progress,
) -> Result<Reproduction, Error> {
    let fs = HostFs::default();
    let host = HostFacts::read(&fs);
    let mut found = Found::default();
    let is_recording = figure == recording::NAME;
    let all = if is_recording { recording::rows() } else { rows(figure) };
    if figure == SERIES {
        open_kvm()?;
        series(&mut found, asked, &host, probe, progress)?;
    }
    let runs: BTreeSet<&String> = all.iter().filter_map(|(_, recipe)| recipe.run.as_ref()).collect();
    for words in runs.into_iter().take_while(|_| !sys::stopped()) {
        progress.expect(words);
        let document = if is_recording {
            recording::measure((asked.rounds, asked.seed.seed), asked.output.as_deref(), progress)
        } else {
            carry_out(words, asked)
        };
        found.keep(words, document);
    }
    if sys::stopped() {
        found.missing.push("the rest, because of the interrupt".to_owned());
    }
    if found.measured.is_empty() {
        let why = if sys::stopped() { "it was interrupted".to_owned() } else { found.missing.join(" ") };
        let nothing = || Error::new(Exit::Inconclusive, "nothing was measured", why, "nothing is saved");
        return Err(found.error.unwrap_or_else(nothing));
    }
    let of = |(row, recipe): (Row, Recipe)| of_run(row, &recipe, &host, &mut found);
    let mut rows: Vec<Row> = all.into_iter().filter_map(of).collect();
    if let Some(load) = load(&host, HostFacts::read(&fs)) {
        leave_inconclusive(&mut rows, &load);
    }
    found.notes.extend(facts(&host, &found.measured));
    Ok(conclude(asked.seed.seed, rows, host, found))
}

/// Returns a row with what is known of it here, the measured number compared with the published and the predicted one; `None` if that
/// is nothing.
fn of_run(mut row: Row, recipe: &Recipe, host: &HostFacts, found: &mut Found) -> Option<Row> {
    let id = id(recipe);
    if let Some(document) = found.predicted.get(id) {
        let one = recipe.of(document, row.number);
        row.predicted = one.map_or_else(Vec::new, |one| range(one.value, row.number, document.host.model_percent));
    }
    if let Some(document) = found.measured.get(id) {
        row.measured = recipe.of(document, row.number);
        // An arm may not be there, as stock perf.
        let is_lost = row.measured.is_none() && recipe.arms.iter().any(|name| document.arm(name).is_some());
        if is_lost && recipe.run.is_some() {
            found.missing.push(format!("{} {}", row.figure, row.number.key()));
        }
    }
    let Some(measured) = &row.measured else { return (!row.predicted.is_empty()).then_some(row) };
    let is_published_host = !host.virtualized && matches!(host.cpu_signature, Some([6, 85, 5..=7]));
    let differs = recipe.differs.as_deref();
    let of_another = match row.number {
        _ if measured.stand_in => Some("a stand-in for hardware events"),
        // A guest's events and rotations decide creations of hardware events, not what they cost.
        Number::Change => None,
        _ => (!is_published_host).then_some("the published processor is a Cascade Lake on bare metal"),
    };
    let of = |value| row.number.judged(value);
    let interval = measured.interval.map(|one| one.map(of));
    let judged = |others: &[f64], incomparable: Option<&str>| match incomparable {
        Some(why) => Judged::not_comparable(why),
        None => Judged::of(of(measured.value), interval, &others.iter().map(|&one| of(one)).collect::<Vec<_>>()),
    };
    let against_published = row.published.map(|published| judged(&[published], differs.or(of_another)));
    row.against_predicted = (!row.predicted.is_empty()).then(|| judged(&row.predicted, differs));
    row.against_published = against_published;
    Some(row)
}

/// Backends of the series, each with whether a guest's event is the first on the host.
type Regimes = Vec<(bool, BackendKey)>;

/// Returns what this host has, and what is left out and why.
fn regimes(probe: Probe<'_>, watchdog: Option<bool>) -> Result<(Regimes, Vec<String>), Error> {
    let Err(refused) = probe(&BackendKey::Hardware) else {
        let what = "whether the NMI watchdog is on is unknown";
        let on = watchdog.ok_or_else(|| Error::host(what, "/proc/sys/kernel/nmi_watchdog cannot be read", ""))?;
        let [here, other] = if on { ["on", "0"] } else { ["off", "1"] };
        let note =
            format!("The NMI watchdog is {here}: for the other regime sysctl kernel.nmi_watchdog={other}, and again.");
        return Ok((vec![(!on, BackendKey::Hardware)], vec![note]));
    };
    let mut notes = vec![format!("Stand-ins, since hardware events do not open ({}).", refused.why)];
    let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() };
    let mut found = Vec::new();
    for (backend, first_event, regime) in
        [(tracepoint, true, "watchdog-off"), (BackendKey::CpuClock, false, "watchdog-on")]
    {
        match probe(&backend) {
            Ok(()) => {
                notes.push(format!("{backend} stands in for {regime}; it counts something else than was asked for."));
                found.push((first_event, backend));
            }
            Err(why) => notes.push(format!("{regime} is left out: {backend} does not open ({}).", why.why)),
        }
    }
    if found.is_empty() {
        let what = "nothing can stand behind a counter here";
        return Err(Error::host(what, refused.why.as_str(), "`vpmu doctor` says what is missing"));
    }
    Ok((found, notes))
}

/// Returns the id of a regime's run with a workload, and the options of its guests.
fn guests(first_event: bool, backend: &BackendKey, workload: &str) -> Result<(String, &'static str), Error> {
    let id = format!("{}-{workload}", if first_event { "expensive-create" } else { "cheap-create" });
    let key = if matches!(backend, BackendKey::Tracepoint { .. }) { format!("{id}.tracepoint") } else { id.clone() };
    let options = ALL.regimes.get(&key).ok_or_else(|| Error::internal("no such regime in published.toml", key))?;
    Ok((id, options))
}

/// Calibrates this host for each regime, predicts by that model, and measures.
fn series(
    found: &mut Found,
    asked: &Asked,
    host: &HostFacts,
    probe: Probe<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let (regimes, notes) = regimes(probe, host.nmi_watchdog)?;
    found.notes = notes;
    let folder = tempfile::tempdir().map_err(|error| Error::output("cannot make a temporary folder", &error, ""))?;
    let model = folder.path().join("here.toml").display().to_string();
    for (first_event, backend) in regimes {
        progress.expect(&format!("calibration of {backend}"));
        let rounds = asked.rounds.unwrap_or(10).clamp(2, 10);
        let words = format!("calibrate --quiet --backend {backend} --rounds {rounds}");
        let calibrated = run_tool(&words, ["--output", &model], &[Exit::Done]).map(drop);
        let is_below_kvm = backend == BackendKey::Hardware && Path::new(kernel::DEVICE).exists();
        let below_kvm = if is_below_kvm { ",kvm:recreate" } else { "" };
        for workload in WORKLOADS.into_iter().take_while(|_| !sys::stopped()) {
            let (id, guests) = guests(first_event, &backend, workload)?;
            let cpu = guest_cpu(&backend, host).name();
            let words = format!("nmi-latency --cpu {cpu} {guests} --strategy recreate,reuse,reuse-lazy");
            let by_model = ["--backend", &format!("sim:{model}"), "--rounds", "20", "--no-save"];
            match calibrated.clone().and_then(|()| document(&words, &by_model)) {
                Ok(document) => drop(found.predicted.insert(id.clone(), document)),
                Err(error) => found.missing.push(format!("predictions of {id}, because {error}")),
            }
            progress.expect(&id);
            found.keep(&id, carry_out(&format!("{words}{below_kvm} --backend {backend} --duration 100s"), asked));
        }
    }
    Ok(())
}

fn failed(words: &str, exit: Option<Exit>, why: String) -> Error {
    let exit = exit.filter(|exit| *exit != Exit::Done).unwrap_or(Exit::Inconclusive);
    Error::new(exit, format!("cannot carry out `vpmu {words}`"), why, "")
}

/// Runs a command of this tool, some of whose arguments are no words, to one of these ends.
fn run_tool(words: &str, args: impl IntoIterator<Item: AsRef<OsStr>>, ends: &[Exit]) -> Result<Ran, Error> {
    let list = vec![TEN; 70].join(",");
    let host = |error: std::io::Error| failed(words, Some(Exit::Host), error.to_string());
    let mut command = Command::new(this_program().map_err(host)?);
    command.args(words.split_whitespace().map(|word| if word == LIST { &list } else { word })).args(args);
    let ran = program::run(&mut command, sys::stopped).map_err(host)?;
    let is_one = ran.exit().is_some_and(|exit| ends.contains(&exit));
    if is_one { Ok(ran) } else { Err(failed(words, ran.exit(), ran.why())) }
}

/// Runs a command of this tool, and returns its document.
fn document(words: &str, args: &[impl AsRef<OsStr>]) -> Result<Record, Error> {
    let args = ["--json", "--quiet"].map(OsStr::new).into_iter().chain(args.iter().map(AsRef::as_ref));
    let ran = run_tool(words, args, &[Exit::Done, Exit::Regression, Exit::Inconclusive])?;
    ran.document().map_err(|why| failed(words, None, why))
}

/// Carries a command out as it is asked for, and returns its document.
fn carry_out(words: &str, asked: &Asked) -> Result<Record, Error> {
    let mut args = vec![OsString::from(format!("--seed={}", asked.seed.seed))];
    args.extend(asked.rounds.map(|rounds| format!("--rounds={rounds}").into()));
    let mut place = OsString::from(if asked.output.is_some() { "--output=" } else { "--no-save" });
    place.push(asked.output.as_deref().unwrap_or(Path::new("")));
    args.push(place);
    document(words, &args)
}

/// Returns the ends of what a model says that takes so many percent of what was measured where it was made.
fn range(value: f64, number: Number, percent: Option<[u64; 2]>) -> Vec<f64> {
    let Some([low, high]) = percent.map(|ends| ends.map(|end| end as f64 / 100.0)) else { return vec![value] };
    match number {
        Number::Before | Number::After => vec![value / high, value / low],
        Number::Ratio => vec![value * low / high, value * high / low],
        // It is one of counts and not of times.
        Number::Change => vec![value],
    }
}

/// Leaves inconclusive what differs on a busy host: its load may be why.
fn leave_inconclusive(rows: &mut [Row], load: &str) {
    let judged = rows.iter_mut().flat_map(|row| [&mut row.against_published, &mut row.against_predicted]).flatten();
    for one in judged.filter(|one| matches!(one.verdict, Verdict::Slower | Verdict::Faster)) {
        (one.verdict, one.why) = (Verdict::Inconclusive, Some(format!("this host was busy, load {load}")));
    }
}

/// Describes what the figures depend on.
fn facts(host: &HostFacts, runs: &BTreeMap<String, Record>) -> Vec<String> {
    let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let watchdog = host.nmi_watchdog.map_or("unknown", |on| if on { "on" } else { "off" });
    let (cpu, kernel, smt) = (known(&host.cpu_model), known(&host.kernel), known(&host.smt));
    let mut facts = vec![format!("{}; {cpu}, Linux {kernel}; SMT {smt}; NMI watchdog {watchdog}", host.class)];
    let mut of_runs = BTreeMap::new();
    for (id, document) in runs {
        let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
        facts.push(format!("{id}: {}", plural(rounds, "round")));
        for arm in &document.arms {
            let said = [&arm.notes[..], &arm.incomplete, arm.not_available.as_slice()].concat().into_iter();
            of_runs.extend(said.chain(arm.own.doubts()).map(|what| (format!("{}: {what}", arm.name), None)));
        }
        let parameter = |key: &str| Some((format!("{key}: {}", document.parameter(key)?), None));
        of_runs.extend(["guest", "perf"].into_iter().filter_map(parameter));
        // The load of each run has figures of its own: the last is said.
        let warnings = document.warnings.iter().filter(|one| one.arm.is_none());
        of_runs.extend(warnings.map(|one| (one.code.clone(), Some(one.message.clone()))));
    }
    facts.extend(of_runs.into_iter().map(|(what, message)| message.unwrap_or(what)));
    facts
}

/// Returns the measured rows with their conclusion: whether numbers agree, and what is missing.
fn conclude(seed: u64, rows: Vec<Row>, host: HostFacts, Found { notes, mut missing, .. }: Found) -> Reproduction {
    let side = |what: &str, of: fn(&Row) -> Option<&Judged>| {
        let Tally { slower, faster, same, inconclusive } =
            Tally::of(rows.iter().filter_map(of).map(|found| found.verdict));
        let (differ, all) = (slower + faster, slower + faster + same + inconclusive);
        let text = format!("; of {all} {what} numbers {same} agree, {differ} differ, {inconclusive} are inconclusive");
        if all == 0 { String::new() } else { text }
    };
    let published = side("published", |row| row.against_published.as_ref());
    let predicted = side("predicted", |row| row.against_predicted.as_ref());
    // Where nothing agrees or differs, the question is open. A number that is published of something else asks none.
    let asks = |row: &&Row| !row.predicted.is_empty() || recipe(&row.figure).is_none_or(|of| of.differs.is_none());
    let judged = || rows.iter().filter(asks).flat_map(|row| [&row.against_published, &row.against_predicted]).flatten();
    let is_open = |one: &&Judged| one.verdict == Verdict::Inconclusive;
    let first = judged().find(is_open).or_else(|| judged().next());
    if let (Some(one), true) = (first, judged().all(|one| is_open(&one) || one.verdict == Verdict::NotJudged)) {
        missing.push(format!("a comparison, because {}", one.why.as_deref().unwrap_or("no interval is narrow enough")));
    }
    let whole = missing.is_empty();
    if rows.iter().any(|row| row.measured.as_ref().is_some_and(|one| one.stand_in)) {
        missing.push("evidence on hardware, because hardware events do not open here".to_owned());
    }
    let missing = if missing.is_empty() { String::new() } else { format!(" Missing: {}.", missing.join("; ")) };
    let measured = plural(rows.iter().filter(|row| row.measured.is_some()).count(), "number");
    let conclusion = format!("{measured} measured{published}{predicted}.{missing}");
    let here = Some(Here { host, notes, whole, conclusion });
    Reproduction { seed, rows, fitted: Vec::new(), here }
}

#[cfg(test)]
mod tests {
    use super::super::recipe::recipe;
    use super::*;
    use crate::arms::rounds::mock;
    use crate::setting::backend::fake::opens;
    use results::document::Document;

    #[test]
    fn regimes_are_the_present_one_or_two_stand_ins_or_what_there_is_with_a_line() {
        const TRACEPOINT: &str = "tracepoint:kvm/kvm_userspace_exit";
        let of = |keys: &[&str], watchdog| {
            let found = regimes(&opens(keys), watchdog);
            found.map(|(found, notes)| {
                for ((first_event, backend), workload) in found.iter().flat_map(|one| WORKLOADS.map(|name| (one, name)))
                {
                    guests(*first_event, backend, workload).unwrap();
                }
                let names = found.iter().map(|(first, backend)| format!("{first} {backend}")).collect::<Vec<_>>();
                (names.join(", "), notes.join(" "))
            })
        };
        let (found, notes) = of(&["hardware", "cpu-clock"], Some(true)).unwrap();
        assert!(found == "false hardware" && notes.contains("kernel.nmi_watchdog=0"), "{found} {notes}");
        assert_eq!(of(&["hardware"], Some(false)).unwrap().0, "true hardware");
        assert_eq!(of(&["hardware"], None).unwrap_err().exit, Exit::Host, "it is not taken for off");
        let (found, notes) = of(&["cpu-clock", TRACEPOINT], None).unwrap();
        assert_eq!(found, format!("true {TRACEPOINT}, false cpu-clock"));
        assert!(notes.starts_with("Stand-ins, since hardware events do not open (No such file"), "{notes}");
        let (found, notes) = of(&["cpu-clock"], None).unwrap();
        assert!(found == "false cpu-clock" && notes.contains("watchdog-off is left out"), "{found} {notes}");
        assert_eq!(of(&[], None).unwrap_err().exit, Exit::Host);
    }

    /// Returns a row of a document that is predicted and measured.
    fn row(predicted: &Document, measured: &Document, stand_in: bool, mut row: Row) -> Row {
        let recipe = recipe(&row.figure).unwrap();
        let mut measured = measured.clone();
        measured.arms.iter_mut().for_each(|arm| arm.stand_in = stand_in);
        let mut found = Found::default();
        found.predicted.insert(id(recipe).to_owned(), serde_json::from_str(&predicted.to_json().unwrap()).unwrap());
        row.measured = recipe.of(&measured, row.number);
        let host = measured.host.clone();
        of_run(row, recipe, &host, &mut found).unwrap()
    }

    #[test]
    fn a_prediction_has_the_range_of_its_model_and_a_busy_host_decides_nothing() {
        let mut document = mock::finished(&["--workload", "sampling10"]);
        let of = |document: &Document, number| {
            let empty = Row { figure: "vpmu-reuse.watchdog-on.mean".to_owned(), number, ..Row::default() };
            row(document, document, false, empty)
        };
        document.host.model_percent = Some([80, 125]);
        for (number, ends) in [(Number::After, [0.8, 1.25]), (Number::Ratio, [0.64, 1.5625])] {
            let row = of(&document, number);
            let value = row.measured.unwrap().value;
            let found: Vec<f64> = row.predicted.iter().map(|end| (end / value * 1e4).round() / 1e4).collect();
            assert_eq!(found, ends, "{number:?}");
        }
        // Three times as long as is predicted.
        document.host.model_percent = Some([300, 300]);
        let mut all = [of(&document, Number::After)];
        let said = |all: &[Row]| all[0].against_predicted.as_ref().unwrap().to_string();
        assert_eq!(said(&all), "differs, +200.0 %");
        leave_inconclusive(&mut all, "4.00 on 2 CPUs");
        assert_eq!(said(&all), "inconclusive, +200.0 %");
    }

    #[test]
    fn nothing_is_missing_where_nothing_was_to_be_compared() {
        let concluded = |figure: &str, verdicts: &[Verdict]| {
            let of = |&verdict| {
                let judged = Judged { verdict, by: None, why: Some(format!("{verdict:?}")) };
                Row { figure: figure.to_owned(), against_published: Some(judged), ..Row::default() }
            };
            conclude(1, verdicts.iter().map(of).collect(), HostFacts::default(), Found::default()).here.unwrap()
        };
        assert!(concluded("event-practice.rand", &[Verdict::NotJudged]).whole && concluded("", &[]).whole);
        let open = concluded("vpmu-reuse.v1.mean", &[Verdict::NotJudged, Verdict::Inconclusive]);
        assert!(!open.whole && open.conclusion.ends_with("a comparison, because Inconclusive."), "{}", open.conclusion);
    }

    #[test]
    fn a_row_is_compared_with_what_is_comparable() {
        let mut document = mock::finished(&["--workload", "sampling10"]);
        document.host.cpu_signature = Some([6, 85, 7]);
        document.host.virtualized = false;
        let judged = |document: &Document, stand_in: bool| {
            [("vpmu-reuse.watchdog-on.mean", 1000.0), ("vpmu-reuse.v1.mean", 500.0)].map(|(figure, published)| {
                let empty = Row { number: Number::After, published: Some(published), ..Row::default() };
                let row = row(document, document, stand_in, Row { figure: figure.to_owned(), ..empty });
                assert_eq!(row.against_predicted.unwrap().to_string(), "agrees");
                row.against_published.unwrap().to_string()
            })
        };
        assert_eq!(judged(&document, false), ["agrees", "differs, +100.0 %"]);
        assert_eq!(judged(&document, true), ["not comparable", "not comparable"]);
        document.host.virtualized = true;
        assert_eq!(judged(&document, false), ["not comparable", "not comparable"]);
    }
}
