//! HdrHistogram interval log: one interval per arm and round, tagged with the arm, for HistogramLogAnalyzer,
//! hdr-plot and the like. Values are nanoseconds; the log's own maximum column is in milliseconds, as is usual.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::document::{Document, Record};
use crate::document::{decode, decode_text};
use crate::error::{Error, one_line};

/// A finished round's handler (or rotation) latencies, kept for the interval log.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Start after the experiment's.
    pub start: Duration,
    /// Length.
    pub length: Duration,
    /// HdrHistogram V2.
    pub histogram: Vec<u8>,
}

/// An interval as it is written.
struct Line {
    tag: String,
    start: Duration,
    length: Duration,
    histogram: Histogram<u64>,
}

/// Makes a tag's text: the format separates by commas and white space.
fn tag(name: &str) -> String {
    name.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect()
}

/// Returns the log's bytes. `arms` are the rounds of `document.arms`, in order.
///
/// # Errors
/// A sentence, if a histogram cannot be encoded.
pub fn text(document: &Document, arms: &[&[Interval]]) -> Result<Vec<u8>, String> {
    let mut lines = Vec::new();
    for (arm, intervals) in document.arms.iter().zip(arms) {
        for interval in *intervals {
            lines.push(Line {
                tag: tag(&arm.name),
                start: interval.start,
                length: interval.length,
                histogram: decode(&interval.histogram)?,
            });
        }
    }
    let parameters = &document.parameters;
    let comment = format!(
        "vpmu {} {}, {}, guest {}, backend {}, {}; values in ns",
        document.tool.version,
        document.experiment,
        parameters.workload,
        parameters.cpu,
        parameters.backend,
        document.host.class,
    );
    write(&comment, document.started_unix, lines)
}

/// Formats documents' arms, an interval each over the whole run: only a run itself has its rounds' histograms.
///
/// # Errors
/// Exit 2 for a damaged histogram.
pub fn of_records(records: &[Record]) -> Result<Vec<u8>, Error> {
    let refuse = |record: &Record, why: String| {
        Error::usage(format!("cannot use {}", record.path.display()), why, "measure again, or restore the file")
    };
    let began = records.iter().map(|record| record.started_unix).min().unwrap_or(0);
    let mut lines = Vec::new();
    for record in records {
        for arm in &record.arms {
            let Some((name, text)) = arm.headline().and_then(|(name, metric)| Some((name, metric.histogram.as_ref()?)))
            else {
                continue;
            };
            lines.push(Line {
                tag: tag(&arm.name),
                start: Duration::from_secs(record.started_unix - began),
                length: Duration::from_nanos(record.wall_ns),
                histogram: decode_text(text).map_err(|why| refuse(record, format!("{} {name}: {why}", arm.name)))?,
            });
        }
    }
    let comment = format!("vpmu export of {} results, an interval per arm; values in ns", records.len());
    write(&comment, began, lines)
        .map_err(|why| Error::usage("cannot write an interval log", why, "take another format"))
}

fn write(comment: &str, began: u64, mut lines: Vec<Line>) -> Result<Vec<u8>, String> {
    lines.sort_by_key(|line| line.start);
    // A clock that is off by ages is the document's, and adding it must not overflow.
    let start = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(began)).ok_or("the start is out of range")?;
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment(&one_line(comment))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1_000_000.0);
    let mut writer = builder
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| format!("cannot begin the interval log: {error}"))?;
    for line in lines {
        writer
            .write_histogram(&line.histogram, line.start, line.length, Tag::new(&line.tag))
            .map_err(|error| format!("cannot write an interval of {}: {error:?}", line.tag))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::{Duration, Interval};
    use crate::document::{Arm, Rounds, encode, latency_histogram};
    use crate::fixture;
    use crate::metric::NMI_HANDLER;

    #[test]
    fn a_document_gives_an_interval_per_arm_and_a_damaged_one_is_refused() {
        let (_dir, mut record) = fixture::written(&fixture::document(3));
        let bytes = super::of_records(std::slice::from_ref(&record)).unwrap();
        let intervals = IntervalLogIterator::new(&bytes).filter(|e| matches!(e, Ok(LogEntry::Interval(_)))).count();
        assert_eq!(intervals, record.arms.iter().filter(|arm| !arm.metrics.is_empty()).count());
        record.arms[0].metrics.get_mut("nmi_handler_ns").unwrap().histogram = Some("AAAA".to_owned());
        let error = super::of_records(&[record]).unwrap_err();
        assert!(error.to_string().contains("HdrHistogram"), "{error}");
        assert_eq!(super::tag("my own,arm"), "my_own_arm");
    }

    /// Describes a round of handlers that all take as long.
    fn interval(rounds: &Rounds, at: usize) -> Interval {
        let mut histogram = latency_histogram();
        let latency = rounds.metric(&NMI_HANDLER, at).unwrap();
        histogram.saturating_record_n(latency.p50, latency.count);
        Interval {
            start: Duration::from_micros(rounds.started_us[at]),
            length: Duration::from_micros(rounds.wall_us[at]),
            histogram: encode(&histogram),
        }
    }

    #[test]
    fn the_crates_own_reader_finds_every_round_of_every_arm() {
        let finished = fixture::document(3);
        let of = |arm: &Arm| (0..arm.rounds.len()).map(|at| interval(&arm.rounds, at)).collect();
        let rounds: Vec<Vec<Interval>> = finished.arms.iter().map(of).collect();
        let rounds: Vec<&[Interval]> = rounds.iter().map(Vec::as_slice).collect();
        let bytes = super::text(&finished, &rounds).unwrap();
        let mut counts = std::collections::BTreeMap::<String, Vec<u64>>::new();
        let mut starts = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            let raw = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut raw.as_slice()).unwrap();
            let tag = interval.tag().unwrap().as_str().to_owned();
            counts.entry(tag).or_default().push(histogram.len());
            starts.push(interval.start_timestamp());
        }
        assert!(starts.is_sorted());
        for arm in &finished.arms {
            if arm.not_available.is_some() {
                assert!(!counts.contains_key(&arm.name));
                continue;
            }
            let rounds = &counts[&arm.name];
            assert_eq!(rounds.len(), 3);
            assert_eq!(rounds.iter().sum::<u64>(), arm.metric(&NMI_HANDLER).unwrap().count);
        }
    }
}
