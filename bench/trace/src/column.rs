//! The columns of a row: the table by which they are written, and the reader of their numbers.

use std::io::Write;
use std::sync::Arc;

use arch_pmu::spec::{CounterId, MAX_COUNTERS};
use host_pmu::trace::{Kind, Row, counter};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReaderImpl;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

use crate::meta::SEGMENT;
use crate::segment::Segment;

/// Registers of a counter have their low bits alone in a prediction.
const COUNTER: u64 = (1 << 48) - 1;

/// A row of a file: a row of a trace, with the entry that follows it if one does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    vcpu: u16,
    /// From the vCPU's entry or row before.
    step: u64,
    kind: Kind,
    register: u32,
    /// A counter that is accessed has its value here less what it should hold.
    value: u64,
    count: Option<u64>,
    rip: u64,
    entry: Option<u64>,
}

/// The values that counters hold by what was said of them.
#[derive(Default)]
struct Counters([u64; MAX_COUNTERS]);

impl Counters {
    /// Takes the row's value, and returns it as files have it (`code`), or the other way round.
    fn value(&mut self, kind: Kind, register: u32, value: u64, code: bool) -> u64 {
        let is_count = kind.is_count();
        let accessed = counter(kind, register).map(CounterId::index);
        let Some(held) = self.0.get_mut(accessed.unwrap_or(if is_count { register as usize } else { MAX_COUNTERS }))
        else {
            return value;
        };
        let coded = if is_count {
            *held = held.wrapping_add(value);
            return value;
        } else if code {
            value.wrapping_sub(*held & COUNTER)
        } else {
            value.wrapping_add(*held & COUNTER)
        };
        *held = if code { value } else { coded };
        coded
    }
}

impl Line {
    /// Puts rows of a vCPU, whose times grow, into lines.
    pub(crate) fn of(rows: &[Row]) -> Vec<Self> {
        let (mut lines, mut counters, mut before) = (Vec::<Self>::with_capacity(rows.len()), Counters::default(), 0);
        for row in rows {
            let step = row.at.saturating_sub(before);
            before = row.at;
            let is_bare = row.kind == Kind::Entry && (row.register, row.value, row.rip) == (0, 0, 0);
            if let Some(line) = lines.last_mut().filter(|line| is_bare && line.entry.is_none()) {
                line.entry = Some(step);
                continue;
            }
            let value = counters.value(row.kind, row.register, row.value, true);
            let is_count = row.kind.is_count();
            let (value, count) = if is_count { (0, Some(value)) } else { (value, None) };
            let Row { vcpu, kind, register, rip, .. } = *row;
            lines.push(Self { vcpu, step, kind, register, value, count, rip, entry: None });
        }
        lines
    }
}

/// Type of a column's values, and how a line has them.
enum Values {
    Text(fn(&Line) -> &'static str),
    Small(u8, fn(&Line) -> u32),
    Large(fn(&Line) -> u64),
    /// Not every line has one.
    Some(fn(&Line) -> Option<u64>),
}

/// How a column is encoded before it is compressed.
enum Code {
    /// A dictionary has them: they are few, in no order.
    Dictionary,
    /// They stand as they are: what repeats does so in the same order.
    Plain,
    /// Byte by byte: values whose high bytes are alike.
    Split,
}

/// A column.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    code: Code,
    values: Values,
    /// The meaning, for those who read it without this program.
    pub(crate) about: &'static str,
}

