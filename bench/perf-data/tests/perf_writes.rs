//! Forms of records that perf writes and this crate's writer does not: samples whose event is given by PERF_SAMPLE_ID,
//! data behind a record, deferred call chains, and losses.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
use perf_data::attr::{ADDR, CALLCHAIN, CPU, ID, IP, TID, TIME};
use perf_data::history::{Gathered, MOST_KEPT};
use perf_data::names::Names;
use perf_data::reader::{ReadError, Recording};
use perf_data::record::{DEFERRED, Mode, Record, kind};

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
    attr_with(FIELDS, id)
}

fn attr_with(fields: u64, id: u64) -> Vec<u8> {
    let mut body = vec![0; 14];
    (body[0], body[3], body[5]) = (112 << 32 | 1, fields, 1 << 18);
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

/// A pipe of one event without a description, and these records, of thread 7 at time 5.
fn gathered(records: &[(u32, u16, &[u64])]) -> (Gathered, String) {
    let mut bytes = [b"PERFILE2", &16_u64.to_le_bytes()[..], &attr_with(IP | TID | TIME | CALLCHAIN, 1)].concat();
    for (type_, misc, body) in records {
        let end: &[u64] = if *type_ == kind::SAMPLE { &[] } else { &[7 << 32 | 7, 5] };
        let start = bytes.len();
        bytes.extend(record(*type_, &[body, end].concat()));
        bytes[start + 4..start + 6].copy_from_slice(&misc.to_le_bytes());
    }
    let mut recording = Recording::open(&bytes).unwrap();
    let all = Gathered::read(&mut recording, MOST_KEPT).unwrap();
    assert!(!all.damage.any());
    (all, recording.events[0].name.clone())
}

#[test]
fn the_user_part_of_a_chain_comes_later_and_generated_code_has_its_name() {
    let [kernel, user] = [Mode::Kernel, Mode::User].map(Mode::context);
    let (code, cookie) = (0xffff_ffff_c000_0000_u64, 1 << 32 | 9);
    let name = u64::from_le_bytes(*b"bpf_prog");
    let chain = |cookie| [code, 7 << 32 | 7, 5, 4, kernel, code, DEFERRED, cookie];
    let records: [(u32, u16, &[u64]); 6] = [
        (kind::SAMPLE, 1, &chain(cookie)),
        (kind::SAMPLE, 1, &chain(cookie + 2)),
        (kind::CALLCHAIN_DEFERRED, 2, &[cookie, 3, user, 0x5000, 0x6000]),
        (kind::KSYMBOL, 0, &[code, 1 << 32 | 64, name, 0]),
        (kind::SAMPLE, 1, &[code, 7 << 32 | 7, 6, 2, kernel, code]),
        (kind::KSYMBOL, 0, &[code, 1 << 48 | 1 << 32 | 64, name, 0]),
    ];
    // A symbol is there from its own moment on, which is the fourth record's.
    let folded = |records| {
        let named = gathered(records).0.name(0, Names::default()).unwrap();
        named.tree().folded(&named.names, 1 << 20).unwrap()
    };
    let expected = "thread 7;[broken];[kernel] 1\nthread 7;[user];[user];[kernel] 1\nthread 7;bpf_prog 1\n";
    assert_eq!(folded(&records[..5]), expected);
    assert_eq!(folded(&[records[3], records[5], records[0]]), "thread 7;[broken];[kernel] 1\n");
}

#[test]
fn losses_are_perfs_and_an_event_without_a_name_has_its_usual_one() {
    const FILTERED: u16 = 1 << 15;
    let records: [(u32, u16, &[u64]); 5] = [
        (kind::LOST, 0, &[1, 34]),
        (kind::LOST_SAMPLES, 0, &[1200]),
        (kind::LOST_SAMPLES, 0, &[34]),
        (kind::LOST_SAMPLES, FILTERED, &[99]),
        (kind::THROTTLE, 0, &[5, 1, 1]),
    ];
    let (all, name) = gathered(&records);
    assert_eq!((all.lost(0), name.as_str()), ((1234, false, 1), "cpu-clock"));
    assert_eq!(gathered(&records[..1]).0.lost(0), (34, true, 0));
}

#[test]
fn an_event_lost_what_it_counts_itself_and_not_what_its_ring_lost() {
    let mut bytes = pipe(&record(kind::LOST, &[11, 100, 7, 5, 11, 0]));
    for (id, lost) in [(11, 60), (12, 40)] {
        bytes.extend(record(kind::LOST_SAMPLES, &[lost, 7, 5, id, 0]));
    }
    let read = |bytes: &[u8]| Gathered::read(&mut Recording::open(bytes).unwrap(), MOST_KEPT).unwrap();
    let all = read(&bytes);
    assert_eq!((all.lost(0), all.lost(1), all.damage.any()), ((60, false, 0), (40, false, 0), false));
    bytes.extend(record(kind::LOST_SAMPLES, &[7, 7, 5, 99, 0]));
    bytes.extend(record(kind::THROTTLE, &[5, 99, 99, 7, 5, 99, 0]));
    let all = read(&bytes);
    assert_eq!((all.lost(0), all.damage.records), ((60, false, 0), 2), "an unknown id is of no event");
}

#[test]
fn other_forms_are_refused_by_what_they_are() {
    let why = |start: &[u8; 8]| Recording::open(&[&start[..], &[0; 96]].concat()).err();
    assert_eq!(
        [why(b"2ELIFREP"), why(b"PERFFILE"), why(b"PERFILE3")],
        [Some(ReadError::BigEndian), Some(ReadError::Version1), Some(ReadError::NotARecording)]
    );
}
