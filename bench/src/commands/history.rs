//! `vpmu history`.

use super::internal;
use crate::cli::history::HistoryArgs;
use crate::console::print;
use crate::error::{Error, Exit};
use crate::history::{self, Request};
use crate::load;
use crate::stats::change_points::Rules;

pub(super) fn run(args: &HistoryArgs) -> Result<Exit, Error> {
    if !(args.p > 0.0 && args.p <= 0.5 && (0.0..=100.0).contains(&args.strength)) {
        return Err(Error::usage(
            format!("--p {} --strength {} make no sense", args.p, args.strength),
            "p is above 0 and at most 0.5, strength 0 to 100",
            "--p 0.001 --strength 0.05 are the defaults",
        ));
    }
    let request = Request {
        rules: Rules { window: usize::try_from(args.window).unwrap_or(50), p: args.p, strength: args.strength },
        statistic: args.statistic,
        arms: args.arm.clone(),
        metrics: args.metric.clone(),
    };
    let records = load::gather(&args.source, &args.results)?;
    let found = history::history(&args.source, &records, &request)?;
    if args.json {
        let json = serde_json::to_string_pretty(&found).map_err(|error| internal("cannot show the history", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&history::text(&found))?;
    }
    Ok(found.exit())
}
