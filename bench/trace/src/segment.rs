//! A segment's bytes: what its footer says, and its pages. Each number is checked before anything is made of it: Parquet's library
//! believes the size that a page's header has, and as many elements as a list says.

use std::ops::Range;
use std::sync::Arc;

use host_pmu::trace::Kind;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::meta::SEGMENT;

/// Largest segment: twice all its rows, uncompressed.
pub(crate) const MOST_BYTES: u64 = 32 << 20;
/// Largest footer: that of a thousand vCPUs.
const MOST_FOOTER: usize = 2 << 20;
/// Longest header of a page, in bytes: ours have less than a tenth of it.
const MOST_HEADER: usize = 1 << 10;
/// Most bytes of a line in a column, and of all names of kinds.
const MOST_VALUE: usize = 9;
const MOST_NAMES: usize = 1 << 10;
/// The codec that segments are written with.
const ZSTD: i64 = 6;

/// A value of Thrift's compact protocol.
#[derive(Debug, PartialEq, Eq)]
enum Value<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    List(Vec<Self>),
    Struct(Vec<(i64, Self)>),
    /// Another one, or none.
    Other,
}

impl<'a> Value<'a> {
    fn field(&self, id: i64) -> &Self {
        let Self::Struct(fields) = self else { return &Self::Other };
        fields.iter().find(|field| field.0 == id).map_or(&Self::Other, |field| &field.1)
    }

    fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    fn size(&self) -> Option<usize> {
        if let Self::Number(number) = self { usize::try_from(*number).ok() } else { None }
    }

    /// Reads the fields of a structure with so many more in one another.
    fn structure(bytes: &mut &'a [u8], depth: u32) -> Option<Self> {
        let (mut fields, mut id) = (Vec::new(), 0_i64);
        loop {
            let head = byte(bytes)?;
            if head.trailing_zeros() >= 4 {
                return Some(Self::Struct(fields));
            }
            id = if head >> 4 == 0 { number(bytes)? } else { id.checked_add(i64::from(head >> 4))? };
            // A boolean is in its head.
            let is_bool = matches!(head & 15, 1 | 2);
            fields.push((id, if is_bool { Self::Other } else { Self::read(bytes, head & 15, depth)? }));
        }
    }

    fn read(bytes: &mut &'a [u8], kind: u8, depth: u32) -> Option<Self> {
        Some(match kind {
            1..=3 => byte(bytes).map(|_| Self::Other)?,
            4..=6 => Self::Number(number(bytes)?),
            7 => bytes.split_off(..8).map(|_| Self::Other)?,
            8 => {
                let size = usize::try_from(varint(bytes)?).ok()?;
                Self::Bytes(bytes.split_off(..size)?)
            }
            9 => {
                let (head, depth) = (byte(bytes)?, depth.checked_sub(1)?);
                let size = if head >> 4 == 15 { varint(bytes)? } else { u64::from(head >> 4) };
                // It grows with the elements that are there.
                Self::List((0..size).map(|_| Self::read(bytes, head & 15, depth)).collect::<Option<_>>()?)
            }
            12 => Self::structure(bytes, depth.checked_sub(1)?)?,
            _ => return None,
        })
    }
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    bytes.split_off_first().copied()
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = byte(bytes)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn number(bytes: &mut &[u8]) -> Option<i64> {
    let value = varint(bytes)?;
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

fn wrong(why: &str) -> ParquetError {
    ParquetError::General(why.to_owned())
}

/// Reads the footer, which is at the end of the file.
fn footer(bytes: &[u8]) -> Option<Value<'_>> {
    let (rest, size) = bytes.strip_suffix(b"PAR1")?.split_last_chunk()?;
    let size = usize::try_from(u32::from_le_bytes(*size)).ok().filter(|size| *size <= MOST_FOOTER)?;
    Value::structure(&mut &rest[rest.len().checked_sub(size)?..], 16)
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    bytes: Arc<[u8]>,
    groups: Vec<Group>,
    /// Its number by its own word.
    pub(crate) number: Option<String>,
}

/// A row group: its lines, and the places of its columns.
#[derive(Clone, Debug)]
struct Group {
    lines: usize,
    columns: Vec<Range<usize>>,
}

impl Segment {
    /// Reads what the footer says; its columns are to be those of `schema`.
    pub(crate) fn of(bytes: Vec<u8>, schema: Type) -> Result<Self, ParquetError> {
        let footer = footer(&bytes).ok_or_else(|| wrong("its footer is damaged"))?;
        let (mut own, columns) = (Vec::new(), schema.get_fields().len());
        let writer = SerializedFileWriter::new(&mut own, Arc::new(schema), Arc::new(WriterProperties::default()))?;
        writer.close()?;
        if self::footer(&own).is_none_or(|own| own.field(2) != footer.field(2)) {
            return Err(wrong("it has other columns"));
        }
        let number = footer.field(5).list().iter().find(|pair| *pair.field(1) == Value::Bytes(b"segment"));
        let number = match number.map(|pair| pair.field(2)) {
            Some(Value::Bytes(number)) => Some(String::from_utf8_lossy(number).into_owned()),
            _ => None,
        };
        let groups = footer.field(4).list().iter().map(|group| Group::of(group, columns, bytes.len()));
        let groups = groups.collect::<Option<Vec<_>>>().ok_or_else(|| wrong("a group of it is damaged"))?;
        let lines = groups.iter().map(|group| group.lines).fold(0, usize::saturating_add);
        if lines > SEGMENT {
            return Err(wrong(&format!("its {lines} rows are more than any trace's")));
        }
        Ok(Self { bytes: bytes.into(), groups, number })
    }

