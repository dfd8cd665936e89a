//! `vpmu stat-setup`.

use std::time::Instant;

use super::stat_setup_guest;
use crate::cli::stat_setup::{Place, StatSetupArgs};
use crate::error::{Error, Exit};

pub(super) fn run(args: &StatSetupArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    match args.place {
        Place::Guest => stat_setup_guest::run(args, command_line, process_began),
        Place::Host => Err(Error::host("stat-setup cannot set up host events yet", "", "")),
    }
}
