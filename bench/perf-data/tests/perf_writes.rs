//! Forms of records that perf writes and this crate's writer does not: samples whose event is given by PERF_SAMPLE_ID,
//! data behind a record, and losses.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
use perf_data::attr::{ADDR, CPU, ID, IP, TID, TIME};
use perf_data::reader::Recording;
use perf_data::record::{Record, kind};

const FIELDS: u64 = IP | TID | TIME | ADDR | ID | CPU;

fn record(type_: u32, body: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(type_.to_le_bytes());
    bytes.extend(2_u16.to_le_bytes());
    bytes.extend(u16::try_from(8 + 8 * body.len()).unwrap().to_le_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// A software event with these fields; SAMPLE_ID_ALL.
fn attr(id: u64) -> Vec<u8> {
    let mut body = vec![0; 14];
    (body[0], body[3], body[5]) = (112 << 32 | 1, FIELDS, 1 << 18);
    body.push(id);
    record(kind::HEADER_ATTR, &body)
}

/// A pipe with two events, `between`, and two samples of the second event.
fn pipe(between: &[u8]) -> Vec<u8> {
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(16_u64.to_le_bytes());
    bytes.extend(attr(11));
    bytes.extend(attr(12));
    bytes.extend(between);
    for id in [12, 11, 12] {
        bytes.extend(record(kind::SAMPLE, &[0x1000, 7, 5, 0, id, 0]));
    }
    bytes.extend(record(kind::LOST, &[12, 9, 7, 5, 12, 0]));
    bytes
}

fn events_of(bytes: &[u8]) -> (Vec<usize>, bool) {
    let mut found = Vec::new();
    let mut recording = Recording::open(bytes).unwrap();
    let damage = recording.records(|event, record| {
        if matches!(record, Record::Sample(_) | Record::Lost { .. }) {
            found.push(event);
        }
    });
    (found, damage.any())
}

#[test]
fn the_event_of_a_sample_is_that_of_its_id() {
    assert_eq!(events_of(&pipe(&[])), (vec![1, 0, 1, 1], false));
}

#[test]
fn data_behind_a_record_is_no_record() {
    let mut tracing = record(kind::TRACING_DATA, &[13]);
    tracing.extend([0xff; 16]);
    assert_eq!(events_of(&pipe(&tracing)), (vec![1, 0, 1, 1], false));
    let mut traced = record(kind::AUXTRACE, &[24, 0, 0, 0, 0]);
    traced.extend([0xff; 24]);
    assert_eq!(events_of(&pipe(&traced)), (vec![1, 0, 1, 1], false));
    // More than there is: the rest is lost, and that is said.
    assert_eq!(events_of(&pipe(&record(kind::AUXTRACE, &[u64::MAX, 0, 0, 0, 0]))), (vec![], true));
}

#[test]
fn an_event_lost_what_it_counts_itself_and_no_filter_dropped() {
    const FILTERED: u16 = 1 << 15;
    let mut bytes = pipe(&record(kind::LOST, &[11, 100, 7, 5, 11, 0]));
    let mut lose = |id, lost, misc: u16| {
        let start = bytes.len();
        bytes.extend(record(kind::LOST_SAMPLES, &[lost, 7, 5, id, 0]));
        bytes[start + 4..start + 6].copy_from_slice(&misc.to_le_bytes());
    };
    for (id, lost, misc) in [(11, 60, 0), (12, 40, 0), (12, 99, FILTERED), (99, 7, 0)] {
        lose(id, lost, misc);
    }
    let mut found = Vec::new();
    let damage = Recording::open(&bytes).unwrap().records(|event, record| {
        if let Record::Lost { count, .. } | Record::LostSamples(count) = record {
            found.push((event, count));
        }
    });
    assert_eq!(found, [(0, 100), (1, 9), (0, 60), (1, 40)]);
    assert_eq!(damage.records, 1, "an unknown id is of no event");
}
