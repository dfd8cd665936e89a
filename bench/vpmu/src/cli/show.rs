//! `vpmu show`.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use results::error::{Error, Exit};
use serde_json::json;

use crate::cli::catalog::{self, Item};
use crate::terminal::console::{internal, print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu show strategies
  # a preset's TOML, a start for a strategy of your own
  vpmu show strategies deferred > mine.toml
  vpmu show models
  # the events of a workload
  vpmu show workloads sampling10
  vpmu show metrics --json

Exit codes: 0 done, 2 no such name, 70 a bug of vpmu.";

/// Kinds of names to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Preset strategies, for --strategy
    Strategies,
    /// Embedded models of hosts, for vpmu sim
    Models,
    /// Event sets and guest work, for --workload
    Workloads,
    /// Metrics of results, for --metric
    Metrics,
}

/// Options of `vpmu show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// What to list
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Kind,

    /// One of them, in full
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON in place of the list
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit, Error> {
    match &args.name {
        Some(name) => one(args.kind, name, args.json)?,
        None => {
            let items = match args.kind {
                Kind::Strategies => catalog::strategies(),
                Kind::Models => catalog::models()?,
                Kind::Workloads => catalog::workloads(),
                Kind::Metrics => catalog::metrics(),
            };
            if args.json { print_json(&items)? } else { print(&list(&items))? }
        }
    }
    Ok(Exit::Done)
}

fn one(kind: Kind, name: &str, json: bool) -> Result<(), Error> {
    match kind {
        Kind::Strategies => definition(name, &catalog::strategy(name)?, json),
        Kind::Models => definition(name, &catalog::model_text(name)?, json),
        Kind::Workloads => {
            let events = catalog::workload(name)?;
            if json {
                return print_json(&events);
            }
            let mut text = String::new();
            for event in &events {
                let counter = event.fixed_counter.map_or("any counter".to_owned(), |n| format!("fixed counter {n}"));
                let _ = write!(text, "{:<24}{:<11}{counter}", event.name, event.selector);
                text += if event.period == 0 { ", counts only\n" } else { "\n" };
            }
            print(&text)
        }
        Kind::Metrics => {
            let metric = catalog::metric(name)?;
            if json {
                return print_json(metric);
            }
            print(&format!(
                "{} ({})\n{}\nunit: {}\nexperiments: {}\n",
                metric.key,
                metric.name,
                metric.about,
                metric.unit,
                metric.experiments.join(", ")
            ))
        }
    }
}

/// Prints the TOML text, or its keys as JSON.
fn definition(name: &str, text: &str, json: bool) -> Result<(), Error> {
    if !json {
        return print(text);
    }
    let table: toml::Table = text.parse().map_err(|error| internal("a definition is no TOML", error))?;
    print_json(&json!({ "name": name, "definition": table }))
}

fn list(items: &[Item]) -> String {
    let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0);
    items.iter().fold(String::new(), |text, item| text + &format!("{:<width$}  {}\n", item.name, item.about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_line_for_each() {
        let text = list(&catalog::strategies());
        assert_eq!(text.lines().count(), catalog::strategies().len());
        assert!(text.starts_with("recreate         an event"), "{text}");
    }
}
