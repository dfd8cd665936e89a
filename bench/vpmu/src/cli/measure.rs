//! Carrying out an experiment of arms and rounds: the host or a simulation, files, table, exit code.

use std::collections::BTreeSet;
use std::path::Path;

use host_pmu::backend::BackendKey;
use results::answers::exit;
use results::document::{Document, Experiment, Record};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::layout::columns;
use results::table::{self, Report, add_choice};
use results::write::{OutputFolder, now_unix, time_stamp};
use sim::model::Model;
use vmm::kvm::Host;

use super::options::{GuestResultOptions, ResultOptions};
use crate::arms::arm::runner::ArmRunner;
use crate::arms::arm::sim::{self as simulated, DEFAULT_MODEL};
use crate::arms::linux::runner::LinuxRunner;
use crate::arms::linux::spec::LinuxGuestOptions;
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::run as rounds;
use crate::engine::plain::{self, Plain};
use crate::engine::{Context, Measured};
use crate::setting::backend::{BackendChoice, Chosen, choose, this_host};
use crate::setting::pin::usable;
use crate::setting::strategy::refuse_modelled;
use crate::sys;
use crate::terminal::console::{self, complain, print};
use crate::terminal::progress;

/// Makes the plan for a backend and the CPUs that this process may use, if they are known.
pub(super) type MakePlan<'a> = &'a dyn Fn(&Chosen, Option<&[u32]>) -> Result<Plan, Error>;

/// A plan with its runner, and the facts of the host that it runs on.
type Ready = (Plan, Box<dyn ArmRunner>, HostFacts, HostFs);

/// A plan runs on a backend of this host, with Linux in place of the payload, or on a model.
pub(super) type On<'a> = (&'a BackendChoice, Option<&'a LinuxGuestOptions>, Option<&'a Model>);

/// Reads the model of `--backend sim:MODEL`. Exit 2 for a backend that measures no latencies.
pub(super) fn named_model(backend: &BackendChoice) -> Result<Option<Model>, Error> {
    match backend {
        BackendChoice::Sim(name) => simulated::model(name).map(Some),
        BackendChoice::Key(key @ (BackendKey::Step | BackendKey::None)) => {
            let remedy = format!("use another --backend here, and {key} with `vpmu conformance` and `vpmu run`");
            Err(Error::usage(format!("backend {key} measures no latencies"), "", remedy))
        }
        BackendChoice::Auto | BackendChoice::Key(_) => Ok(None),
    }
}

/// Runs a plan, shows its progress, and keeps its document as it grows. `falls_back`: where this host cannot measure it simulates, with a
/// notice if this says so.
fn measure(
    on: On<'_>,
    plan: MakePlan<'_>,
    falls_back: Option<bool>,
    options: &ResultOptions,
    command_line: &[String],
) -> Result<(Measured, Kept), Error> {
    let mut kept = Kept::of(options)?;
    let (plan, runner, host, fs) = match (ready(on, plan), falls_back) {
        (Err(error), Some(is_first)) if error.exit == Exit::Host => fall_back(plan, &error, is_first)?,
        (ready, _) => ready?,
    };
    console::catch_interrupts()?;
    let mut progress = progress::shown(!options.quiet.quiet);
    let context = Context {
        stop: sys::interrupted(),
        fs: &fs,
        host,
        command_line,
        progress: progress.as_mut(),
        save: &mut |document: &Document| kept.save(document),
    };
    let measured = rounds::run(&plan, runner.as_ref(), context)?;
    Ok((measured, kept))
}

/// Documents of several plans, and how they ended.
pub(super) struct Found {
    pub(super) documents: Vec<Document>,
    /// Their files.
    pub(super) kept: Vec<Kept>,
    /// The first error.
    pub(super) failed: Option<Error>,
}

