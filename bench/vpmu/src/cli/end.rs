//! The end of a comparison: its exit code for `git bisect run`, and the `--junit` report of one that failed.

use results::error::{Error, Exit};
use results::open;
use results::table::Report;

use super::files::write_junit;
use crate::setting::options::GateOptions;
use crate::sys::stopped;

/// Most bytes of a report that an error takes the place of.
const MAX_REPORT: u64 = 64 << 20;

/// Ends a comparison: an error takes the place of the `--junit` report, as that of the last good run would pass for one of this.
/// A file that is no such report is left, as it may be an input.
pub(super) fn ended(name: &str, gate: &GateOptions, found: Result<Exit, Error>) -> Result<Exit, Error> {
    if let (Some(file), Err(error)) = (gate.junit.as_deref(), &found) {
        let old = open::named_text(file, MAX_REPORT).ok();
        if old.map_or(file.symlink_metadata().is_err(), |old| old.is_empty() || old.starts_with("<?xml")) {
            // An error of any exit is an error there, and no open case.
            let report = Report { verdict: Some((Exit::CannotTell, error.to_string())), ..Report::new(name) };
            let _ = report.junit().and_then(|report| write_junit(Some(file), &report));
        }
    }
    let of = |exit| for_bisect(gate.bisect, exit);
    found.map(of).map_err(|error| Error { exit: of(error.exit), ..error })
}

/// Returns the end of a comparison for `git bisect run`, if that is `wanted`. An inconclusive one skips the commit. A usage error, or a
/// host that cannot measure, is the same for every commit and stops the bisection, as an interrupt does.
pub(super) fn for_bisect(wanted: bool, exit: Exit) -> Exit {
    match exit {
        _ if !wanted => exit,
        Exit::Done | Exit::Regression | Exit::CannotTell | Exit::StopsBisection => exit,
        Exit::Inconclusive if !stopped() => Exit::CannotTell,
        _ => Exit::StopsBisection,
    }
}
