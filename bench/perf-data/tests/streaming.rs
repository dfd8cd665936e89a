//! One stream of records by every way of writing it: the same bytes come back, and the header never means what is not there.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
use std::fs::File;
use std::path::Path;

use perf_data::attr::{Attr, Event};
use perf_data::feature::Facts;
use perf_data::reader::Recording;
use perf_data::record::{Mapping, Record, Sample, Stamp, kind};
use perf_data::writer::{Options, Output, Writer};

const LEVELS: [u32; 6] = [0, 1, 2, 3, 5, 8];
const RECORDS: u64 = 6_000;

fn event() -> Event {
    Event { attr: Attr { type_: 1, ..Attr::default() }, name: "cpu-clock".to_owned(), ids: vec![1] }
}

/// A stream that is the same each time: names and mappings, then samples with chains that are partly noise.
fn stream() -> Vec<Record> {
    let mut noise = 1_u64;
    let mut next = move || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise >> 33
    };
    let mut records = vec![
        Record::Comm { pid: 7, tid: 8, name: "CPU 0/KVM".to_owned() },
        Record::Mapping(Mapping {
            misc: 2,
            pid: 7,
            tid: 7,
            length: 4096,
            file: "/image".to_owned(),
            ..Mapping::default()
        }),
    ];
    records.extend((0..RECORDS).map(|at| {
        let chain: Vec<u64> = (0..next() % 12).map(|_| 0x20_0000 + next() % 4096).collect();
        Record::Sample(Sample {
            misc: 2,
            id: 1,
            ip: 0x20_0000 + next() % 512,
            pid: 7,
            tid: 8,
            time: at * 1000,
            cpu: 0,
            period: 1000,
            chain,
            ..Sample::default()
        })
    }));
    records
}

fn write(path: &Path, records: &[Record], options: Options) {
    let output: Output<Vec<u8>> = Output::File(File::create(path).unwrap());
    let mut writer = Writer::begin(output, &[event()], true, options, &Facts::default()).unwrap();
    for (at, record) in records.iter().enumerate() {
        writer.add(record, Stamp { id: 1, ..Stamp::default() }).unwrap();
        if at % 3000 == 2999 {
            writer.flush().unwrap();
        }
    }
    let (summary, ended) = writer.finish(&Facts::default());
    ended.unwrap();
    assert_eq!(summary.samples, records.iter().filter(|record| matches!(record, Record::Sample(_))).count() as u64);
    assert_eq!(summary.bytes, std::fs::metadata(path).unwrap().len());
    assert_eq!(summary.raw, plain(path).0.len() as u64);
}

/// The records of a file, frames decompressed, and the bytes of records in each frame.
fn plain(path: &Path) -> (Vec<u8>, Vec<usize>) {
    let bytes = std::fs::read(path).unwrap();
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let mut data = &bytes[u64_at(40)..][..u64_at(48)];
    let (mut records, mut frames) = (Vec::new(), Vec::new());
    while !data.is_empty() {
        let size = usize::from(u16::from_le_bytes([data[6], data[7]]));
        let (record, rest) = data.split_at(size);
        if record[..4] == 81_u32.to_le_bytes() {
            let frame = zstd::bulk::decompress(&record[8..], 4 << 20).unwrap();
            frames.push(frame.len());
            records.extend(frame);
        } else {
            records.extend_from_slice(record);
        }
        data = rest;
    }
    (records, frames)
}

/// Writes at once, and by a thread.
const WAYS: [Option<usize>; 3] = [None, Some(1), Some(4)];

#[test]
fn each_level_and_way_has_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let records = stream();
    write(&path, &records, Options::default());
    let (expected, none) = plain(&path);
    assert!(none.is_empty());
    for level in LEVELS {
        for aio in WAYS {
            let options = Options { level, aio };
            write(&path, &records, options);
            let (found, frames) = plain(&path);
            assert!(found == expected, "{options:?}: other records");
            assert_eq!(frames.is_empty(), level == 0);
            let bytes = std::fs::read(&path).unwrap();
            let mut recording = Recording::open(&bytes).unwrap();
            let (mut count, mut same) = (0, true);
            let damage = recording.records(|_, record| {
                same &= match &records[count] {
                    Record::Comm { .. } => record == Record::Other(kind::COMM),
                    Record::Mapping(_) => record == Record::Other(kind::MMAP2),
                    written => record == *written,
                };
                count += 1;
            });
            assert!(count == records.len() && same && !damage.any(), "{options:?}: {count} {damage:?}");
        }
    }
}

#[test]
fn the_header_means_the_last_flush_whatever_is_written_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let records = stream();
    for aio in WAYS {
        for level in [0, 1] {
            let output: Output<Vec<u8>> = Output::File(File::create(&path).unwrap());
            let options = Options { level, aio };
            let mut writer = Writer::begin(output, &[event()], true, options, &Facts::default()).unwrap();
            let mut flushed = 0;
            for (at, record) in records.iter().enumerate() {
                writer.add(record, Stamp::default()).unwrap();
                if at % 5000 == 100 {
                    writer.flush().unwrap();
                    flushed = at + 1;
                }
                if at % 700 == 0 && flushed > 0 {
                    // File that a process leaves if it is killed now.
                    let bytes = std::fs::read(&path).unwrap();
                    let mut recording = Recording::open(&bytes).unwrap();
                    let mut count = 0;
                    let damage = recording.records(|_, _| count += 1);
                    assert!(count == flushed && !damage.any(), "{options:?}: {count} of {flushed}, {damage:?}");
                }
            }
            drop(writer);
        }
    }
}

#[test]
fn a_file_that_takes_nothing_is_an_error_at_the_begin() {
    for aio in WAYS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output: Output<Vec<u8>> = Output::File(full);
        let options = Options { level: 1, aio };
        let began = Writer::begin(output, &[event()], true, options, &Facts::default());
        assert_eq!(began.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_cut_file_and_one_of_a_killed_recorder_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let records = stream();
    write(&path, &records, Options::default());
    let bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (data, size) = (word(40), word(48));
    let read = |bytes: &[u8]| {
        let mut recording = Recording::open(bytes).unwrap();
        let mut count = 0;
        (recording.records(|_, _| count += 1), count)
    };
    // Cut behind the first record: no byte is half a record's.
    let first = usize::from(u16::from_le_bytes([bytes[data + 6], bytes[data + 7]]));
    let (damage, count) = read(&bytes[..data + first]);
    assert_eq!((damage.missing, damage.rest, count), ((size - first) as u64, 0, 1));
    // perf says the size and the place of features at the end; it was killed before that, or before it wrote anything.
    let mut killed = bytes[..data + size].to_vec();
    killed[48..56].fill(0);
    let (damage, count) = read(&killed);
    assert_eq!((damage.unfinished, damage.rest, count), (true, 0, records.len()));
    let (damage, count) = read(&killed[..data]);
    assert_eq!((damage.unfinished, damage.any(), count), (true, true, 0));
}
