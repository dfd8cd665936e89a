//! `reproduce --run vpmu-reuse`: the series of 2019 on this host. Calibrates, predicts, measures, and compares.
//!
//! The published regimes differ in whether another host event is there already, which the NMI watchdog's is: a guest's
//! event is then not the first, and cheap to create. Where creating is expensive both costs are met, so this regime comes
//! first and its model predicts both. Without a PMU two stand-ins have the two costs: a tracepoint, whose last close and
//! first open take tens of ms, and a clock; each is calibrated by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use host_pmu::backend::BackendKey;
use host_pmu::kernel;
use results::document::{Any, ArmKind, Document, Experiment, GuestRun, Record};
use results::error::{Error, Exit};
use results::host::noise::load;
use results::host::{HostFacts, HostFs};
use results::published::{Number, Reproduction, Row};
use results::stats::interval::Interval;
use results::verdict::{Judged, Verdict};
use sim::model::Model;
use vmm::machine::Cpu;

use super::commands::{carry_out, interrupted};
use super::here::{Asked, conclude};
use super::recipe::{RECIPES, rows};
use super::watchdog::Watchdog;
use crate::arms::arm::sim as simulated;
use crate::arms::linux::job::LinuxJob;
use crate::arms::rounds::options::HostOptions;
use crate::arms::rounds::plan::Plan;
use crate::experiment::calibrate::draft::Draft;
use crate::experiment::calibrate::run::run as calibrate;
use crate::experiment::calibrate::spec::CalibrateSpec;
use crate::experiment::nmi_latency::simulated::simulate;
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::setting::backend::{BackendChoice, Chosen, EventProbe, guest_cpu};
use crate::setting::options::BehindOptions;
use crate::setting::parse::options;
use crate::setting::workload::Workload;
use crate::sys;
use crate::terminal::console::internal;
use crate::terminal::progress::Progress;

/// The arms beside the floor and KVM's own vPMU.
const STRATEGIES: &str = "recreate,reuse,reuse-lazy";
/// Bound on the whole, unless another is asked for.
const LONGEST: Duration = Duration::from_secs(600);
/// Rounds of a prediction, which costs no time of the host's.
const PREDICTED_ROUNDS: u64 = 20;
/// Most rounds of the calibration.
const CALIBRATED_ROUNDS: u64 = 10;
/// Part of the whole time after which the calibrations begin no further round.
const CALIBRATED_SHARE: u32 = 4;
/// Begin of the workload of a Linux guest.
const LINUX: &str = "linux:";

/// One of the two published regimes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regime {
    /// The NMI watchdog is on, or a stand-in that is cheap to create is in its place.
    on: bool,
    backend: BackendKey,
}

impl Regime {
    const fn name(&self) -> &'static str {
        match (self.stands_in(), self.on) {
            (false, true) => "watchdog-on",
            (false, false) => "watchdog-off",
            (true, true) => "cheap-create",
            (true, false) => "expensive-create",
        }
    }

    const fn stands_in(&self) -> bool {
        !matches!(self.backend, BackendKey::Hardware)
    }

    const fn is_tracepoint(&self) -> bool {
        matches!(self.backend, BackendKey::Tracepoint { .. })
    }

    /// Returns prefixes of the workloads that are measured. A tracepoint cannot stand in for the ten events of a Linux guest.
    fn parts(&self, linux: bool) -> Vec<&'static str> {
        ["sampling10/", "counting1/"].into_iter().chain((linux && !self.is_tracepoint()).then_some(LINUX)).collect()
    }

    /// Returns the options of `vpmu nmi-latency` for the guests that stand for the workload with this prefix.
    fn options(&self, events: &str) -> String {
        let workload = match (events, self.is_tracepoint()) {
            // More events of a tracepoint take longer to create than a tick.
            ("sampling10/", true) => "single/io",
            ("counting1/", true) => "counting1/io",
            ("counting1/", false) => "counting1",
            // The period of the simulated guests.
            ("sampling10/", false) => "sampling10 --period 20000000",
            _ => "sampling10",
        };
        let turns = match (events, self.on) {
            // Linux's perf takes seconds to start.
            (LINUX, _) => "--samples 1000 --warmup 0 --time-limit 5s",
            // Creations are counted per NMI, and each guest has some at its start.
            (_, true) => "--samples 50",
            // Guests that live at the same time would spare each other the first event.
            (_, false) => "--samples 10 --time-limit 5s",
        };
        // At the usual 4 ms a rotation that creates events, in 20 ms and more, leaves the guest no time between two.
        let tick = if self.on || self.is_tracepoint() { "4ms" } else { "100ms" };
        format!("--workload {workload} {turns} --mux-interval {tick}")
    }

    /// Returns the words that measure it here.
    fn words(&self, events: &str, host: &HostFacts, bound: Duration) -> String {
        let Self { backend, .. } = self;
        let below_kvm = if !self.stands_in() && Path::new(kernel::DEVICE).exists() { ",kvm:recreate" } else { "" };
        let (cpu, options) = (guest_cpu(backend, host).name(), self.options(events));
        format!(
            "nmi-latency --strategy {STRATEGIES}{below_kvm} {options} --backend {backend} --cpu {cpu} --duration {}ns",
            bound.as_nanos()
        )
    }
}

