//! `vpmu doctor`.

use std::time::Duration;

use super::internal;
use crate::cli::DoctorArgs;
use crate::console::print;
use crate::doctor::{self, Limits};
use crate::error::{Error, Exit};
use crate::host::HostFs;
use crate::probe::ThisHost;

/// How long doctor looks at who else uses the CPUs: 25 ticks of the clock they are accounted by.
const WATCH: Duration = Duration::from_millis(250);

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Error> {
    let diagnosis = doctor::diagnose(&HostFs::default(), Limits::of_this_process(), &ThisHost, &ThisHost, WATCH);
    if args.json {
        let json =
            serde_json::to_string_pretty(&diagnosis).map_err(|error| internal("cannot show the findings", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&doctor::text(&diagnosis))?;
    }
    Ok(diagnosis.exit())
}
