//! `vpmu show`.

use clap::{Args, ValueEnum};
use host_pmu::backend::BackendKey;
use host_pmu::sampler::SampledEvent;
use host_pmu::strategy::{self, PRESETS};
use host_pmu::{kernel, open};
use results::document::{Any, BELOW_KVM, GuestRun, SCHEMA, schema};
use results::error::{Error, Exit, one_line};
use results::metric;
use results::table::layout::columns;
use results::table::wrapped;
use serde_json::{Value, json};
use sim::mediated::{MEDIATED, Mediated};
use sim::model::{EMBEDDED, Model};

use crate::arms::arm::sim::model;
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
        (Kind::Schemas, Some(name)) => {
            let schema = schema_of(name)?;
            if json { print_json(&schema)? } else { print(&indented(&schema)?)? }
        }
        (kind @ (Kind::Strategies | Kind::Models), Some(name)) => {
            let text = match (kind, Model::text(name)) {
                (Kind::Models, Some(text)) => text.to_owned(),
                (Kind::Models, None) => return Err(unknown("model", name, &EMBEDDED.map(|(name, _)| name))),
                _ => strategy(name)?,
            };
            let table: toml::Table = text.parse().map_err(|error| Error::internal("a definition is no TOML", error))?;
            if json { print_json(&json!({ "name": name, "definition": table }))? } else { print(&text)? }
        }
        (_, Some(name)) => {
            let why = "NAME is of a strategy, a model or a schema";
            return Err(Error::usage(format!("one line is all there is of '{name}'"), why, "leave it out"));
        }
        (kind, None) => {
            let items = items(kind)?;
            if json {
                let item = |(name, about): &Item| json!({ "name": name, "about": about });
                print_json(&items.iter().map(item).collect::<Vec<_>>())?;
            } else {
                print(&list(&items, columns()))?;
            }
        }
    }
    Ok(Exit::Done)
}

fn list(items: &[Item], columns: usize) -> String {
    let width = items.iter().map(|(name, _)| name.len()).max().unwrap_or(0).min(2 * columns / 5);
    let line = |(name, about): &Item| wrapped(&format!("{name:<width$}  {about}"), columns, &" ".repeat(width + 2));
    items.iter().map(|item| line(item) + "\n").collect()
}

/// The name of a choice, as options take it, and a line about it.
type Item = (String, String);

/// Returns all of a kind.
fn items(kind: Kind) -> Result<Vec<Item>, Error> {
    let item = |(name, about): (&str, &str)| (name.to_owned(), about.to_owned());
    Ok(match kind {
        Kind::Strategies => {
            let presets = PRESETS.iter().map(|name| item((name, strategy::about(name))));
            let below = kernel::PRESETS.map(|(name, about)| (format!("{BELOW_KVM}{name}"), about.to_owned()));
            presets.chain(below).chain(MEDIATED.iter().map(|kind| item((kind.name, kind.about)))).collect()
        }
        Kind::Models => {
            EMBEDDED.iter().map(|(name, _)| Ok(item((name, &model(name)?.about)))).collect::<Result<_, Error>>()?
        }
        // A workload is one of each, EVENTS/WORK.
        Kind::Workloads => {
            let sets = EventSet::ALL.map(|set| item((set.key, set.about)));
            let works = GuestWork::ALL.map(|work| (format!(".../{}", work.key), work.about.to_owned()));
            sets.into_iter().chain(works).collect()
        }
        Kind::Metrics => metric::ALL.iter().map(|metric| item((metric.key, metric.about))).collect(),
        Kind::Events => events(),
        Kind::Schemas => SCHEMAS.map(item).into(),
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
    let choices = text.split_once('\n').map_or("", |(_, choices)| choices);
    Ok(format!("# As preset {name}; a strategy is named by its file, unless it has a `name`.\n{choices}"))
}

/// Returns the events that may stand behind a guest's counters and those that a guest is recorded by, tried on this thread.
/// Tracepoints are in tracefs.
fn events() -> Vec<Item> {
    let backends = BackendKey::all().map(|(key, about)| {
        let stand_in = if key.is_stand_in() { "stand-in: " } else { "" };
        let opened = open::probe(&key).map_err(|error| error.to_string());
        (format!("--backend {key}"), format!("{stand_in}{about}{}", tried(opened)))
    });
    let recording = SampledEvent::named().filter_map(|name| Some(recorded_by(&name.parse().ok()?)));
    backends.chain(recording).collect()
}

fn recorded_by(event: &SampledEvent) -> Item {
    (format!("-e {event}"), format!("for vpmu record{}", tried(event.probe())))
}

fn tried(opened: Result<(), String>) -> String {
    opened.map_or_else(|why| format!("; not here: {}", one_line(&why)), |()| String::new())
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
    use host_pmu::strategy::Strategy;

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
        let (_, about) = events.iter().find(|(name, _)| name == "--backend cpu-clock").unwrap();
        assert!(about.starts_with("stand-in: "), "{about}");
        let (_, about) = recorded_by(&"kvm:no_such_event".parse().unwrap());
        assert!(about.contains("; not here: "), "{about}");
    }
}