/// All columns, in order.
pub(crate) const COLUMNS: [Column; 8] = [
    Column {
        name: "vcpu",
        code: Code::Dictionary,
        values: Values::Small(16, |line| line.vcpu.into()),
        about: "the vCPU; a row group has one vCPU's rows",
    },
    Column {
        name: "step_ns",
        code: Code::Split,
        values: Values::Large(|line| line.step),
        about: "ns from the entry of the vCPU's row before, or from that row if it has none: the guest's time; from 0 at the begin of a file",
    },
    Column {
        name: "kind",
        code: Code::Dictionary,
        values: Values::Text(|line| line.kind.key()),
        about: "read, write, rdpmc and *-fault are the guest's accesses; count and overflow what the host side handed over",
    },
    Column {
        name: "register",
        code: Code::Plain,
        values: Values::Small(32, |line| line.register),
        about: "the MSR, ECX of RDPMC, or the counter of a count or overflow: 0 to 7 general-purpose, 8 and on fixed",
    },
    Column {
        name: "value",
        code: Code::Plain,
        values: Values::Large(|line| line.value),
        about: "the value read or written; of a counter less its value before: that of its last access in the file (0 without one) and its counts since, modulo 2^48",
    },
    Column {
        name: "count",
        code: Code::Split,
        values: Values::Some(|line| line.count),
        about: "counts of a count or overflow",
    },
    Column {
        name: "rip",
        code: Code::Plain,
        values: Values::Large(|line| line.rip),
        about: "RIP of an access; 0: unknown",
    },
    Column {
        name: "entry_ns",
        code: Code::Dictionary,
        values: Values::Some(|line| line.entry),
        about: "ns from this row to the entry that follows it: the host's time; null: none follows before the next row",
    },
];

/// Returns the schema.
pub(crate) fn schema() -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.values {
            Values::Text(..) => (Physical::BYTE_ARRAY, LogicalType::String),
            Values::Small(bits, ..) => (Physical::INT32, LogicalType::integer(bits.cast_signed(), false)),
            Values::Large(..) | Values::Some(..) => (Physical::INT64, LogicalType::integer(64, false)),
        };
        let is_some = matches!(column.values, Values::Some(..));
        Type::primitive_type_builder(column.name, physical)
            .with_repetition(if is_some { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(Some(logical))
            .build()
            .map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("trace").with_fields(fields).build()
}

/// Returns how columns are encoded; `small`: as small as it gets, at a tenth of the speed.
pub(crate) fn encoded(small: bool) -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(if small { 15 } else { 6 }).unwrap_or_default();
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(SEGMENT)
        .set_data_page_size_limit(8 * SEGMENT);
    COLUMNS.iter().fold(builder, |builder, column| {
        let path = ColumnPath::from(column.name);
        let encoding = match column.code {
            Code::Dictionary => return builder,
            Code::Plain => Encoding::PLAIN,
            Code::Split => Encoding::BYTE_STREAM_SPLIT,
        };
        builder.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding)
    })
}

impl Column {
    /// Writes the column of these lines.
    pub(crate) fn write(&self, lines: &[Line], writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        match (&self.values, writer) {
            (Values::Text(of), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let values: Vec<ByteArray> = lines.iter().map(|line| ByteArray::from(of(line))).collect();
                writer.write_batch(&values, None, None)
            }
            (Values::Small(_, of), ColumnWriter::Int32ColumnWriter(writer)) => {
                let values: Vec<i32> = lines.iter().map(|line| of(line).cast_signed()).collect();
                writer.write_batch(&values, None, None)
            }
            (Values::Large(of), ColumnWriter::Int64ColumnWriter(writer)) => {
                let values: Vec<i64> = lines.iter().map(|line| of(line).cast_signed()).collect();
                writer.write_batch(&values, None, None)
            }
            (Values::Some(of), ColumnWriter::Int64ColumnWriter(writer)) => {
                let there: Vec<i16> = lines.iter().map(|line| i16::from(of(line).is_some())).collect();
                let values: Vec<i64> = lines.iter().filter_map(|line| of(line).map(u64::cast_signed)).collect();
                writer.write_batch(&values, Some(&there), None)
            }
            _ => return Err(mismatch(self.name)),
        }
        .map(drop)
    }
}

