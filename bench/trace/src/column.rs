//! The columns of a row: one table for writing and reading.

use std::sync::Arc;

use host_pmu::trace::{Kind, Row};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::{ColumnPath, Type};

/// Type of a column's values, and how a row has them. A time is the step from the vCPU's row before, whose time is given.
enum Values {
    Text(fn(&Row) -> &'static str, fn(&mut Row, &[u8]) -> bool),
    Small(u8, fn(&Row) -> u32, fn(&mut Row, u32) -> bool),
    Large(fn(&Row, u64) -> u64, fn(&mut Row, u64, u64)),
}

/// A column.
pub(crate) struct Column {
    name: &'static str,
    /// Values differ too much for a dictionary.
    spread: bool,
    values: Values,
}

const fn column(name: &'static str, spread: bool, values: Values) -> Column {
    Column { name, spread, values }
}

/// All columns, in order.
pub(crate) const COLUMNS: [Column; 6] = [
    column(
        "vcpu",
        false,
        Values::Small(
            16,
            |row| row.vcpu.into(),
            |row, value| {
                row.vcpu = value as u16;
                u16::try_from(value).is_ok()
            },
        ),
    ),
    column(
        "step_ns",
        true,
        Values::Large(|row, before| row.at - before, |row, step, before| row.at = before.saturating_add(step)),
    ),
    column(
        "kind",
        false,
        Values::Text(
            |row| row.kind.key(),
            |row, key| {
                let kind = Kind::from_key(key);
                row.kind = kind.unwrap_or_default();
                kind.is_some()
            },
        ),
    ),
    column(
        "register",
        false,
        Values::Small(
            32,
            |row| row.register,
            |row, value| {
                row.register = value;
                true
            },
        ),
    ),
    column("value", true, Values::Large(|row, _| row.value, |row, value, _| row.value = value)),
    column("rip", false, Values::Large(|row, _| row.rip, |row, rip, _| row.rip = rip)),
];

/// Returns the schema.
pub(crate) fn schema() -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.values {
            Values::Text(..) => (Physical::BYTE_ARRAY, LogicalType::String),
            Values::Small(bits, ..) => (Physical::INT32, LogicalType::integer(bits.cast_signed(), false)),
            Values::Large(..) => (Physical::INT64, LogicalType::integer(64, false)),
        };
        Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(logical))
            .build()
            .map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("trace").with_fields(fields).build()
}

/// Returns how columns are encoded: those of few values by a dictionary, the others byte by byte, all compressed.
pub(crate) fn encoded() -> WriterPropertiesBuilder {
    let builder =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(9).unwrap_or_default()));
    COLUMNS.iter().filter(|column| column.spread).fold(builder, |builder, column| {
        let path = ColumnPath::from(column.name);
        builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT)
    })
}

impl Column {
    /// Writes the column of these rows, which are one vCPU's.
    pub(crate) fn write(&self, rows: &[Row], writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        match (&self.values, writer) {
            (Values::Text(of, _), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(of(row))).collect();
                writer.write_batch(&values, None, None)
            }
            (Values::Small(_, of, _), ColumnWriter::Int32ColumnWriter(writer)) => {
                let values: Vec<i32> = rows.iter().map(|row| of(row).cast_signed()).collect();
                writer.write_batch(&values, None, None)
            }
            (Values::Large(of, _), ColumnWriter::Int64ColumnWriter(writer)) => {
                let before = std::iter::once(0).chain(rows.iter().map(|row| row.at));
                let values: Vec<i64> =
                    rows.iter().zip(before).map(|(row, before)| of(row, before).cast_signed()).collect();
                writer.write_batch(&values, None, None)
            }
            _ => return Err(mismatch(self.name)),
        }
        .map(drop)
    }

    /// Reads the column into these rows.
    pub(crate) fn read(&self, rows: &mut [Row], reader: ColumnReader) -> Result<(), ParquetError> {
        let wrong = || ParquetError::General(format!("a value of column {} is none", self.name));
        let short = || ParquetError::General(format!("column {} is short", self.name));
        match (&self.values, reader) {
            (Values::Text(_, set), ColumnReader::ByteArrayColumnReader(mut reader)) => {
                let mut values: Vec<ByteArray> = Vec::with_capacity(rows.len());
                let (_, read, _) = reader.read_records(rows.len(), None, None, &mut values)?;
                let values = values.iter().take(read);
                let set = rows.iter_mut().zip(values).map(|(row, value)| set(row, value.data())).filter(|set| *set);
                if set.count() == rows.len() { Ok(()) } else { Err(wrong()) }
            }
            (Values::Small(_, _, set), ColumnReader::Int32ColumnReader(mut reader)) => {
                let mut values: Vec<i32> = Vec::with_capacity(rows.len());
                reader.read_records(rows.len(), None, None, &mut values)?;
                let set =
                    rows.iter_mut().zip(&values).map(|(row, value)| set(row, value.cast_unsigned())).filter(|set| *set);
                if set.count() == rows.len() { Ok(()) } else { Err(wrong()) }
            }
            (Values::Large(_, set), ColumnReader::Int64ColumnReader(mut reader)) => {
                let mut values: Vec<i64> = Vec::with_capacity(rows.len());
                reader.read_records(rows.len(), None, None, &mut values)?;
                if values.len() != rows.len() {
                    return Err(short());
                }
                let mut before = 0;
                for (row, value) in rows.iter_mut().zip(&values) {
                    set(row, value.cast_unsigned(), before);
                    before = row.at;
                }
                Ok(())
            }
            _ => Err(mismatch(self.name)),
        }
    }
}

fn mismatch(name: &str) -> ParquetError {
    ParquetError::General(format!("column {name} has another type"))
}
