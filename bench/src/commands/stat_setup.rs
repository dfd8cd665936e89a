//! `vpmu stat-setup`.

use std::path::Path;
use std::time::Instant;

use super::{internal, stat_setup_guest};
use crate::cli::stat_setup::{Mode, Peer, Place, StatSetupArgs};
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::experiment::stat_setup::document::Document;
use crate::experiment::stat_setup::spec::{self, STRATEGIES, StatSetupSpec};
use crate::experiment::stat_setup::{once, run as stat_setup, show};
use crate::progress::{Bar, Progress, Silent};
use crate::result::Status;
use crate::{sys, table};
use results::write::{OutputFolder, check_file, replace, time_stamp};

pub(super) fn run(args: &StatSetupArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    match args.place {
        Place::Guest => stat_setup_guest::run(args, command_line, process_began),
        Place::Host => {
            refuse_guest_options(args)?;
            if args.host.once { run_once(args) } else { in_host(args, command_line) }
        }
    }
}

/// What only a guest knows is refused, not ignored.
fn refuse_guest_options(args: &StatSetupArgs) -> Result<(), Error> {
    if let Some(option) = args.guest.given() {
        return Err(Error::usage(
            format!("{option} has no place beside --in host"),
            "",
            "add --in guest, or leave it out",
        ));
    }
    match args.host.strategies.iter().find(|name| !STRATEGIES.contains(&name.as_str())) {
        Some(name) => Err(Error::usage(
            format!("unknown strategy '{name}'"),
            "",
            format!("with --in host known are {}", STRATEGIES.join(", ")),
        )),
        None => Ok(()),
    }
}

/// The experiment that the options specify.
fn spec_of(args: &StatSetupArgs) -> StatSetupSpec {
    StatSetupSpec {
        events: args.events.clone(),
        strategies: args.host.strategies.clone(),
        cpus: args.host.cpus.clone(),
        mode: match args.host.mode {
            Mode::Stat => spec::Mode::Stat,
            Mode::Mmap => spec::Mode::Mmap,
        },
        count: args.host.count,
        rounds: args.rounds,
        seed: args.seed,
        against_perf: args.host.against == Some(Peer::Perf),
        scale: args.host.scale.as_ref().map(|scale| scale.0.clone()),
        last_close: args.host.last_close,
    }
}

fn run_once(args: &StatSetupArgs) -> Result<Exit, Error> {
    let found = once::run_once(&spec_of(args), &mut print)?;
    if !args.quiet {
        for warning in &found.warnings {
            complain(&format!("warning: {warning}"));
        }
        complain(&found.phases);
    }
    Ok(if found.whole { Exit::Done } else { Exit::Inconclusive })
}

fn in_host(args: &StatSetupArgs, command_line: Vec<String>) -> Result<Exit, Error> {
    let json_file = args.json.as_deref().filter(|file| *file != Path::new("-"));
    let mut folder = if args.no_save { None } else { Some(OutputFolder::open(&args.output)?) };
    if let Some(file) = json_file {
        check_file(file)?;
    }
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut bar = Bar::new();
    let mut silent = Silent;
    let progress: &mut dyn Progress = if args.quiet { &mut silent } else { &mut bar };
    let document = stat_setup::run(&spec_of(args), command_line, progress)?;
    let json =
        serde_json::to_string_pretty(&document).map_err(|error| internal("cannot show the result", error))? + "\n";
    let mut saved = String::new();
    if let Some(folder) = &mut folder {
        let stem = format!("{}-{}", document.experiment, time_stamp(document.started_unix));
        let path = folder.write(&stem, "json", json.as_bytes())?;
        saved = format!("saved: {}\n", path.display());
    }
    if let Some(file) = json_file {
        replace(file, json.as_bytes()).map_err(|error| {
            Error::usage(format!("cannot write {}", file.display()), error.to_string(), "give --json another file")
        })?;
    }
    if args.json.as_deref() == Some(Path::new("-")) {
        print(&json)?;
    } else {
        print(&(show::text(&document) + &saved))?;
    }
    for warning in table::warnings(&document.warnings) {
        complain(&format!("warning: {warning}"));
    }
    Ok(verdict(&document))
}

/// Whether the document answers its question: not if it was cut short, or the strategies did not do the same.
fn verdict(document: &Document) -> Exit {
    if document.status == Status::Complete && document.agree { Exit::Done } else { Exit::Inconclusive }
}
