//! Carrying out an experiment of arms and rounds: the host or a simulation, files, table, exit code.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use host_pmu::backend::BackendKey;
use results::document::{Document, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::write::{OutputFolder, replace, time_stamp};
use results::{export, table};
use sim::model::Model;
use vmm::kvm::Host;

use super::options::ResultOptions;
use crate::arm::real::RealRunner;
use crate::arm::runner::ArmRunner;
use crate::arm::sim::{self as simulated, SimRunner};
use crate::backend::{BackendChoice, Chosen, choose};
use crate::console::{complain, internal, print};
use crate::fold::arm::ArmFold;
use crate::probe::ThisHost;
use crate::progress;
use crate::rounds::plan::Plan;
use crate::rounds::run::{self as rounds, Context, Finished};
use crate::sys;

/// How the process was started.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    /// The command line, program name first.
    pub(super) command_line: Vec<String>,
    /// Start of `main`.
    pub(super) began: Instant,
}

/// What every experiment with arms and rounds is given, whatever its guest does.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// `--backend`.
    pub(super) backend: &'a BackendChoice,
    /// Where the result goes.
    pub(super) result: &'a ResultOptions,
    /// The folder that keeps the result as a baseline.
    pub(super) baseline: Option<PathBuf>,
}

/// Makes the plan for a backend and the host's CPUs, if they are known.
type MakePlan<'a> = &'a dyn Fn(&Chosen, Option<&[u32]>) -> Result<Plan, Error>;

/// A plan with its runner, and the facts of the host that it runs on.
struct Ready {
    plan: Plan,
    runner: Box<dyn ArmRunner>,
    host: HostFacts,
    fs: HostFs,
}

/// Makes the plan for the backend that is chosen, carries it out, and shows and keeps the result.
pub(super) fn measure(wanted: &Wanted<'_>, plan: MakePlan<'_>, invocation: Invocation) -> Result<Exit, Error> {
    // Whatever can be refused is refused before anything is measured.
    let named = match wanted.backend {
        BackendChoice::Sim(name) => Some(simulated::model(name)?),
        BackendChoice::Key(BackendKey::Step) => {
            return Err(Error::usage(
                "backend step measures no latencies",
                "every instruction that counts would be an exit of its own",
                "use another --backend here, and step with `vpmu conformance` and `vpmu run`",
            ));
        }
        BackendChoice::Auto | BackendChoice::Key(_) => None,
    };
    let options = wanted.result;
    let mut folder = if options.no_save { None } else { Some(OutputFolder::open(&options.output)?) };
    if let Some(dir) = &wanted.baseline {
        OutputFolder::open(dir)?;
    }
    let fs = HostFs::default();
    let host = HostFacts::read(&fs);
    // Options that contradict each other are reported before what the host lacks: `none` opens nothing.
    plan(&Chosen { backend: BackendKey::None, why: String::new() }, host.online().as_deref())?;
    let Ready { plan, mut runner, host, fs } = match named {
        Some(model) => simulation(plan, model, "asked for")?,
        None => match real(wanted.backend, plan, host, fs) {
            Err(error) if *wanted.backend == BackendChoice::Auto && error.exit == Exit::Host => {
                fall_back(plan, &error)?
            }
            found => found?,
        },
    };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let mut progress = progress::shown(!options.quiet);
    let saved_unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut save = |document: &Document| save(document, folder.as_mut(), saved_unix);
    let Invocation { command_line, began } = invocation;
    let context = Context {
        process_began: began,
        stop: sys::interrupted(),
        fs: &fs,
        host,
        command_line,
        progress: progress.as_mut(),
        save: &mut save,
    };
    let finished = rounds::run(&plan, runner.as_mut(), context)?;
    print(&report(&finished, folder.as_mut(), options.json, saved_unix)?)?;
    for line in table::warnings(&finished.document.warnings) {
        complain(&format!("warning: {line}"));
    }
    if let Some(dir) = &wanted.baseline {
        keep_baseline(&finished.document, dir)?;
    }
    finished.error.map_or_else(|| Ok(verdict(&finished.document)), Err)
}

/// On this host. Exit 4 if it cannot run guests, or no host event opens.
fn real(backend: &BackendChoice, plan: MakePlan<'_>, host: HostFacts, fs: HostFs) -> Result<Ready, Error> {
    let chosen = choose(backend, &ThisHost)?;
    let plan = plan(&chosen, host.online().as_deref())?;
    let runner = Box::new(RealRunner::new(&plan.guest, &plan.backend, plan.parameters.period)?);
    Ok(Ready { plan, runner, host, fs })
}

/// On a simulated host, from which nothing of this machine enters the result.
fn simulation(plan: MakePlan<'_>, model: Model, why: &str) -> Result<Ready, Error> {
    let mut plan = plan(&simulated::chosen(&model, why), None)?;
    plan.simulate(&model.name);
    let host = simulated::facts(&model);
    let runner = Box::new(SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?);
    Ok(Ready { plan, runner, host, fs: HostFs::at("/nonexistent") })
}

