//! HdrHistogram interval log: one interval per arm and round, tagged with the arm, for HistogramLogAnalyzer,
//! hdr-plot and the like. Values are nanoseconds; the log's own maximum column is in milliseconds, as is usual.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::result::Document;
use crate::result::fold::ArmFold;
use crate::result::summary::decode;

/// The log's bytes. `arms` belong to `document.arms`, in order.
///
/// # Errors
/// A sentence, if a histogram cannot be encoded.
pub fn text(document: &Document, arms: &[ArmFold]) -> Result<Vec<u8>, String> {
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(document.started_unix);
    let mut intervals: Vec<_> = document
        .arms
        .iter()
        .zip(arms)
        .flat_map(|(arm, fold)| fold.intervals().iter().map(|i| (arm.strategy.as_str(), i)))
        .collect();
    intervals.sort_by_key(|(_, interval)| interval.start);

    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment(&format!(
            "vpmu {} {}, {}, backend {}, {}; values in ns",
            document.tool.version,
            document.experiment,
            document.parameters.workload,
            document.parameters.backend,
            document.host.class,
        ))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1_000_000.0);
    let mut writer = builder
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| format!("cannot begin the interval log: {error}"))?;
    for (name, interval) in intervals {
        let histogram = decode(&interval.histogram)?;
        writer
            .write_histogram(&histogram, interval.start, interval.length, Tag::new(name))
            .map_err(|error| format!("cannot write an interval of {name}: {error:?}"))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use crate::experiment::mock;

    #[test]
    fn the_crates_own_reader_finds_every_round_of_every_arm() {
        let finished = mock::finished(&["--rounds", "3"]);
        let bytes = super::text(&finished.document, &finished.arms).unwrap();
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
        for arm in &finished.document.arms {
            if arm.not_available.is_some() {
                assert!(!counts.contains_key(&arm.strategy));
                continue;
            }
            let rounds = &counts[&arm.strategy];
            assert_eq!(rounds.len(), 3);
            assert_eq!(rounds.iter().sum::<u64>(), arm.nmi_handler_ns.as_ref().unwrap().count);
        }
    }
}
