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
            if let Some(entry) = rows.next_if(|next| **next == Row { at: next.at, vcpu: next.vcpu, ..ENTRY }) {
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

fn number(digits: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { value.checked_mul(10)?.checked_add(digit.into()) } else { None }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) }
}

/// Reads a line: a row with its step in the place of its time, and the step of its entry.
fn row(line: &[u8]) -> Option<(Row, Option<u64>)> {
    let mut fields = line.split(|byte| *byte == b',');
    let mut field = || fields.next();
    let (vcpu, at) = (number(field()?)?.try_into().ok()?, number(field()?)?);
    let (kind, register) = (Kind::from_key(field()?)?, number(field()?)?.try_into().ok()?);
    let (value, rip, step) = (number(field()?)?, number(field()?)?, field()?);
    let entry = if step.is_empty() { None } else { Some(number(step)?) };
    let is_none = kind.is_count() && register >= MAX_COUNTERS as u32 || field().is_some();
    (!is_none).then_some((Row { at, vcpu, kind, register, value, rip }, entry))
}

/// Reads a segment of so many vCPUs: the rows of each, one after another's.
pub(crate) fn read(file: impl Read, vcpus: usize) -> io::Result<Vec<Vec<Row>>> {
    let mut decoder = Decoder::new(file)?;
    decoder.window_log_max(MOST_WINDOW)?;
    let mut from = BufReader::with_capacity(1 << 16, decoder);
    let mut next = |line: &mut Vec<u8>| {
        line.clear();
        (&mut from).take(MOST_LINE).read_until(b'\n', line)
    };
    let (mut all, mut line): (Vec<Vec<Row>>, _) = (Vec::new(), Vec::new());
    next(&mut line)?;
    if line != header().as_bytes() {
        return Err(wrong("it has other columns"));
    }
    for number in 2.. {
        if next(&mut line)? == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(wrong(format!("line {number} has no end")));
        }
        if number > 1 + SEGMENT {
            return Err(wrong("its rows are more than any trace's"));
        }
        let (mut row, entry) = row(&line).ok_or_else(|| wrong(format!("line {number} is no row")))?;
        let last = all.last().and_then(|rows| rows.last());
        match last {
            Some(last) if last.vcpu == row.vcpu => row.at = row.at.saturating_add(last.at),
            Some(last) if last.vcpu > row.vcpu => {
                return Err(wrong(format!("rows of vCPU {} are in two places", row.vcpu)));
            }
            _ if usize::from(row.vcpu) >= vcpus => return Err(wrong(format!("it has rows of vCPU {}", row.vcpu))),
            _ => all.push(Vec::new()),
        }
        let step = entry.map(|step| Row { at: row.at.saturating_add(step), vcpu: row.vcpu, ..ENTRY });
        if let Some(rows) = all.last_mut() {
            rows.extend([Some(row), step].into_iter().flatten());
        }
    }
    Ok(all)
}

/// An entry without numbers, which is in the line of the row before it.
const ENTRY: Row = Row { at: 0, vcpu: 0, kind: Kind::Entry, register: 0, value: 0, rip: 0 };

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
        assert!(super::read(&packed[..], 1 << 16).unwrap() == [&first[..], &second]);
        assert!(super::row(b"0,1,count,3,5,0,").is_some() && super::row(b"0,1,count,999,5,0,").is_none());
    }
}
