//! The commands, from parsed options to files, table and exit code; a file each.

mod calibrate;
mod compare;
mod conformance;
mod doctor;
mod export;
mod history;
mod nmi_latency;
mod report;
mod reproduce;
mod shell;
mod stat_setup;
mod stat_setup_guest;
mod sweep;

use std::ffi::OsString;
use std::time::Instant;

use crate::backend::{self, BackendChoice};
use crate::cli::{self, Command, NmiLatencyArgs, Request};
use crate::console::print;
use crate::error::{Error, Exit};
use crate::probe::ThisHost;

/// Carries out a command line, program name first.
///
/// # Errors
/// Everything that ends it early, with the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let process_began = Instant::now();
    let args: Vec<OsString> = args.into_iter().collect();
    let command_line = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match cli::parse(args)? {
        Request::Print(text) => print(&text).map(|()| Exit::Done),
        Request::Run(Command::Compare(args)) => compare::run(&args),
        Request::Run(Command::History(args)) => history::run(&args),
        Request::Run(Command::Conformance(args)) => conformance::run(&args),
        Request::Run(Command::Doctor(args)) => doctor::run(&args),
        Request::Run(Command::Report(args)) => report::run(&args),
        Request::Run(Command::Export(args)) => export::run(&args),
        Request::Run(Command::Completions(args)) => shell::completions(&args),
        Request::Run(Command::Man(args)) => shell::man(&args),
        Request::Run(Command::Reproduce(args)) => reproduce::run(&args),
        Request::Run(Command::Calibrate(args)) => calibrate::run(&args),
        Request::Run(Command::Sweep(args)) => sweep::run(&args),
        Request::Run(Command::Sim(args)) => {
            if args.experiment.backend != BackendChoice::Auto {
                return Err(Error::usage(
                    format!("--backend {} has no place in vpmu sim", args.experiment.backend),
                    "the model is the backend",
                    "leave it out, or take vpmu nmi-latency",
                ));
            }
            let args = NmiLatencyArgs { backend: BackendChoice::Sim(args.model), ..args.experiment };
            nmi_latency::run(&args, command_line, process_began)
        }
        Request::Run(Command::NmiLatency(args)) => nmi_latency::run(&args, command_line, process_began),
        Request::Run(Command::StatSetup(args)) => stat_setup::run(&args, command_line, process_began),
        Request::Run(Command::Run(args)) => {
            let spec = (*args).into_spec();
            let chosen = backend::choose(&spec.backend, &ThisHost)?;
            crate::run::run(&spec, &chosen.backend)
        }
    }
}

fn internal(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Exit::Inconclusive, what, why.to_string(), "please report this as a bug")
}
