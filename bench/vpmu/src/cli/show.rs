//! `vpmu show`.

use std::path::Path;

use clap::{Args, ValueEnum};
use host_pmu::backend::BackendKey;
use host_pmu::sampler::SampledEvent;
use host_pmu::strategy::{self, PRESETS, Strategy};
use host_pmu::{kernel, open};
use results::document::{Any, BELOW_KVM, GuestRun, SCHEMA, schema};
use results::error::{Error, Exit, one_line};
use results::metric;
use results::table::layout::columns;
use results::table::wrapped;
use serde::Serialize;
use serde_json::{Value, json};
use sim::mediated::{MEDIATED, Mediated};
use sim::model::{EMBEDDED, Model};

use crate::arms::arm::sim::model;
use crate::setting::options::JsonOption;
use crate::setting::parse::suggestion;
use crate::setting::strategy::resolve_arms;
use crate::setting::workload::{EventSet, GuestWork};
use crate::terminal::console::{indented, internal, print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  vpmu show strategies
  # a strategy of your own against presets, in three commands
  vpmu show strategies deferred > mine.toml
  vpmu --strategy recreate,deferred,mine.toml
  vpmu report
  # what a file says, with every default
  vpmu show strategies mine.toml
  vpmu show models
  # of this host: for --backend, and for record -e
  vpmu show events
  vpmu show metrics --json
  # what a result document holds, as a JSON Schema
  vpmu show schemas result

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
    /// Events of this host: behind a guest's counters (--backend) and to record by (-e)
    Events,
    /// JSON Schemas of result documents
    Schemas,
}

/// Options of `vpmu show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// Subject to list
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Kind,

    /// A strategy, model or schema, in full
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// JSON in place of the list.
    #[command(flatten)]
    pub json: JsonOption,
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit, Error> {
    let json = args.json.json;
    match (args.kind, &args.name) {
        (Kind::Schemas, Some(name)) => print(&indented(&schema_of(name)?)?)?,
        (kind @ (Kind::Strategies | Kind::Models), Some(name)) => {
            let text = match (kind, Model::text(name)) {
                (Kind::Models, Some(text)) => text.to_owned(),
                (Kind::Models, None) => return Err(unknown("model", name, &EMBEDDED.map(|(name, _)| name))),
                _ => strategy(name)?,
            };
            let table: toml::Table = text.parse().map_err(|error| internal("a definition is no TOML", error))?;
            if json { print_json(&json!({ "name": name, "definition": table }))? } else { print(&text)? }
        }
        (_, Some(name)) => {
            let why = "NAME is of a strategy, a model or a schema";
            return Err(Error::usage(format!("one line is all there is of '{name}'"), why, "leave it out"));
        }
        (kind, None) => {
            let items = items(kind)?;
            if json { print_json(&items)? } else { print(&list(&items, columns()))? }
        }
    }
    Ok(Exit::Done)
}

fn list(items: &[Item], columns: usize) -> String {
    let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0).min(2 * columns / 5);
    let line =
        |Item { name, about }: &Item| wrapped(&format!("{name:<width$}  {about}"), columns, &" ".repeat(width + 2));
    items.iter().map(|item| line(item) + "\n").collect()
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Item {
    /// Its name, as options take it.
    name: String,
    /// One line about it.
    about: String,
}

impl Item {
    fn new(name: impl Into<String>, about: impl Into<String>) -> Self {
        Self { name: name.into(), about: about.into() }
    }
}

/// Returns all of a kind.
fn items(kind: Kind) -> Result<Vec<Item>, Error> {
    Ok(match kind {
        Kind::Strategies => {
            let presets = PRESETS.iter().map(|name| Item::new(*name, strategy::about(name)));
            let below = kernel::PRESETS.map(|(name, about)| Item::new(format!("{BELOW_KVM}{name}"), about));
            presets.chain(below).chain(MEDIATED.iter().map(|kind| Item::new(kind.name, kind.about))).collect()
        }
        Kind::Models => {
            EMBEDDED.iter().map(|(name, _)| Ok(Item::new(*name, model(name)?.about))).collect::<Result<_, Error>>()?
        }
        // A workload is one of each, EVENTS/WORK.
        Kind::Workloads => {
            let sets = EventSet::ALL.map(|set| Item::new(set.key, set.about));
            let works = GuestWork::ALL.map(|work| Item::new(format!(".../{}", work.key), work.about));
            sets.into_iter().chain(works).collect()
        }
        Kind::Metrics => metric::ALL.iter().map(|metric| Item::new(metric.key, metric.about)).collect(),
        Kind::Events => events(),
        Kind::Schemas => SCHEMAS.map(|(name, about)| Item::new(name, about)).into(),
    })
}

