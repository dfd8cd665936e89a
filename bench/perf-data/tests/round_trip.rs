//! Everything the writer writes, the reader reads: plain and compressed, at once and by a thread; the header
//! never means what is not there; and no damage is a panic or a surprise. Forms that perf alone writes are read, too.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

use perf_data::attr::Event;
use perf_data::feature::{BuildId, Facts};
use perf_data::reader::{ReadError, Recording};
use perf_data::record::{Mapping, Record, Sample, kind};
use perf_data::writer::{Options, Writer};
use proptest::prelude::*;

fn events(count: usize) -> Vec<Event> {
    let event = |n: u64| Event { type_: 1, name: format!("event-{n}"), id: n + 1, ..Event::default() };
    (0..count as u64).map(event).collect()
}

fn facts() -> Facts {
    let command_line = vec!["vpmu".into(), "record".into()];
    let build_ids = vec![BuildId { misc: 4, pid: 9, id: vec![3; 20], file: "[guest.kernel.kallsyms]".into() }];
    Facts { command_line, cpus: 4, build_ids, ..Facts::default() }
}

fn written(records: &[Record], count: usize, chains: bool, level: u32, flush_every: usize) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let output = file.try_clone().unwrap();
    let mut writer = Writer::begin(output, &events(count), chains, Options { level, aio: None }, facts()).unwrap();
    for (at, record) in records.iter().enumerate() {
        writer.add(record).unwrap();
        if at % flush_every == 0 {
            writer.flush().unwrap();
        }
    }
    writer.finish().1.unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> (Vec<Record>, Result<(), ReadError>) {
    let mut records = Vec::new();
    let read = Recording::open(bytes).and_then(|mut recording| recording.records(|_, record| records.push(record)));
    (records, read)
}