/// Runs of guests by the prefix of the workload that they stand for, and whether the watchdog is on.
type Runs<E = GuestRun> = BTreeMap<(&'static str, bool), Document<E>>;

/// Returns the regimes that this host can have, the expensive one first, and what is left out and why. `switches`: the
/// host's watchdog can be switched, or why not.
fn regimes(
    probe: &dyn EventProbe,
    watchdog: Option<bool>,
    switches: &Result<(), String>,
) -> Result<(Vec<Regime>, Vec<String>), Error> {
    let published = [false, true].map(|on| Regime { on, backend: BackendKey::Hardware });
    let Err(refused) = probe.try_open(&BackendKey::Hardware) else {
        let Err(why) = switches else { return Ok((published.to_vec(), Vec::new())) };
        let unknown = || Error::host("whether the NMI watchdog is on is unknown", why.as_str(), "run it as root");
        let on = watchdog.ok_or_else(unknown)?;
        let present = published.into_iter().find(|regime| regime.on == on);
        let note = present.iter().map(|regime| format!("Only the present regime, {}: {why}.", regime.name())).collect();
        return Ok((present.into_iter().collect(), note));
    };
    let mut notes = vec![format!("Stand-ins, since hardware events do not open ({refused}).")];
    let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() };
    let mut found = Vec::new();
    for (stands_for, backend) in published.iter().zip([tracepoint, BackendKey::CpuClock]) {
        let regime = Regime { backend, ..stands_for.clone() };
        let (name, backend, other) = (regime.name(), &regime.backend, stands_for.name());
        match probe.try_open(backend) {
            Ok(()) => {
                notes.push(format!(
                    "{name}: {backend} stands in for {other}; it counts something else than was asked for."
                ));
                found.push(regime);
            }
            Err(why) => notes.push(format!("{name} is left out: {backend} does not open ({why}).")),
        }
    }
    if found.is_empty() {
        let what = "nothing can stand behind a counter here";
        return Err(Error::host(what, refused.why.as_str(), "`vpmu doctor` says what is missing"));
    }
    Ok((found, notes))
}

/// Plans the guests of a regime that stand for the workload with this prefix.
fn planned(
    regime: &Regime,
    events: &str,
    behind: BackendChoice,
    chosen: &Chosen,
    cpu: Cpu,
) -> Result<(Plan, Workload), Error> {
    let line = format!("--strategy {STRATEGIES} --rounds {PREDICTED_ROUNDS} {}", regime.options(events));
    let spec: NmiLatencySpec = options(&line.split_whitespace().collect::<Vec<_>>())
        .map_err(|error| internal("options of the series", error))?;
    let host = HostOptions { behind: BehindOptions::of(behind), cpu };
    Ok((spec.plan(&PAYLOAD, &host, chosen, None)?, spec.workload.unwrap_or(PAYLOAD.workload)))
}

