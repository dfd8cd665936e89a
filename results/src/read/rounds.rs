//! Rounds of a document, read quickly.
//!
//! Nearly all of a document are its rounds, and a reader that makes a tree of JSON values of them takes ten times as long as one that
//! takes their figures. So rounds are cut out of the text and read in place; what remains is read as every document is. Nothing is
//! accepted here that the reader for everything refuses, or is read otherwise: what looks unusual is left to that reader.

use serde_json::{Map, Value};

use super::check;
use super::scan::Scan;
use super::unique::Unique;
use crate::document::{Any, Metrics, Round, Summary, find_summaries};

/// A document without its rounds, and the rounds of each arm; `None` of an arm whose rounds are still in the text.
pub(super) struct Cut {
    pub(super) text: String,
    pub(super) rounds: Vec<Option<Vec<Round<Any>>>>,
}

/// Cuts the rounds out of a document. They have their metrics, and nothing of the experiment's own.
pub(super) fn cut(text: &str) -> Option<Cut> {
    let mut scan = Scan::new(text);
    let mut cut = Cut { text: String::with_capacity(text.len() / 4), rounds: Vec::new() };
    // Where the text begins that was not taken yet.
    let mut from = 0;
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        if scan.key()? == "arms" {
            arms(&mut scan, text, &mut from, &mut cut)?;
        } else {
            scan.skip()?;
        }
    }
    cut.text.push_str(text.get(from..)?);
    Some(cut)
}

fn arms(scan: &mut Scan<'_>, text: &str, from: &mut usize, cut: &mut Cut) -> Option<()> {
    scan.expect(b'[')?;
    let mut first = true;
    while scan.next(&mut first, b']')? {
        scan.expect(b'{')?;
        let mut found = None;
        let mut first = true;
        while scan.next(&mut first, b'}')? {
            if scan.key()? == "rounds" && scan.peek()? == b'[' {
                cut.text.push_str(text.get(*from..scan.at())?);
                cut.text.push_str("[]");
                found = Some(rounds(scan)?);
                *from = scan.at();
            } else {
                scan.skip()?;
            }
        }
        cut.rounds.push(found);
    }
    Some(())
}

fn rounds(scan: &mut Scan<'_>) -> Option<Vec<Round<Any>>> {
    scan.expect(b'[')?;
    let mut all = Vec::new();
    let mut keys = Vec::new();
    let mut first = true;
    while scan.next(&mut first, b']')? {
        keys.clear();
        all.push(round(scan, &mut keys)?);
    }
    Some(all)
}

fn round<'a>(scan: &mut Scan<'a>, keys: &mut Vec<&'a str>) -> Option<Round<Any>> {
    let (mut index, mut started, mut complete) = (None, None, None);
    let (mut position, mut guest, mut probe_ns) = (0, None, None);
    let mut metrics = Metrics::new();
    let mut own: Option<Map<String, Value>> = None;
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        let key = scan.key()?;
        if keys.contains(&key) {
            return None;
        }
        keys.push(key);
        match (key, scan.peek()?) {
            ("round", _) => index = Some(scan.unsigned()?),
            ("started_ns", _) => started = Some(scan.unsigned()?),
            ("position", _) => position = scan.unsigned()?,
            ("complete", b't') => complete = scan.word("true").map(|()| true),
            ("complete", _) => complete = Some(scan.word("false").map(|()| false)?),
            (_, b'n') => scan.word("null")?,
            ("guest", _) => guest = Some(scan.unsigned()?),
            ("probe_ns", _) => probe_ns = Some(scan.number()?.float()?),
            (_, b'{' | b'[') => {
                let mut ahead = *scan;
                match summary(&mut ahead) {
                    Some(summary) if key.ends_with("_ns") => {
                        *scan = ahead;
                        if !summary.is_empty() {
                            metrics.insert(key.to_owned(), summary.checked()?);
                        }
                    }
                    _ => {
                        let Unique(value) = serde_json::from_str(scan.skip()?).ok()?;
                        if check::too_large(&value).is_some() {
                            return None;
                        }
                        own.get_or_insert_default().insert(key.to_owned(), value);
                    }
                }
            }
            (_, b'"') => {
                scan.plain()?;
            }
            (_, b't') => scan.word("true")?,
            (_, b'f') => scan.word("false")?,
            _ => {
                scan.number()?.float()?;
            }
        }
    }
    if let Some(own) = own {
        find_summaries(own, &mut metrics)?;
    }
    Some(Round {
        index: index?,
        position,
        complete: complete?,
        started_ns: started?,
        guest,
        probe_ns,
        metrics,
        own: Map::new(),
    })
}

/// The fields of a summary in a round.
const FIELDS: [&str; 8] = ["count", "min", "p10", "p50", "p90", "p99", "p99_9", "max"];

/// A summary as it is written: the numbers that are there.
struct Written {
    numbers: [Option<u64>; FIELDS.len()],
    mean: Option<f64>,
}

/// A summary, if it is one with whole numbers of ns and nothing else.
fn summary(scan: &mut Scan<'_>) -> Option<Written> {
    let mut written = Written { numbers: [None; FIELDS.len()], mean: None };
    // Fields come in their order, so the search begins after the last one.
    let mut after = 0;
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        let key = scan.key()?;
        if key == "mean" {
            let mean = scan.number()?.float().filter(|mean| *mean >= 0.0)?;
            if written.mean.replace(mean).is_some() {
                return None;
            }
            continue;
        }
        let place = (after..FIELDS.len()).chain(0..after).find(|&place| FIELDS[place] == key)?;
        if written.numbers[place].replace(scan.unsigned()?).is_some() {
            return None;
        }
        after = place + 1;
    }
    let [count, _, _, p50, ..] = written.numbers;
    (count.is_some() && p50.is_some()).then_some(written)
}

impl Written {
    /// A summary of nothing: zeros throughout.
    fn is_empty(&self) -> bool {
        self.numbers.iter().flatten().all(|&number| number == 0) && self.mean.is_none_or(|mean| mean == 0.0)
    }

    fn checked(self) -> Option<Summary> {
        let [count, min, p10, p50, p90, p99, p99_9, max] = self.numbers;
        let summary = Summary {
            count: count.filter(|count| *count > 0)?,
            min,
            p10,
            p50: p50?,
            p90,
            p99,
            p99_9,
            max,
            mean: self.mean,
            histogram: None,
        };
        summary.is_ordered().is_ok().then_some(summary)
    }
}

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
    fn rounds_are_those_of_the_reader_for_everything() {
        for value in [plain(), with_phases()] {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let [whole, brief] = both(&text);
                assert_eq!(whole, brief);
                assert!(whole.is_ok());
                assert!(cut(&text).is_some_and(|cut| cut.rounds.iter().all(Option::is_some)), "{text}");
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
