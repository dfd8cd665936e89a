//! `reproduce --run vpmu-reuse`: the series of 2019 on this host. Calibrates, predicts, measures, and compares.
//!
//! The published regimes differ in whether another host event is there already, which the NMI watchdog's is: a guest's
//! event is then not the first, and cheap to create. Where creating is expensive both costs are met, so this regime comes
//! first and its model predicts both. Without a PMU two stand-ins have the two costs: a tracepoint, whose last close and
//! first open take tens of ms, and a clock; each is calibrated by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use host_pmu::backend::BackendKey;
use host_pmu::kernel;
use results::document::{ArmKind, BELOW_KVM, Document, Status, kvm_arm, warnings};
use results::error::{Error, Exit};
use results::host::noise::load;
use results::host::{HostFacts, HostFs};
use results::published::{Here, Number, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout::ratio;
use results::verdict::{Judged, Tally, Verdict};
use sim::model::Model;
use vmm::kvm::Host;
use vmm::machine::Cpu;

use super::recipe::{period, recipe};
use super::run::Simulated;
use super::watchdog::Watchdog;
use crate::arms::arm::runner::ArmRunner;
use crate::arms::arm::sim::{self as simulated, SimRunner};
use crate::arms::linux::job::LinuxJob;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::run::{Context, run as rounds};
use crate::experiment::calibrate::draft::watchdog as watchdogs_event;
use crate::experiment::calibrate::run::run as calibrate;
use crate::experiment::calibrate::spec::CalibrateSpec;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::setting::backend::{BackendChoice, Chosen, EventProbe, ThisHost, choose, guest_cpu};
use crate::setting::parse::defaults;
use crate::setting::pin::usable;
use crate::setting::process::{claim, free_last};
use crate::setting::strategy::StrategyChoice;
use crate::sys;
use crate::terminal::console::{complain, internal};
use crate::terminal::progress::{Progress, Silent};

/// The arms beside the floor and KVM's own vPMU.
const STRATEGIES: [&str; 3] = ["recreate", "reuse", "reuse-lazy"];
/// Rounds of a prediction, which costs no time of the host's.
const PREDICTED_ROUNDS: u64 = 20;
/// Most rounds of the calibration.
const CALIBRATED_ROUNDS: u64 = 10;
/// Part of the whole time after which the calibrations begin no further round.
const CALIBRATED_SHARE: u32 = 4;
/// Samples of a turn, where creating is expensive and where it is cheap.
const SAMPLES: [u64; 2] = [10, 50];
/// The guest's tick where creating is expensive: at the usual 4 ms a rotation that creates events, in 20 ms and more, leaves the
/// guest no time between two.
const SLOW_TICK: Duration = Duration::from_millis(100);
/// Rounds in which a guest lives on where another event is there anyway: creations are counted per NMI, and each guest has some at
/// its start.
const ROUNDS_PER_GUEST: u64 = 40;
/// Samples of a turn with Linux, whose perf takes seconds to start.
const LINUX_SAMPLES: u64 = 1000;

/// The series to measure, and its bounds.
#[derive(Debug)]
pub struct SeriesSpec {
    /// Rounds of each run; `None`: as many as fit.
    pub rounds: Option<u64>,
    /// Bound on the whole.
    pub duration: Duration,
    /// Seed of the order of arms.
    pub seed: u64,
    /// Also a Linux guest with its own perf.
    pub linux: Option<LinuxJob>,
}

/// One of the two published regimes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regime {
    /// The NMI watchdog is on, or a stand-in that is cheap to create is in its place.
    on: bool,
    backend: BackendKey,
}

impl Regime {
    const fn name(&self) -> &'static str {
        names(self.on, self.stands_in())
    }

    const fn stands_in(&self) -> bool {
        !matches!(self.backend, BackendKey::Hardware)
    }

    /// Returns the options of the guests that stand for the workload with this prefix.
    fn spec(&self, events: &str, spec: &SeriesSpec, bound: Duration) -> Result<NmiLatencySpec, Error> {
        let tracepoint = matches!(self.backend, BackendKey::Tracepoint { .. });
        let workload = match events {
            // More events of a tracepoint take longer to create than a tick.
            "sampling10/" if tracepoint => "single/io",
            "counting1/" if tracepoint => "counting1/io",
            "counting1/" => "counting1",
            _ => "sampling10",
        };
        let plain: NmiLatencySpec = defaults();
        let linux = events == "linux:";
        Ok(NmiLatencySpec {
            arms: ArmsOptions {
                strategy: StrategyChoice::presets(&STRATEGIES),
                rounds: spec.rounds,
                duration: Some(bound),
                samples: if linux { LINUX_SAMPLES } else { SAMPLES[usize::from(self.on)] },
                warmup: u64::from(!linux),
                time_limit: if linux || !self.on { Duration::from_secs(5) } else { plain.arms.time_limit },
                mux_interval: if self.on || tracepoint { plain.arms.mux_interval } else { SLOW_TICK },
                seed: spec.seed,
                ..plain.arms
            },
            // Guests that live at the same time spare each other the first event, which only the watchdog does anyway.
            length: LengthOptions { guest_rounds: (self.on && !linux).then_some(ROUNDS_PER_GUEST), ..plain.length },
            workload: workload.parse().map_err(|why: String| internal("a workload", why))?,
            period: (!tracepoint && events == "sampling10/").then(period).flatten(),
            freq: None,
        })
    }
}

