//! `vpmu doctor`.

use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFs, settings};

use crate::inspect::doctor::{Limits, Set, diagnose, text};
use crate::setting::backend::ThisHost;
use crate::terminal::console::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  # what to mend before measuring, and how
  vpmu doctor
  # the same for a script
  vpmu doctor --json | jq '.findings[] | select(.status != \"ok\")'
  # set what can be set, measure, and put it back
  sudo vpmu doctor --fix
  sudo vpmu doctor --undo

Exit codes: 0 this host can measure, or all is set or back;
4 it cannot, or not all is; 2 bad usage, or /run/vpmu
is not to be believed; 70 a bug of vpmu.";

/// Options of `vpmu doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Set what the findings ask for and one write can set, as root
    #[arg(long)]
    pub fix: bool,
    /// Put back what --fix or a killed run set, as root
    #[arg(long, conflicts_with = "fix")]
    pub undo: bool,
    /// Print the findings, or the settings, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Observation time of CPU use by others: 25 ticks of the clock that accounts for it.
const WATCH: Duration = Duration::from_millis(250);

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Error> {
    let fs = HostFs::default();
    if args.undo {
        return show(&Set { changes: settings::undo(&fs)?, by_hand: Vec::new(), fixed: false }, args.json);
    }
    let diagnosis = diagnose(&fs, Limits::of_this_process(), &ThisHost, &ThisHost, WATCH);
    if args.fix {
        return show(&Set::by(&fs, diagnosis.findings)?, args.json);
    }
    if args.json {
        print_json(&diagnosis)?;
    } else {
        print(&text(&diagnosis))?;
    }
    Ok(diagnosis.exit())
}

fn show(set: &Set, json: bool) -> Result<Exit, Error> {
    if json {
        print_json(set)?;
    } else {
        print(&set.text())?;
    }
    Ok(set.exit())
}