/// Measures by each plan, one after the other, until the user ends them, or one fails unless it `goes_on`. Where this host cannot
/// measure it simulates if it `falls_back`.
pub(super) fn measure_each(
    on: On<'_>,
    (falls_back, goes_on): (bool, bool),
    options: &ResultOptions,
    plans: &[MakePlan<'_>],
    command_line: &[String],
) -> Result<Found, Error> {
    let mut found = Found { documents: Vec::new(), kept: Vec::new(), failed: None };
    for plan in plans {
        let is_first = found.documents.is_empty();
        match measure(on, *plan, falls_back.then_some(is_first), options, command_line) {
            Ok(((document, error), kept)) => {
                found.documents.push(document);
                found.failed = found.failed.or(error).or_else(|| kept.failed.clone());
                found.kept.push(kept);
            }
            Err(error) if is_first => return Err(error),
            // What was measured before is shown.
            Err(error) => found.failed = found.failed.or(Some(error)),
        }
        if found.failed.is_some() && !goes_on || sys::stopped() {
            break;
        }
    }
    Ok(found)
}

/// Measures by each plan, and shows and keeps what they found together. `is_bare`: the tool was called without a
/// word, and a newcomer sees something even where nothing can be measured.
pub(super) fn measure_all(
    on: On<'_>,
    is_bare: bool,
    out: &GuestResultOptions,
    plans: &[MakePlan<'_>],
    command_line: &[String],
) -> Result<Exit, Error> {
    let GuestResultOptions { result: options, verbose, baseline } = out;
    // Whatever can be refused is refused before anything is measured.
    let checked = |plan: &MakePlan<'_>| {
        let tried = tried(on.2, *plan)?;
        let workload = tried.parameters.workload.replace('/', "-");
        let of = if plans.len() > 1 { format!("-{workload}") } else { String::new() };
        let name = format!("{}{of}", tried.experiment);
        baseline.check(options, &name).map(|()| name)
    };
    let names = plans.iter().map(checked).collect::<Result<Vec<String>, Error>>()?;
    let measured = measure_each(on, (is_bare, false), options, plans, command_line)?;
    let Found { documents: mut found, mut kept, mut failed } = measured;
    // What was chosen of all workloads is in the file of each.
    if found.len() == plans.len() && add_choice(&mut found) {
        for (document, kept) in found.iter().zip(&mut kept) {
            kept.save(document)?;
            failed = failed.or_else(|| kept.failed.clone());
        }
    }
    if failed.is_none() && found.len() < plans.len() {
        complain(&format!("warning: interrupted: {} of {} workloads were measured", found.len(), plans.len()));
    }
    if found.len() == plans.len() {
        let mut documents = names.iter().zip(&found);
        let kept = documents.try_for_each(|(name, document)| baseline.keep(options, document, name, exit(document)));
        failed = failed.or(kept.err());
    } else if baseline.save_baseline.is_some() {
        complain("warning: the baseline is left as it was: this run is not complete");
    }
    if let Some(last) = found.last_mut() {
        last.ended_by(failed.as_ref());
    }
    if options.json.json {
        found.iter().try_for_each(|document| print(&document.to_json()?))?;
    } else {
        let mut report = table::report(&found, *verbose);
        report.notes((!verbose).then_some("vpmu -v: percentiles, host work by kind"));
        print(&(report.text(columns()) + &kept.iter().map(Kept::line).collect::<String>()))?;
    }
    let mut printed = BTreeSet::new();
    for document in &found {
        let of = if plans.len() > 1 { format!("{}: ", document.parameters.workload) } else { String::new() };
        for line in table::warnings(&document.warnings) {
            // The host's are those of every workload.
            let line = if line.starts_with("noise sources") { line } else { of.clone() + &line };
            if printed.insert(line.clone()) {
                complain(&format!("warning: {line}"));
            }
        }
    }
    let worst = found.iter().map(exit).find(|exit| *exit != Exit::Done);
    failed.map_or_else(|| Ok(worst.unwrap_or(Exit::Done)), Err)
}

/// Makes a plan to check what can be checked before anything is measured: also that the guests, on this model or host, can have its
/// strategies. With `auto` the answer does not depend on what the host lacks: no model is asked then.
pub(super) fn tried(model: Option<&Model>, plan: MakePlan<'_>) -> Result<Plan, Error> {
    // Options that contradict each other are reported before what the host lacks: `none` opens nothing.
    let nothing = || Chosen::here(BackendKey::None, String::new());
    let chosen = model.map_or_else(nothing, |model| simulated::chosen(model, ""));
    let tried = plan(&chosen, usable(&HostFacts::begin(&HostFs::default())).as_deref())?;
    let strategies = &tried.parameters.strategies;
    match model {
        Some(model) => {
            let names = strategies.iter().map(|strategy| strategy.name.as_str());
            simulated::check_strategies(model, tried.guest.machine.cpu.vendor(), names)?;
        }
        None => refuse_modelled(strategies)?,
    }
    Ok(tried)
}

/// Carries out an experiment of plain arms on this host, shows its document, and keeps it as it grows; `then` adds to the document what
/// follows from its rounds.
pub(super) fn measure_then(
    (experiment, mut arms): (plain::Experiment, Vec<Plain<'_>>),
    options: &ResultOptions,
    command_line: &[String],
    then: &mut dyn FnMut(&mut Record),
    report: &dyn Fn(&Record) -> Report,
) -> Result<Record, Error> {
    let mut kept = Kept::of(options)?;
    let fs = HostFs::default();
    let host = HostFacts::begin(&fs);
    console::catch_interrupts()?;
    let mut progress = progress::shown(!options.quiet.quiet);
    let save = &mut |document: &Record| kept.save(document);
    let (mut document, error) = experiment.measure(&mut arms, (host, &fs), command_line, progress.as_mut(), save)?;
    then(&mut document);
    document.ended_by(error.as_ref());
    kept.save(&document)?;
    let error = error.or_else(|| kept.failed.clone());
    document.ended_by(error.as_ref());
    print(&if options.json.json { document.to_json()? } else { report(&document).text(columns()) + &kept.line() })?;
    for line in table::warnings(&document.warnings) {
        complain(&format!("warning: {line}"));
    }
    error.map_or(Ok(document), Err)
}

/// Prepares a run by the model or on this host. Exit 4 if it cannot run guests, or no host event opens.
fn ready((backend, linux, model): On<'_>, plan: MakePlan<'_>) -> Result<Ready, Error> {
    match (model, linux) {
        (Some(model), Some(_)) => Err(Error::usage(
            format!("model {} does not simulate Linux", model.name),
            "it simulates the payload",
            "leave --guest linux out, or take a backend of this host",
        )),
        (Some(model), None) => simulation(plan, model.clone(), "asked for"),
        (None, _) => real(backend, linux, plan).map_err(|error| match error.exit {
            Exit::Host if linux.is_none() => {
                Error { remedy: format!("{}; --backend sim:{DEFAULT_MODEL} simulates", error.remedy), ..error }
            }
            _ => error,
        }),
    }
}

fn real(backend: &BackendChoice, linux: Option<&LinuxGuestOptions>, plan: MakePlan<'_>) -> Result<Ready, Error> {
    let fs = HostFs::default();
    let host = HostFacts::begin(&fs);
    let mut chosen = choose(backend, &this_host)?;
    // Where the NMI watchdog holds an event, no guest's is the first; a mediated vPMU has the PMU for itself.
    let is_held = host.nmi_watchdog == Some(true) && host.kvm_mediated_pmu != Some(true);
    chosen.shares_first &= !(chosen.backend == BackendKey::Hardware && is_held);
    let mut plan = plan(&chosen, usable(&host).as_deref())?;
    let runner: Box<dyn ArmRunner> = match linux {
        Some(options) => Box::new(LinuxRunner::new(options, &mut plan)?),
        None => Box::new(plan.on_this_host()?),
    };
    Ok((plan, runner, host, fs))
}

/// Prepares a run on a simulated host, from which nothing of this machine enters the result.
fn simulation(plan: MakePlan<'_>, model: Model, why: &str) -> Result<Ready, Error> {
    let mut plan = plan(&simulated::chosen(&model, why), None)?;
    plan.simulate(&model.name);
    let host = simulated::facts(&model);
    let runner = plan.on_model(model)?;
    Ok((plan, runner, host, HostFs::at("/nonexistent")))
}

/// Simulates, with a notice of what is missing, on a host that cannot measure.
fn fall_back(plan: MakePlan<'_>, error: &Error, is_first: bool) -> Result<Ready, Error> {
    let model = simulated::model(DEFAULT_MODEL)?;
    if is_first {
        // Events are tried before KVM; a user who mends one should know of the other.
        let kvm = Host::open().err().map(|kvm| kvm.to_string()).filter(|kvm| *kvm != error.why);
        let missing = kvm.into_iter().chain([error.why.clone()]).collect::<Vec<_>>().join("; ");
        complain(&format!(
            "notice: nothing is measured: this is a simulation (model {}): {missing}; `vpmu doctor` says what helps",
            model.name
        ));
    }
    simulation(plan, model, &format!("this host cannot measure ({})", error.what))
}

/// The document of a run, as a file. A full disk neither ends the run nor hides its table.
pub(super) struct Kept {
    folder: Option<OutputFolder>,
    opened_unix: u64,
    /// Why the last write failed, if it did.
    failed: Option<Error>,
}

impl Kept {
    /// Opens the folder of results, if there is to be one.
    fn of(options: &ResultOptions) -> Result<Self, Error> {
        let folder = if options.no_save { None } else { Some(OutputFolder::open(&options.folder())?) };
        Ok(Self { folder, opened_unix: now_unix(), failed: None })
    }

    /// Writes the document as it is now.
    fn save<E: Experiment>(&mut self, document: &Document<E>) -> Result<(), Error> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        // A simulated document has no date; the name of its file has one.
        let unix = if document.started_unix == 0 { self.opened_unix } else { document.started_unix };
        let stem = format!("{}-{}", document.experiment, time_stamp(unix));
        let failed = folder.write(&stem, document.to_json()?.as_bytes()).err();
        if let (Some(error), None) = (&failed, &self.failed) {
            complain(&format!("warning: {error}; measuring goes on, and the table comes at the end"));
        }
        self.failed = failed;
        Ok(())
    }

    /// Returns the document's path, once it is written.
    pub(super) fn path(&self) -> Option<&Path> {
        self.folder.as_ref().and_then(OutputFolder::path).filter(|_| self.failed.is_none())
    }

    /// Formats a line that names what was written.
    fn line(&self) -> String {
        self.path().map_or_else(String::new, |path| format!("saved: {}\n", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use results::document::ArmKind;

    use super::*;
    use crate::arms::rounds::mock;

    #[test]
    fn strategies_that_cannot_run_are_no_success() {
        let mut document = mock::finished(&[]);
        assert_eq!(exit(&document), Exit::Done);
        for arm in document.arms.iter_mut().filter(|arm| arm.kind == ArmKind::Strategy) {
            arm.not_available = Some("it needs host events".to_owned());
        }
        assert_eq!(exit(&document), Exit::Inconclusive);
    }
}