/// Names the state of the watchdog, or what stands in for it.
const fn names(on: bool, stands_in: bool) -> &'static str {
    match (stands_in, on) {
        (false, true) => "watchdog-on",
        (false, false) => "watchdog-off",
        (true, true) => "cheap-create",
        (true, false) => "expensive-create",
    }
}

/// One run of guests.
struct Run {
    on: bool,
    /// Prefix of the workload that it stands for.
    events: &'static str,
    document: Document,
}

impl Run {
    fn stands_in(&self) -> bool {
        self.document.arms.iter().any(|arm| arm.stand_in)
    }
}

/// Returns the regimes that this host can have, the expensive one first, and what is left out and why. `switches`: the
/// host's watchdog can be switched, or why not.
fn regimes(
    probe: &dyn EventProbe,
    watchdog: Option<bool>,
    switches: &Result<(), String>,
) -> Result<(Vec<Regime>, Vec<String>), Error> {
    let regime = |on, backend: BackendKey| Regime { on, backend };
    let mut notes = Vec::new();
    let refused = match probe.try_open(&BackendKey::Hardware) {
        Ok(()) => {
            let both = [false, true].map(|on| regime(on, BackendKey::Hardware));
            let found = match switches {
                Ok(()) => both.to_vec(),
                Err(why) => {
                    let unknown =
                        || Error::host("whether the NMI watchdog is on is unknown", why.as_str(), "run it as root");
                    let on = watchdog.ok_or_else(unknown)?;
                    notes.push(format!("Only the present regime, {}: {why}.", both[usize::from(on)].name()));
                    vec![both[usize::from(on)].clone()]
                }
            };
            return Ok((found, notes));
        }
        Err(refused) => refused,
    };
    let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() };
    let mut found = Vec::new();
    for stand_in in [regime(false, tracepoint), regime(true, BackendKey::CpuClock)] {
        match probe.try_open(&stand_in.backend) {
            Ok(()) => {
                notes.push(format!(
                    "{}: {} stands in for {}; it counts something else than was asked for.",
                    stand_in.name(),
                    stand_in.backend,
                    names(stand_in.on, false)
                ));
                found.push(stand_in);
            }
            Err(why) => {
                notes.push(format!("{} is left out: {} does not open ({why}).", stand_in.name(), stand_in.backend));
            }
        }
    }
    if found.is_empty() {
        return Err(Error::host(
            "nothing can stand behind a counter here",
            refused.why,
            "`vpmu doctor` says what is missing",
        ));
    }
    notes.insert(0, format!("Stand-ins, since hardware events do not open ({refused})."));
    Ok((found, notes))
}

/// Returns the model of a host where another event is there already, from one where a guest's event is the first.
fn with_another_event(toml: &str) -> Result<Model, Error> {
    let unusable = |why: String| internal("cannot use the host's own model", why);
    let mut model: toml::Table = toml.parse().map_err(|error: toml::de::Error| unusable(error.to_string()))?;
    let table = |value: &str| value.parse::<toml::Table>().map_err(|error| unusable(error.to_string()));
    let Some(cost) = model.get_mut("cost").and_then(toml::Value::as_table_mut) else {
        return Err(unusable("it has no costs".to_owned()));
    };
    for (first, further) in [("open-first", "open-more"), ("release-last", "release")] {
        let further = cost.get(further).cloned();
        further.map(|further| cost.insert(first.to_owned(), further));
    }
    if let Some(host) = model.get_mut("host").and_then(toml::Value::as_table_mut) {
        host.extend(table(&watchdogs_event(host.contains_key("processor"), 1))?);
    }
    Model::from_toml("here", &model.to_string()).map_err(|error| unusable(error.to_string()))
}

