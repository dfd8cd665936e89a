//! A document of any experiment in one pass over its text.
//!
//! A folder may have thousands of documents, and a tree of JSON values of each takes longer than all that is done with it. Nothing is
//! accepted here that the reader for everything refuses, or is read otherwise: what looks unusual is `None`, and left to that reader.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::rounds::{Lent, metric_of_arm, rounds};
use super::scan::Scan;
use crate::document::{Any, AnyExtra, Arm, ArmKind, Fields, Metrics, Record, SCHEMA, find_nested};

/// Reads a document without the experiment's own part of its rounds. Whether it agrees with itself is not checked.
pub(super) fn read(path: &Path, text: &str) -> Option<Record> {
    let mut scan = Scan::new(text);
    let mut lent = Lent::default();
    let mut parts = Parts::default();
    let mut keys = Vec::new();
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        let key = scan.key()?;
        if keys.contains(&key) || keys.len() == MOST_KEYS {
            return None;
        }
        keys.push(key);
        parts.take(key, &mut scan, &mut lent)?;
    }
    // Nothing follows.
    if scan.peek().is_some() {
        return None;
    }
    parts.record(path)
}

/// Most keys beside each other.
const MOST_KEYS: usize = 256;

/// The parts of a document that were met.
#[derive(Default)]
struct Parts {
    has_schema: bool,
    experiment: Option<String>,
    place: Option<String>,
    tool: Option<crate::document::Tool>,
    command_line: Vec<String>,
    started_unix: Option<u64>,
    wall_ns: Option<u64>,
    status: Option<crate::document::Status>,
    seed: Option<u64>,
    parameters: Option<Map<String, Value>>,
    host: Option<crate::host::HostFacts>,
    arms: Option<Vec<Arm<Any>>>,
    warnings: Option<Vec<crate::document::Warning>>,
    extra: AnyExtra,
}

/// A value of which a type is made as from a tree.
fn typed<'a, T: DeserializeOwned>(scan: &mut Scan<'a>, lent: &mut Lent<'a>) -> Option<T> {
    serde_json::from_str(scan.sound(&mut lent.keys)?.text).ok()
}

impl Parts {
    fn take<'a>(&mut self, key: &str, scan: &mut Scan<'a>, lent: &mut Lent<'a>) -> Option<()> {
        match key {
            "schema" => self.has_schema = (scan.plain()? == SCHEMA).then_some(true)?,
            "experiment" => self.experiment = Some(scan.text()?.into_owned()),
            "in" => self.place = typed(scan, lent)?,
            "tool" => self.tool = Some(typed(scan, lent)?),
            "command_line" => self.command_line = typed(scan, lent)?,
            "started_unix" => self.started_unix = Some(scan.unsigned()?),
            "wall_ns" => self.wall_ns = Some(scan.unsigned()?),
            "status" => self.status = Some(typed(scan, lent)?),
            "seed" => self.seed = Some(scan.unsigned()?),
            "parameters" => self.parameters = Some(typed(scan, lent)?),
            "host" => self.host = Some(typed(scan, lent)?),
            "arms" => self.arms = Some(arms(scan, lent)?),
            "warnings" => self.warnings = Some(typed(scan, lent)?),
            "scaling" => self.extra.scaling = typed(scan, lent)?,
            // A Firefox profile has it.
            "meta" => return None,
            _ => drop(scan.sound(&mut lent.keys)?),
        }
        Some(())
    }

    fn record(self, path: &Path) -> Option<Record> {
        let experiment = self.experiment?;
        // It had another name once.
        if !self.has_schema || experiment == "stat-setup" && self.place.as_deref() == Some("guest") {
            return None;
        }
        Some(Record {
            path: path.to_owned(),
            schema: SCHEMA.to_owned(),
            experiment,
            place: self.place,
            tool: self.tool?,
            command_line: self.command_line,
            started_unix: self.started_unix?,
            wall_ns: self.wall_ns?,
            status: self.status?,
            seed: self.seed?,
            parameters: self.parameters?,
            host: self.host?,
            arms: self.arms?,
            warnings: self.warnings?,
            extra: self.extra,
        })
    }
}