/// A record as the reader gives it.
fn as_read(record: &Record, chains: bool) -> Record {
    match record.clone() {
        Record::Sample(sample) if !chains => Record::Sample(Sample { chain: Vec::new(), ..sample }),
        Record::Comm { .. } => Record::Other(kind::COMM),
        Record::Mapping(_) => Record::Other(kind::MMAP2),
        other => other,
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn sample(events: usize) -> impl Strategy<Value = Record> {
    (any::<(u64, u64, u32, u64, u32)>(), 0..events as u64, 0..6_u16, prop::collection::vec(any::<u64>(), 0..90))
        .prop_map(|((ip, time, tid, period, cpu), id, misc, chain)| {
            Record::Sample(Sample { misc, id: id + 1, ip, pid: 7, tid, time, cpu, period, chain, ..Sample::default() })
        })
}

fn record(events: usize) -> impl Strategy<Value = Record> {
    prop_oneof![
        8 => sample(events),
        1 => ("[a-z/ ]{0,20}", any::<u32>()).prop_map(|(name, tid)| Record::Comm { pid: 7, tid, name }),
        1 => ("[a-z/.]{0,300}", any::<(u64, u64, u64)>(), prop::collection::vec(any::<u8>(), 0..=20)).prop_map(
            |(file, (address, length, offset), build_id)| {
                Record::Mapping(Mapping { misc: 2, pid: 7, tid: 7, address, length, offset, file, build_id })
            }
        ),
        1 => any::<u64>().prop_map(|count| Record::Lost { id: 1, count }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_come_back(
        count in 1_usize..4,
        records in prop::collection::vec(record(3), 0..60),
        chains: bool,
        level in 0_u32..4,
        flush_every in 1_usize..40,
    ) {
        let bytes = written(&records, count, chains, level, flush_every);
        let (found, read) = read(&bytes);
        let records: Vec<_> = records.iter().map(|record| as_read(record, chains)).collect();
        prop_assert_eq!(read, Ok(()));
        prop_assert_eq!(found, records);
    }

    #[test]
    fn damaged_files_end_and_never_panic(
        records in prop::collection::vec(record(2), 0..30),
        level in 0_u32..2,
        pipe: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = if pipe { self::pipe(&[]) } else { written(&records, 2, true, level, 7) };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(mut recording) = Recording::open(&bytes) {
            let mut seen = 0;
            let _ = recording.records(|_, _| seen += 1);
            prop_assert!(seen <= 1 << 20);
        }
    }
}

#[test]
fn a_file_that_was_cut_and_a_damaged_frame_end_the_reading() {
    let sample = |time| Record::Sample(Sample { misc: 2, id: 1, time, ..Sample::default() });
    let records: Vec<_> = (0..400).map(sample).collect();
    let bytes = written(&records, 1, false, 1, 100);
    // Frames begin with zstd's magic: the third of four or five.
    let frames: Vec<_> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == [0x28, 0xb5, 0x2f, 0xfd]).collect();
    let mut damaged = bytes.clone();
    damaged[frames[2] + 9] ^= 0xff;
    let (found, read_to_its_end) = read(&damaged);
    assert!(found.len() < 400 && read_to_its_end.is_err(), "{}", found.len());
    assert_eq!(read(&bytes[..frames[3] + 12]).1, Err(ReadError::Cut));
    // Behind a whole record, too.
    let bytes = written(&records, 1, false, 0, 100);
    let data = u64_at(&bytes, 40) as usize;
    let first = usize::from(u16::from_le_bytes([bytes[data + 6], bytes[data + 7]]));
    assert_eq!(read(&bytes[..data + first]).1, Err(ReadError::Cut));
    let mut bytes = pipe(&[]);
    bytes.truncate(bytes.len() - 1);
    assert_eq!(read(&bytes).1, Err(ReadError::Cut));
}

#[test]
fn records_of_a_newer_kind_of_compression_are_read() {
    let record = Record::Sample(Sample { misc: 2, id: 1, time: 5, ..Sample::default() });
    let plain = written(std::slice::from_ref(&record), 1, false, 0, 1);
    let compressed = written(std::slice::from_ref(&record), 1, false, 1, 1);
    let data = u64_at(&plain, 40) as usize;
    let old = &compressed[u64_at(&compressed, 40) as usize..];
    let frame = &old[8..usize::from(u16::from_le_bytes([old[6], old[7]]))];
    for claimed in [frame.len(), frame.len() * 3] {
        let size_of_record = (16 + frame.len()).next_multiple_of(8);
        let mut body = (claimed as u64).to_le_bytes().to_vec();
        body.extend(frame);
        body.resize(size_of_record - 8, 0);
        let mut bytes = [&plain[..data], &raw(83, &body)].concat();
        bytes[48..56].copy_from_slice(&(size_of_record as u64).to_le_bytes());
        bytes[72..80].fill(0);
        let (found, _) = read(&bytes);
        assert_eq!(found, std::slice::from_ref(&record), "with a size of {claimed}, where {} are there", frame.len());
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for aio in WAYS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let began = Writer::begin(full, &events(1), true, Options { level: 1, aio }, Facts::default());
        assert_eq!(began.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
}

/// A record of a file or pipe.
fn raw(type_: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = type_.to_le_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend((8 + body.len() as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn events_that_name_the_same_ids_are_bounded() {
    let attr = &attr(1, FIELDS)[8..120];
    let file = |count: usize, ids: usize| {
        let mut bytes = b"PERFILE2".to_vec();
        let (attrs, data) = (104 + 8 * ids, 104 + 8 * ids + 128 * count);
        for word in [104, 128, attrs, 128 * count, data, 0, 0, 0] {
            bytes.extend((word as u64).to_le_bytes());
        }
        bytes.resize(attrs, 0);
        for _ in 0..count {
            bytes.extend(attr);
            bytes.extend(104_u64.to_le_bytes());
            bytes.extend((8 * ids as u64).to_le_bytes());
        }
        Recording::open(&bytes).is_ok()
    };
    assert_eq!([16, 17].map(|count| file(count, 4096)), [true, false]);
}

#[test]
fn what_takes_the_place_of_a_header_is_not_read_from_compressed_records() {
    let mut bytes = pipe(&[]);
    let inner = [attr(1, FIELDS), raw(80, &[0; 16]), raw(3, &[0; 56])].concat();
    bytes.extend(raw(81, &zstd::bulk::compress(&inner, 1).unwrap()));
    let (records, read) = read(&bytes);
    assert_eq!((&records[records.len() - 3..], read), (&[64, 80, kind::COMM].map(Record::Other)[..], Ok(())));
}

// Streams that are longer than a write, by every way of writing them.

const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];
const RECORDS: u64 = 6_000;

/// A stream that is the same each time: names and mappings, then samples with chains that are partly noise.
fn stream() -> Vec<Record> {
    let mut noise = 1_u64;
    let mut next = move || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise >> 33
    };
    let mut records = vec![
        Record::Comm { pid: 7, tid: 8, name: "CPU 0/KVM".to_owned() },
        Record::Mapping(Mapping { misc: 2, pid: 7, length: 4096, file: "/image".to_owned(), ..Mapping::default() }),
    ];
    records.extend((0..RECORDS).map(|at| {
        let chain: Vec<u64> = (0..next() % 12).map(|_| 0x20_0000 + next() % 4096).collect();
        let (ip, time) = (0x20_0000 + next() % 512, at * 1000);
        Record::Sample(Sample { misc: 2, id: 1, ip, pid: 7, tid: 8, time, period: 1000, chain, ..Sample::default() })
    }));
    records
}

fn write(path: &Path, records: &[Record], options: Options) {
    let output = File::create(path).unwrap();
    let mut writer = Writer::begin(output, &events(1), true, options, Facts::default()).unwrap();
    for (at, record) in records.iter().enumerate() {
        writer.add(record).unwrap();
        if at % 3000 == 2999 {
            writer.flush().unwrap();
        }
    }
    let (summary, ended) = writer.finish();
    ended.unwrap();
    assert_eq!(summary.samples, records.iter().filter(|record| matches!(record, Record::Sample(_))).count() as u64);
    assert_eq!(summary.bytes, std::fs::metadata(path).unwrap().len());
    let bytes = std::fs::read(path).unwrap();
    let mut recording = Recording::open(&bytes).unwrap();
    recording.records(|_, _| ()).unwrap();
    assert_eq!((summary.raw, options.level > 0), (recording.volume.0, recording.volume.1 > 0));
}

/// Writes at once, and by a thread.
const WAYS: [Option<usize>; 3] = [None, Some(1), Some(4)];

#[test]
fn each_level_and_way_has_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let records = stream();
    for level in LEVELS {
        for aio in WAYS {
            let options = Options { level, aio };
            write(&path, &records, options);
            let (found, read) = read(&std::fs::read(&path).unwrap());
            let same = found.into_iter().eq(records.iter().map(|one| as_read(one, true)));
            assert!(same && read.is_ok(), "{options:?}: {read:?}");
        }
    }
}

#[test]
fn the_header_means_the_last_flush_whatever_is_written_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let records = stream();
    for level in [0, 1] {
        let output = File::create(&path).unwrap();
        let options = Options { level, aio: None };
        let mut writer = Writer::begin(output, &events(1), true, options, Facts::default()).unwrap();
        let mut flushed = 0;
        for (at, record) in records.iter().enumerate() {
            writer.add(record).unwrap();
            if at % 5000 == 100 {
                writer.flush().unwrap();
                flushed = at + 1;
            }
            if at % 700 == 0 && flushed > 0 {
                // File that a process leaves if it is killed now.
                let (found, read) = read(&std::fs::read(&path).unwrap());
                assert!(found.len() == flushed && read.is_ok(), "{options:?}: {flushed} flushed, {read:?}");
            }
        }
    }
}

// Forms of records that perf writes and this crate's writer does not: events that are alike and have PERF_SAMPLE_ID, events that
// differ and have PERF_SAMPLE_IDENTIFIER, data behind a record, and losses.

fn words(type_: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    let mut bytes = raw(type_, &body.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    bytes[4..6].copy_from_slice(&misc.to_le_bytes());
    bytes
}

/// A software event with these fields; SAMPLE_ID_ALL.
fn attr(id: u64, fields: u64) -> Vec<u8> {
    let mut body = vec![0; 14];
    (body[0], body[3], body[5]) = (112 << 32 | 1, fields, 1 << 18);
    body.push(id);
    words(kind::HEADER_ATTR, 2, &body)
}

/// IP, TID, TIME, ADDR, ID, CPU.
const FIELDS: u64 = 0xcf;

/// A pipe with two events, `between`, samples of both, and a loss.
fn pipe(between: &[u8]) -> Vec<u8> {
    let mut bytes = [b"PERFILE2", &16_u64.to_le_bytes()[..], &attr(11, FIELDS), &attr(12, FIELDS), between].concat();
    for id in [12, 11, 12] {
        bytes.extend(words(kind::SAMPLE, 2, &[0x1000, 7, 5, 0, id, 0]));
    }
    bytes.extend(words(kind::LOST, 2, &[12, 9, 7, 5, 12, 0]));
    bytes
}

/// The ids of samples and counts of losses, and why there are no more.
fn numbers(bytes: &[u8]) -> (Vec<u64>, Result<(), ReadError>) {
    let (found, read) = read(bytes);
    let number = |record: &Record| match record {
        Record::Sample(sample) => Some(sample.id),
        Record::Lost { count, .. } | Record::LostSamples(count) => Some(*count),
        _ => None,
    };
    (found.iter().filter_map(number).collect(), read)
}

#[test]
fn samples_have_the_fields_of_their_event_and_data_behind_a_record_is_no_record() {
    let mut tracing = words(kind::TRACING_DATA, 2, &[13]);
    tracing.extend([0xff; 16]);
    // What an event counts itself, and no filter dropped (PERF_RECORD_MISC_LOST_SAMPLES_BPF).
    let lost = [(60, 0), (99, 1 << 15), (40, 0)];
    let lost = lost.map(|(lost, misc)| words(kind::LOST_SAMPLES, misc, &[lost, 7, 5, 11, 0])).concat();
    for (between, expected) in [
        (Vec::new(), (vec![12, 11, 12, 9], Ok(()))),
        (tracing, (vec![12, 11, 12, 9], Ok(()))),
        // More than there is.
        (words(kind::TRACING_DATA, 2, &[0xffff_fff0]), (vec![], Err(ReadError::Cut))),
        (lost, (vec![60, 40, 12, 11, 12, 9], Ok(()))),
    ] {
        assert_eq!(numbers(&pipe(&between)), expected);
    }
    // Another event has other fields: without an identifier nothing says which sample is whose.
    assert!(matches!(numbers(&pipe(&attr(13, FIELDS | 1 << 8))).1, Err(ReadError::Header(_))));
    assert_eq!(numbers(&pipe(&attr(13, 1 << 16 | 2))).1, Err(ReadError::Event), "no time");
    let (all, few) = (1 << 16 | FIELDS, 1 << 16 | 6);
    let mut bytes = [b"PERFILE2", &16_u64.to_le_bytes()[..], &attr(11, all), &attr(12, few)].concat();
    bytes.extend(words(kind::SAMPLE, 2, &[12, 7, 5]));
    bytes.extend(words(kind::SAMPLE, 2, &[11, 0x1000, 7, 5, 0, 11, 0]));
    bytes.extend(words(kind::SAMPLE, 2, &[13, 7, 5]));
    assert_eq!(numbers(&bytes), (vec![12, 11], Err(ReadError::Record(kind::SAMPLE))), "an unknown id");
}