/// Simulates the guests of `spec` on a host of this model.
fn predict(model: &Model, spec: &NmiLatencySpec, cpu: Cpu) -> Result<Document, Error> {
    let arms = ArmsOptions { rounds: Some(PREDICTED_ROUNDS), duration: None, ..spec.arms.clone() };
    let spec = NmiLatencySpec { arms, ..spec.clone() };
    let host = HostOptions { backend: BackendChoice::Sim(model.name.clone()), cpu, ..defaults() };
    let mut plan = spec.plan(&host, &simulated::chosen(model, "prediction"), None)?;
    plan.simulate(&model.name);
    let mut runner = SimRunner::new(model.clone(), &plan.guest, plan.parameters.period, plan.seed)?;
    let (mut silent, mut save) = (Silent, |_: &Document| Ok(()));
    let fs = HostFs::at("/nonexistent");
    Ok(rounds(&plan, &mut runner, context(&fs, simulated::facts(model), &[], &mut silent, &mut save))?.document)
}

/// A regime and the model that predicts it.
type Modelled = (Regime, Model);

/// Calibrates this host for `regime`, so far as `spec` and this number of regimes allow. Its model predicts the other regime, too, where
/// the costs of both are met in it.
fn calibrated(
    regime: &Regime,
    spec: &SeriesSpec,
    regimes: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<Modelled>, Error> {
    let rounds = spec.rounds.map_or(CALIBRATED_ROUNDS, |rounds| rounds.clamp(2, CALIBRATED_ROUNDS));
    let duration = Some(spec.duration / CALIBRATED_SHARE / regimes.max(1) as u32);
    let calibration =
        CalibrateSpec { name: "here".to_owned(), rounds: Some(rounds), duration, ..CalibrateSpec::default() };
    let draft = calibrate(calibration, &Chosen::here(regime.backend.clone(), "calibration".to_owned()), progress)?.0;
    let mut models = vec![(regime.clone(), draft.model()?)];
    if !regime.on && !regime.stands_in() {
        models.push((Regime { on: true, ..regime.clone() }, with_another_event(&draft.toml())?));
    }
    Ok(models)
}

/// Adds the predictions of the first regime and the other one, a stand-in's by models of its own; returns what is missing and why.
fn predictions(
    regimes: &[Regime],
    spec: &SeriesSpec,
    host: &HostFacts,
    predicted: &mut Vec<Run>,
    models: &mut dyn FnMut(&Regime) -> Result<Vec<Modelled>, Error>,
) -> Vec<String> {
    let mut missing = Vec::new();
    for regime in regimes.iter().filter(|regime| regime.stands_in() || *regime == &regimes[0]) {
        let mut add = || {
            for (regime, model) in models(regime)? {
                for events in ["sampling10/", "counting1/"] {
                    let one = regime.spec(events, spec, spec.duration)?;
                    let document = predict(&model, &one, guest_cpu(&regime.backend, host))?;
                    predicted.push(Run { on: regime.on, events, document });
                }
            }
            Ok(())
        };
        missing.extend(add().err().map(|error: Error| format!("predictions of {}, because {error}", regime.name())));
    }
    missing
}

fn context<'a>(
    fs: &'a HostFs,
    host: HostFacts,
    command_line: &[String],
    progress: &'a mut dyn Progress,
    save: &'a mut dyn FnMut(&Document) -> Result<(), Error>,
) -> Context<'a> {
    let command_line = command_line.to_vec();
    Context { process_began: Instant::now(), stop: sys::interrupted(), fs, host, command_line, progress, save }
}

/// Plans the guests of `spec` here, with their runner.
fn planned(
    regime: &Regime,
    spec: &NmiLatencySpec,
    linux: Option<&LinuxJob>,
    host: &HostFacts,
) -> Result<(Plan, Box<dyn ArmRunner>), Error> {
    let options = HostOptions {
        backend: BackendChoice::Key(regime.backend.clone()),
        cpu: guest_cpu(&regime.backend, host),
        ..defaults()
    };
    let chosen = choose(&options.backend, &ThisHost)?;
    let mut spec = spec.clone();
    if !regime.stands_in() && Path::new(kernel::DEVICE).exists() {
        spec.arms.strategy.push(StrategyChoice::BelowKvm("recreate".to_owned()));
    }
    let mut plan = spec.plan(&options, &chosen, usable(host).map(free_last).as_deref())?;
    let runner: Box<dyn ArmRunner> = match linux {
        Some(job) => {
            job.adapt(&mut plan, spec.workload)?;
            job.runner(&mut plan)?
        }
        None => Box::new(plan.on_this_host()?),
    };
    Ok((plan, runner))
}

