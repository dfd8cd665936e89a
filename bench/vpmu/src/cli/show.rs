//! `vpmu show`.

use clap::{Args, ValueEnum};
use fleet::Findings;
use fleet::campaign::element::Element;
use fleet::campaign::standing::Standing;
use host_pmu::backend::BackendKey;
use host_pmu::sampler::SampledEvent;
use host_pmu::strategy::{self, PRESETS, Strategy};
use host_pmu::{kernel, open};
use results::advice::Advice;
use results::answers::List;
use results::compare::Comparison;
use results::document::{BELOW_KVM, Document, Record, SCHEMA, schema};
use results::error::{Error, Exit, one_line};
use results::history::History;
use results::metric;
use results::sweep::{self, Line};
use results::table::layout::columns;
use results::table::wrapped;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sim::mediated::{MEDIATED, Mediated};
use sim::model::{EMBEDDED, Model};

use crate::arms::arm::sim::model;
use crate::experiment::conformance::Runs;
use crate::experiment::reproduce::published::Reproduction;
use crate::experiment::sweep::pareto::Swept;
use crate::inspect::doctor::Diagnosis;
use crate::setting::options::JsonOption;
use crate::setting::parse::suggestion;
use crate::setting::strategy::resolve_arms;
use crate::setting::workload::{EventSet, GuestWork};
use crate::terminal::console::{indented, print, print_json};

/// Kinds of names to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Preset strategies, for --strategy
    Strategies,
    /// Embedded models of hosts, for vpmu sim
    Models,
    /// Workloads of the payload, for --workload
    Workloads,
    /// Metrics of results, for --metric
    Metrics,
    /// Events of this host: behind a guest's counters (--backend) and to record by (-e)
    Events,
    /// JSON Schemas of documents and of what --json prints
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
    let (items, text) = match &args.name {
        Some(name) => whole(args.kind, name).map(|(item, text)| (vec![item], Some(text)))?,
        None => (items(args.kind)?, None),
    };
    let text = text.unwrap_or_else(|| list(&items, columns()));
    if args.json.json {
        print_json(&List { items })?;
    } else {
        print(&text)?;
    }
    Ok(Exit::Done)
}

/// Returns one choice with its definition, and the text of that.
fn whole(kind: Kind, name: &str) -> Result<(Item, String), Error> {
    let item = |definition| Item { name: name.to_owned(), definition: Some(definition), ..Item::default() };
    let text = match (kind, Model::text(name)) {
        (Kind::Schemas, _) => {
            let found = SCHEMAS.iter().find(|(known, ..)| *known == name);
            let (_, schema, _, make) = found.ok_or_else(|| unknown("schema", name, &SCHEMAS.map(|(name, ..)| name)))?;
            return Ok((item(make(schema)), indented(&make(schema))?));
        }
        (Kind::Strategies, _) => strategy(name)?,
        (Kind::Models, Some(text)) => text.to_owned(),
        (Kind::Models, None) => return Err(unknown("model", name, &EMBEDDED.map(|(name, _)| name))),
        _ => return Err(Error::usage(format!("'{name}' has no definition"), "it is a name alone", "leave it out")),
    };
    let table: toml::Table = text.parse().map_err(|error| Error::internal("a definition is no TOML", error))?;
    Ok((item(json!(table)), text))
}

fn list(items: &[Item], columns: usize) -> String {
    let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0).min(2 * columns / 5);
    let indent = " ".repeat(width + 2);
    let line = |item: &Item| wrapped(&format!("{:<width$}  {}", item.name, item.about), columns, &indent);
    items.iter().map(|item| line(item) + "\n").collect()
}

/// A choice.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct Item {
    /// Its name, as options take it.
    name: String,
    /// A line about it, in lists.
    about: String,
    /// All of it, where it was asked for by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<Value>,
}

/// Returns all of a kind.
fn items(kind: Kind) -> Result<Vec<Item>, Error> {
    let item = |(name, about): (&str, &str)| Item { name: name.to_owned(), about: about.to_owned(), ..Item::default() };
    Ok(match kind {
        Kind::Strategies => {
            let presets = PRESETS.iter().map(|name| item((name, strategy::about(name))));
            let below = kernel::PRESETS.map(|(name, about)| item((&format!("{BELOW_KVM}{name}"), about)));
            presets.chain(below).chain(MEDIATED.iter().map(|kind| item((kind.name, kind.about)))).collect()
        }
        Kind::Models => {
            EMBEDDED.iter().map(|(name, _)| Ok(item((name, &model(name)?.about)))).collect::<Result<_, Error>>()?
        }
        // A workload is one of each, EVENTS/WORK.
        Kind::Workloads => {
            let sets = EventSet::ALL.map(|set| item((set.key, set.about)));
            let works = GuestWork::ALL.map(|work| item((&format!(".../{}", work.key), work.about)));
            sets.into_iter().chain(works).collect()
        }
        Kind::Metrics => metric::ALL.iter().map(|metric| item((metric.key, metric.about))).collect(),
        Kind::Events => events(),
        Kind::Schemas => SCHEMAS.map(|(name, _, about, _)| item((name, about))).into(),
    })
}

