//! A segment that claims more than it has takes no memory: this process has no more of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use host_pmu::trace::Row;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use rustix::process::{Resource, getrlimit, setrlimit};
use trace::meta::Meta;
use trace::read::Trace;
use trace::write::Writer;

/// Room for what is read, beside what the process has.
const ROOM: u64 = 128 << 20;

/// Thrift's form of a number in the field after the one before.
fn number(value: i64, out: &mut Vec<u8>) {
    out.push(0x15);
    let mut value = (value << 1).cast_unsigned();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A page of a dictionary (2) or of data (0) with such a size, and so many values.
fn page(kind: i64, size: i64, values: i64, packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [kind, size, i64::try_from(packed.len()).unwrap()] {
        number(value, &mut out);
    }
    out.push(if kind == 2 { 0x4c } else { 0x2c });
    let fields: &[i64] = if kind == 2 { &[values, 0] } else { &[values, 0, 3, 3] };
    for value in fields {
        number(*value, &mut out);
    }
    out.extend([0, 0]);
    [out, packed.to_vec()].concat()
}

/// Writes groups of so many lines, whose first column has these pages, and the others none.
fn segment(to: &Path, schema: &TypePtr, groups: usize, lines: u64, pages: &[u8]) {
    let mut chunk = tempfile::tempfile().unwrap();
    chunk.write_all(pages).unwrap();
    chunk.rewind().unwrap();
    let about = vec![KeyValue::new("segment".to_owned(), "0".to_owned())];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(about)).build();
    let mut file = SerializedFileWriter::new(File::create(to).unwrap(), Arc::clone(schema), properties.into()).unwrap();
    for _ in 0..groups {
        let mut group = file.next_row_group().unwrap();
        for (at, descriptor) in SchemaDescriptor::new(Arc::clone(schema)).columns().iter().enumerate() {
            let size = if at == 0 { pages.len() as u64 } else { 0 };
            let metadata = ColumnChunkMetaData::builder(Arc::clone(descriptor))
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_num_values(lines.cast_signed())
                .set_total_compressed_size(size.cast_signed())
                .set_data_page_offset(0)
                .build()
                .unwrap();
            let close = ColumnCloseResult {
                bytes_written: size,
                rows_written: lines,
                metadata,
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(&chunk, close).unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

#[test]
fn a_segment_that_claims_more_than_it_has_is_refused_without_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, segment_0) = (dir.path().join("t"), dir.path().join("t/000000.parquet"));
    let meta = Meta { vcpus: 1, cpu: "clx".to_owned(), pmu_version: 2, ..Meta::default() };
    let mut writer = Writer::begin(&folder, meta).unwrap();
    writer.add(Row::default()).unwrap();
    writer.finish().unwrap();
    let whole = SerializedFileReader::new(File::open(&segment_0).unwrap()).unwrap();
    let schema = whole.metadata().file_metadata().schema_descr().root_schema_ptr();
    let large: i64 = 300 << 20;
    let zeros = zstd::bulk::compress(&vec![0; usize::try_from(large).unwrap()], 1).unwrap();
    let claim = zstd::bulk::compress(&[0; 8], 1).unwrap();
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = pages * rustix::param::page_size() as u64 + ROOM;
    setrlimit(Resource::As, rustix::process::Rlimit { current: Some(limit), ..getrlimit(Resource::As) }).unwrap();
    for (pages, groups, lines, why) in [
        (page(0, large, 2, &zeros), 1, 2, "a page of it is damaged"),
        (page(2, large, 2, &zeros), 1, 2, "a page of it is damaged"),
        (page(2, 8, 1 << 27, &claim), 1, 2, "a page of it is damaged"),
        (page(2, 8, 1 << 27, &claim), 1, 1 << 40, "rows are more than any trace's"),
        (Vec::new(), 40, 1 << 18, "rows are more than any trace's"),
    ] {
        segment(&segment_0, &schema, groups, lines, &pages);
        let error = Trace::open(&folder).unwrap().batches().find_map(Result::err).unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
    // A list of as many elements as there can be, and one in another as deep as there can be.
    for footer in [vec![0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 7], vec![0x19; 1 << 20]] {
        let bytes = [b"PAR1", &footer[..], &u32::try_from(footer.len()).unwrap().to_le_bytes(), b"PAR1"].concat();
        fs::write(&segment_0, bytes).unwrap();
        let error = Trace::open(&folder).unwrap().batches().find_map(Result::err).unwrap().to_string();
        assert!(error.contains("its footer is damaged"), "{error}");
    }
}
