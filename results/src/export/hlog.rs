//! HdrHistogram interval log: one interval per arm, tagged with the arm, for HistogramLogAnalyzer,
//! hdr-plot and the like. Values are nanoseconds; the log's own maximum column is in milliseconds, as is usual.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::document::Record;
use crate::error::Error;
use crate::table::layout::plural;

/// Makes a tag's text: the format separates by commas and white space.
fn tag(name: &str) -> String {
    name.chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect()
}

/// Formats documents' arms, an interval each over the whole run: a document has no histograms of rounds.
///
/// # Errors
/// Exit 2 for a damaged histogram.
pub(super) fn text(records: &[Record]) -> Result<String, Error> {
    let began = records.iter().map(|record| record.started_unix).min().unwrap_or(0);
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_by_key(|record| record.started_unix);
    let wrong = |why: String| Error::usage("cannot write an interval log", why, "take another format");
    // A clock that is off by ages is the document's, and adding it must not overflow.
    let start = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(began));
    let start = start.ok_or_else(|| wrong("the start is out of range".to_owned()))?;
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment(&format!("vpmu export of {}, an interval per arm; values in ns", plural(records.len(), "result")))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1_000_000.0);
    let mut writer = builder.begin_log_with(&mut bytes, &mut serializer).map_err(|error| wrong(error.to_string()))?;
    for (record, arm) in records.iter().flat_map(|record| record.arms.iter().map(move |arm| (record, arm))) {
        let Some((name, metric)) = arm.headline() else { continue };
        let decoded = metric.decode().map_err(|why| {
            let (file, why) = (record.path.display(), format!("{} {name}: {why}", arm.name));
            Error::usage(format!("cannot use {file}"), why, "measure again, or restore the file")
        });
        let Some(histogram) = decoded? else { continue };
        let (from, length) = (Duration::from_secs(record.started_unix - began), Duration::from_nanos(record.wall_ns));
        let written = writer.write_histogram(&histogram, from, length, Tag::new(&tag(&arm.name)));
        written.map_err(|error| wrong(format!("{}: {error:?}", arm.name)))?;
    }
    String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use crate::fixture;
    use crate::metric::NMI_HANDLER;

    #[test]
    fn the_crates_own_reader_finds_an_interval_per_arm_and_a_damaged_histogram_is_refused() {
        let mut record = fixture::changed(fixture::document(3));
        let text = super::text(std::slice::from_ref(&record)).unwrap();
        let mut counts = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            let LogEntry::Interval(interval) = entry.unwrap() else { continue };
            let raw = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut raw.as_slice()).unwrap();
            counts.push((interval.tag().unwrap().as_str().to_owned(), histogram.len()));
        }
        let count = |arm: &crate::document::Arm| Some((arm.name.clone(), arm.metric(&NMI_HANDLER)?.count));
        assert_eq!(counts, record.arms.iter().filter_map(count).collect::<Vec<_>>());
        record.arms[0].metrics.get_mut("nmi_handler_ns").unwrap().histogram = Some("AAAA".to_owned());
        let error = super::text(&[record]).unwrap_err();
        assert!(error.to_string().contains("HdrHistogram"), "{error}");
        assert_eq!(super::tag("my own,arm"), "my_own_arm");
    }
}
