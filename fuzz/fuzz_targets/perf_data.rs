//! Recordings: whatever a file says, reading ends, memory is bounded, and every record is read or counted as damage.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_data::reader::Recording;
use perf_data::record::Record;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let (mut records, mut entries) = (0_u64, 0_usize);
    let damage = recording.records(|_, record| {
        records += 1;
        if let Record::Sample(sample) = record {
            // A record has at most 64 KiB.
            assert!(sample.chain.len() < 8192);
            entries = entries.max(sample.chain.len());
        }
    });
    assert!(records > 0 || entries == 0);
    assert!(damage.rest <= bytes.len() as u64 + (1 << 27));
});
