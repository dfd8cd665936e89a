//! Rounds and summaries of a document, read in place.
//!
//! Nearly all of a document are its rounds, and a reader that makes a tree of JSON values of them takes ten times as long as one that
//! takes their figures. What looks unusual is `None`: the reader for everything must look at it.

use serde_json::{Map, Value};

use super::scan::Scan;
use crate::document::{Any, Metrics, Round, Summary, find_summaries};

/// Memory that is lent again and again.
#[derive(Debug, Default)]
pub(super) struct Lent<'a> {
    /// Keys of an object that is checked.
    pub(super) keys: Vec<&'a str>,
    /// The fields of the last round: nearly always those of the next one.
    fields: Vec<(&'a str, Field)>,
}

/// What a field of a round is.
#[derive(Clone, Copy, Debug)]
enum Field {
    Index,
    Started,
    Position,
    Complete,
    Guest,
    Probe,
    /// Perhaps a metric.
    Time,
    Other,
}

impl Field {
    fn of(key: &str) -> Self {
        match key {
            "round" => Self::Index,
            "started_ns" => Self::Started,
            "position" => Self::Position,
            "complete" => Self::Complete,
            "guest" => Self::Guest,
            "probe_ns" => Self::Probe,
            _ if key.ends_with("_ns") => Self::Time,
            _ => Self::Other,
        }
    }
}

impl<'a> Lent<'a> {
    /// The key of the field at `place` of a round, and what it is; `None` if the key is there already.
    fn field(&mut self, scan: &mut Scan<'a>, place: usize) -> Option<(&'a str, Field)> {
        if let Some(&known) = self.fields.get(place)
            && scan.known_key(known.0)
        {
            return Some(known);
        }
        self.fields.truncate(place);
        let key = scan.key()?;
        if self.fields.iter().any(|(there, _)| *there == key) {
            return None;
        }
        let found = (key, Field::of(key));
        self.fields.push(found);
        Some(found)
    }
}

/// The rounds of an arm. They have their metrics, and nothing of the experiment's own.
pub(super) fn rounds<'a>(scan: &mut Scan<'a>, lent: &mut Lent<'a>) -> Option<Vec<Round<Any>>> {
    scan.expect(b'[')?;
    let mut all: Vec<Round<Any>> = Vec::new();
    let mut first = true;
    while scan.next(&mut first, b']')? {
        let metrics = all.last().map_or(0, |last| last.metrics.len());
        all.push(round(scan, lent, metrics)?);
    }
    all.shrink_to_fit();
    Some(all)
}

fn round<'a>(scan: &mut Scan<'a>, lent: &mut Lent<'a>, expected: usize) -> Option<Round<Any>> {
    let (mut index, mut started_ns, mut complete) = (None, None, None);
    let (mut position, mut guest, mut probe_ns) = (0, None, None);
    let mut metrics = Metrics::with_capacity(expected);
    let mut own: Option<Map<String, Value>> = None;
    scan.expect(b'{')?;
    let (mut first, mut place) = (true, 0);
    while scan.next(&mut first, b'}')? {
        let (key, field) = lent.field(scan, place)?;
        place += 1;
        match (field, scan.peek()?) {
            (Field::Index, _) => index = Some(scan.unsigned()?),
            (Field::Started, _) => started_ns = Some(scan.unsigned()?),
            (Field::Position, _) => position = scan.unsigned()?,
            (Field::Complete, b't') => complete = scan.word("true").map(|()| true),
            (Field::Complete, _) => complete = Some(scan.word("false").map(|()| false)?),
            (_, b'n') => scan.word("null")?,
            (Field::Guest, _) => guest = Some(scan.unsigned()?),
            (Field::Probe, _) => probe_ns = Some(scan.number()?.float()?),
            (_, b'{' | b'[') => {
                if !metric(scan, key, field, &mut metrics)? {
                    let text = scan.sound(&mut lent.keys)?.text;
                    own.get_or_insert_default().insert(key.to_owned(), serde_json::from_str(text).ok()?);
                }
            }
            _ => drop(scan.sound(&mut lent.keys)?),
        }
    }
    // Another round may have more.
    lent.fields.truncate(place);
    if let Some(own) = own {
        find_summaries(own, &mut metrics)?;
    }
    Some(Round {
        index: index?,
        position,
        complete: complete?,
        started_ns: started_ns?,
        guest,
        probe_ns,
        metrics,
        own: Map::new(),
    })
}

/// Takes a summary that is a metric; `Some(false)` if this is none, or not written as we do.
fn metric(scan: &mut Scan<'_>, key: &str, field: Field, metrics: &mut Metrics) -> Option<bool> {
    if !matches!(field, Field::Time) {
        return Some(false);
    }
    let mut ahead = *scan;
    let Some(summary) = summary(&mut ahead) else { return Some(false) };
    *scan = ahead;
    if !summary.is_empty() {
        metrics.insert(key, summary.checked()?);
    }
    Some(true)
}

/// Takes an arm's summary that is a metric, as [`metric`].
pub(super) fn metric_of_arm(scan: &mut Scan<'_>, key: &str, metrics: &mut Metrics) -> Option<bool> {
    metric(scan, key, Field::of(key), metrics)
}

/// The fields of a summary but its mean and its histogram.
const FIELDS: [&str; 8] = ["count", "min", "p10", "p50", "p90", "p99", "p99_9", "max"];

/// A summary as it is written: the fields that are there.
#[derive(Default)]
struct Written<'a> {
    numbers: [Option<u64>; FIELDS.len()],
    mean: Option<f64>,
    histogram: Option<&'a str>,
}

/// A summary, if it is one with whole numbers of ns and nothing unusual.
fn summary<'a>(scan: &mut Scan<'a>) -> Option<Written<'a>> {
    let mut written = Written::default();
    // Fields come in their order, so the search begins after the last one.
    let mut after = 0;
    scan.expect(b'{')?;
    let mut first = true;
    while scan.next(&mut first, b'}')? {
        if let Some(place) = (after..FIELDS.len()).chain(0..after).find(|&place| scan.known_key(FIELDS[place])) {
            if written.numbers[place].replace(scan.unsigned()?).is_some() {
                return None;
            }
            after = place + 1;
        } else if scan.known_key("mean") {
            let mean = scan.number()?.float().filter(|mean| *mean >= 0.0)?;
            if written.mean.replace(mean).is_some() {
                return None;
            }
        } else if scan.known_key("histogram") {
            if written.histogram.replace(scan.plain()?).is_some() {
                return None;
            }
        } else {
            return None;
        }
    }
    let [count, _, _, p50, ..] = written.numbers;
    (count.is_some() && p50.is_some()).then_some(written)
}

impl Written<'_> {
    /// A summary of nothing: zeros throughout.
    fn is_empty(&self) -> bool {
        let zeros = self.numbers.iter().flatten().all(|&number| number == 0);
        zeros && self.mean.is_none_or(|mean| mean == 0.0) && self.histogram.is_none()
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
            histogram: self.histogram.map(str::to_owned),
        };
        summary.is_ordered().is_ok().then_some(summary)
    }
}
