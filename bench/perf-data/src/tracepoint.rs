//! Tracepoints as the kernel that was recorded describes them: where each field of theirs lies in a sample.

use std::collections::BTreeMap;

use crate::bytes::Take;

/// Most tracepoints of a recording, and most fields of one: a kernel has some two thousand.
const MOST: usize = 1 << 14;
const MOST_FIELDS: usize = 256;

/// Tracepoints by the id that the raw bytes of their samples begin with.
pub type Tracepoints = BTreeMap<u16, Tracepoint>;

/// A tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its name, as `kvm:kvm_exit`.
    pub name: String,
    fields: Vec<Field>,
}

/// Place of a number in the raw bytes of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    signed: bool,
}

impl Tracepoint {
    /// Returns whether it has a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// Returns the number in a field of a sample, signed ones extended; `None`: it has no such field, the sample is too short, or it is
    /// none of a word's size.
    pub fn read(&self, name: &str, raw: &[u8]) -> Option<u64> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        let bytes = raw.get(field.offset..field.offset.checked_add(field.size)?)?;
        let mut word = [0; 8];
        word.get_mut(..field.size)?.copy_from_slice(bytes);
        let unused = 64 - 8 * field.size.clamp(1, 8) as u32;
        let value = u64::from_le_bytes(word) << unused;
        Some(if field.signed { (value.cast_signed() >> unused).cast_unsigned() } else { value >> unused })
    }

    /// Reads the text of a tracepoint's file `format`: its id and itself.
    fn parse(system: &str, text: &str) -> Option<(u16, Self)> {
        let (mut id, mut name, mut fields) = (None, None, Vec::new());
        for line in text.lines() {
            if let Some(own) = line.strip_prefix("name: ") {
                name = Some(format!("{system}:{own}"));
            } else if let Some(number) = line.strip_prefix("ID: ") {
                id = number.trim().parse().ok();
            } else if let Some(field) = line.trim_start().strip_prefix("field:") {
                fields.extend(Field::parse(field).filter(|_| fields.len() < MOST_FIELDS));
            }
        }
        Some((id?, Self { name: name?, fields }))
    }
}

impl Field {
    /// Reads `unsigned int vcpu_id; offset:56; size:4; signed:0;`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next()?.split('[').next()?.rsplit([' ', '*']).next()?.to_owned();
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
        Some(Self { name, offset: number("offset:")?, size: number("size:")?, signed: number("signed:")? != 0 })
    }
}

/// Reads HEADER_TRACING_DATA. `None`: it makes no sense.
pub(crate) fn take(bytes: &[u8]) -> Option<Tracepoints> {
    let mut from = Take(bytes);
    if from.bytes(10)? != b"\x17\x08\x44tracing" {
        return None;
    }
    let _version = from.word()?;
    // The order of bytes, the sizes of a long and of a page.
    if from.bytes(1)? != [0] {
        return None;
    }
    from.bytes(5)?;
    for _header in ["header_page", "header_event"] {
        from.word()?;
        from.sized()?;
    }
    for _ in 0..from.u32()? {
        from.sized()?;
    }
    let mut found = BTreeMap::new();
    for _ in 0..from.u32()? {
        let system = from.word()?;
        for _ in 0..from.u32()? {
            let format = String::from_utf8_lossy(from.sized()?);
            found.extend(Tracepoint::parse(&system, &format).filter(|_| found.len() < MOST));
        }
    }
    Some(found)
}

impl<'a> Take<'a> {
    /// Takes text and the zero behind it.
    fn word(&mut self) -> Option<String> {
        let text = self.text();
        let length = self.0.iter().position(|&byte| byte == 0)?;
        self.bytes(length + 1).map(|_| text)
    }

    /// Takes bytes behind their number.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = self.u64()?;
        self.bytes(usize::try_from(size).ok()?)
    }
}