/// Runs the guests of `spec` here.
fn measure(
    (regime, spec, linux): (&Regime, &NmiLatencySpec, Option<&LinuxJob>),
    host: &HostFacts,
    command_line: &[String],
    progress: &mut dyn Progress,
) -> Result<Document, Error> {
    let (plan, mut runner) = planned(regime, spec, linux, host)?;
    let fs = HostFs::default();
    let host = HostFacts::begin(&fs);
    let (_claims, warning) = claim(&plan.guest.machine.pin);
    if let Some(warning) = warning {
        complain(&warning);
    }
    let finished = rounds(&plan, runner.as_mut(), context(&fs, host, command_line, progress, &mut |_| Ok(())))?;
    finished.error.map_or(Ok(finished.document), Err)
}

/// Switches the watchdog as the regime has it; otherwise the regime is left out, which is noted.
fn switched(watchdog: Option<&Watchdog>, regime: &Regime, notes: &mut Vec<String>) -> bool {
    let refused = watchdog.filter(|_| !regime.stands_in()).and_then(|watchdog| watchdog.switch(regime.on).err());
    notes.extend(refused.iter().map(|why| format!("{} is left out: {why}.", regime.name())));
    refused.is_none()
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

/// Returns whether a strategy has a whole round.
fn has_figures(document: &Document) -> bool {
    document.arms.iter().any(|arm| arm.kind == ArmKind::Strategy && arm.rounds.complete.contains(&true))
}

/// Carries the series out. What was measured before Ctrl-C or an error is in the result.
///
/// # Errors
/// Exit 4 if nothing can be measured here; exit 2 for a Linux guest that cannot be had.
pub fn series(
    spec: &SeriesSpec,
    probe: &dyn EventProbe,
    watchdog: Result<Watchdog, String>,
    command_line: &[String],
    progress: &mut dyn Progress,
    keep: &mut dyn FnMut(&str, &Document) -> Result<(), Error>,
) -> Result<Reproduction, Error> {
    let began = Instant::now();
    let host = HostFacts::read(&HostFs::default());
    let switches = watchdog.as_ref().map(drop).map_err(Clone::clone);
    let (regimes, mut notes) = regimes(probe, host.nmi_watchdog, &switches)?;
    let watchdog = watchdog.ok();
    let mut parts = vec!["sampling10/", "counting1/"];
    parts.extend(spec.linux.is_some().then_some("linux:"));
    let is_tracepoint = |regime: &Regime| matches!(regime.backend, BackendKey::Tracepoint { .. });
    if let (Some(job), Some(regime)) = (&spec.linux, regimes.iter().find(|regime| !is_tracepoint(regime))) {
        // A kernel or a perf that cannot be used is refused before anything is measured.
        planned(regime, &regime.spec("linux:", spec, spec.duration)?, Some(job), &host)?;
    }
    let (mut predicted, mut measured) = (Vec::new(), Vec::new());
    let mut left = regimes.len() * parts.len();
    let stopped = || sys::interrupted().load(std::sync::atomic::Ordering::Relaxed);
    let mut missing = Vec::new();
    for (at, regime) in regimes.iter().enumerate() {
        if stopped() {
            break;
        }
        if !switched(watchdog.as_ref(), regime, &mut notes) {
            left = left.saturating_sub(parts.len());
            continue;
        }
        if at == 0 {
            progress.expect(&format!("{}: calibration", regime.name()));
            let mut models = |one: &Regime| calibrated(one, spec, regimes.len(), progress);
            let lacks = predictions(&regimes, spec, &host, &mut predicted, &mut models);
            let other = names(!regime.on, regime.stands_in());
            let note = match (regime.stands_in(), regime.on) {
                (true, _) => "Each regime is predicted from a calibration of its own.".to_owned(),
                (_, true) => {
                    format!("{other} is not predicted: a first event's cost is not met while another is there.")
                }
                _ => format!("{other} is predicted from the calibration of {}, without one of its own.", regime.name()),
            };
            notes.extend(lacks.is_empty().then_some(note));
            missing.extend(lacks);
        }
        for &events in &parts {
            left = left.saturating_sub(1);
            let is_linux = events == "linux:";
            if is_linux && is_tracepoint(regime) {
                notes.push("A Linux guest samples ten events, which a tracepoint cannot stand in for.".to_owned());
                continue;
            }
            if stopped() {
                break;
            }
            let rest = spec.duration.saturating_sub(began.elapsed());
            let bound = (rest / (left as u32 + 1)).max(Duration::from_secs(1));
            let name = format!("{}-{}", regime.name(), events.trim_end_matches(['/', ':']));
            progress.expect(&name);
            let found = regime.spec(events, spec, bound).and_then(|one| {
                measure((regime, &one, spec.linux.as_ref().filter(|_| is_linux)), &host, command_line, progress)
            });
            let now = HostFacts::read(&HostFs::default()).nmi_watchdog;
            if watchdog.is_some() && !regime.stands_in() && now != Some(regime.on) {
                missing.push(format!("{name} in one regime, because someone else switched the NMI watchdog meanwhile"));
            }
            match found {
                Ok(document) if !has_figures(&document) => {
                    let arm = document.arms.iter().find(|arm| arm.kind == ArmKind::Strategy);
                    let why = arm.and_then(|arm| arm.not_available.as_ref().or(arm.incomplete.first()));
                    missing.push(format!("{name}, because {}", why.map_or("there is no whole round", String::as_str)));
                }
                Ok(document) => {
                    let kept = keep(&name, &document);
                    notes.extend(kept.err().map(|error| error.to_string()));
                    if document.status != Status::Complete {
                        missing.push(format!("a part of {name}, because it ended early"));
                    }
                    measured.push(Run { on: regime.on, events, document });
                }
                Err(error) => missing.push(format!("{name}, because {error}")),
            }
        }
    }
    if let Some(Err(error)) = watchdog.as_ref().map(Watchdog::restore) {
        notes.push(format!("The watchdog is not as it was found: {error}."));
    }
    if stopped() {
        missing.push("the rest, because of the interrupt".to_owned());
    }
    if measured.is_empty() {
        notes.extend(missing);
        return Err(Error::new(Exit::Inconclusive, "nothing was measured", notes.join(" "), "nothing is saved"));
    }
    let mut found = Simulated::stored()?.beside(&[])?;
    found.seed = spec.seed;
    found.fitted.clear();
    found.rows = rows(found.rows, &predicted, &measured);
    if let Some(load) = load(&host, HostFacts::read(&HostFs::default())) {
        undecided(&mut found.rows, &load);
    }
    notes.extend(facts(&host, &measured));
    let conclusion = conclusion(&found.rows, &missing);
    found.here = Some(Here { host, notes, whole: missing.is_empty(), conclusion });
    Ok(found)
}

/// Figures of the series' arms and workloads that have no published number: id, description and numbers.
fn unpublished(kvm: &str) -> Vec<(String, String, &'static [Number])> {
    const ALL: &[Number] = &[Number::Before, Number::After, Number::Ratio];
    let mut found = Vec::new();
    for side in ["on", "off"] {
        let mut add = |name: &str, what: &str, numbers| {
            found.push((
                format!("vpmu-reuse.watchdog-{side}.{name}"),
                format!("{what}, host watchdog {side}"),
                numbers,
            ));
        };
        if side == "off" {
            add("mean", "mean guest NMI handler latency", &ALL[..2]);
        }
        add("kept", "the same with events that are never released", &ALL[1..2]);
        add(kvm, "the same with this kernel's own vPMU", &ALL[1..2]);
        add("in-kernel", "the same with this kernel's own vPMU, its events re-created and as it is", ALL);
        add("stat", "mean time to stop and restart one counting event, as perf stat -e branch-misses", ALL);
        add("linux", "mean of nmi:nmi_handler in a Linux guest, perf record of ten events", ALL);
    }
    found
}

/// Returns the published rows of the series and the others, with their predictions, measurements and verdicts.
fn rows(published: Vec<Row>, predicted: &[Run], measured: &[Run]) -> Vec<Row> {
    let mut rows: Vec<Row> = published.into_iter().map(Row::published_alone).collect();
    rows.retain(|row| row.figure.starts_with("vpmu-reuse."));
    for (figure, what, numbers) in unpublished(kvm_arm(&HostFs::default())) {
        rows.extend(numbers.iter().map(|&number| Row {
            figure: figure.clone(),
            what: what.clone(),
            number,
            unit: if number == Number::Ratio { "ratio" } else { "ns" }.to_owned(),
            ..Row::default()
        }));
    }
    for row in &mut rows {
        let Some(recipe) = recipe(&row.figure) else { continue };
        let number = |runs: &[Run]| {
            let run = runs.iter().find(|run| run.on != recipe.first_event && run.events == recipe.workload)?;
            recipe.of(&run.document, row.number).map(|one| (one, run.document.host.model_percent))
        };
        row.predicted = number(predicted).map_or_else(Vec::new, |(one, off)| range(one.value, row.number, off));
        row.measured = number(measured).map(|(one, _)| one);
        judge(row, measured);
    }
    rows.retain(|row| row.published.is_some() || !row.predicted.is_empty() || row.measured.is_some());
    let side =
        |row: &Row| ["watchdog-on.", "watchdog-off."].iter().position(|side| row.figure.contains(side)).unwrap_or(2);
    rows.sort_by(|a, b| (side(a), &a.figure, a.number).cmp(&(side(b), &b.figure, b.number)));
    if measured.iter().any(Run::stands_in) {
        for row in &mut rows {
            for (on, from, to) in
                [(true, "watchdog on", "cheap to create"), (false, "watchdog off", "expensive to create")]
            {
                row.figure = row.figure.replace(names(on, false), names(on, true));
                row.what = row.what.replace(&format!("host {from}"), &format!("{to}, in place of host {from}"));
            }
        }
    }
    rows
}

fn judge(row: &mut Row, runs: &[Run]) {
    let Some(measured) = &row.measured else { return };
    if row.figure == "vpmu-reuse.watchdog-off.min" {
        let why = Judged::not_comparable("the least of all depends on how many NMIs there were");
        row.against_published = row.published.map(|_| why.clone());
        row.against_predicted = (!row.predicted.is_empty()).then_some(why);
        return;
    }
    let of = |value| row.number.judged(value);
    let value = of(measured.value);
    let interval = measured.interval.map(|one| Interval { low: of(one.low), high: of(one.high) });
    row.against_published = row.published.map(|published| match incomparable(row, runs) {
        Some(why) => Judged::not_comparable(why),
        None => Judged::of(value, interval, &[of(published)]),
    });
    row.against_predicted = (!row.predicted.is_empty())
        .then(|| Judged::of(value, interval, &row.predicted.iter().map(|&n| of(n)).collect::<Vec<_>>()));
}

/// Returns why a measured number is of something else than the published one, if it is.
fn incomparable(row: &Row, runs: &[Run]) -> Option<&'static str> {
    let host = &runs.first()?.document.host;
    let published_host = !host.virtualized && matches!(host.cpu_signature, Some([6, 85, 5..=7]));
    match row.number {
        _ if row.measured.as_ref().is_some_and(|one| one.stand_in) => Some("a stand-in for hardware events"),
        // A guest's events and rotations decide creations of hardware events, not what they cost.
        Number::Change => None,
        _ if published_host => None,
        _ => Some("the published processor is a Cascade Lake on bare metal"),
    }
}