/// Returns a strategy's definition in TOML: a file's, or a preset's as a starting point for one's own, without the name that a
/// file may not have.
fn strategy(name: &str) -> Result<String, Error> {
    if Mediated::named(name).is_some() {
        return Err(Error::usage(
            format!("{name} has no definition in TOML"),
            "it keeps no host events, which is what a definition is of",
            format!("docs/simulator.md describes it; vpmu sim spr-2026 --strategy {name} simulates it"),
        ));
    }
    if name.starts_with(BELOW_KVM) {
        return Err(Error::usage(
            format!("{name} has no definition in TOML"),
            "it is what the kernel module does below KVM, which a file cannot say",
            "docs/kernel-module.md describes it",
        ));
    }
    let is_file = Path::new(name).extension().is_some_and(|extension| extension == "toml");
    let text = if is_file {
        let choice = name.parse().map_err(|why: String| Error::usage("no strategy", why, ""))?;
        resolve_arms(&[choice])?.into_iter().filter_map(|one| one.definition).collect()
    } else {
        let strategy = Strategy::preset(name).map_err(|_| unknown("strategy", name, &PRESETS))?;
        toml::to_string(&strategy).map_err(|error| internal("a strategy has no TOML", error))?
    };
    if is_file {
        return Ok(text);
    }
    let choices = text.split_once('\n').map_or("", |(_, choices)| choices);
    Ok(format!("# As preset {name}; a strategy is named by its file, unless it has a `name`.\n{choices}"))
}

/// Returns the events that may stand behind a guest's counters and those that a guest is recorded by, tried on this thread.
/// Tracepoints are in tracefs.
fn events() -> Vec<Item> {
    let backends = BackendKey::all().map(|(key, about)| {
        let stand_in = if key.is_stand_in() { "stand-in: " } else { "" };
        let opened = open::probe(&key).map_err(|error| error.to_string());
        tried(format!("--backend {key}"), &format!("{stand_in}{about}"), opened)
    });
    let recording = SampledEvent::named().filter_map(|name| Some(recorded_by(&name.parse().ok()?)));
    let open = [
        ("-e rHEX", "the host PMU's own event: umask and event in hexadecimal, in guest mode only"),
        ("-e GROUP:NAME", "occurrences of a tracepoint of this host (/sys/kernel/tracing/events) on the vCPU's thread"),
    ];
    backends.chain(recording).chain(open.map(|(name, about)| Item::new(name, about))).collect()
}

fn recorded_by(event: &SampledEvent) -> Item {
    let about = match event {
        event if event.is_clock() => "ns that the vCPU's thread runs, in the guest and in the host for it",
        event if event.is_tracepoint() => "occurrences on the vCPU's thread",
        _ => "by the host's PMU, in guest mode only",
    };
    tried(format!("-e {event}"), about, event.probe())
}

fn tried(name: String, about: &str, opened: Result<(), String>) -> Item {
    let why = opened.map_or_else(|why| format!("; not here: {}", one_line(&why)), |()| String::new());
    Item::new(name, about.to_owned() + &why)
}

/// Schemas, by the experiments whose documents they describe.
const SCHEMAS: [(&str, &str); 2] =
    [("result", "Documents of experiments with guests"), ("plain", "Documents of every other experiment")];

/// Returns the JSON Schema of that name.
fn schema_of(name: &str) -> Result<Value, Error> {
    match name {
        "result" => Ok(schema::<GuestRun>(SCHEMA)),
        "plain" => Ok(schema::<Any>(&format!("{SCHEMA}, of arms without a guest"))),
        _ => Err(unknown("schema", name, &SCHEMAS.map(|(name, _)| name))),
    }
}

fn unknown(kind: &str, name: &str, known: &[&str]) -> Error {
    Error::usage(format!("no {kind} '{name}'"), "", suggestion(name, known, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_read_back_as_what_they_define() {
        for name in PRESETS {
            let text = format!("name = '{name}'\n{}", strategy(name).unwrap());
            assert_eq!(Strategy::from_toml(&text).unwrap(), Strategy::preset(name).unwrap());
        }
        // A preset printed to a file is a strategy, named by the file, and is shown in turn.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.toml");
        std::fs::write(&file, strategy("deferred").unwrap()).unwrap();
        let mine = Strategy::from_toml(&strategy(file.to_str().unwrap()).unwrap()).unwrap();
        assert_eq!(mine, Strategy { name: "mine".to_owned(), ..Strategy::preset("deferred").unwrap() });
        for (name, _) in SCHEMAS {
            assert!(schema_of(name).unwrap()["properties"]["arms"].is_object(), "{name}");
        }
    }

    #[test]
    fn an_event_opens_here_or_says_why_not() {
        let events = events();
        let clock = events.iter().find(|item| item.name == "--backend cpu-clock").unwrap();
        assert!(clock.about.starts_with("stand-in: "), "{clock:?}");
        let missing = recorded_by(&"kvm:no_such_event".parse().unwrap());
        assert!(missing.about.contains("; not here: "), "{missing:?}");
    }
}
