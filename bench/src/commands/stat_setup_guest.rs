//! `vpmu stat-setup --in guest`.

use std::time::Instant;

use crate::cli::stat_setup::StatSetupArgs;
use crate::error::{Error, Exit};

pub(super) fn run(_args: &StatSetupArgs, _command_line: Vec<String>, _process_began: Instant) -> Result<Exit, Error> {
    Err(Error::host("stat-setup --in guest is not in this build", "", "take --in host"))
}
