//! `vpmu nmi-latency`, the main job.

use std::path::{Path, PathBuf};
use std::time::Instant;

use host_pmu::backend::BackendKey;

use super::internal;
use crate::arm::real::RealRunner;
use crate::arm::runner::ArmRunner;
use crate::arm::sim::{self, SimRunner};
use crate::backend::{BackendChoice, Chosen, choose};
use crate::cli::NmiLatencyArgs;
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::fold::ArmFold;
use crate::host::{HostFacts, HostFs};
use crate::probe::ThisHost;
use crate::progress::{Bar, Progress, Silent};
use crate::result::{Document, Status};
use crate::rounds::plan::Plan;
use crate::rounds::run::{self as rounds, Context, Finished};
use crate::{export, load, sys, table};
use results::write::{OutputFolder, check_file, replace, time_stamp};

/// What every experiment with arms and rounds is asked for, whatever its guest does.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// `--backend`.
    pub(super) backend: &'a BackendChoice,
    /// `--output`; `None` with `--no-save`.
    pub(super) output: Option<&'a Path>,
    /// `--json`.
    pub(super) json: Option<&'a Path>,
    /// The folder that keeps the result as a baseline.
    pub(super) baseline: Option<PathBuf>,
    /// `--quiet`.
    pub(super) quiet: bool,
}

pub(super) fn run(args: &NmiLatencyArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    let wanted = Wanted {
        backend: &args.backend,
        output: (!args.no_save).then_some(&args.output),
        json: args.json.as_deref(),
        baseline: args.save_baseline.as_ref().map(|name| load::baseline_folder(&args.output, name)),
        quiet: args.quiet,
    };
    let spec = args.spec();
    let plan = |chosen: &Chosen, online: Option<&[u32]>| spec.plan(chosen, online);
    measure(&wanted, &plan, command_line, process_began)
}

/// Makes the plan for a backend and the host's CPUs, if they are known.
type MakePlan<'a> = &'a dyn Fn(&Chosen, Option<&[u32]>) -> Result<Plan, Error>;

