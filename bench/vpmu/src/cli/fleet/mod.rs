//! `vpmu fleet`.

mod args;
mod report;
mod status;
mod submit;

use fleet::campaign::folder::Folder;
use results::error::{Error, Exit};

use crate::terminal::console::print;

pub(super) use self::args::EXAMPLES;
pub use self::args::FleetArgs;
use self::args::{Check, FleetCommand, On, ReportArgs};

/// Runs `vpmu fleet`. `check` parses a command line, program name first.
pub(super) fn run(args: &FleetArgs, check: Check<'_>) -> Result<Exit, Error> {
    match (&args.command, &args.submit) {
        (None, None) => {
            Err(Error::usage("vpmu fleet needs a plan or a subcommand", "", "`vpmu fleet --help` lists them"))
        }
        (None, Some(submit_args)) => {
            let (dir, ended) = submit::submit(submit_args, check)?;
            match (submit_args.on, ended) {
                (_, false) => Ok(Exit::Inconclusive),
                (On::Slurm, true) => Ok(Exit::Done),
                (On::Local, true) => report::report(&ReportArgs { dir, json: false, markdown: false }),
            }
        }
        (Some(FleetCommand::Submit(args)), _) => match (submit::submit(args, check)?, args.on) {
            ((_, false), _) => Ok(Exit::Inconclusive),
            ((_, true), On::Slurm) => Ok(Exit::Done),
            ((dir, true), On::Local) => {
                let (_, _, standing) = status::standing(&dir, Folder::open)?;
                print(&status::shown(&standing, false))?;
                Ok(standing.exit())
            }
        },
        (Some(FleetCommand::Plan(args)), _) => args::plan(args, check),
        (Some(FleetCommand::Status(args)), _) => status::status(args),
        (Some(FleetCommand::Wait(args)), _) => status::wait(args),
        (Some(FleetCommand::Collect(args)), _) => report::collect(args),
        (Some(FleetCommand::Cancel(args)), _) => status::cancel(args),
        (Some(FleetCommand::Report(args)), _) => report::report(args),
        (Some(FleetCommand::Element(args)), _) => submit::element(args),
    }
}
