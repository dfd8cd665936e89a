//! The rows of a segment as lines of CSV: the columns, their writer, and their reader, which believes nothing that a file says.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use arch_pmu::spec::MAX_COUNTERS;
use host_pmu::trace::{Kind, Row};
use zstd::stream::read::Decoder;

use crate::meta::SEGMENT;

/// The columns in their order, with their meaning for those who read them without this program.
pub(crate) const COLUMNS: [(&str, &str); 7] = [
    ("vcpu", "the vCPU; a file has one vCPU's rows after another's"),
    (
        "step_ns",
        "ns from the entry of the vCPU's row before, or from that row if it has none: the guest's time; from 0 at the begin of a file",
    ),
    (
        "kind",
        "read, write, rdpmc and *-fault are the guest's accesses; count and overflow what the host side handed over",
    ),
    (
        "register",
        "the MSR, ECX of RDPMC, or the counter of a count or overflow: 0 to 7 general-purpose, 8 and on fixed",
    ),
    ("value", "the value read or written; counts of a count or overflow"),
    ("rip", "RIP of an access; 0: unknown"),
    (
        "entry_ns",
        "ns from this row to the entry that follows it: the host's time; empty: none follows before the next row",
    ),
];

/// Longest line, in bytes: all columns with their largest values have some less.
const MOST_LINE: u64 = 128;
/// Largest window of a frame, as a power of two.
const MOST_WINDOW: u32 = 23;
/// Lines that are read at a time: caches hold their rows.
const BLOCK: usize = 1 << 11;

fn header() -> String {
    COLUMNS.map(|(name, _)| name).join(",") + "\n"
}

/// Writes the rows of each vCPU, whose times grow, and the columns' names before them.
pub(crate) fn write<'a>(vcpus: impl Iterator<Item = &'a [Row]>, to: &mut impl Write) -> io::Result<()> {
    to.write_all(header().as_bytes())?;
    for rows in vcpus {
        let (mut before, mut rows) = (0, rows.iter().peekable());
        while let Some(row) = rows.next() {
            let Row { at, vcpu, kind, register, value, rip } = *row;
            write!(to, "{vcpu},{},{},{register},{value},{rip},", at.saturating_sub(before), kind.key())?;
            before = at;
            let is_bare = |row: &&Row| row.kind == Kind::Entry && (row.register, row.value, row.rip) == (0, 0, 0);
            if let Some(entry) = rows.next_if(is_bare) {
                write!(to, "{}", entry.at.saturating_sub(before))?;
                before = entry.at;
            }
            to.write_all(b"\n")?;
        }
    }
    Ok(())
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Takes the bytes up to the next comma, which all columns but the last have behind them.
fn field<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = line.iter().position(|byte| *byte == b',')?;
    let (field, rest) = line.split_at(end);
    *line = &rest[1..];
    Some(field)
}

fn number(digits: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { value.checked_mul(10)?.checked_add(digit.into()) } else { None }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) }
}

/// Reads a line: a row with its step in the place of its time, and the step of its entry.
fn row(mut line: &[u8]) -> Option<(Row, Option<u64>)> {
    let line = &mut line;
    let vcpu = number(field(line)?)?.try_into().ok()?;
    let at = number(field(line)?)?;
    let kind = Kind::from_key(field(line)?)?;
    let register: u32 = number(field(line)?)?.try_into().ok()?;
    if kind.is_count() && register >= MAX_COUNTERS as u32 {
        return None;
    }
    let (value, rip) = (number(field(line)?)?, number(field(line)?)?);
    let entry = if line.is_empty() { None } else { Some(number(line)?) };
    Some((Row { at, vcpu, kind, register, value, rip }, entry))
}

/// A segment that is being read.
pub(crate) struct Lines<R: Read> {
    from: BufReader<Decoder<'static, BufReader<R>>>,
    /// The last line, and whether it is still to be used.
    line: Vec<u8>,
    is_held: bool,
    /// Its number, from 1.
    number: usize,
    /// vCPU and time of the last row.
    last: Option<(u16, u64)>,
}

