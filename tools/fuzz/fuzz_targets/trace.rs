//! Traces: a JSON and a segment that say anything are refused in a line, or read and replayed to their end.
//!
//! An input is the JSON, a byte 0, and the segment or its CSV. `seeds/trace` has a whole one.
#![no_main]

use std::fs;
use std::rc::Rc;

use arch_pmu::intel::IntelCaps;
use host_pmu::strategy::Strategy;
use libfuzzer_sys::fuzz_target;
use sim::model::Model;
use sim::replay::Replay;
use trace::meta::NAME;
use trace::read::Trace;

/// The begin of what zstd packed.
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (json, segment) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let packed = if segment.starts_with(MAGIC) { segment.to_vec() } else { zstd::encode_all(segment, 1).expect("packed") };
    let folder = std::env::temp_dir().join(format!("vpmu-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(NAME), json).expect("a file");
    fs::write(folder.join("000000.csv.zst"), packed).expect("a file");
    let Ok(trace) = Trace::open(&folder) else { return };
    let model = Rc::new(Model::embedded("clx-ap-watchdog-on").expect("a model"));
    let strategy = Strategy::preset("gate").expect("a preset");
    let mut replay = Replay::new(&model, IntelCaps::default().into(), &strategy, 1, 0);
    for batch in trace.batches() {
        match batch {
            Ok(rows) => replay.feed(&rows),
            Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    let _ = replay.finish();
});
