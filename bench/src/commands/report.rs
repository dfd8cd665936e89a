//! `vpmu report`.

use crate::cli::report::ReportArgs;
use crate::error::{Error, Exit};

pub(super) fn run(_args: &ReportArgs) -> Result<Exit, Error> {
    Err(Error::usage("not yet", "", ""))
}
