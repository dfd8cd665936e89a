//! `vpmu fleet`.

mod args;
mod plan;
mod report;
mod status;
mod submit;

use results::error::{Error, Exit};

pub use self::args::FleetCommand;
use self::args::On;
use self::plan::Check;

/// Runs `vpmu fleet`. `check` parses a command line, program name first.
pub(super) fn run(command: &FleetCommand, check: Check<'_>) -> Result<Exit, Error> {
    match command {
        FleetCommand::Plan { plan, json } => plan::plan(plan, json.json, check),
        FleetCommand::Status { dir, wait, json } => status::status(dir, *wait, json.json),
        FleetCommand::Report { dir, form } => report::report(dir, form.form()),
        FleetCommand::Element { dir, number } => submit::element(dir, *number),
        FleetCommand::Submit(args) => match (submit::submit(args, check)?, args.on) {
            (None, _) => Ok(Exit::Inconclusive),
            (Some(_), On::Slurm) => Ok(Exit::Done),
            (Some(dir), On::Local) => status::status(&dir, false, false),
        },
    }
}