/// Describes what the figures depend on.
fn facts(host: &HostFacts, runs: &[Run]) -> Vec<String> {
    let unknown = || "unknown".to_owned();
    let word = |known: Option<bool>| known.map_or_else(unknown, |on| if on { "on" } else { "off" }.to_owned());
    let kernel = host.kernel.clone().unwrap_or_else(unknown);
    let mut facts = vec![format!(
        "{}; {}, Linux {kernel}; SMT {}; NMI watchdog found {}",
        host.class,
        host.cpu_model.clone().unwrap_or_else(unknown),
        host.smt.clone().unwrap_or_else(unknown),
        word(host.nmi_watchdog),
    )];
    if runs.iter().any(|run| Duration::from_nanos(run.document.parameters.mux_interval_ns) == SLOW_TICK) {
        facts.push(
            "watchdog-off: the guest's tick is 100 ms; at 4 ms a rotation that creates events fills it.".to_owned(),
        );
    }
    if host.perf_pmus.iter().any(|pmu| pmu == "cpu_atom") {
        facts.push("Hybrid processor: its cores differ, and so do their PMUs.".to_owned());
    }
    let sum = |of: fn(&Document) -> u64| runs.iter().map(|run| of(&run.document)).sum::<u64>();
    let pinned = sum(|one| one.arms.iter().map(|arm| arm.own.counts.pinned_errors).sum());
    facts.push(match (runs.iter().any(|run| run.document.arms.iter().any(|arm| arm.backend == "hardware")), pinned) {
        (false, _) => "Counters: none of a PMU were used.".to_owned(),
        (true, 0) => format!("Counters: {}; no event went without one.", counters().unwrap_or_else(unknown)),
        (true, n) => format!(
            "Counters: {}; {n} times an event had none: others hold some, a watchdog, perf, another guest.",
            counters().unwrap_or_else(unknown)
        ),
    });
    let unseen = runs.iter().any(|run| run.document.warnings.iter().any(|warning| warning.code == "records-unseen"));
    facts.push(format!("Records of overflows: {}.", if unseen { "none, so every kick reads events" } else { "yes" }));
    let arms = || runs.iter().flat_map(|run| &run.document.arms);
    let kvm = arms().find(|arm| arm.kind == ArmKind::Kvm && !arm.is_strategy());
    if kvm.is_some_and(|arm| arm.not_available.is_none()) && !arms().any(|arm| arm.name.starts_with(BELOW_KVM)) {
        let load = "the kernel module is not loaded (make load in host-pmu/kernel)";
        facts.push(format!("KVM's own vPMU with its events re-created: not measured, as {load}."));
    }
    facts.push(match kvm {
        Some(arm) if arm.not_available.is_none() => format!(
            "KVM's own vPMU: {}.",
            if host.kvm_mediated_pmu == Some(true) {
                "mediated, the guest owns the PMU"
            } else {
                "emulated by host events"
            }
        ),
        Some(arm) => format!("KVM's own vPMU: not measured ({}).", arm.not_available.as_deref().unwrap_or_default()),
        None => "KVM's own vPMU: not measured.".to_owned(),
    });
    for run in runs {
        // Ordinary creations take tens of µs; the first one of a host, in each guest, takes tens of ms.
        let creates = run.document.arms.iter().filter(|arm| run.on && arm.backend == "hardware");
        if creates.filter_map(|arm| arm.own.host_ops.get("open")).any(|op| op.total_ns > op.count * 500_000) {
            facts.push("watchdog-on: creating is expensive all the same, as if the watchdog held no event.".to_owned());
        }
        let doubts = run
            .document
            .warnings
            .iter()
            .filter(|one| one.code == warnings::UNSURE || one.code == warnings::NO_OVERFLOWS);
        facts.extend(doubts.map(|one| format!("{}: {}", run.document.parameters.workload, one.message)));
    }
    // The load of each run has figures of its own.
    let of_all = runs.iter().flat_map(|run| &run.document.warnings).filter(|one| one.arm.is_none());
    let by_code: BTreeMap<&str, &str> = of_all.map(|one| (one.code.as_str(), one.message.as_str())).collect();
    facts.extend(
        by_code
            .into_values()
            .map(str::to_owned)
            .filter(|message| !facts.iter().any(|fact| fact.ends_with(message)))
            .collect::<Vec<_>>(),
    );
    facts
}