/// Writes rows of a vCPU, whose times grow, as a row group.
pub(crate) fn write<W: Write + Send>(rows: &[Row], file: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
    let lines = Line::of(rows);
    let mut group = file.next_row_group()?;
    for column in &COLUMNS {
        let Some(mut writer) = group.next_column()? else { break };
        column.write(&lines, writer.untyped())?;
        writer.close()?;
    }
    group.close().map(drop)
}

fn mismatch(name: &str) -> ParquetError {
    ParquetError::General(format!("column {name} has another type"))
}

fn wrong(name: &str) -> ParquetError {
    ParquetError::General(format!("a value of column {name} is none"))
}

/// A column that is being read, and its values of some lines.
struct Numbers<T: DataType> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    /// 1 for each line that has a value, where not every line has one.
    there: Vec<i16>,
}

impl<T: DataType> Numbers<T> {
    fn new(segment: &Segment, group: usize, name: &'static str) -> Result<Self, ParquetError> {
        let at = COLUMNS.iter().position(|column| column.name == name).ok_or_else(|| mismatch(name))?;
        let level = i16::from(matches!(COLUMNS[at].values, Values::Some(..)));
        let number = Type::primitive_type_builder(name, T::get_physical_type()).build()?;
        let descriptor = ColumnDescriptor::new(Arc::new(number), level, 0, ColumnPath::from(name));
        let reader = ColumnReaderImpl::new(Arc::new(descriptor), Box::new(segment.pages(group, at, name == "kind")));
        Ok(Self { name, reader, values: Vec::new(), there: Vec::new() })
    }

    fn read(&mut self, lines: usize) -> Result<&[T::T], ParquetError> {
        self.values.clear();
        self.there.clear();
        let (read, _, _) = self.reader.read_records(lines, Some(&mut self.there), None, &mut self.values)?;
        if read != lines {
            return Err(ParquetError::General(format!("column {} is short", self.name)));
        }
        Ok(&self.values)
    }
}

impl Numbers<Int64Type> {
    /// Reads those that not every line has.
    fn read_some(&mut self, lines: usize) -> Result<impl FnMut(usize) -> Option<u64>, ParquetError> {
        self.read(lines)?;
        let (mut values, there) = (self.values.iter(), &self.there);
        Ok(move |line| if there[line] > 0 { values.next().map(|value| value.cast_unsigned()) } else { None })
    }
}

/// Lines that are read at a time: caches hold their columns and rows.
const BLOCK: usize = 1 << 11;

/// A row group that is being read.
pub(crate) struct Group {
    left: usize,
    vcpu: Option<i32>,
    at: u64,
    counters: Counters,
    small: [Numbers<Int32Type>; 3],
    large: [Numbers<Int64Type>; 3],
    some: [Numbers<Int64Type>; 2],
}

impl Group {
    /// Begins to read it.
    pub(crate) fn new(segment: &Segment, group: usize) -> Result<Self, ParquetError> {
        let small = |name| Numbers::new(segment, group, name);
        let small = [small("vcpu")?, small("kind")?, small("register")?];
        let large = |name| Numbers::new(segment, group, name);
        let some = [large("count")?, large("entry_ns")?];
        let large = [large("step_ns")?, large("value")?, large("rip")?];
        Ok(Self { left: segment.lines(group), vcpu: None, at: 0, counters: Counters::default(), small, large, some })
    }