/// Makes the plan for the backend that is chosen, carries it out, and shows and keeps what it gave.
pub(super) fn measure(
    wanted: &Wanted<'_>,
    plan: MakePlan<'_>,
    command_line: Vec<String>,
    process_began: Instant,
) -> Result<Exit, Error> {
    // Whatever can be refused is refused before anything is measured.
    let mut fs = HostFs::default();
    let mut host = HostFacts::read(&fs);
    let without_kvm = *wanted.backend == BackendChoice::Auto && !fs.path("dev/kvm").exists();
    let simulate = match wanted.backend {
        BackendChoice::Sim(name) => Some((name.as_str(), "asked for")),
        BackendChoice::Auto if without_kvm => Some((sim::DEFAULT_MODEL, "this host has no /dev/kvm")),
        _ => None,
    };
    let simulate = match simulate {
        Some((name, why)) => Some((sim::model(name)?, why)),
        None => None,
    };
    let json_file = wanted.json.filter(|file| *file != Path::new("-"));
    let mut folder = wanted.output.map(OutputFolder::open).transpose()?;
    if let Some(file) = json_file {
        check_file(file)?;
    }
    if let Some(dir) = &wanted.baseline {
        OutputFolder::open(dir)?;
    }
    // Options that contradict each other are reported before what the host lacks: `none` opens nothing.
    let online = host.online();
    let dry = Chosen { backend: BackendKey::None, why: String::new() };
    plan(&dry, online.as_deref())?;
    let chosen = match &simulate {
        Some((model, why)) => sim::chosen(model, why),
        None => choose(wanted.backend, &ThisHost)?,
    };
    let mut plan = plan(&chosen, online.as_deref())?;
    let mut runner: Box<dyn ArmRunner> = match simulate {
        Some((model, why)) => {
            if without_kvm {
                complain(&format!(
                    "notice: {why}, so nothing is measured: this is a simulation (model {})",
                    model.name
                ));
            }
            plan.simulate(&model.name);
            host = sim::facts(&model);
            // Nothing of this machine belongs into a simulated result.
            fs = HostFs::at("/nonexistent");
            Box::new(SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?)
        }
        None => Box::new(RealRunner::new(&plan.guest, &plan.backend, plan.parameters.period)?),
    };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let mut bar = Bar::new();
    let mut silent = Silent;
    let progress: &mut dyn Progress = if wanted.quiet { &mut silent } else { &mut bar };
    let mut save = |document: &Document| save(document, folder.as_mut(), json_file);
    let finished = rounds::run(
        &plan,
        runner.as_mut(),
        Context { process_began, stop: sys::interrupted(), fs: &fs, host, command_line, progress, save: &mut save },
    )?;
    print(&report(&finished, folder.as_mut(), wanted.json)?)?;
    for line in table::warnings(&finished.document.warnings) {
        complain(&format!("warning: {line}"));
    }
    if let Some(dir) = &wanted.baseline {
        keep_baseline(&finished.document, dir)?;
    }
    finished.error.map_or_else(|| Ok(verdict(&finished.document)), Err)
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
fn stem(document: &Document) -> String {
    format!("{}-{}", document.experiment, time_stamp(document.started_unix))
}

fn save(document: &Document, folder: Option<&mut OutputFolder>, file: Option<&Path>) -> Result<(), Error> {
    let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
    if let Some(folder) = folder {
        folder.write(&stem(document), "json", json.as_bytes())?;
    }
    if let Some(file) = file {
        replace(file, json.as_bytes()).map_err(|error| {
            Error::usage(format!("cannot write {}", file.display()), error.to_string(), "give --json another file")
        })?;
    }
    Ok(())
}

/// Writes the exports and gives what stdout shall show: the table, or JSON.
fn report(finished: &Finished, folder: Option<&mut OutputFolder>, json: Option<&Path>) -> Result<String, Error> {
    let document = &finished.document;
    let measured = finished.arms.iter().any(|arm| !arm.intervals().is_empty());
    let mut saved = String::new();
    if let Some(folder) = folder.filter(|_| measured) {
        let stem = stem(document);
        let hlog = export::hlog::text(document, &finished.arms.iter().map(ArmFold::intervals).collect::<Vec<_>>())
            .map_err(|why| internal("cannot write the interval log", why))?;
        folder.write(&stem, "hlog", &hlog)?;
        folder.write(&stem, "txt", export::gobench::text(document).as_bytes())?;
        if let Some(path) = folder.path("json") {
            saved = format!("saved: {} (and .hlog, .txt)\n", path.display());
        }
    }
    if json == Some(Path::new("-")) {
        return document.to_json().map_err(|error| internal("cannot show the result", error));
    }
    Ok(table::text(document) + &saved)
}

/// Whether the document answers its question.
fn verdict(document: &Document) -> Exit {
    let doubtful = document.arms.iter().any(|arm| {
        [arm.lost, arm.overflows_lost].iter().any(|lost| lost.is_some_and(|n| n != 0))
            || arm.failed_opens != 0
            || arm.pinned_errors != 0
            || arm.throttled != 0
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
        document.arms[0].lost = Some(1);
        assert_eq!(verdict(&document), Exit::Inconclusive);
    }

    #[test]
    fn document_and_exports_land_side_by_side() {
        let dir = tempfile::tempdir().unwrap();
        let extra = dir.path().join("extra.json");
        let finished = mock::finished(&[]);
        let mut folder = OutputFolder::open(&dir.path().join("out")).unwrap();
        save(&finished.document, Some(&mut folder), Some(&extra)).unwrap();
        let shown = report(&finished, Some(&mut folder), Some(Path::new("-"))).unwrap();
        assert!(serde_json::from_str::<Document>(&shown).is_ok());
        let shown = report(&finished, Some(&mut folder), None).unwrap();
        assert!(shown.contains("saved: ") && shown.contains("recreate"));
        let mut names: Vec<_> = std::fs::read_dir(dir.path().join("out"))
            .unwrap()
            .map(|entry| entry.unwrap().path().extension().unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["hlog", "json", "txt"]);
        let text = std::fs::read_to_string(extra).unwrap();
        let back: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(back.arms.len(), finished.document.arms.len());
    }
}
