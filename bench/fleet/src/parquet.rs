//! Apache Parquet, for pandas, Polars, DuckDB and Arrow: a row per document, arm and metric, with the facts of host and build as
//! columns. docs/fleet.md describes the columns.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use crate::{Figure, Level, Run};
use results::error::Error;
use results::stats::interval::NORMAL_95;

/// The format's name.
pub const NAME: &str = "parquet";
/// The format in a line.
pub const ABOUT: &str = "Apache Parquet, a row per document, arm and metric, for pandas and DuckDB";

/// Rows of a row group: readers take one at a time.
const GROUP: usize = 100_000;
/// Name and version of the columns, in the file's metadata.
const COLUMNS: &str = "figures, version 1";
type Row<'a> = (&'a Run, &'a Figure);

type TextOf = Box<dyn for<'a> Fn(Row<'a>) -> Option<&'a str>>;

/// Source of a column's values; `None` is null.
enum Values {
    Text(TextOf),
    Number(fn(Row<'_>) -> Option<u64>),
    /// Seconds since 1970.
    Time(fn(Row<'_>) -> Option<u64>),
    Float(fn(Row<'_>) -> Option<f64>),
    Flag(fn(Row<'_>) -> Option<bool>),
}

struct Column {
    name: String,
    values: Values,
}

fn column(name: &str, values: Values) -> Column {
    Column { name: name.to_owned(), values }
}

fn text(name: &str, value: impl for<'a> Fn(Row<'a>) -> Option<&'a str> + 'static) -> Column {
    // An empty text is one that nobody knows.
    column(name, Values::Text(Box::new(move |row| value(row).filter(|text| !text.is_empty()))))
}

/// Names the column of a fact: "host class" is `host_class`.
fn name_of(fact: &str) -> String {
    fact.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Returns one end of a figure's 95 % interval.
fn end(level: Option<Level>, sign: f64) -> Option<f64> {
    let Level { log, error } = level?;
    Some((log + sign * NORMAL_95 * error?).exp())
}

fn columns(runs: &[Run]) -> Vec<Column> {
    let mut all = vec![
        text("file", |(run, _)| Some(&run.file)),
        text("host", |(run, _)| Some(&run.host)),
        text("boot", |(run, _)| Some(&run.boot)),
        column("element", Values::Number(|(run, _)| run.labels.element)),
        text("variant", |(run, _)| run.labels.variant.as_deref()),
        column("repetition", Values::Number(|(run, _)| run.labels.repetition)),
        column("started", Values::Time(|(run, _)| (run.started_unix > 0).then_some(run.started_unix))),
        column("wall_ns", Values::Number(|(run, _)| Some(run.wall_ns))),
        text("experiment", |(run, _)| Some(&run.experiment)),
        text("setting", |(run, _)| Some(&run.setting)),
        text("parameters", |(run, _)| Some(&run.key)),
        text("backend", |(run, _)| Some(&run.backend)),
        column("stand_in", Values::Flag(|(run, _)| Some(run.stand_in))),
        text("arm", |(_, figure)| Some(&figure.arm)),
        text("metric", |(_, figure)| Some(&figure.metric)),
        column("rounds", Values::Number(|(_, figure)| Some(figure.rounds))),
        column("ns", Values::Float(|(_, figure)| Some(figure.time.log.exp()))),
        column("ns_low", Values::Float(|(_, figure)| end(Some(figure.time), -1.0))),
        column("ns_high", Values::Float(|(_, figure)| end(Some(figure.time), 1.0))),
        column("ratio", Values::Float(|(_, figure)| figure.ratio.map(|ratio| ratio.log.exp()))),
        column("ratio_low", Values::Float(|(_, figure)| end(figure.ratio, -1.0))),
        column("ratio_high", Values::Float(|(_, figure)| end(figure.ratio, 1.0))),
        text("doubt", |(_, figure)| figure.doubt.as_deref()),
    ];
    let facts: BTreeSet<&String> = runs.iter().flat_map(|run| run.facts.keys()).collect();
    all.extend(facts.into_iter().map(|fact| {
        let key = fact.clone();
        text(&name_of(fact), move |(run, _)| {
            run.facts.get(&key).map(String::as_str).filter(|value| *value != "unknown")
        })
    }));
    all
}

fn schema(columns: &[Column]) -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.values {
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Values::Number(_) => (Physical::INT64, Some(LogicalType::integer(64, true))),
            Values::Time(_) => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
            Values::Float(_) => (Physical::DOUBLE, None),
            Values::Flag(_) => (Physical::BOOLEAN, None),
        };
        Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("figures").with_fields(fields).build()
}

/// Writes one column of a row group.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut there = Vec::new();
    let levels: Vec<i16> = values
        .map(|value| {
            let level = i16::from(value.is_some());
            there.extend(value);
            level
        })
        .collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    column.close()
}

fn write(runs: &[Run], out: impl Write + Send) -> Result<(), ParquetError> {
    let columns = columns(runs);
    let properties = WriterProperties::builder()
        .set_created_by(format!("vpmu {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![KeyValue::new("vpmu".to_owned(), COLUMNS.to_owned())]))
        .build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema(&columns)?), Arc::new(properties))?;
    let mut rows = runs.iter().flat_map(|run| run.figures.iter().map(move |figure| (run, figure))).peekable();
    while rows.peek().is_some() {
        let some: Vec<Row<'_>> = rows.by_ref().take(GROUP).collect();
        let rows = || some.iter().copied();
        let mut group = file.next_row_group()?;
        for column in &columns {
            match &column.values {
                Values::Text(value) => {
                    put::<ByteArrayType>(&mut group, rows().map(|row| value(row).map(ByteArray::from)))?;
                }
                Values::Number(value) => put::<Int64Type>(&mut group, rows().map(|row| value(row).map(signed)))?,
                Values::Time(value) => {
                    put::<Int64Type>(
                        &mut group,
                        rows().map(|row| value(row).map(|unix| signed(unix.saturating_mul(1000)))),
                    )?;
                }
                Values::Float(value) => put::<DoubleType>(&mut group, rows().map(value))?,
                Values::Flag(value) => put::<BoolType>(&mut group, rows().map(value))?,
            }
        }
        group.close()?;
    }
    file.close().map(drop)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Writes the figures of runs as one Parquet file.
///
/// # Errors
/// Exit 2: there is no figure.
pub fn of_runs(runs: &[Run]) -> Result<Vec<u8>, Error> {
    if runs.iter().all(|run| run.figures.is_empty()) {
        return Err(Error::usage("cannot write Parquet", "no document has a figure", "give results with figures"));
    }
    let mut bytes = Vec::new();
    write(runs, &mut bytes).map_err(|error| Error::usage("cannot write Parquet", error.to_string(), "take csv"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row as Read};
    use serde_json::json;

    use super::*;
    use crate::Labels;
    use results::fixture::{changed, value};

    fn run(at: u64, labels: Labels) -> Run {
        let mut value = value(10, at, |arm, round| if arm == "floor" { 1000 + round } else { 2000 + 7 * (round % 4) });
        value["host"]["name"] = json!("n1");
        Run::of(&changed(value), "a/b.json", labels)
    }

    fn rows(bytes: &[u8]) -> Vec<Read> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let key = reader.metadata().file_metadata().key_value_metadata().unwrap()[0].clone();
        assert_eq!((key.key.as_str(), key.value.as_deref()), ("vpmu", Some(COLUMNS)));
        reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
    }

    fn field<'a>(row: &'a Read, name: &str) -> &'a Field {
        row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field).unwrap()
    }

    #[test]
    fn every_figure_is_a_row_with_types_and_nulls() {
        let labels = Labels { element: Some(7), variant: Some("new".to_owned()), ..Labels::default() };
        let runs = [run(5, labels), run(6, Labels::default())];
        let rows = rows(&of_runs(&runs).unwrap());
        assert_eq!(rows.len(), runs.iter().map(|run| run.figures.len()).sum::<usize>());
        let figures = runs.iter().flat_map(|run| run.figures.iter().map(move |figure| (run, figure)));
        for (row, (run, figure)) in rows.iter().zip(figures) {
            let text = |name: &str| match field(row, name) {
                Field::Str(text) => Some(text.clone()),
                Field::Null => None,
                other => panic!("{name}: {other}"),
            };
            let float = |name: &str| match field(row, name) {
                Field::Double(value) => Some(*value),
                Field::Null => None,
                other => panic!("{name}: {other}"),
            };
            assert_eq!(text("file").as_deref(), Some("a/b.json"));
            assert_eq!(
                (text("arm").as_deref(), text("metric").as_deref()),
                (Some(&*figure.arm), Some(&*figure.metric))
            );
            assert_eq!((text("variant"), text("boot")), (run.labels.variant.clone(), None));
            assert_eq!(text("host_class").as_deref(), Some(run.class()));
            assert_eq!(*field(row, "started"), Field::TimestampMillis(i64::try_from(run.started_unix).unwrap() * 1000));
            assert_eq!(*field(row, "rounds"), Field::Long(10));
            assert_eq!(*field(row, "element"), run.labels.element.map_or(Field::Null, |_| Field::Long(7)));
            assert_eq!(float("ns"), Some(figure.time.log.exp()));
            assert_eq!(float("ratio").is_none(), &*figure.arm == "floor");
            if let (Some(low), Some(ratio), Some(high)) = (float("ratio_low"), float("ratio"), float("ratio_high")) {
                assert!(low < ratio && ratio < high);
                assert!(((high / low).ln() / 2.0 / NORMAL_95 - figure.ratio.unwrap().error.unwrap()).abs() < 1e-12);
            }
        }
        // A governor that the host does not tell is null.
        assert_eq!(runs[0].facts["governor"], "unknown");
        assert_eq!(*field(&rows[0], "governor"), Field::Null);
    }

    #[test]
    fn columns_have_names_of_their_own_and_nothing_is_no_file() {
        let columns = columns(&[run(5, Labels::default())]);
        let names: BTreeSet<&String> = columns.iter().map(|column| &column.name).collect();
        assert_eq!(names.len(), columns.len());
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')), "{names:?}");
        assert_eq!(of_runs(&[]).unwrap_err().exit.code(), 2);
    }
}
