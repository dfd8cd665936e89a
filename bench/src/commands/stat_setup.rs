//! `vpmu stat-setup`.

use std::time::Instant;

use super::stat_setup_guest;
use crate::cli::stat_setup::{HOST_STRATEGIES, Place, StatSetupArgs};
use crate::error::{Error, Exit};

pub(super) fn run(args: &StatSetupArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    match args.place {
        Place::Guest => stat_setup_guest::run(args, command_line, process_began),
        Place::Host => {
            refuse_guest_options(args)?;
            Err(Error::host("stat-setup cannot set up host events yet", "", ""))
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
    match args.host.strategies.iter().find(|name| !HOST_STRATEGIES.contains(&name.as_str())) {
        Some(name) => Err(Error::usage(
            format!("unknown strategy '{name}'"),
            "",
            format!("with --in host known are {}", HOST_STRATEGIES.join(", ")),
        )),
        None => Ok(()),
    }
}
