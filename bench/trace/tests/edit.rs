//! Parts, sums and anonymous copies of traces.

use std::path::{Path, PathBuf};

use arch_pmu::caps::PmuCaps;
use host_pmu::trace::{Kind, Row};
use tempfile::TempDir;
use trace::edit;
use trace::meta::Meta;
use trace::read::Trace;
use trace::write::Writer;

const PERFEVTSEL0: u32 = 0x186;
const PMC0: u32 = 0xc1;
const GLOBAL_CTRL: u32 = 0x38f;

/// A guest that sets counter 0 up in the first millisecond, and reads it in each that follows.
fn written(dir: &TempDir, name: &str) -> (PathBuf, Trace) {
    let folder = dir.path().join(name);
    let meta = Meta {
        guest: "mine".to_owned(),
        host: "here".to_owned(),
        vcpus: 1,
        cpu: "clx".to_owned(),
        pmu_version: 2,
        ..Meta::default()
    };
    let mut writer = Writer::begin(&folder, meta).expect("a new folder");
    let row = |at: u64, kind: Kind, register: u32, value: u64| Row { at, vcpu: 0, kind, register, value, rip: 77 };
    let mut rows = vec![
        row(1_000, Kind::Write, PERFEVTSEL0, 0x53_00c0),
        row(2_000, Kind::Write, GLOBAL_CTRL, 1),
        row(3_000, Kind::Entry, 0, 0),
    ];
    for ms in 1..=8 {
        let at = ms * 1_000_000;
        rows.extend([
            row(at, Kind::Count, 0, 100),
            row(at, Kind::Read, PMC0, ms * 100),
            row(at + 10, Kind::Entry, 0, 0),
        ]);
    }
    for row in rows {
        writer.add(row).expect("a row");
    }
    writer.finish().expect("a trace");
    let trace = Trace::open(&folder).expect("a trace");
    (folder, trace)
}

fn read(folder: &Path) -> Vec<Row> {
    let trace = Trace::open(folder).expect("a trace");
    trace.batches().flat_map(|batch| batch.expect("rows")).collect()
}

#[test]
fn a_part_begins_with_the_registers_as_they_were() {
    let dir = TempDir::new().unwrap();
    let (_, whole) = written(&dir, "whole");
    let part = dir.path().join("part");
    edit::cut(&whole, PmuCaps::default(), &(3_500_000..6_500_000), &part).unwrap();
    let rows = read(&part);
    let begins: Vec<_> =
        rows.iter().take_while(|row| row.kind == Kind::State).map(|row| (row.register, row.value)).collect();
    for register in [(PERFEVTSEL0, 0x53_00c0), (GLOBAL_CTRL, 1), (PMC0, 400)] {
        assert!(begins.contains(&register), "{register:x?} of {begins:x?}");
    }
    let reads: Vec<u64> = rows.iter().filter(|row| row.kind == Kind::Read).map(|row| row.value).collect();
    assert_eq!(reads, [500, 600]);
    // The guest did nothing to have them, and a part of the part has them as well.
    let part = Trace::open(&part).unwrap();
    assert_eq!(part.meta.accesses, 2);
    let last = dir.path().join("last");
    edit::cut(&part, PmuCaps::default(), &(4_500_000..6_500_000), &last).unwrap();
    let rows = read(&last);
    assert!(rows.iter().any(|row| (row.kind, row.register, row.value) == (Kind::State, PMC0, 500)), "{rows:x?}");
}

#[test]
fn a_part_without_an_entry_leaves_no_folder() {
    let dir = TempDir::new().unwrap();
    let (_, whole) = written(&dir, "whole");
    let part = dir.path().join("part");
    for (range, why) in [(20_000_000..90_000_000, "nothing happened"), (5_000_000..5_000_000, "no time")] {
        let error = edit::cut(&whole, PmuCaps::default(), &range, &part).unwrap_err().to_string();
        assert!(error.contains(why) && !part.exists(), "{error}");
    }
}

#[test]
fn traces_side_by_side_keep_their_rows() {
    let dir = TempDir::new().unwrap();
    let ((first, one), (_, mut other)) = (written(&dir, "one"), written(&dir, "other"));
    let both = dir.path().join("both");
    "there".clone_into(&mut other.meta.host);
    let meta = edit::merge(&[one.clone(), other.clone()], &both).unwrap();
    assert_eq!((meta.vcpus, &*meta.host, &*meta.guest), (2, "several", "mine"));
    // What each was of is kept, in a sum of sums as well, and an anonymous copy has none of it.
    let sum = edit::merge(&[Trace::open(&both).unwrap(), one.clone()], &dir.path().join("sum")).unwrap();
    let names: Vec<_> = sum.parts.iter().map(|part| (&*part.host, part.vcpus, part.rows)).collect();
    assert_eq!(names, [("here", 1, one.meta.rows), ("there", 1, one.meta.rows), ("here", 1, one.meta.rows)]);
    let bare = edit::anonymize(&Trace::open(&both).unwrap(), &dir.path().join("bare")).unwrap();
    assert!(bare.parts.iter().chain([&bare]).all(|part| part.host.is_empty() && part.guest.is_empty()));
    let rows = read(&both);
    let single = read(&first);
    for vcpu in 0..2 {
        let of: Vec<_> = rows.iter().filter(|row| row.vcpu == vcpu).map(|row| Row { vcpu: 0, ..*row }).collect();
        assert_eq!(of, single);
    }
}

#[test]
fn an_anonymous_copy_names_neither_code_nor_guest_nor_host() {
    let dir = TempDir::new().unwrap();
    let (folder, trace) = written(&dir, "whole");
    let copy = dir.path().join("copy");
    let meta = edit::anonymize(&trace, &copy).unwrap();
    assert!(meta.guest.is_empty() && meta.host.is_empty());
    let bare: Vec<_> = read(&folder).into_iter().map(|row| Row { rip: 0, ..row }).collect();
    assert_eq!(read(&copy), bare);
    let json = std::fs::read_to_string(copy.join(trace::meta::NAME)).unwrap();
    assert!(!json.contains("mine") && !json.contains("here"), "{json}");
}
