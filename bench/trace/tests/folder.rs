//! A trace's folder: what is written is read, and what is damaged is refused in a line.

use std::fs;
use std::path::{Path, PathBuf};

use host_pmu::trace::{Kind, Row};
use results::error::Error;
use tempfile::TempDir;
use trace::meta::{Meta, NAME};
use trace::read::Trace;
use trace::write::Writer;

fn meta(vcpus: usize) -> Meta {
    Meta { vcpus, cpu: "clx".to_owned(), pmu_version: 2, ..Meta::default() }
}

/// Rows of two vCPUs, of which the second appears late, on a clock that goes back once.
fn rows() -> Vec<Row> {
    let row = |n: u64| {
        let kind = Kind::ALL[n as usize % Kind::ALL.len()];
        let kind = if kind.is_count() { Kind::Write } else { kind };
        let (at, vcpu) = (if n == 77 { 3 } else { n * 1000 }, u16::from(n > 50 && n.is_multiple_of(3)));
        Row { at, vcpu, kind, register: n as u32 ^ 0xc000_0000, value: n << 44, rip: n }
    };
    (0..1000).map(row).collect()
}

fn write(rows: &[Row]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a trace");
    let folder = dir.path().join("t");
    let mut writer = Writer::begin(&folder, meta(2)).expect("a trace");
    for row in rows {
        writer.add(*row).expect("a trace");
    }
    assert_eq!(writer.finish().expect("a trace").rows, rows.len() as u64);
    (dir, folder)
}

fn read(folder: &Path) -> Result<Vec<Row>, Error> {
    let trace = Trace::open(folder)?;
    let batches: Vec<_> = trace.batches().collect();
    assert!(batches.iter().rev().skip(1).all(Result::is_ok), "nothing is behind an error");
    batches.into_iter().collect::<Result<Vec<_>, _>>().map(|batches| batches.concat())
}

#[test]
fn rows_come_back_by_vcpu_with_their_times() {
    let rows = rows();
    let (_dir, folder) = write(&rows);
    let found = read(&folder).unwrap();
    for vcpu in 0..2 {
        let of = |rows: &[Row]| rows.iter().filter(|row| row.vcpu == vcpu).copied().collect::<Vec<_>>();
        let mut written = of(&rows);
        (1..written.len()).for_each(|at| written[at].at = written[at].at.max(written[at - 1].at));
        assert_eq!(of(&found), written);
    }
    assert!(Writer::begin(&folder, meta(1)).unwrap_err().to_string().contains("exists"));
}

#[test]
fn what_is_damaged_is_refused_and_what_is_whole_is_read() {
    let rows = rows();
    let bad = |spoil: &dyn Fn(&Path), needle: &str| {
        let (_dir, folder) = write(&rows);
        spoil(&folder);
        let error = read(&folder).unwrap_err();
        let line = error.to_string();
        assert!(error.exit.code() == 2 && line.contains(needle) && !line.contains('\n'), "{needle}: {line}");
    };
    let segment = "000000.csv.zst";
    let edit = |folder: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(folder.join(NAME)).unwrap();
        assert!(text.contains(from));
        fs::write(folder.join(NAME), text.replace(from, to)).unwrap();
    };
    bad(&|folder| fs::remove_file(folder.join(NAME)).unwrap(), NAME);
    bad(&|folder| fs::write(folder.join(NAME), "{}").unwrap(), "form");
    bad(&|folder| edit(folder, "vpmu-trace/2", "vpmu-trace/9"), "vpmu-trace/9");
    bad(&|folder| edit(folder, "\"vcpus\": 2", "\"vcpus\": 0"), "0 vCPUs");
    bad(&|folder| edit(folder, "\"vcpus\": 2", "\"vcpus\": 1"), "vCPU 1");
    bad(&|folder| edit(folder, "\"segments\": 1", "\"segments\": 2"), "1 of its 2");
    bad(&|folder| fs::remove_file(folder.join(segment)).unwrap(), "0 of its 1");
    bad(&|folder| drop(fs::rename(folder.join(segment), folder.join("000001.csv.zst"))), "segments");
    bad(&|folder| edit(folder, "\"rows\": 1000", "\"rows\": 1001"), "1001");
    bad(
        &|folder| {
            edit(folder, "\"segments\": 1", "\"segments\": 2");
            edit(folder, "\"rows\": 1000", "\"rows\": 2000");
            fs::copy(folder.join(segment), folder.join("000001.csv.zst")).unwrap();
        },
        "older than",
    );
    bad(&|folder| fs::write(folder.join(segment), "vcpu").unwrap(), segment);
    // Cut and flipped anywhere: an error in a line, or rows that are no more than there were.
    let (_dir, folder) = write(&rows);
    let whole = fs::read(folder.join(segment)).unwrap();
    for at in (0..whole.len()).step_by(97) {
        fs::write(folder.join(segment), &whole[..at]).unwrap();
        assert!(read(&folder).is_err(), "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        fs::write(folder.join(segment), &flipped).unwrap();
        assert!(read(&folder).map_or(0, |found| found.len()) <= rows.len(), "flipped at {at}");
    }
}

#[test]
fn a_trace_without_its_end_has_what_was_finished() {
    let (_dir, folder) = write(&rows());
    let dir = TempDir::new().unwrap();
    let cut = dir.path().join("cut");
    // A recorder that was killed leaves its JSON as it began, and the segments that have their names.
    Writer::begin(&cut, meta(2)).and_then(|mut writer| writer.add(Row::default())).unwrap();
    // Of several segments each is whole, and nothing is in two.
    let flushed = dir.path().join("flushed");
    let mut writer = Writer::begin(&flushed, meta(2)).unwrap();
    for row in rows() {
        writer.add(row).unwrap();
        if row.rip % 7 == 0 {
            writer.flush().unwrap();
        }
    }
    assert_eq!((writer.finish().unwrap().rows, read(&flushed).unwrap().len()), (1000, 1000));
    assert_eq!(read(&cut).unwrap(), []);
    fs::copy(folder.join("000000.csv.zst"), cut.join("000000.csv.zst")).unwrap();
    assert_eq!(read(&cut).unwrap().len(), 1000);
    fs::copy(folder.join("000000.csv.zst"), cut.join("000002.csv.zst")).unwrap();
    assert!(read(&cut).unwrap_err().to_string().contains("2 of its 3"));
}
