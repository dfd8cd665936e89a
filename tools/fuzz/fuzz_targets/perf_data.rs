//! Recordings: whatever a file says, reading ends, and what it returns is bounded by the bytes that are there. Then
//! what `vpmu trace import` does with one, and callers by tables of any bytes.
//!
//! To be run with `-rss_limit_mb=256 -malloc_limit_mb=256`: zstd's window takes half of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_data::reader::{Recording, allowed};
use perf_data::record::Record;
use perf_data::unwind::Table;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let (mut records, mut fields) = (0_u64, 0_u64);
    let _ = recording.records(|_, record| {
        records += 1;
        match record {
            Record::Sample(sample) => fields += 8 * sample.chain.len() as u64 + sample.raw.len() as u64,
            Record::LostSamples(_) => fields += 8,
            Record::Lost { .. } => fields += 16,
            _ => {}
        }
    });
    let here = bytes.len() as u64;
    let most = here + allowed(here);
    // Each has a header of 8 bytes.
    assert!(8 * records + fields <= most);
    #[cfg(feature = "traces")]
    import(bytes);
    let _ = Table::new(bytes.to_vec(), 0x1000).caller(0x1000, &[Some(0x1000); 17], Some);
});

/// Whatever a recording says, its import is a trace that can be read, or an error in a line that leaves no folder.
#[cfg(feature = "traces")]
fn import(bytes: &[u8]) {
    use std::path::Path;
    let to = std::env::temp_dir().join(format!("vpmu-fuzz-import-{}", std::process::id()));
    match trace::import::import((Path::new("input"), bytes), None, &to) {
        Ok(_) => {
            let trace = trace::read::Trace::open(&to).expect("a trace");
            assert!(trace.batches().all(|batch| batch.is_ok()));
            let _ = std::fs::remove_dir_all(&to);
        }
        Err(error) => assert!(!error.to_string().contains('\n') && !to.exists(), "{error}"),
    }
}
