//! A segment that is packed to nothing takes no memory: this process has no more of it.

use std::fs;
use std::io::Write as _;

use host_pmu::trace::Row;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trace::meta::Meta;
use trace::read::Trace;
use trace::write::Writer;
use zstd::zstd_safe::CParameter;

#[test]
fn a_segment_that_claims_more_than_it_has_is_refused_without_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, segment) = (dir.path().join("t"), dir.path().join("t/000000.csv.zst"));
    let meta = Meta { vcpus: 1, cpu: "clx".to_owned(), pmu_version: 2, ..Meta::default() };
    let mut writer = Writer::begin(&folder, meta).unwrap();
    writer.add(Row::default()).unwrap();
    writer.finish().unwrap();
    let whole = zstd::decode_all(fs::File::open(&segment).unwrap()).unwrap();
    let (header, line) = whole.split_at(whole.iter().position(|byte| *byte == b'\n').unwrap() + 1);
    // 160 MiB behind the columns' names, in a window of as much or in the usual one.
    let bomb = |of: &[u8], window: u32| {
        let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
        packed.set_parameter(CParameter::WindowLog(window)).unwrap();
        packed.write_all(header).unwrap();
        let of = of.repeat((1 << 20) / of.len());
        (0..160).for_each(|_| packed.write_all(&of).unwrap());
        packed.finish().unwrap()
    };
    let inputs = [
        (bomb(b"0", 20), "line 2 has no end"),
        (bomb(b"\n", 20), "line 2 is no row"),
        (bomb(line, 20), "rows are more than any trace's"),
        (bomb(line, 27), "too much memory"),
    ];
    let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    // Room for what is read, beside what the process has.
    let limit = pages * rustix::param::page_size() as u64 + (128 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..getrlimit(Resource::As) }).unwrap();
    for (input, why) in inputs {
        fs::write(&segment, input).unwrap();
        let error = Trace::open(&folder).unwrap().batches().find_map(Result::err).unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}
