//! `reproduce --run vpmu-reuse`: the series of 2019 on this host. Calibrates, predicts, measures, and compares.
//!
//! The published regimes differ in whether another host event is there already, which the NMI watchdog's is: a guest's
//! event is then not the first, and cheap to create. Where creating is expensive both costs are met, so this regime comes
//! first and its model predicts both. Without a PMU two stand-ins have the two costs: a tracepoint, whose last close and
//! first open take tens of ms, and a clock; each is calibrated by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host_pmu::backend::BackendKey;
use host_pmu::kernel;
use results::document::{ArmKind, Document, Status};
use results::error::{Error, Exit};
use results::host::noise::load;
use results::host::{HostFacts, HostFs};
use results::published::{Here, Number, Reproduction, Row};
use results::stats::interval::Interval;
use results::table::layout::ratio;
use results::verdict::{Judged, Tally, Verdict};
use sim::model::Model;
use vmm::machine::Cpu;

use super::recipe::RECIPES;
use super::run::Simulated;
use super::watchdog::Watchdog;
use crate::arms::arm::runner::ArmRunner;
use crate::arms::arm::sim as simulated;
use crate::arms::linux::job::LinuxJob;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::run::{Context, run as rounds};
use crate::experiment::calibrate::draft::Draft;
use crate::experiment::calibrate::run::run as calibrate;
use crate::experiment::calibrate::spec::CalibrateSpec;
use crate::experiment::nmi_latency::simulated::simulate;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::setting::backend::{BackendChoice, Chosen, EventProbe, ThisHost, choose, guest_cpu};
use crate::setting::options::{BehindOptions, DurationOption, SeedOption};
use crate::setting::parse::defaults;
use crate::setting::pin::usable;
use crate::setting::process::{claim, free_last};
use crate::setting::strategy::StrategyChoice;
use crate::sys;
use crate::terminal::console::{complain, internal};
use crate::terminal::progress::Progress;

