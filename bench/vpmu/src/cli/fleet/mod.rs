//! `vpmu fleet`.

mod args;
mod report;
mod status;
mod submit;

use results::error::{Error, Exit};

pub use self::args::FleetArgs;
use self::args::{Check, FleetCommand, On};
use crate::terminal::console::Form;

/// Runs `vpmu fleet`. `check` parses a command line, program name first.
pub(super) fn run(args: &FleetArgs, check: Check<'_>) -> Result<Exit, Error> {
    let submit_args = match (&args.command, &args.submit) {
        (Some(FleetCommand::Plan { plan, json }), _) => return args::plan(plan, json.json, check),
        (Some(FleetCommand::Status { dir, wait, json }), _) => return status::status(dir, *wait, json.json),
        (Some(FleetCommand::Report { dir, form }), _) => return report::report(dir, form.form()),
        (Some(FleetCommand::Element { dir, number }), _) => return submit::element(dir, *number),
        (Some(FleetCommand::Submit(args)), _) | (None, Some(args)) => args,
        (None, None) => {
            let remedy = "`vpmu fleet --help` lists them";
            return Err(Error::usage("vpmu fleet needs a plan or a subcommand", "", remedy));
        }
    };
    match (submit::submit(submit_args, check)?, submit_args.on) {
        ((_, false), _) => Ok(Exit::Inconclusive),
        ((_, true), On::Slurm) => Ok(Exit::Done),
        ((dir, true), On::Local) if args.command.is_none() => report::report(&dir, Form::Text),
        ((dir, true), On::Local) => status::status(&dir, false, false),
    }
}