fn counters() -> Option<String> {
    Host::open().ok()?.counters().map(|counters| format!("{counters} of the PMU"))
}

/// Says in a sentence what came out, and then what is missing and what to do next.
fn conclusion(rows: &[Row], missing: &[String]) -> String {
    let side = |what: &str, of: fn(&Row) -> Option<&Judged>| {
        let Tally { slower, faster, same, open } = Tally::of(rows.iter().filter_map(of).map(|found| found.verdict));
        let (differ, all) = (slower + faster, slower + faster + same + open);
        if all == 0 {
            String::new()
        } else {
            format!("; of {all} {what} numbers {same} agree, {differ} differ, {open} are open")
        }
    };
    let stands_in = rows.iter().any(|row| row.measured.as_ref().is_some_and(|one| one.stand_in));
    let of_mean = |on: bool| {
        let name = names(on, stands_in);
        let figure = format!("vpmu-reuse.{name}.mean");
        let row = rows.iter().find(|row| row.figure == figure && row.number == Number::Ratio)?;
        let published = row.published.filter(|_| !stands_in).map(|times| format!(" (published: {})", ratio(times)));
        let measured = row.measured.as_ref()?;
        let times = measured
            .interval
            .map_or_else(|| "too few rounds".to_owned(), |_| format!("{} times", ratio(measured.value)));
        Some(format!("{times} with {name}{}", published.unwrap_or_default()))
    };
    let times: Vec<String> = [true, false].into_iter().filter_map(of_mean).collect();
    let times = if times.is_empty() { "not measured".to_owned() } else { times.join(", ") };
    let mut text = format!(
        "Mean handler without reuse over with it: {times}{}{}.",
        side("published", |row| row.against_published.as_ref()),
        side("predicted", |row| row.against_predicted.as_ref()),
    );
    let mut missing = missing.to_vec();
    missing.extend(stands_in.then(|| "evidence on hardware, because hardware events do not open here".to_owned()));
    if !missing.is_empty() {
        let place = if stands_in { " on a bare-metal host with a PMU" } else { "" };
        let missing = missing.join("; ");
        let next = "`vpmu reproduce --run vpmu-reuse --duration 10m`";
        text.extend([" Missing: ", &missing, ". Next: ", next, place, "."]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::backend::fake::Opens;
    use host_pmu::backend::scheduling::Processor;
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
        let spec = SeriesSpec { rounds: Some(2), duration: Duration::from_secs(9), seed: 1, linux: None };
        // Not `hardware`, which a host of these tests may have.
        let none = Regime { on: true, backend: BackendKey::Hardware };
        assert!(none.spec("counting1/", &spec, spec.duration).unwrap().arms.rounds == Some(2));
        if ThisHost.try_open(&BackendKey::Hardware).is_ok() {
            return eprintln!("skipped: hardware events open here");
        }
        let mut keep = |_: &str, _: &Document| -> Result<(), Error> { panic!("nothing was measured") };
        let mut noted = Noted(fs.clone(), Vec::new());
        let failed = series(&spec, &probe, Ok(watchdog), &[], &mut noted, &mut keep).unwrap_err();
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
        let (text, off) = simulated::model_text("clx-ap-watchdog-off").unwrap();
        let on = with_another_event(&text).unwrap();
        assert_eq!((&on.costs.open_first, &on.costs.release_last), (&off.costs.open_more, &off.costs.release));
        assert_eq!((&on.costs.resume, &on.costs.exit, on.base), (&off.costs.resume, &off.costs.exit, off.base));
        let unknown = text.lines().filter(|line| !line.starts_with("pinned =")).map(|line| {
            if line.starts_with("processor =") {
                "counters = { value = 7, source = 'x' }\ntaken = { value = 0, source = 'x' }"
            } else {
                line
            }
        });
        let unknown = unknown.collect::<Vec<_>>().join("\n");
        with_another_event(&unknown).unwrap();
        let spec = SeriesSpec { rounds: None, duration: Duration::from_secs(9), seed: 1, linux: None };
        let mean = |model: &Model, on, (cpu, events, figure): (Cpu, &str, &str)| {
            let regime = Regime { on, backend: BackendKey::Hardware };
            let spec = regime.spec(events, &spec, spec.duration).unwrap();
            let document = predict(model, &spec, cpu).unwrap();
            assert_eq!(document.status, Status::Complete, "{:?}", document.arms[0].incomplete);
            recipe(figure).unwrap().of(&document, Number::Before).unwrap().value
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
    fn a_watchdog_that_cannot_be_switched_is_a_note() {
        const FILE: &str = "proc/sys/kernel/nmi_watchdog";
        let (_dir, fs) = tree(&[(FILE, "1\n")]);
        let watchdog = Watchdog::take(&fs, &Opens(&["hardware"])).unwrap();
        // Nobody may write this one.
        std::fs::remove_file(fs.path(FILE)).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", fs.path(FILE)).unwrap();
        let of = |backend| Regime { on: false, backend };
        let mut notes = Vec::new();
        assert!(!switched(Some(&watchdog), &of(BackendKey::Hardware), &mut notes));
        assert!(notes[0].starts_with("watchdog-off is left out: cannot switch the NMI watchdog off"), "{notes:?}");
        assert!(switched(Some(&watchdog), &of(BackendKey::CpuClock), &mut notes) && notes.len() == 1);
    }

    #[test]
    fn a_prediction_has_the_range_of_its_model_and_a_busy_host_decides_nothing() {
        let mut document = crate::arms::rounds::mock::finished(&["--workload", "sampling10"]).document;
        let row = |number| Row { figure: "vpmu-reuse.watchdog-on.mean".to_owned(), number, ..Row::default() };
        let judged = |predicted: &Document, document: &Document| {
            let run = |document: &Document| Run { on: true, events: "sampling10/", document: document.clone() };
            rows(vec![row(Number::After), row(Number::Ratio)], &[run(predicted)], &[run(document)])
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
    fn a_stand_in_that_cannot_be_calibrated_does_not_keep_the_other_from_it() {
        let (regimes, _) = regimes(&Opens(&["cpu-clock", TRACEPOINT]), None, &Err("none".to_owned())).unwrap();
        let spec = SeriesSpec { rounds: Some(2), duration: Duration::from_secs(9), seed: 1, linux: None };
        let (mut asked, failed) = (0, Error::new(Exit::Inconclusive, "a guest hung", "", ""));
        let mut models = |regime: &Regime| {
            asked += 1;
            if regime.on { Ok(Vec::new()) } else { Err(failed.clone()) }
        };
        let missing = predictions(&regimes, &spec, &HostFacts::default(), &mut Vec::new(), &mut models);
        assert_eq!((missing.join(""), asked), ("predictions of expensive-create, because a guest hung".to_owned(), 2));
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
            let run = |document| Run { on: true, events: "sampling10/", document };
            let found = rows(figures, &[run(document.clone())], &[run(document)]);
            let of = |figure: &str| found.iter().find(|row| row.figure == figure && row.published.is_some()).unwrap();
            let text = |row: &Row| row.against_published.as_ref().unwrap().to_string();
            assert_eq!(of("vpmu-reuse.v1.mean").against_predicted.as_ref().unwrap().to_string(), "agrees");
            let mean = format!("vpmu-reuse.{}.mean", names(true, stand_in));
            [mean.as_str(), "vpmu-reuse.v1.mean"].map(|figure| text(of(figure)))
        };
        assert_eq!(judged(&document, false), ["agrees", "differs, +100.0 %"]);
        assert_eq!(judged(&document, true), ["not comparable", "not comparable"]);
        document.host.virtualized = true;
        assert_eq!(judged(&document, false), ["not comparable", "not comparable"]);
    }
}
