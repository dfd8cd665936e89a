//! Traces: a JSON and a segment that say anything are refused in a line, or read and replayed to their end.
//!
//! An input is a segment or its CSV as it is, or edits of a whole CSV: a place and what its byte is changed by. Before it is a JSON as it
//! is, or edits of it as well, behind its length.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::LazyLock;

use arch_pmu::intel::IntelCaps;
use host_pmu::strategy::Strategy;
use host_pmu::trace::{Kind, Row};
use libfuzzer_sys::fuzz_target;
use sim::model::Model;
use sim::replay::Replay;
use trace::meta::{Meta, NAME};
use trace::read::Trace;
use trace::write::Writer;

const SEGMENT: &str = "000000.csv.zst";

/// The begin of what zstd packed.
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A whole trace: its folder, JSON and CSV.
static WHOLE: LazyLock<(PathBuf, Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("vpmu-fuzz-{}", std::process::id()));
    let meta = Meta { vcpus: 2, cpu: "clx".to_owned(), pmu_version: 4, ..Meta::default() };
    let mut writer = Writer::begin(&folder, meta).expect("a new folder");
    for n in 0..600_u32 {
        let kind = Kind::ALL[n as usize % Kind::ALL.len()];
        let register = [0xc1, 0x186, 0x38d, 0x38e, 0x38f, 0x390, 0x309, 2][n as usize % 8];
        let row = Row {
            at: u64::from(n) * 900,
            vcpu: (n % 2) as u16,
            kind,
            register,
            value: u64::from(n) << (n % 50),
            rip: 7,
        };
        writer.add(row).expect("a row");
    }
    writer.finish().expect("a trace");
    let read = |name: &str| fs::read(folder.join(name)).expect("a file");
    let (json, segment) = (read(NAME), zstd::decode_all(&read(SEGMENT)[..]).expect("a whole segment"));
    (folder, json, segment)
});

/// Edits a whole file, unless the input is one by its first bytes.
fn edited(input: &[u8], whole: &[u8], magic: &[u8]) -> Vec<u8> {
    if input.starts_with(magic) {
        return input.to_vec();
    }
    let mut bytes = whole.to_vec();
    for edit in input.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[place] ^= edit[2];
    }
    bytes
}

fuzz_target!(|input: &[u8]| {
    let (folder, json, segment) = &*WHOLE;
    let Some((length, rest)) = input.split_first() else { return };
    let (of_json, of_segment) = rest.split_at(usize::from(*length).min(rest.len()));
    fs::write(folder.join(NAME), edited(of_json, json, b"{")).expect("a file");
    let segment = edited(of_segment, segment, MAGIC);
    let is_packed = segment.starts_with(MAGIC);
    let packed = if is_packed { segment } else { zstd::encode_all(&segment[..], 1).expect("packed") };
    fs::write(folder.join(SEGMENT), packed).expect("a file");
    let Ok(trace) = Trace::open(folder) else { return };
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