    /// Returns the number of its groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the lines of a group.
    pub(crate) fn lines(&self, group: usize) -> usize {
        self.groups[group].lines
    }

    /// Returns the pages of a group's column, which may be that of kinds.
    pub(crate) fn pages(&self, group: usize, column: usize, is_kind: bool) -> Pages {
        let Group { lines, columns } = &self.groups[group];
        Pages { bytes: Arc::clone(&self.bytes), left: columns[column].clone(), lines: *lines, is_kind }
    }
}

impl Group {
    fn of(group: &Value<'_>, count: usize, size: usize) -> Option<Self> {
        let column = |column: &Value<'_>| {
            let meta = column.field(3);
            let dictionary = meta.field(11).size().filter(|at| *at > 0);
            let begin = dictionary.into_iter().chain(meta.field(9).size()).min()?;
            let end = begin.checked_add(meta.field(7).size()?)?;
            (*meta.field(4) == Value::Number(ZSTD) && end <= size).then_some(begin..end)
        };
        let columns = group.field(1).list().iter().map(column).collect::<Option<Vec<_>>>()?;
        let lines = group.field(3).size()?;
        (columns.len() == count).then_some(Self { lines, columns })
    }
}

/// The pages of a column. The dictionary of kinds has numbers in place of names: a row's kind is no text that has to be compared.
pub(crate) struct Pages {
    bytes: Arc<[u8]>,
    left: Range<usize>,
    lines: usize,
    is_kind: bool,
}

impl Pages {
    fn page(&mut self) -> Option<Page> {
        let page = &self.bytes[self.left.clone()];
        // What is read of a list takes more memory than the file has for it.
        let mut head = &page[..page.len().min(MOST_HEADER)];
        let header = Value::structure(&mut head, 4)?;
        let mut rest = &page[page.len().min(MOST_HEADER) - head.len()..];
        let packed = rest.split_off(..header.field(3).size()?)?;
        self.left.start = self.left.end - rest.len();
        let size = header.field(2).size().filter(|size| *size <= MOST_NAMES + MOST_VALUE * self.lines)?;
        let buf = zstd::bulk::decompress(packed, size).ok().filter(|bytes| bytes.len() == size)?;
        let is_dictionary = *header.field(1) == Value::Number(2);
        let about = header.field(if is_dictionary { 7 } else { 5 });
        let values = about.field(1).size().filter(|values| *values <= self.lines)?;
        let num_values = u32::try_from(values).ok()?;
        let encoding = match about.field(2).size()? {
            0 => Encoding::PLAIN,
            2 | 8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return None,
        };
        if is_dictionary {
            let buf = if self.is_kind { numbers(&buf)? } else { buf };
            return Some(Page::DictionaryPage { buf: buf.into(), num_values, encoding, is_sorted: false });
        }
        let is_text = self.is_kind && encoding != Encoding::RLE_DICTIONARY;
        (*header.field(1) == Value::Number(0) && !is_text).then(|| Page::DataPage {
            buf: buf.into(),
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }
}

/// Makes numbers of the names of kinds.
fn numbers(mut names: &[u8]) -> Option<Vec<u8>> {
    let mut numbers = Vec::new();
    while let Some((length, rest)) = names.split_first_chunk() {
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        numbers.extend(u32::from(Kind::from_key(name)? as u8).to_le_bytes());
        names = rest;
    }
    Some(numbers)
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.left.is_empty()).then(|| self.page().ok_or_else(|| wrong("a page of it is damaged")))
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next().transpose()
    }

    // Lines are neither lists nor skipped.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(wrong("a page is skipped"))
    }
}
