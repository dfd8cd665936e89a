//! The commands, from parsed options to files, table and exit code.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use host_pmu::backend::BackendKey;
use host_pmu::strategy::PRESETS;

use crate::backend::BackendArg;
use crate::cli::{self, Command, DoctorArgs, NmiLatencyArgs, Request};
use crate::doctor::{self, Limits};
use crate::error::{Error, Exit};
use crate::experiment::nmi_latency::{self, Context, Finished};
use crate::experiment::plan::{Chosen, Plan};
use crate::experiment::progress::{Bar, Progress, Silent};
use crate::export;
use crate::host::probe::{EventProbe, choose_backend};
use crate::host::{HostFacts, HostFs};
use crate::result::write::{OutputFolder, check_file, replace, time_stamp};
use crate::result::{Document, Status};
use crate::runner::{self, ThisHost};
use crate::{run, sys, table};

/// Carries out a command line, program name first.
///
/// # Errors
/// Everything that ends it early, with the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let command_line = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match cli::parse(args)? {
        Request::Print(text) => print(&text).map(|()| Exit::Done),
        Request::Run(Command::Doctor(args)) => diagnose(&args),
        Request::Run(Command::Run(args)) => {
            let chosen = choose(&args.backend, &ThisHost)?;
            run::run(&args, chosen.backend)
        }
        Request::Run(Command::NmiLatency(args)) => measure(&args, command_line),
    }
}

/// Writes to stdout. A reader that went away (`vpmu | head`) is no error.
fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::usage("cannot write to stdout", error.to_string(), "look where it is redirected to"))
        }
        _ => Ok(()),
    }
}

/// One line on stderr, with the program's name. Nothing is left to do if stderr is closed.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "vpmu: {line}");
}

fn internal(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Exit::Inconclusive, what, why.to_string(), "please report this as a bug")
}

fn diagnose(args: &DoctorArgs) -> Result<Exit, Error> {
    let diagnosis = doctor::diagnose(&HostFs::default(), Limits::of_this_process(), &ThisHost, &ThisHost);
    if args.json {
        let json =
            serde_json::to_string_pretty(&diagnosis).map_err(|error| internal("cannot show the findings", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&doctor::text(&diagnosis))?;
    }
    Ok(diagnosis.exit())
}

/// The backend to use: the one asked for if it opens, or what `auto` finds.
fn choose(asked: &BackendArg, probe: &dyn EventProbe) -> Result<Chosen, Error> {
    let key = match asked {
        BackendArg::Auto => {
            let auto = choose_backend(probe);
            return auto.backend.map(|backend| Chosen { backend, why: auto.why.clone() }).ok_or_else(|| {
                Error::host("no host event can stand behind a counter", auto.why, "`vpmu doctor` says what is missing")
            });
        }
        BackendArg::Key(key) => key,
    };
    probe.try_open(key).map_err(|why| {
        Error::host(
            format!("backend {key} does not work here"),
            why,
            "`vpmu doctor` says what is missing, or take --backend auto",
        )
    })?;
    Ok(Chosen { backend: key.clone(), why: "asked for".to_owned() })
}

fn measure(args: &NmiLatencyArgs, command_line: Vec<String>) -> Result<Exit, Error> {
    // Whatever can be refused is refused before anything is measured.
    let fs = HostFs::default();
    let host = HostFacts::read(&fs);
    let json_file = args.json.as_deref().filter(|file| *file != Path::new("-"));
    let mut folder = if args.no_save { None } else { Some(OutputFolder::open(&args.output)?) };
    if let Some(file) = json_file {
        check_file(file)?;
    }
    // Options that contradict each other are reported before what the host lacks: `none` opens nothing.
    let online = host.online();
    let dry = Chosen { backend: BackendKey::None, why: String::new() };
    Plan::new(args, &PRESETS, &dry, online.as_deref())?;
    let chosen = choose(&args.backend, &ThisHost)?;
    let plan = Plan::new(args, &PRESETS, &chosen, online.as_deref())?;
    let mut runner = runner::make(&plan)?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let mut bar = Bar::new();
    let mut silent = Silent;
    let progress: &mut dyn Progress = if args.quiet { &mut silent } else { &mut bar };
    let mut save = |document: &Document| save(document, folder.as_mut(), json_file);
    let finished = nmi_latency::run(
        &plan,
        runner.as_mut(),
        Context { stop: sys::interrupted(), fs: &fs, host, command_line, progress, save: &mut save },
    )?;
    print(&report(&finished, folder.as_mut(), args)?)?;
    for line in table::warnings(&finished.document) {
        complain(&format!("warning: {line}"));
    }
    finished.error.map_or_else(|| Ok(verdict(&finished.document)), Err)
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
fn report(finished: &Finished, folder: Option<&mut OutputFolder>, args: &NmiLatencyArgs) -> Result<String, Error> {
    let document = &finished.document;
    let measured = finished.arms.iter().any(|arm| !arm.intervals().is_empty());
    let mut saved = String::new();
    if let Some(folder) = folder.filter(|_| measured) {
        let stem = stem(document);
        let hlog = export::hlog::text(document, &finished.arms)
            .map_err(|why| internal("cannot write the interval log", why))?;
        folder.write(&stem, "hlog", &hlog)?;
        folder.write(&stem, "txt", export::gobench::text(document).as_bytes())?;
        if let Some(path) = folder.path("json") {
            saved = format!("saved: {} (and .hlog, .txt)\n", path.display());
        }
    }
    if args.json.as_deref() == Some(Path::new("-")) {
        return document.to_json().map_err(|error| internal("cannot show the result", error));
    }
    Ok(table::text(document) + &saved)
}

/// Whether the document answers its question.
fn verdict(document: &Document) -> Exit {
    let lost = document.arms.iter().any(|arm| arm.lost.is_some_and(|n| n != 0));
    if document.status == Status::Complete && !lost { Exit::Done } else { Exit::Inconclusive }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::mock;
    use crate::host::probe::fake::Opens;

    #[test]
    fn the_backend_asked_for_must_open() {
        let probe = Opens(&["cpu-clock"]);
        assert_eq!(choose(&BackendArg::Auto, &probe).unwrap().backend, BackendKey::CpuClock);
        assert!(choose(&BackendArg::Key(BackendKey::CpuClock), &probe).is_ok());
        let error = choose(&BackendArg::Key(BackendKey::Hardware), &probe).unwrap_err();
        assert_eq!(error.exit, Exit::Host);
        assert!(error.to_string().contains("doctor"));
        assert_eq!(choose(&BackendArg::Auto, &Opens(&[])).unwrap_err().exit, Exit::Host);
    }

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
        let finished = mock::finished(&["--json", "/dev/null"]);
        let args = crate::experiment::plan::tests::args(&["--json", "-"]);
        let mut folder = OutputFolder::open(&dir.path().join("out")).unwrap();
        save(&finished.document, Some(&mut folder), Some(&extra)).unwrap();
        let shown = report(&finished, Some(&mut folder), &args).unwrap();
        assert!(serde_json::from_str::<Document>(&shown).is_ok());
        let args = crate::experiment::plan::tests::args(&[]);
        let shown = report(&finished, Some(&mut folder), &args).unwrap();
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