/// Simulates the guests of a regime on a host of this model.
fn predict(model: &Model, regime: &Regime, events: &str, cpu: Cpu) -> Result<Document, Error> {
    let (behind, chosen) = (BackendChoice::Sim(model.name.clone()), simulated::chosen(model, "prediction"));
    let (plan, _) = planned(regime, events, behind, &chosen, cpu)?;
    simulate(&plan, model.clone(), sys::interrupted())
}

/// Calibrates this host for `regime`, and predicts by that model: the other regime, too, where the costs of both are met in this one.
fn predictions(
    regime: &Regime,
    (asked, duration): (&Asked, Duration),
    host: &HostFacts,
    progress: &mut dyn Progress,
) -> Result<Runs, Error> {
    let rounds = asked.rounds.map_or(CALIBRATED_ROUNDS, |rounds| rounds.clamp(2, CALIBRATED_ROUNDS));
    let calibration = CalibrateSpec {
        name: "here".to_owned(),
        rounds: Some(rounds),
        duration: Some(duration),
        ..CalibrateSpec::default()
    };
    let draft = calibrate(calibration, &Chosen::here(regime.backend.clone(), "calibration".to_owned()), progress)?.0;
    let mut models: Vec<(Regime, Draft)> = vec![(regime.clone(), draft.clone())];
    if !regime.on && !regime.stands_in() {
        models.push((Regime { on: true, ..regime.clone() }, draft.with_another_event()));
    }
    let mut predicted = Runs::new();
    for (regime, draft) in models {
        for events in regime.parts(false) {
            let document = predict(&draft.model()?, &regime, events, guest_cpu(&regime.backend, host))?;
            predicted.insert((events, regime.on), document);
        }
    }
    Ok(predicted)
}

/// Says why a document has no whole round of a strategy, if it has none.
fn not_whole(document: &Record) -> Option<String> {
    let mut strategies = document.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy);
    if strategies.clone().any(|arm| arm.rounds.complete.contains(&true)) {
        return None;
    }
    let why = strategies.next().and_then(|arm| arm.not_available.as_ref().or(arm.incomplete.first()));
    Some(why.map_or("there is no whole round", String::as_str).to_owned())
}