    /// Reads the next rows, which are of one of so many vCPUs; none: there are no more.
    pub(crate) fn rows(&mut self, most: usize) -> Result<Vec<Row>, ParquetError> {
        let lines = self.left.min(BLOCK);
        self.left -= lines;
        let [vcpus, kinds, registers] = &mut self.small;
        let (vcpus, kinds, registers) = (vcpus.read(lines)?, kinds.read(lines)?, registers.read(lines)?);
        let [steps, values, rips] = &mut self.large;
        let (steps, values, rips) = (steps.read(lines)?, values.read(lines)?, rips.read(lines)?);
        let [counts, entries] = &mut self.some;
        let (mut counts, mut entries) = (counts.read_some(lines)?, entries.read_some(lines)?);
        let Some(&vcpu) = vcpus.first() else { return Ok(Vec::new()) };
        let vcpu = self.vcpu.get_or_insert(vcpu);
        if usize::try_from(*vcpu).is_ok_and(|vcpu| vcpu >= most) || vcpus.iter().any(|other| other != vcpu) {
            return Err(ParquetError::General(format!("rows of vCPU {vcpu} are not where they belong")));
        }
        let vcpu = u16::try_from(*vcpu).map_err(|_| wrong("vcpu"))?;
        let mut rows = Vec::with_capacity(2 * lines);
        let columns = steps.iter().zip(kinds).zip(registers).zip(values).zip(rips);
        for (line, ((((step, kind), register), value), rip)) in columns.enumerate() {
            let kind = usize::try_from(*kind).ok().and_then(|kind| Kind::ALL.get(kind));
            let (kind, register) = (*kind.ok_or_else(|| wrong("kind"))?, register.cast_unsigned());
            self.at = self.at.saturating_add(step.cast_unsigned());
            let value = counts(line).unwrap_or(value.cast_unsigned());
            let value = self.counters.value(kind, register, value, false);
            rows.push(Row { at: self.at, vcpu, kind, register, value, rip: rip.cast_unsigned() });
            if let Some(step) = entries(line) {
                self.at = self.at.saturating_add(step);
                rows.push(Row { at: self.at, vcpu, kind: Kind::Entry, ..Row::default() });
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_what_nothing_else_tells_and_give_the_rows_back() {
        const PMC0: u32 = 0xc1;
        let row = |at, kind, register, value| Row { at, kind, register, value, ..Row::default() };
        let period = 2_000_000u64;
        let (armed, past) = ((1 << 48) - period, 777);
        let handler = |at: u64| {
            [
                row(at, Kind::Overflow, 0, period + past),
                row(at, Kind::Entry, 0, 0),
                row(at + 5, Kind::Read, PMC0, past),
                row(at + 6, Kind::Entry, 0, 0),
                row(at + 8, Kind::Write, PMC0, armed),
                row(at + 9, Kind::Entry, 0, 0),
            ]
        };
        let first = [row(0, Kind::Write, PMC0, armed), row(1, Kind::Entry, 0, 0)];
        let mut rows = [&first[..], &handler(100), &handler(200)].concat();
        let lines = Line::of(&rows);
        let values: Vec<_> = lines.iter().map(|line| (line.value, line.count, line.entry)).collect();
        let again = (armed - past, None, Some(1));
        let counted = (0, Some(period + past), Some(0));
        assert_eq!(values[1..], [counted, (0, None, Some(1)), again, counted, (0, None, Some(1)), again]);
        // Whatever registers and values there are, by whatever access; counters of AMD, of no processor, and entries in a row.
        let registers = [0, 1, 9, 99, PMC0, 0x4c1, 0x30a, 0x38f, 0xc001_0201, 0x4000_0001];
        rows.extend((0..6000u64).map(|n| {
            let value = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 4 * 16);
            let register = registers[n as usize / 7 % registers.len()];
            let kind = Kind::ALL[n as usize % Kind::ALL.len()];
            Row { rip: value, ..row(1000 + n, kind, register, value) }
        }));
        rows.extend([row(8000, Kind::Entry, 0, 0), row(8001, Kind::Entry, 0, 0)]);
        let mut file = Vec::new();
        let properties = Arc::new(encoded(false).build());
        let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema().unwrap()), properties).unwrap();
        write(&rows, &mut writer).unwrap();
        writer.close().unwrap();
        let mut group = Group::new(&Segment::of(file, schema().unwrap()).unwrap(), 0).unwrap();
        let blocks: Vec<_> =
            std::iter::repeat_with(|| group.rows(1).unwrap()).take_while(|rows| !rows.is_empty()).collect();
        assert!(blocks.len() > 2 && blocks.concat() == rows);
    }
}