/// Begin of the ids of figures where another event is there anyway.
const ON: &str = "vpmu-reuse.watchdog-on.";
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
/// Begin of the workload of a Linux guest.
const LINUX: &str = "linux:";
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

    /// Returns prefixes of the workloads that are measured. A tracepoint cannot stand in for the ten events of a Linux guest.
    fn parts(&self, linux: bool) -> Vec<&'static str> {
        let linux = linux && !matches!(self.backend, BackendKey::Tracepoint { .. });
        ["sampling10/", "counting1/"].into_iter().chain(linux.then_some(LINUX)).collect()
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
        let linux = events == LINUX;
        let period =
            RECIPES.get("vpmu-reuse.watchdog-on.mean").and_then(|recipe| recipe.sim().get("period")?.parse().ok());
        Ok(NmiLatencySpec {
            arms: ArmsOptions {
                strategy: StrategyChoice::presets(&STRATEGIES),
                rounds: spec.rounds,
                duration: DurationOption { duration: Some(bound) },
                samples: if linux { LINUX_SAMPLES } else { SAMPLES[usize::from(self.on)] },
                warmup: u64::from(!linux),
                time_limit: if linux || !self.on { Duration::from_secs(5) } else { plain.arms.time_limit },
                mux_interval: if self.on || tracepoint { plain.arms.mux_interval } else { SLOW_TICK },
                seed: SeedOption { seed: spec.seed },
                ..plain.arms
            },
            // Guests that live at the same time spare each other the first event, which only the watchdog does anyway.
            length: LengthOptions { guest_rounds: (self.on && !linux).then_some(ROUNDS_PER_GUEST), ..plain.length },
            workload: workload.parse().map_err(|why: String| internal("a workload", why))?,
            period: period.filter(|_| !tracepoint && events == "sampling10/"),
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

/// Returns the regimes that this host can have, the expensive one first, and what is left out and why. `switches`: the
/// host's watchdog can be switched, or why not.
fn regimes(
    probe: &dyn EventProbe,
    watchdog: Option<bool>,
    switches: &Result<(), String>,
) -> Result<(Vec<Regime>, Vec<String>), Error> {
    let tracepoint = BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() };
    let hardware = probe.try_open(&BackendKey::Hardware);
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    if let Err(refused) = &hardware {
        notes.push(format!("Stand-ins, since hardware events do not open ({refused})."));
        for (on, backend) in [(false, tracepoint), (true, BackendKey::CpuClock)] {
            let regime = Regime { on, backend };
            let (name, backend, other) = (regime.name(), &regime.backend, names(on, false));
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
        return Ok((found, notes));
    }
    found.extend([false, true].map(|on| Regime { on, backend: BackendKey::Hardware }));
    if let Err(why) = switches {
        let unknown = || Error::host("whether the NMI watchdog is on is unknown", why.as_str(), "run it as root");
        let on = watchdog.ok_or_else(unknown)?;
        found.retain(|regime| regime.on == on);
        notes.push(format!("Only the present regime, {}: {why}.", names(on, false)));
    }
    Ok((found, notes))
}

/// Simulates the guests of `spec` on a host of this model.
fn predict(model: &Model, spec: &NmiLatencySpec, cpu: Cpu) -> Result<Document, Error> {
    let arms = ArmsOptions { rounds: Some(PREDICTED_ROUNDS), duration: <_>::default(), ..spec.arms.clone() };
    let spec = NmiLatencySpec { arms, ..spec.clone() };
    let host = HostOptions { behind: BehindOptions::of(BackendChoice::Sim(model.name.clone())), cpu };
    let mut plan = spec.plan(&host, &simulated::chosen(model, "prediction"), None)?;
    plan.simulate(&model.name);
    simulate(&plan, model.clone(), sys::interrupted())
}

/// Calibrates this host for `regime`, so far as `spec` and this number of regimes allow. Returns models with the regimes that they predict:
/// the other one, too, where the costs of both are met in this one.
fn calibrated(
    regime: &Regime,
    spec: &SeriesSpec,
    regimes: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<(Regime, Draft)>, Error> {
    let rounds = spec.rounds.map_or(CALIBRATED_ROUNDS, |rounds| rounds.clamp(2, CALIBRATED_ROUNDS));
    let duration = Some(spec.duration / CALIBRATED_SHARE / regimes.max(1) as u32);
    let calibration =
        CalibrateSpec { name: "here".to_owned(), rounds: Some(rounds), duration, ..CalibrateSpec::default() };
    let draft = calibrate(calibration, &Chosen::here(regime.backend.clone(), "calibration".to_owned()), progress)?.0;
    let mut models = vec![(regime.clone(), draft.clone())];
    if !regime.on && !regime.stands_in() {
        models.push((Regime { on: true, ..regime.clone() }, draft.with_another_event()));
    }
    Ok(models)
}

/// Predicts the first regime and the other one, a stand-in's by models of its own; says what is missing and why.
fn predictions(
    regimes: &[Regime],
    spec: &SeriesSpec,
    host: &HostFacts,
    progress: &mut dyn Progress,
) -> (Vec<Run>, Vec<String>) {
    let (mut predicted, mut missing) = (Vec::new(), Vec::new());
    for regime in regimes.iter().filter(|regime| regime.stands_in() || *regime == &regimes[0]) {
        let mut add = || {
            for (regime, draft) in calibrated(regime, spec, regimes.len(), progress)? {
                for events in ["sampling10/", "counting1/"] {
                    let one = regime.spec(events, spec, spec.duration)?;
                    let document = predict(&draft.model()?, &one, guest_cpu(&regime.backend, host))?;
                    predicted.push(Run { on: regime.on, events, document });
                }
            }
            Ok(())
        };
        // A stand-in that cannot be calibrated does not keep the other from it.
        missing.extend(add().err().map(|error: Error| format!("predictions of {}, because {error}", regime.name())));
    }
    (predicted, missing)
}

/// Plans the guests of `spec` here, with their runner.
fn planned(
    regime: &Regime,
    spec: &NmiLatencySpec,
    linux: Option<&LinuxJob>,
    host: &HostFacts,
) -> Result<(Plan, Box<dyn ArmRunner>), Error> {
    let backend = BackendChoice::Key(regime.backend.clone());
    let chosen = choose(&backend, &ThisHost)?;
    let options = HostOptions { behind: BehindOptions::of(backend), cpu: guest_cpu(&regime.backend, host) };
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
    let (_claims, warning) = claim(&plan.guest.machine.pin);
    if let Some(warning) = warning {
        complain(&warning);
    }
    let fs = HostFs::default();
    let context = Context {
        process_began: Instant::now(),
        stop: sys::interrupted(),
        fs: &fs,
        host: HostFacts::begin(&fs),
        command_line: command_line.to_vec(),
        progress,
        save: &mut |_| Ok(()),
    };
    let finished = rounds(&plan, runner.as_mut(), context)?;
    finished.error.map_or(Ok(finished.document), Err)
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
    let (began, fs) = (Instant::now(), HostFs::default());
    let host = HostFacts::read(&fs);
    let switches = watchdog.as_ref().map(drop).map_err(Clone::clone);
    let (regimes, mut notes) = regimes(probe, host.nmi_watchdog, &switches)?;
    let watchdog = watchdog.ok();
    let parts: Vec<Vec<&str>> = regimes.iter().map(|regime| regime.parts(spec.linux.is_some())).collect();
    for (regime, _) in regimes.iter().zip(&parts).filter(|(_, parts)| parts.contains(&LINUX)) {
        // A kernel or a perf that cannot be used is refused before anything is measured.
        planned(regime, &regime.spec(LINUX, spec, spec.duration)?, spec.linux.as_ref(), &host)?;
    }
    let (mut predicted, mut measured, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let stopped = || sys::interrupted().load(Ordering::Relaxed);
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
            (predicted, missing) = predictions(&regimes, spec, &host, progress);
        }
        for events in parts.into_iter().take_while(|_| !stopped()) {
            let bound = spec.duration.saturating_sub(began.elapsed()) / left as u32;
            left -= 1;
            let name = format!("{}-{}", regime.name(), events.trim_end_matches(['/', ':']));
            progress.expect(&name);
            let linux = spec.linux.as_ref().filter(|_| events == LINUX);
            let found = regime.spec(events, spec, bound.max(Duration::from_secs(1)));
            let found = found.and_then(|one| measure((regime, &one, linux), &host, command_line, progress));
            if watchdog.is_some() && HostFacts::read(&fs).nmi_watchdog != Some(regime.on) {
                missing.push(format!("{name} in one regime, because someone else switched the NMI watchdog meanwhile"));
            }
            match found.map_err(|error| error.to_string()).and_then(whole) {
                Ok(document) => {
                    notes.extend(keep(&name, &document).err().map(|error| error.to_string()));
                    if document.status != Status::Complete {
                        missing.push(format!("a part of {name}, because it ended early"));
                    }
                    measured.push(Run { on: regime.on, events, document });
                }
                Err(why) => missing.push(format!("{name}, because {why}")),
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
    if let Some(load) = load(&host, HostFacts::read(&fs)) {
        undecided(&mut found.rows, &load);
    }
    notes.extend(facts(&host, &measured));
    let conclusion = conclusion(&found.rows, &missing);
    found.here = Some(Here { host, notes, whole: missing.is_empty(), conclusion });
    Ok(found)
}

/// Returns a document that has a whole round of a strategy.
fn whole(document: Document) -> Result<Document, String> {
    let strategies = || document.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy);
    if strategies().any(|arm| arm.rounds.complete.contains(&true)) {
        return Ok(document);
    }
    let why = strategies().next().and_then(|arm| arm.not_available.as_ref().or(arm.incomplete.first()));
    Err(why.map_or("there is no whole round", String::as_str).to_owned())
}

/// Returns the published rows of the series and the others, with their predictions, measurements and verdicts.
fn rows(published: Vec<Row>, predicted: &[Run], measured: &[Run]) -> Vec<Row> {
    let mut rows: Vec<Row> = published.into_iter().map(Row::published_alone).collect();
    rows.retain(|row| row.figure.starts_with("vpmu-reuse."));
    for (figure, recipe) in RECIPES.iter() {
        for number in Number::ALL.into_iter().filter(|number| recipe.numbers.iter().any(|key| key == number.key())) {
            let unit = if number == Number::Ratio { "ratio" } else { "ns" }.to_owned();
            let (figure, what) = (figure.clone(), recipe.what.clone().unwrap_or_default());
            rows.push(Row { figure, what, number, unit, ..Row::default() });
        }
    }
    for row in &mut rows {
        let Some(recipe) = RECIPES.get(&row.figure) else { continue };
        let number = |runs: &[Run]| {
            let run = runs.iter().find(|run| run.on != recipe.first_event && run.events == recipe.workload)?;
            recipe.of(&run.document, row.number).map(|one| (one, run.document.host.model_percent))
        };
        row.predicted = number(predicted).map_or_else(Vec::new, |(one, off)| range(one.value, row.number, off));
        row.measured = number(measured).map(|(one, _)| one);
        judge(row, measured);
    }
    rows.retain(|row| row.published.is_some() || !row.predicted.is_empty() || row.measured.is_some());
    let sides = [ON, "vpmu-reuse.watchdog-off."];
    let side = |row: &Row| sides.iter().position(|side| row.figure.starts_with(side)).unwrap_or(2);
    rows.sort_by(|a, b| (side(a), &a.figure, a.number).cmp(&(side(b), &b.figure, b.number)));
    rows
}

fn judge(row: &mut Row, runs: &[Run]) {
    let Some(measured) = &row.measured else { return };
    let host = &runs[0].document.host;
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
fn facts(host: &HostFacts, runs: &[Run]) -> Vec<String> {
    let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let watchdog = host.nmi_watchdog.map_or("unknown", |on| if on { "on" } else { "off" });
    let (cpu, kernel, smt) = (known(&host.cpu_model), known(&host.kernel), known(&host.smt));
    let mut facts = vec![format!("{}; {cpu}, Linux {kernel}; SMT {smt}; NMI watchdog found {watchdog}", host.class)];
    let arms = || runs.iter().flat_map(|run| &run.document.arms);
    facts.extend(
        arms().flat_map(|arm| arm.own.doubts().map(|(count, about)| format!("{}: {count} {about}.", arm.name))),
    );
    let kvm = arms().find(|arm| arm.kind == ArmKind::Kvm && !arm.is_strategy());
    facts.push(match kvm.map(|arm| &arm.not_available) {
        Some(None) if host.kvm_mediated_pmu == Some(true) => {
            "KVM's own vPMU: mediated, the guest owns the PMU.".to_owned()
        }
        Some(None) => "KVM's own vPMU: emulated by host events.".to_owned(),
        Some(Some(why)) => format!("KVM's own vPMU: not measured ({why})."),
        None => "KVM's own vPMU: not measured.".to_owned(),
    });
    // The load of each run has figures of its own.
    let warnings = runs.iter().flat_map(|run| &run.document.warnings).filter(|one| one.arm.is_none());
    let by_code: BTreeMap<&str, &str> = warnings.map(|one| (one.code.as_str(), one.message.as_str())).collect();
    facts.extend(by_code.into_values().map(str::to_owned));
    facts
}

/// Says in a sentence what came out, and then what is missing.
fn conclusion(rows: &[Row], missing: &[String]) -> String {
    let side = |what: &str, of: fn(&Row) -> Option<&Judged>| {
        let Tally { slower, faster, same, open } = Tally::of(rows.iter().filter_map(of).map(|found| found.verdict));
        let (differ, all) = (slower + faster, slower + faster + same + open);
        let text = format!("; of {all} {what} numbers {same} agree, {differ} differ, {open} are open");
        if all == 0 { String::new() } else { text }
    };
    let is_mean =
        |row: &&Row| matches!(row.figure.as_str(), "vpmu-reuse.watchdog-on.mean" | "vpmu-reuse.watchdog-off.mean");
    let mean = |row: &Row| {
        let measured = row.measured.as_ref()?;
        let what = names(row.figure.starts_with(ON), measured.stand_in);
        Some(format!("{} times with {what}", ratio(measured.value)))
    };
    let means = rows.iter().filter(is_mean).filter(|row| row.number == Number::Ratio).filter_map(mean);
    let means: Vec<String> = means.collect();
    let means = if means.is_empty() { "not measured".to_owned() } else { means.join(", ") };
    let published = side("published", |row| row.against_published.as_ref());
    let predicted = side("predicted", |row| row.against_predicted.as_ref());
    let mut missing = missing.to_vec();
    if rows.iter().any(|row| row.measured.as_ref().is_some_and(|one| one.stand_in)) {
        missing.push("evidence on hardware, because hardware events do not open here".to_owned());
    }
    let missing = if missing.is_empty() { String::new() } else { format!(" Missing: {}.", missing.join("; ")) };
    format!("Mean handler without reuse over with it: {means}{published}{predicted}.{missing}")
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
        let draft = Draft(simulated::model_text("clx-ap-watchdog-off").unwrap().0.parse().unwrap());
        let (off, on) = (draft.model().unwrap(), draft.clone().with_another_event().model().unwrap());
        assert_eq!((&on.costs.open_first, &on.costs.release_last), (&off.costs.open_more, &off.costs.release));
        assert_eq!((&on.costs.resume, &on.costs.exit, on.base), (&off.costs.resume, &off.costs.exit, off.base));
        let mut unknown = draft;
        let host = unknown.0["host"].as_table_mut().unwrap();
        host.retain(|key, _| key != "processor" && key != "pinned");
        unknown.set("host.counters", "value", 7, "x");
        unknown.with_another_event().model().unwrap();
        let spec = SeriesSpec { rounds: None, duration: Duration::from_secs(9), seed: 1, linux: None };
        let mean = |model: &Model, on, (cpu, events, figure): (Cpu, &str, &str)| {
            let regime = Regime { on, backend: BackendKey::Hardware };
            let spec = regime.spec(events, &spec, spec.duration).unwrap();
            let document = predict(model, &spec, cpu).unwrap();
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
            ["vpmu-reuse.watchdog-on.mean", "vpmu-reuse.v1.mean"].map(|figure| text(of(figure)))
        };
        assert_eq!(judged(&document, false), ["agrees", "differs, +100.0 %"]);
        assert_eq!(judged(&document, true), ["not comparable", "not comparable"]);
        document.host.virtualized = true;
        assert_eq!(judged(&document, false), ["not comparable", "not comparable"]);
    }
}