/// Leaves open what differs on a busy host: its load may be why.
fn undecided(rows: &mut [Row], load: &str) {
    let judged = rows.iter_mut().flat_map(|row| [&mut row.against_published, &mut row.against_predicted]).flatten();
    for one in judged.filter(|one| matches!(one.verdict, Verdict::Slower | Verdict::Faster)) {
        (one.verdict, one.why) = (Verdict::Inconclusive, Some(format!("this host was busy, load {load}")));
    }
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

/// Carries the series out. What was measured before Ctrl-C or an error is in the result. `linux`: options of a Linux guest besides;
/// `job`: they, parsed.
///
/// # Errors
/// Exit 2 for a kernel or a perf that cannot be used, exit 4 if nothing can be measured here.
pub fn series(
    (asked, linux, job): (&Asked, &[String], Option<&LinuxJob>),
    probe: &dyn EventProbe,
    watchdog: Result<Watchdog, String>,
    progress: &mut dyn Progress,
) -> Result<Reproduction, Error> {
    let (began, fs, whole) = (Instant::now(), HostFs::default(), asked.duration.unwrap_or(LONGEST));
    let host = HostFacts::read(&fs);
    let switches = watchdog.as_ref().map(drop).map_err(Clone::clone);
    let (regimes, mut notes) = regimes(probe, host.nmi_watchdog, &switches)?;
    // A kernel or a perf that cannot be used is refused before anything is measured.
    if let Some((job, regime)) = job.zip(regimes.iter().find(|one| one.parts(true).contains(&LINUX))) {
        let (behind, chosen) = (regime.backend.clone(), Chosen::here(regime.backend.clone(), String::new()));
        let cpu = guest_cpu(&behind, &host);
        let (mut plan, workload) = planned(regime, LINUX, BackendChoice::Key(behind), &chosen, cpu)?;
        job.adapt(&mut plan, workload)?;
        job.runner(&mut plan)?;
    }
    let watchdog = watchdog.ok();
    let parts: Vec<Vec<&str>> = regimes.iter().map(|regime| regime.parts(!linux.is_empty())).collect();
    let (mut predicted, mut measured, mut missing) = (Runs::new(), Runs::<Any>::new(), Vec::new());
    let mut left: usize = parts.iter().map(Vec::len).sum();
    for (at, (regime, parts)) in regimes.iter().zip(parts).enumerate() {
        let switch = |it: &Watchdog| if regime.stands_in() { Ok(()) } else { it.switch(regime.on) };
        if let Some(Err(why)) = watchdog.as_ref().map(switch) {
            missing.push(format!("{}, because {why}", regime.name()));
            left -= parts.len();
            continue;
        }
        if at == 0 {
            progress.expect(&format!("{}: calibration", regime.name()));
            let each = whole / CALIBRATED_SHARE / regimes.len() as u32;
            // A stand-in that cannot be calibrated does not keep the other from it.
            for regime in regimes.iter().filter(|one| one.stands_in() || *one == regime) {
                match predictions(regime, (asked, each), &host, progress) {
                    Ok(runs) => predicted.extend(runs),
                    Err(error) => missing.push(format!("predictions of {}, because {error}", regime.name())),
                }
            }
        }
        for events in parts.into_iter().take_while(|_| !interrupted()) {
            let bound = whole.saturating_sub(began.elapsed()) / left as u32;
            left -= 1;
            let name = format!("{}-{}", regime.name(), events.trim_end_matches(['/', ':']));
            progress.expect(&name);
            let words = regime.words(events, &host, bound.max(Duration::from_secs(1)));
            let found = carry_out(&words, if events == LINUX { linux } else { &[] }, asked);
            if watchdog.is_some() && HostFacts::read(&fs).nmi_watchdog != Some(regime.on) {
                missing.push(format!("{name} in one regime, because someone else switched the NMI watchdog meanwhile"));
            }
            match found.map(|(document, doubt)| (not_whole(&document), document, doubt)) {
                Ok((None, document, doubt)) => {
                    missing.extend(doubt.map(|why| format!("a part of {name}, because {why}")));
                    measured.insert((events, regime.on), document);
                }
                Ok((Some(why), ..)) => missing.push(format!("{name}, because {why}")),
                Err(error) => missing.push(format!("{name}, because {error}")),
            }
        }
    }
    if let Some(Err(error)) = watchdog.as_ref().map(Watchdog::restore) {
        notes.push(format!("The watchdog is not as it was found: {error}."));
    }
    if interrupted() {
        missing.push("the rest, because of the interrupt".to_owned());
    }
    if measured.is_empty() {
        notes.extend(missing);
        return Err(Error::new(Exit::Inconclusive, "nothing was measured", notes.join(" "), "nothing is saved"));
    }
    let mut rows = judged(rows("vpmu-reuse."), &predicted, &measured);
    if let Some(load) = load(&host, HostFacts::read(&fs)) {
        undecided(&mut rows, &load);
    }
    notes.extend(facts(&host, &measured));
    Ok(conclude(asked.seed, rows, host, (notes, missing)))
}

/// Returns those of the rows that something is known of besides, with their predictions, measurements and verdicts.
fn judged<E: Experiment>(mut rows: Vec<Row>, predicted: &Runs, measured: &Runs<E>) -> Vec<Row> {
    for row in &mut rows {
        let Some(recipe) = RECIPES.get(&row.figure) else { continue };
        let of = (recipe.workload.as_str(), !recipe.first_event);
        if let Some(document) = predicted.get(&of) {
            let percent = document.host.model_percent;
            row.predicted =
                recipe.of(document, row.number).map_or_else(Vec::new, |one| range(one.value, row.number, percent));
        }
        if let Some(document) = measured.get(&of) {
            row.measured = recipe.of(document, row.number);
            judge(row, &document.host);
        }
    }
    rows.retain(|row| row.published.is_some() || !row.predicted.is_empty() || row.measured.is_some());
    let sides = ["vpmu-reuse.watchdog-on.", "vpmu-reuse.watchdog-off."];
    let side = |row: &Row| sides.iter().position(|side| row.figure.starts_with(side)).unwrap_or(2);
    rows.sort_by(|a, b| (side(a), &a.figure, a.number).cmp(&(side(b), &b.figure, b.number)));
    rows
}

fn judge(row: &mut Row, host: &HostFacts) {
    let Some(measured) = &row.measured else { return };
    let published_host = !host.virtualized && matches!(host.cpu_signature, Some([6, 85, 5..=7]));
    let least = row.figure == "vpmu-reuse.watchdog-off.min";
    let least = least.then_some("the least of all depends on how many NMIs there were");
    let of_another = match row.number {
        _ if measured.stand_in => Some("a stand-in for hardware events"),
        // A guest's events and rotations decide creations of hardware events, not what they cost.
        Number::Change => None,
        _ => (!published_host).then_some("the published processor is a Cascade Lake on bare metal"),
    };
    let of = |value| row.number.judged(value);
    let interval = measured.interval.map(|one| Interval { low: of(one.low), high: of(one.high) });
    let judged = |others: &[f64], incomparable: Option<&str>| match incomparable {
        Some(why) => Judged::not_comparable(why),
        None => Judged::of(of(measured.value), interval, &others.iter().map(|&one| of(one)).collect::<Vec<_>>()),
    };
    let against_published = row.published.map(|published| judged(&[published], least.or(of_another)));
    row.against_predicted = (!row.predicted.is_empty()).then(|| judged(&row.predicted, least));
    row.against_published = against_published;
}

/// Describes what the figures depend on.
fn facts(host: &HostFacts, runs: &Runs<Any>) -> Vec<String> {
    let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let watchdog = host.nmi_watchdog.map_or("unknown", |on| if on { "on" } else { "off" });
    let (cpu, kernel, smt) = (known(&host.cpu_model), known(&host.kernel), known(&host.smt));
    let mut facts = vec![format!("{}; {cpu}, Linux {kernel}; SMT {smt}; NMI watchdog found {watchdog}", host.class)];
    let mut of_runs = BTreeSet::new();
    for arm in runs.values().flat_map(|document| &document.arms) {
        of_runs.extend(arm.own.doubts().map(|(count, about)| format!("{}: {count} {about}.", arm.name)));
        of_runs.extend(arm.not_available.iter().map(|why| format!("{}: not measured ({why}).", arm.name)));
    }
    facts.extend(of_runs);
    // The load of each run has figures of its own.
    let warnings = runs.values().flat_map(|document| &document.warnings).filter(|one| one.arm.is_none());
    let by_code: BTreeMap<&str, &str> = warnings.map(|one| (one.code.as_str(), one.message.as_str())).collect();
    facts.extend(by_code.into_values().map(str::to_owned));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::backend::fake::Opens;
    use host_pmu::backend::scheduling::Processor;
    use results::document::Status;
    use sim::model::HostPmu;
    use trials::hosts::tree;

    const TRACEPOINT: &str = "tracepoint:kvm/kvm_userspace_exit";

    #[test]
    fn regimes_are_the_watchdogs_or_two_stand_ins_or_what_there_is_with_a_line() {
        let of = |opens: &'static [&'static str], watchdog, switches: Result<(), &str>| {
            let found = regimes(&Opens(opens), watchdog, &switches.map_err(str::to_owned));
            found.map(|(found, notes)| {
                let names = found.iter().map(|one| format!("{} {}", one.name(), one.backend)).collect::<Vec<_>>();
                (names.join(", "), notes.join(" "))
            })
        };
        let both = of(&["hardware", "cpu-clock"], Some(true), Ok(())).unwrap();
        assert_eq!(both, ("watchdog-off hardware, watchdog-on hardware".to_owned(), String::new()));
        assert_eq!(of(&["hardware"], None, Err("no /proc")).unwrap_err().exit, Exit::Host, "it is not taken for off");
        let (found, notes) = of(&["hardware"], Some(false), Err("not root")).unwrap();
        assert!(found == "watchdog-off hardware" && notes.ends_with("watchdog-off: not root."), "{found} {notes}");
        let (found, notes) = of(&["cpu-clock", TRACEPOINT], None, Err("none")).unwrap();
        assert_eq!(found, format!("expensive-create {TRACEPOINT}, cheap-create cpu-clock"));
        assert!(notes.starts_with("Stand-ins, since hardware events do not open (No such file"), "{notes}");
        let (found, notes) = of(&["cpu-clock"], None, Err("none")).unwrap();
        assert!(found == "cheap-create cpu-clock" && notes.contains("expensive-create is left out"), "{found} {notes}");
        assert_eq!(of(&[], None, Err("none")).unwrap_err().exit, Exit::Host);
    }

    /// Notes the watchdog at each beginning.
    struct Noted(HostFs, Vec<String>);

    impl Progress for Noted {
        fn expect(&mut self, what: &str) {
            self.1.push(format!("{what} {}", self.0.text("proc/sys/kernel/nmi_watchdog").unwrap_or_default()));
        }
        fn begin(&mut self, _: u64) {}
        fn run(&mut self, _: &str) {}
        fn step(&mut self) {}
        fn end(&mut self) {}
    }

    #[test]
    fn the_watchdog_is_switched_for_each_regime_and_put_back_although_nothing_can_be_measured() {
        const FILE: &str = "proc/sys/kernel/nmi_watchdog";
        let (_dir, fs) = tree(&[(FILE, "1\n")]);
        let probe = Opens(&["hardware"]);
        let watchdog = Watchdog::take(&fs, &probe).unwrap();
        let duration = Some(Duration::from_secs(9));
        let asked = Asked { rounds: Some(2), duration, seed: 1, output: None };
        // The program of these tests is no vpmu, and measures nothing.
        let mut noted = Noted(fs.clone(), Vec::new());
        let failed = series((&asked, &[], None), &probe, Ok(watchdog), &mut noted).unwrap_err();
        assert_eq!(failed.exit, Exit::Inconclusive, "{failed}");
        let begun = noted.1.iter().filter(|begun| !begun.contains("calibration")).map(String::as_str);
        assert_eq!(
            begun.collect::<Vec<_>>(),
            [
                "watchdog-off-sampling10 0",
                "watchdog-off-counting1 0",
                "watchdog-on-sampling10 1",
                "watchdog-on-counting1 1"
            ]
        );
        assert_eq!(fs.text(FILE).as_deref(), Some("1"), "as it was found");
    }

    #[test]
    fn where_another_event_is_there_creating_is_cheap_and_nothing_else_changes() {
        let draft = Draft(Model::text("clx-ap-watchdog-off").unwrap().parse().unwrap());
        let (off, on) = (draft.model().unwrap(), draft.clone().with_another_event().model().unwrap());
        assert_eq!((&on.costs.open_first, &on.costs.release_last), (&off.costs.open_more, &off.costs.release));
        assert_eq!((&on.costs.resume, &on.costs.exit, on.base), (&off.costs.resume, &off.costs.exit, off.base));
        let mut unknown = draft;
        let host = unknown.0["host"].as_table_mut().unwrap();
        host.retain(|key, _| key != "processor" && key != "pinned");
        unknown.set("host.counters", "value", 7, "x");
        unknown.with_another_event().model().unwrap();
        let mean = |model: &Model, on, (cpu, events, figure): (Cpu, &str, &str)| {
            let regime = Regime { on, backend: BackendKey::Hardware };
            let document = predict(model, &regime, events, cpu).unwrap();
            assert_eq!(document.status, Status::Complete, "{:?}", document.arms[0].incomplete);
            RECIPES[figure].of(&document, Number::Before).unwrap().value
        };
        let handler = (Cpu::CascadeLake, "sampling10/", "vpmu-reuse.watchdog-on.mean");
        assert!(mean(&off, false, handler) > 50.0 * mean(&on, true, handler));
        let zen = |mut model: Model| {
            model.host.pmu = HostPmu::Of { processor: Processor::Zen3, pinned: Vec::new() };
            model
        };
        let (off, on) = (zen(off), zen(on));
        let restart = (Cpu::Milan, "counting1/", "vpmu-reuse.watchdog-on.stat");
        assert!(mean(&off, false, restart) > 50.0 * mean(&on, true, restart));
        // An AMD's handler stops no other counter: an event that it opens is not the first.
        let handler = (Cpu::Milan, handler.1, handler.2);
        assert!((mean(&off, false, handler) / mean(&on, true, handler) - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_prediction_has_the_range_of_its_model_and_a_busy_host_decides_nothing() {
        let mut document = crate::arms::rounds::mock::finished(&["--workload", "sampling10"]).document;
        let row = |number| Row { figure: "vpmu-reuse.watchdog-on.mean".to_owned(), number, ..Row::default() };
        let judged = |predicted: &Document, document: &Document| {
            let run = |document: &Document| Runs::from([(("sampling10/", true), document.clone())]);
            super::judged(vec![row(Number::After), row(Number::Ratio)], &run(predicted), &run(document))
        };
        let found = |rows: &[Row], number| rows.iter().find(|row| row.number == number).cloned().unwrap();
        document.host.model_percent = Some([80, 125]);
        let all = judged(&document, &document);
        for (number, ends) in [(Number::After, [0.8, 1.25]), (Number::Ratio, [0.64, 1.5625])] {
            let row = found(&all, number);
            let value = row.measured.unwrap().value;
            let found: Vec<f64> = row.predicted.iter().map(|end| (end / value * 1e4).round() / 1e4).collect();
            assert_eq!(found, ends, "{number:?}");
        }
        // Three times as long as is predicted.
        document.host.model_percent = Some([300, 300]);
        let mut all = judged(&document, &document);
        let said = |all: &[Row]| found(all, Number::After).against_predicted.unwrap().to_string();
        assert_eq!(said(&all), "differs, +200.0 %");
        undecided(&mut all, "4.00 on 2 CPUs");
        assert_eq!(said(&all), "open, +200.0 %");
    }

    #[test]
    fn a_row_is_compared_with_what_is_comparable() {
        let mut document = crate::arms::rounds::mock::finished(&["--workload", "sampling10"]).document;
        document.host.cpu_signature = Some([6, 85, 7]);
        document.host.virtualized = false;
        let row = |figure: &str, published| Row {
            figure: figure.to_owned(),
            unit: "ns".to_owned(),
            number: Number::After,
            published: Some(published),
            ..Row::default()
        };
        let judged = |document: &Document, stand_in: bool| {
            let mut document = document.clone();
            document.arms.iter_mut().for_each(|arm| arm.stand_in = stand_in);
            let mut figures = vec![row("vpmu-reuse.watchdog-on.mean", 1000.0), row("vpmu-reuse.v1.mean", 500.0)];
            figures.push(Row { number: Number::Ratio, ..figures[0].clone() });
            let runs = Runs::from([(("sampling10/", true), document)]);
            let found = super::judged(figures, &runs, &runs);
            let of = |figure: &str| found.iter().find(|row| row.figure == figure && row.published.is_some()).unwrap();
            let text = |row: &Row| row.against_published.as_ref().unwrap().to_string();
            assert_eq!(of("vpmu-reuse.v1.mean").against_predicted.as_ref().unwrap().to_string(), "agrees");
            ["vpmu-reuse.watchdog-on.mean", "vpmu-reuse.v1.mean"].map(|figure| text(of(figure)))
        };
        assert_eq!(judged(&document, false), ["agrees", "differs, +100.0 %"]);
        assert_eq!(judged(&document, true), ["not comparable", "not comparable"]);
        document.host.virtualized = true;
        assert_eq!(judged(&document, false), ["not comparable", "not comparable"]);
    }
}
