//! `vpmu doctor`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::HostFs;

use crate::inspect::doctor::{Rights, diagnose, text};
use crate::setting::backend::{ThisHost, kvm_report};
use crate::setting::options::JsonOption;
use crate::terminal::console::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  # what to mend before measuring, and how
  vpmu doctor
  # the same for a script
  vpmu doctor --json | jq '.findings[] | select(.status != \"ok\")'

Exit codes: 0 this host can measure, 4 it cannot,
2 bad usage, 70 a bug of vpmu.";

/// Options of `vpmu doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The findings as JSON.
    #[command(flatten)]
    pub json: JsonOption,
}

/// Observation time of CPU use by others: 25 ticks of the clock that accounts for it.
const WATCH: Duration = Duration::from_millis(250);

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Error> {
    let diagnosis = diagnose(&HostFs::default(), Rights::of_this_process(), kvm_report(), &ThisHost, WATCH);
    if args.json.json {
        print_json(&diagnosis)?;
    } else {
        print(&text(&diagnosis))?;
    }
    Ok(diagnosis.exit())
}
