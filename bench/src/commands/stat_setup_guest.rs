//! `vpmu stat-setup --in guest`.

use std::time::Instant;

use super::nmi_latency::{Wanted, measure};
use crate::backend::{BackendArg, Chosen};
use crate::cli::stat_setup::StatSetupArgs;
use crate::error::{Error, Exit};
use crate::experiment::stat_guest;

pub(super) fn run(args: &StatSetupArgs, command_line: Vec<String>, process_began: Instant) -> Result<Exit, Error> {
    let wanted = Wanted {
        backend: args.guest.backend.as_ref().unwrap_or(&BackendArg::Auto),
        output: (!args.no_save).then_some(&args.output),
        json: args.json.as_deref(),
        baseline: None,
        quiet: args.quiet,
    };
    let plan = |chosen: &Chosen, online: Option<&[u32]>| stat_guest::plan(args, chosen, online);
    measure(&wanted, &plan, command_line, process_began)
}
