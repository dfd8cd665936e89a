//! `vpmu fleet`.

mod args;
mod report;
mod status;
mod submit;

use results::error::{Error, Exit};

pub use self::args::FleetArgs;
use self::args::{Check, FleetCommand, On, ReportArgs, StatusArgs};

/// Runs `vpmu fleet`. `check` parses a command line, program name first.
pub(super) fn run(args: &FleetArgs, check: Check<'_>) -> Result<Exit, Error> {
    let submit_args = match (&args.command, &args.submit) {
        (Some(FleetCommand::Plan(args)), _) => return args::plan(args, check),
        (Some(FleetCommand::Status(args)), _) => return status::status(args),
        (Some(FleetCommand::Report(args)), _) => return report::report(args),
        (Some(FleetCommand::Element(args)), _) => return submit::element(args),
        (Some(FleetCommand::Submit(args)), _) | (None, Some(args)) => args,
        (None, None) => {
            let remedy = "`vpmu fleet --help` lists them";
            return Err(Error::usage("vpmu fleet needs a plan or a subcommand", "", remedy));
        }
    };
    match (submit::submit(submit_args, check)?, submit_args.on) {
        ((_, false), _) => Ok(Exit::Inconclusive),
        ((_, true), On::Slurm) => Ok(Exit::Done),
        ((dir, true), On::Local) if args.command.is_none() => report::report(&ReportArgs { dir, form: <_>::default() }),
        ((dir, true), On::Local) => status::status(&StatusArgs { dir, wait: false, json: <_>::default() }),
    }
}
