//! Recordings: whatever a file says, reading ends, and what it returns is bounded by the bytes that are there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_data::feature::{MOST_IDS, MOST_OF_NAME};
use perf_data::reader::{MOST_EVENTS, MOST_INFLATED, MOST_UNUSED, Recording};
use perf_data::record::Record;

/// Most bytes that zstd makes of one: a block of 128 KiB has at least four.
const MOST_OF_BYTE: u64 = 32 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let (mut records, mut fields, mut text) = (0_u64, 0_u64, 0_u64);
    let damage = recording.records(|_, record| {
        records += 1;
        match record {
            Record::Sample(sample) => fields += 8 * sample.chain.len() as u64,
            // A byte that is no UTF-8 becomes three.
            Record::Comm { name, .. } => text += name.len() as u64,
            Record::Mapping(mapping) => text += mapping.file.len() as u64,
            Record::Lost { .. } | Record::Fork { .. } => fields += 16,
            Record::Other(_) => {}
        }
    });
    let here = bytes.len() as u64;
    let most = here + MOST_INFLATED.min(here * MOST_OF_BYTE);
    // Records, read or damaged, have a header of 8 bytes each; a stop in a frame may be without one.
    assert!(8 * records + fields + text / 3 <= most);
    assert!(damage.frames <= here / 8 && damage.records <= most / 8 + here / 8);
    assert!(damage.rest <= here + MOST_UNUSED as u64);
    assert!(recording.events.len() <= MOST_EVENTS);
    assert!(recording.events.iter().map(|event| event.ids.len()).sum::<usize>() <= MOST_IDS);
    assert!(recording.events.iter().all(|event| event.name.len() <= MOST_OF_NAME));
    // The section of build-ids may lie in the data as well.
    assert!(recording.build_ids.len() as u64 <= 2 * here / 36);
    assert!(recording.command_line.iter().map(|word| word.len() as u64).sum::<u64>() <= 3 * here);
});