/// The main job always runs: with `--backend auto` on a host that cannot measure it simulates, with a notice.
fn fall_back(plan: MakePlan<'_>, error: &Error) -> Result<Ready, Error> {
    let model = simulated::model(simulated::DEFAULT_MODEL)?;
    // Events are tried before KVM; whoever mends one should know of the other.
    let mut missing = error.to_string();
    if let Err(kvm) = Host::open().map_err(|error| error.to_string())
        && !missing.contains(&kvm)
    {
        missing = format!("{kvm}; {missing}");
    }
    complain(&format!("notice: nothing is measured: this is a simulation (model {}): {missing}", model.name));
    simulation(plan, model, &format!("this host cannot measure ({})", error.what))
}

/// Keeps a complete document as the baseline's; one file an experiment, so that a baseline may hold several.
fn keep_baseline(document: &Document, dir: &Path) -> Result<(), Error> {
    if document.status != Status::Complete {
        complain(&format!("warning: {} is left as it was: this run is not complete", dir.display()));
        return Ok(());
    }
    let path = dir.join(format!("{}.json", document.experiment));
    let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
    std::fs::create_dir_all(dir).and_then(|()| replace(&path, json.as_bytes())).map_err(|error| {
        Error::usage(format!("cannot write {}", path.display()), error.to_string(), "choose another folder with -o DIR")
    })?;
    complain(&format!("baseline: {}", path.display()));
    Ok(())
}

/// The name of an experiment's files, without extension.
fn stem(document: &Document, saved_unix: u64) -> String {
    // A simulated document has no date; the names of its files have one.
    let unix = if document.started_unix == 0 { saved_unix } else { document.started_unix };
    format!("{}-{}", document.experiment, time_stamp(unix))
}

fn save(document: &Document, folder: Option<&mut OutputFolder>, saved_unix: u64) -> Result<(), Error> {
    let Some(folder) = folder else { return Ok(()) };
    let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
    folder.write(&stem(document, saved_unix), "json", json.as_bytes()).map(|_| ())
}

/// Writes the exports and returns the text for stdout: the table, or JSON.
fn report(
    finished: &Finished,
    folder: Option<&mut OutputFolder>,
    json: bool,
    saved_unix: u64,
) -> Result<String, Error> {
    let document = &finished.document;
    let measured = finished.arms.iter().any(|arm| !arm.intervals().is_empty());
    let mut saved = String::new();
    if let Some(folder) = folder.filter(|_| measured) {
        let stem = stem(document, saved_unix);
        let hlog = export::hlog::text(document, &finished.arms.iter().map(ArmFold::intervals).collect::<Vec<_>>())
            .map_err(|why| internal("cannot write the interval log", why))?;
        folder.write(&stem, "hlog", &hlog)?;
        folder.write(&stem, "txt", export::gobench::text(document).as_bytes())?;
        if let Some(path) = folder.path("json") {
            saved = format!("saved: {} (and .hlog, .txt)\n", path.display());
        }
    }
    if json {
        return document.to_json().map_err(|error| internal("cannot show the result", error));
    }
    Ok(table::text(document) + &saved)
}

/// Whether the document answers its question.
fn verdict(document: &Document) -> Exit {
    let doubtful = document.arms.iter().any(|arm| {
        [arm.own.lost, arm.own.overflows_lost].iter().any(|lost| lost.is_some_and(|n| n != 0))
            || arm.own.failed_opens != 0
            || arm.own.pinned_errors != 0
            || arm.own.throttled != 0
    });
    if document.status == Status::Complete && !doubtful { Exit::Done } else { Exit::Inconclusive }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::mock;

    #[test]
    fn lost_nmis_make_a_result_inconclusive() {
        let mut document = mock::finished(&[]).document;
        assert_eq!(verdict(&document), Exit::Done);
        document.arms[0].own.lost = Some(1);
        assert_eq!(verdict(&document), Exit::Inconclusive);
    }

    #[test]
    fn document_and_exports_land_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let finished = mock::finished(&[]);
        let mut folder = OutputFolder::open(&dir.path().join("out")).unwrap();
        save(&finished.document, Some(&mut folder), 0).unwrap();
        let shown = report(&finished, Some(&mut folder), true, 0).unwrap();
        assert!(serde_json::from_str::<Document>(&shown).is_ok());
        let shown = report(&finished, Some(&mut folder), false, 0).unwrap();
        assert!(shown.contains("saved: ") && shown.contains("recreate"));
        let mut names: Vec<_> = std::fs::read_dir(dir.path().join("out"))
            .unwrap()
            .map(|entry| entry.unwrap().path().extension().unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["hlog", "json", "txt"]);
        let text = std::fs::read_to_string(folder.path("json").unwrap()).unwrap();
        let back: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(back.arms.len(), finished.document.arms.len());
    }
}