impl<R: Read> Lines<R> {
    /// Begins to read a segment.
    pub(crate) fn new(file: R) -> io::Result<Self> {
        let mut decoder = Decoder::new(file)?;
        decoder.window_log_max(MOST_WINDOW)?;
        let from = BufReader::with_capacity(1 << 16, decoder);
        let mut lines = Self { from, line: Vec::new(), is_held: false, number: 0, last: None };
        if !lines.next()? || lines.line != header().trim_end().as_bytes() {
            return Err(wrong("it has other columns"));
        }
        Ok(lines)
    }

    /// Reads the next line; false: there is none.
    fn next(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_held) {
            return Ok(true);
        }
        self.line.clear();
        let read = (&mut self.from).take(MOST_LINE).read_until(b'\n', &mut self.line)?;
        self.number += usize::from(read > 0);
        if read > 0 && self.line.pop() != Some(b'\n') {
            return Err(wrong(format!("line {} has no end", self.number)));
        }
        if self.number > 1 + SEGMENT {
            return Err(wrong("its rows are more than any trace's"));
        }
        Ok(read > 0)
    }

    /// Reads the next rows, which are of one of so many vCPUs; none: there are no more.
    pub(crate) fn rows(&mut self, vcpus: usize) -> io::Result<Vec<Row>> {
        let (mut rows, mut lines) = (Vec::new(), 0);
        while lines < BLOCK && self.next()? {
            let (row, entry) = row(&self.line).ok_or_else(|| wrong(format!("line {} is no row", self.number)))?;
            let (mut at, vcpu) = (row.at, row.vcpu);
            match self.last {
                Some((last, before)) if last == vcpu => at = at.saturating_add(before),
                Some((last, _)) if last > vcpu => return Err(wrong(format!("rows of vCPU {vcpu} are in two places"))),
                // What was read so far is another vCPU's.
                Some(_) if !rows.is_empty() => {
                    self.is_held = true;
                    break;
                }
                _ => {}
            }
            if usize::from(vcpu) >= vcpus {
                return Err(wrong(format!("it has rows of vCPU {vcpu}")));
            }
            if lines == 0 {
                rows.reserve(2 * BLOCK);
            }
            lines += 1;
            rows.push(Row { at, ..row });
            if let Some(step) = entry {
                at = at.saturating_add(step);
                rows.push(Row { at, vcpu, kind: Kind::Entry, ..Row::default() });
            }
            self.last = Some((vcpu, at));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_the_rows_back_whatever_is_in_them() {
        let row = |n: u64| {
            let value = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 4 * 16);
            let kind = Kind::ALL[n as usize % Kind::ALL.len()];
            let register = if kind.is_count() { n as u32 % MAX_COUNTERS as u32 } else { value as u32 };
            Row { at: 1000 + n, vcpu: 0, kind, register, value, rip: !value }
        };
        let entry = |at| Row { at, kind: Kind::Entry, ..Row::default() };
        let mut first: Vec<Row> = (0..6000).map(row).collect();
        first.extend([7000, 7001, 7002, u64::MAX].map(entry));
        let second = [Row { at: u64::MAX, vcpu: u16::MAX, ..Row::default() }];
        let mut file = Vec::new();
        write([&first[..], &second].into_iter(), &mut file).unwrap();
        let packed = zstd::encode_all(&file[..], 1).unwrap();
        let mut lines = Lines::new(&packed[..]).unwrap();
        let next = || lines.rows(1 << 16).unwrap();
        let blocks: Vec<_> = std::iter::repeat_with(next).take_while(|rows| !rows.is_empty()).collect();
        assert!(blocks.len() > 3 && blocks.concat() == [&first[..], &second].concat());
        assert!(super::row(b"0,1,count,3,5,0,").is_some() && super::row(b"0,1,count,999,5,0,").is_none());
    }
}
