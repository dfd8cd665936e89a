//! Names of addresses.

mod demangle;
mod elf;
mod kallsyms;
mod limit;

use std::borrow::Cow;
use std::ops::Range;

use crate::record::MOST_OF_BUILD_ID;

pub use demangle::demangled;

/// Symbols by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// In ascending order and apart.
    entries: Vec<Entry>,
    /// Their names, one behind the other.
    names: String,
}

#[derive(Clone, Debug)]
struct Entry {
    start: u64,
    end: u64,
    /// Place of its name.
    name: Range<u32>,
}

/// The functions of an ELF file by their places in it, wherever it is mapped.
#[derive(Clone, Debug)]
pub struct Image {
    symbols: Symbols,
    /// (place in the file, bytes, address), of segments.
    loads: Vec<(u64, u64, u64)>,
}

impl Image {
    /// Reads an ELF file; `None` if it is none.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self { symbols: Symbols::of_elf(bytes)?, loads: elf::loads(bytes) })
    }

    /// Returns the function at a place in the file.
    #[must_use]
    pub fn find(&self, place: u64) -> Option<&str> {
        let (at, _, address) = self.loads.iter().find(|(at, size, _)| place.wrapping_sub(*at) < *size)?;
        self.symbols.find(address.wrapping_add(place - at))
    }
}

/// Returns the address of `_text` of a kernel's ELF image, if its segments say it: the lowest one of code in the kernel's half.
#[must_use]
pub fn text_of_kernel(image: &[u8]) -> Option<u64> {
    elf::lowest_code(image).filter(|&address| address >> 63 != 0)
}

/// Returns the build-id of an ELF file, of a length that recordings have; `None` if it has none.
#[must_use]
pub fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    elf::build_id(bytes).filter(|id| !id.is_empty() && id.len() <= MOST_OF_BUILD_ID)
}

impl Symbols {
    /// Reads the functions of an ELF file at its own addresses. `None`: it is no ELF file.
    #[must_use]
    pub fn of_elf(bytes: &[u8]) -> Option<Self> {
        // Any number of symbols may have one name of a file. Those of a sound file are no longer than the file.
        elf::read(bytes).map(|found| Self::new(found, bytes.len()))
    }

    /// Reads the functions of a kernel, as `/proc/kallsyms` lists them. A kernel that hides addresses lists zeros: none are known then.
    #[must_use]
    pub fn of_kallsyms(text: &str) -> Self {
        Self::new(kallsyms::read(text), text.len())
    }

    /// Builds the list from (start, size, name); a size of 0 reaches to the next symbol. Names have `room` bytes: those beyond are left out.
    fn new(mut found: Vec<(u64, u64, Cow<'_, str>)>, room: usize) -> Self {
        // Several names of one address leave the first that has a size.
        found.sort_by(|a, b| (a.0, a.1 == 0, &a.2).cmp(&(b.0, b.1 == 0, &b.2)));
        found.dedup_by_key(|entry| entry.0);
        let mut symbols = Self { entries: Vec::with_capacity(found.len()), names: String::new() };
        for (at, (start, size, name)) in found.iter().enumerate() {
            let next = found.get(at + 1).map_or(u64::MAX, |entry| entry.0);
            let end = match size {
                0 => next.min(start.saturating_add(1 << 20)),
                size => start.saturating_add(*size).min(next),
            };
            let from = symbols.names.len();
            let Ok(to) = u32::try_from(from + name.len()) else { break };
            if to as usize > room {
                break;
            }
            symbols.names.push_str(name);
            symbols.entries.push(Entry { start: *start, end, name: from as u32..to });
        }
        symbols
    }

    fn name(&self, entry: &Entry) -> &str {
        &self.names[entry.name.start as usize..entry.name.end as usize]
    }

    /// Returns the symbol at an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&str> {
        let at = self.entries.partition_point(|entry| entry.start <= address).checked_sub(1)?;
        let entry = &self.entries[at];
        (address < entry.end).then(|| self.name(entry))
    }

    /// Returns the address of a symbol.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<u64> {
        self.entries.iter().find(|entry| self.name(entry) == name).map(|entry| entry.start)
    }

    /// Returns the number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_before_it_up_to_its_end() {
        let of = |found: &[(u64, u64, &'static str)], room| {
            Symbols::new(found.iter().map(|&(start, size, name)| (start, size, name.into())).collect(), room)
        };
        let found = [(0x30, 0, "c"), (0x10, 0, "a"), (0x20, 4, "b"), (0x20, 0, "alias")];
        assert_eq!(of(&found, 2).len(), 2, "names have as much room as they are given");
        let symbols = of(&found, 3);
        let names: Vec<_> = [0xf, 0x10, 0x1f, 0x20, 0x23, 0x24, 0x30, 0x4_0000].map(|at| symbols.find(at)).into();
        assert_eq!(names, [None, Some("a"), Some("a"), Some("b"), Some("b"), None, Some("c"), Some("c")]);
        assert_eq!((symbols.find(u64::MAX), symbols.len(), symbols.address("c")), (None, 3, Some(0x30)));
        assert!(Symbols::default().find(1).is_none());
    }
}
