//! `vpmu compare`.

use super::internal;
use crate::cli::compare::CompareArgs;
use crate::compare::{self, Request, Rules};
use crate::console::print;
use crate::error::{Error, Exit};
use crate::load::{self, Record};
use results::write::replace;

pub(super) fn run(args: &CompareArgs) -> Result<Exit, Error> {
    let rules = match &args.thresholds {
        Some(path) => Rules::read(path, args.p, args.strength)?,
        None => Rules::new(args.p, args.strength)?,
    };
    let request = Request {
        rules,
        statistic: args.statistic,
        arms: args.arm.clone(),
        metrics: args.metric.clone(),
        seed: args.seed,
        resamples: u32::try_from(args.resamples).unwrap_or(u32::MAX),
        allow_unlike_hosts: args.allow_unlike_hosts,
    };
    let base = load::gather(&args.base, &args.results)?;
    let new = load::gather(&args.new, &args.results)?;
    if let Some(factor) = args.ratios {
        return ratios(args, factor, &request, (&args.base, &base), (&args.new, &new));
    }
    let found = compare::compare((&args.base, &base), (&args.new, &new), &request)?;
    if let Some(path) = &args.junit {
        let xml = compare::junit(&found).map_err(|why| internal("cannot show the report", why))?;
        replace(path, xml.as_bytes()).map_err(|error| {
            Error::usage(format!("cannot write {}", path.display()), error.to_string(), "give --junit another file")
        })?;
    }
    if args.json {
        let json =
            serde_json::to_string_pretty(&found).map_err(|error| internal("cannot show the comparison", error))?;
        print(&(json + "\n"))?;
    } else if args.markdown {
        print(&compare::markdown(&found))?;
    } else {
        print(&compare::text(&found))?;
    }
    Ok(found.exit())
}

fn ratios(
    args: &CompareArgs,
    factor: f64,
    request: &Request,
    base: (&str, &[Record]),
    new: (&str, &[Record]),
) -> Result<Exit, Error> {
    if !(1.0..=1000.0).contains(&factor) {
        return Err(Error::usage(format!("--ratios {factor} makes no sense"), "", "give a factor from 1 to 1000"));
    }
    let found = compare::ratios(base, new, factor, request)?;
    if args.json {
        let json = serde_json::to_string_pretty(&found).map_err(|error| internal("cannot show the ratios", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&compare::ratios_text(&found))?;
    }
    Ok(found.exit())
}
