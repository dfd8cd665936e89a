//! `vpmu fleet collect` and `vpmu fleet report`.

use std::path::Path;

use results::error::{Error, Exit};
use results::table::layout::plural;

use super::ReportArgs;
use super::status::{shown, standing};
use super::submit::lock;
use crate::console::{complain, print, print_json};
use crate::fleet::folder::{Campaign, Folder};
use crate::fleet::merge;
use crate::fleet::standing::Standing;

/// Puts sweeps together and brings the index up to date.
pub(super) fn collect(dir: &Path) -> Result<(Folder, Campaign, Standing), Error> {
    let (folder, campaign, standing) = standing(dir)?;
    let _lock = lock(&folder, "collector")?;
    for sweep in merge::sweeps(&folder, &campaign, &standing)? {
        match sweep.folder {
            Some(to) => {
                complain(&format!("sweep {}: {} in {}", sweep.name, plural(sweep.points, "point"), to.display()));
            }

            None => complain(&format!("sweep {}: {} still missing", sweep.name, plural(sweep.missing, "part"))),
        }
    }
    complain(shown(&standing, false).lines().next().unwrap_or_default());
    Ok((folder, campaign, standing))
}

/// `vpmu fleet report`.
pub(super) fn report(args: &ReportArgs) -> Result<Exit, Error> {
    let (_, _, standing) = collect(&args.dir)?;
    if args.json {
        print_json(&standing)?;
    } else {
        print(&shown(&standing, false))?;
    }
    Ok(standing.exit())
}