fn arms<'a>(scan: &mut Scan<'a>, lent: &mut Lent<'a>) -> Option<Vec<Arm<Any>>> {
    scan.expect(b'[')?;
    let mut all = Vec::new();
    let mut first = true;
    while scan.next(&mut first, b']')? {
        all.push(arm(scan, lent)?);
    }
    Some(all)
}

fn arm<'a>(scan: &mut Scan<'a>, lent: &mut Lent<'a>) -> Option<Arm<Any>> {
    let mut keys: Vec<&str> = Vec::with_capacity(64);
    let (mut name, mut kind, mut backend, mut not_available) = (None, ArmKind::Strategy, None, None);
    let (mut stand_in, mut incomplete, mut all_rounds) = (false, Vec::new(), None);
    let mut metrics = Metrics::new();
    let mut own = Fields::default();
    // What may have summaries in it.
    let mut nested = Map::new();
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        let key = scan.key()?;
        if keys.contains(&key) || keys.len() == MOST_KEYS {
            return None;
        }
        keys.push(key);
        match (key, scan.peek()?) {
            ("strategy", _) => name = Some(scan.text()?.into_owned()),
            // It had another key once.
            ("name", _) => return None,
            ("kind", _) => kind = typed(scan, lent)?,
            ("backend", _) => backend = typed(scan, lent)?,
            ("not_available", _) => not_available = typed(scan, lent)?,
            ("incomplete", _) => incomplete = typed(scan, lent)?,
            ("stand_in", b't') => stand_in = scan.word("true").map(|()| true)?,
            ("stand_in", _) => scan.word("false")?,
            ("rounds", _) => all_rounds = Some(rounds(scan, lent)?),
            (_, b'n') if key.ends_with("_ns") => scan.word("null")?,
            (_, b'{') if metric_of_arm(scan, key, &mut metrics)? => {}
            (_, next) => {
                let value = scan.sound(&mut lent.keys)?;
                if key == PHASES || value.has_median && next == b'{' {
                    nested.insert(key.to_owned(), serde_json::from_str(value.text).ok()?);
                }
                own.push(key, value.text);
            }
        }
    }
    find_nested(&nested, &mut metrics)?;
    // Set-ups of a guest were once among the phases only.
    let set_ups = || nested.get(PHASES)?.get("set-up")?.get("total_ns");
    if !keys.contains(&"set_up_ns") && set_ups().is_some() {
        return None;
    }
    own.shrink();
    let rounds = all_rounds?;
    Some(Arm {
        name: name?,
        kind,
        backend: backend.unwrap_or_default(),
        stand_in,
        not_available,
        incomplete,
        metrics,
        own,
        rounds,
    })
}