/// Returns a strategy's definition in TOML: a file's, or a preset's as a starting point for one's own, without the name that a
/// file may not have.
fn strategy(name: &str) -> Result<String, Error> {
    if Mediated::named(name).is_some() || name.starts_with(BELOW_KVM) {
        return Err(Error::usage(
            format!("{name} has no definition in TOML"),
            "that is of the host events which vpmu itself keeps",
            "docs/simulator.md and docs/kernel-module.md describe the others",
        ));
    }
    let choice = name.parse().map_err(|why: String| Error::usage("no strategy", why, ""))?;
    let text: String = resolve_arms(&[choice])?.into_iter().filter_map(|one| one.definition).collect();
    if !PRESETS.contains(&name) {
        return Ok(text);
    }
    let definition: toml::Table = text.parse().unwrap_or_default();
    // In one line each: any can be replaced where it stands.
    let line = |(key, value): (&String, &toml::Value)| format!("{key} = {value}{}\n", values(key, &definition));
    let choices: String = definition.iter().filter(|(key, _)| *key != "name").map(line).collect();
    Ok(format!("# As preset {name}; a strategy is named by its file, unless it has a `name`.\n{choices}"))
}

/// Says which values a key may have, as the reader of definitions does of a wrong one.
fn values(key: &str, definition: &toml::Table) -> String {
    let mut wrong = definition.clone();
    let why = wrong.insert(key.to_owned(), "?".into()).and_then(|_| wrong.try_into::<Strategy>().err());
    let why = why.map_or_else(String::new, |why| why.message().to_owned());
    // What serde calls them does not say how they are written; the kernel alone takes "direct".
    let spelt = [("a boolean", "true or false"), ("`pool`", "{ pool = K }"), ("`slices`", "{ slices = N }")];
    let spelt = spelt.into_iter().chain([(", `direct`", ""), ("`", "\"")]);
    let why = spelt.fold(why, |why, (called, written)| why.replace(called, written));
    why.split_once("expected ").map_or_else(String::new, |(_, values)| format!("  # {values}"))
}

/// Returns the events that may stand behind a guest's counters and those that a guest is recorded by, tried on this thread.
/// Tracepoints are in tracefs.
fn events() -> Vec<Item> {
    let backends = BackendKey::all().map(|(key, about)| {
        let stand_in = if key.is_stand_in() { "stand-in: " } else { "" };
        let opened = open::probe(&key).map_err(|error| error.to_string());
        let about = format!("{stand_in}{about}{}", tried(opened));
        Item { name: format!("--backend {key}"), about, ..Item::default() }
    });
    let recording = SampledEvent::named().filter_map(|name| Some(recorded_by(&name.parse().ok()?)));
    backends.chain(recording).collect()
}

fn recorded_by(event: &SampledEvent) -> Item {
    Item { name: format!("-e {event}"), about: format!("for vpmu record{}", tried(event.probe())), ..Item::default() }
}

fn tried(opened: Result<(), String>) -> String {
    opened.map_or_else(|why| format!("; not here: {}", one_line(&why)), |()| String::new())
}

/// A schema: its name, that of the command that prints it if it is no document; its version, its subject, and what makes it.
type Schema = (&'static str, &'static str, &'static str, fn(&str) -> Value);

/// Schemas of everything that is printed as JSON.
const SCHEMAS: [Schema; 14] = [
    ("result", SCHEMA, "Documents of nmi-latency, sim and guest-stat", schema::<Document>),
    ("plain", SCHEMA, "Documents of every other experiment, ab among them", schema::<Record>),
    ("compare", "vpmu-compare/4", "Two results beside each other", schema::<Comparison>),
    ("history", "vpmu-history/2", "A folder of results over time", schema::<History>),
    ("advise", "vpmu-advise/2", "Which strategy to take", schema::<Advice>),
    ("sweep", "vpmu-pareto/4", "Strategies by scenario", schema::<Swept>),
    ("sweep.jsonl", sweep::SCHEMA, "A line of its file", schema::<Line>),
    ("reproduce", "vpmu-reproduce/5", "Published figures beside others", schema::<Reproduction>),
    ("conformance", "vpmu-conformance/2", "Cases and their outcomes", schema::<Runs>),
    ("doctor", "vpmu-doctor/1", "Checks of this host", schema::<Diagnosis>),
    ("show", "vpmu-show/2", "Names and definitions", schema::<List<Item>>),
    ("fleet-plan", "vpmu-fleet-plan/1", "Elements of a plan", schema::<List<Element>>),
    ("fleet-status", "vpmu-fleet-status/1", "Progress of a campaign", schema::<Standing>),
    ("fleet-report", "vpmu-fleet-report/7", "Hosts and variants of a campaign", schema::<Findings>),
];

/// Names the schema of what a command prints: without one of its own it prints documents.
pub(super) fn schema_of(command: &str) -> &'static str {
    SCHEMAS.iter().find(|(name, ..)| *name == command).map_or(SCHEMA, |(_, schema, ..)| schema)
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
    }

    #[test]
    fn an_event_opens_here_or_says_why_not() {
        let events = events();
        let Item { about, .. } = events.iter().find(|event| event.name == "--backend cpu-clock").unwrap();
        assert!(about.starts_with("stand-in: "), "{about}");
        let Item { about, .. } = recorded_by(&"kvm:no_such_event".parse().unwrap());
        assert!(about.contains("; not here: "), "{about}");
    }
}