/// Summaries are in a list of phases, too.
const PHASES: &str = "phases";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::Record;
    use crate::fixture;
    use crate::read::file;

    /// What both readers make of a text: without an experiment's own part of rounds, or a complaint.
    fn both(text: &str) -> [Result<Record, String>; 2] {
        let path = std::path::Path::new("x.json");
        let without = |mut record: Record| {
            for round in record.arms.iter_mut().flat_map(|arm| &mut arm.rounds) {
                round.own.clear();
                round.metrics.values_mut().for_each(|summary| summary.histogram = None);
            }
            record
        };
        [file::of_text(path, text), file::brief_of_text(path, text)]
            .map(|read| read.map(without).map_err(|error| error.to_string()))
    }

    fn plain() -> Value {
        serde_json::to_value(fixture::document(3)).unwrap()
    }

    fn with_phases() -> Value {
        let mut value = plain();
        value["experiment"] = "stat-setup".into();
        let phase = serde_json::json!({"count": 3, "min": 1, "p50": 2, "max": 3, "mean": 2.0});
        value["arms"][0]["phases"] = serde_json::json!({"open_ns": phase});
        for round in value["arms"][0]["rounds"].as_array_mut().unwrap() {
            round["phases"] = serde_json::json!({"open_ns": {"count": 1, "p50": 2, "max": 3}});
        }
        value
    }

    #[test]
    fn documents_are_those_of_the_reader_for_everything() {
        for value in [plain(), with_phases()] {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let [whole, brief] = both(&text);
                assert_eq!(whole, brief);
                assert!(whole.is_ok());
                assert!(read(Path::new("x.json"), &text).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn what_is_unusual_is_read_or_refused_as_by_the_reader_for_everything() {
        let text = plain().to_string();
        for (from, to) in [
            ("\"complete\":true", "\"complete\":1"),
            ("\"complete\":true", "\"complete\":true,\"complete\":true"),
            ("\"complete\":true", "\"complete\":true,\"x\":1e300"),
            ("\"complete\":true", "\"complete\":true,\"x\":{\"y\":1,\"y\":1}"),
            ("\"complete\":true", "\"complete\":true,\"x\":\"\\u0061\\n\""),
            ("\"complete\":true", "\"complete\":true,\"x\":[1,{\"y\":null}],\"z\":-5"),
            ("\"complete\":true", "\"complete\":true,\"x_ns\":{\"count\":2,\"p50\":3}"),
            ("\"complete\":true", "\"complete\":true,\"x_ns\":{\"count\":0,\"p50\":0}"),
            ("\"complete\":true", "\"complete\":true,\"x_ns\":null,\"guest\":null,\"probe_ns\":null"),
            ("\"complete\":true", "\"complete\":true,\"position\":null"),
            ("\"complete\":true", "\"complete\":true,\"guest\":2.0"),
            ("\"complete\":true", "\"complete\":true,\"probe_ns\":7"),
            ("\"complete\":true", "\"compl\\u0065te\":true"),
            ("\"complete\":true", "\"complete\":true,"),
            ("\"complete\":true", "\"complete\":true,\"x\":01"),
            ("\"complete\":true", "\"complete\":true,\"x\":nul"),
            ("\"complete\":true", "\"complete\":true \u{a0}"),
            ("\"rounds\":[", "\"rounds\":[1,"),
            ("\"rounds\":[", "\"rounds\":[],\"rounds\":["),
            ("\"rounds\":[", "\"r\\u006funds\":["),
            ("\"rounds\":[", "\"rounds_x\":["),
            ("\"arms\":[", "\"arms\":[],\"arms\":["),
            ("\"arms\":[", "\"arms\":{},\"x\":["),
            ("\"round\":1,", "\"round\":0,"),
            ("\"round\":1,", "\"round\":-1,"),
            ("\"round\":1,", "\"round\":18446744073709551616,"),
        ] {
            assert!(text.contains(from), "{from}");
            let changed = text.replacen(from, to, 1);
            let [whole, brief] = both(&changed);
            assert_eq!(whole, brief, "{to}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn damaged_texts_are_read_or_refused_as_by_the_reader_for_everything(
            at in 0.0..1.0_f64,
            byte in prop::sample::select(b" 0123456789\"{}[]:,.-eEnut\\x\n".to_vec()),
            phases in any::<bool>(),
            what in 0..3_usize,
        ) {
            let text = if phases { with_phases() } else { plain() }.to_string();
            // Most of the text that is read here are the rounds of the first arms.
            let from = text.find("\"arms\"").unwrap();
            #[expect(clippy::cast_sign_loss, reason = "a share of a length")]
            let place = from + ((text.len() - from - 1) as f64 * at) as usize;
            let mut bytes = text.into_bytes();
            match what {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
            if let Ok(text) = String::from_utf8(bytes) {
                let [whole, brief] = both(&text);
                prop_assert_eq!(whole, brief);
            }
        }
    }
}
