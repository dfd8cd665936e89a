//! Names of addresses.

use std::borrow::Cow;
use std::fmt::{self, Write};

use object::read::File;
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SectionKind, SegmentFlags, SymbolKind, elf,
};

use crate::record::MOST_OF_BUILD_ID;
use crate::unwind::{Caller, End, Registers, Row, Table};

/// Symbols by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Begins, ends and names, in ascending order and apart.
    entries: Vec<(u64, u64, String)>,
}

/// The functions of an ELF file by their places in it, wherever it is mapped.
#[derive(Clone, Debug)]
pub struct Image {
    symbols: Symbols,
    /// (place in the file, bytes, address), of segments.
    loads: Vec<(u64, u64, u64)>,
    callers: Table,
}

impl Image {
    /// Reads an ELF file; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let file = File::parse(bytes).ok()?;
        let load = |((at, size), address)| (at, size, address);
        let loads = file.segments().map(|segment| load((segment.file_range(), segment.address()))).collect();
        let rules = file
            .section_by_name(".eh_frame")
            .and_then(|section| Some(Table::new(section.data().ok()?.to_vec(), section.address())));
        Some(Self { symbols: Symbols::of_elf(bytes)?, loads, callers: rules.unwrap_or_default() })
    }

    /// Finds the caller of the frame at a place in the file, as [`Table::caller`].
    ///
    /// # Errors
    /// The reason if there is none.
    pub fn caller(
        &self,
        place: u64,
        registers: &Registers,
        memory: impl Fn(u64) -> Option<u64>,
    ) -> Result<Caller, End> {
        self.callers.caller(self.address(place).ok_or(End::Unknown)?, registers, memory)
    }

    /// Returns the rules of all functions, at the file's own addresses.
    pub fn rows(&self) -> Vec<Row> {
        self.callers.rows()
    }

    fn address(&self, place: u64) -> Option<u64> {
        let (at, _, address) = self.loads.iter().find(|(at, size, _)| place.wrapping_sub(*at) < *size)?;
        Some(address.wrapping_add(place - at))
    }

    /// Returns the function at a place in the file.
    pub fn find(&self, place: u64) -> Option<&str> {
        self.symbols.find(self.address(place)?)
    }
}

/// Returns the address of `_text` of a kernel's ELF image, if its segments say it: the lowest one of code in the kernel's half.
pub fn text_of_kernel(image: &[u8]) -> Option<u64> {
    let file = File::parse(image).ok()?;
    let executable = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0);
    let code = file.segments().filter(|segment| executable(segment.flags())).map(|segment| segment.address());
    code.min().filter(|&address| address >> 63 != 0)
}

/// Returns the build-id of an ELF file, of a length that recordings have; `None` if it has none.
pub fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    let id = File::parse(bytes).ok()?.build_id().ok()??.to_vec();
    Some(id).filter(|id| !id.is_empty() && id.len() <= MOST_OF_BUILD_ID)
}

impl Symbols {
    /// Reads the functions of an ELF file at its own addresses. `None`: it is no ELF file.
    pub fn of_elf(bytes: &[u8]) -> Option<Self> {
        // Any number of symbols may share a name in a file, so their names are bounded: those of a sound file are no
        // longer than the file.
        elf_functions(bytes).map(|found| Self::new(found, bytes.len()))
    }

    /// Reads the functions of a kernel, as `/proc/kallsyms` lists them. A kernel that hides addresses lists zeros: none
    /// are known then.
    pub fn of_kallsyms(text: &str) -> Self {
        Self::new(kallsyms_functions(text), text.len())
    }

    /// Builds the list from (start, size, name); a size of 0 reaches to the next symbol. Names have `room` bytes: those
    /// beyond are left out.
    fn new(mut found: Vec<(u64, u64, Cow<'_, str>)>, room: usize) -> Self {
        // Several names of one address leave the first that has a size.
        found.sort_by(|a, b| (a.0, a.1 == 0, &a.2).cmp(&(b.0, b.1 == 0, &b.2)));
        found.dedup_by_key(|entry| entry.0);
        let (mut entries, mut left) = (Vec::with_capacity(found.len()), room);
        for (at, (start, size, name)) in found.iter().enumerate() {
            let next = found.get(at + 1).map_or(u64::MAX, |entry| entry.0);
            let end = match size {
                0 => next.min(start.saturating_add(1 << 20)),
                size => start.saturating_add(*size).min(next),
            };
            let Some(rest) = left.checked_sub(name.len()) else { break };
            left = rest;
            entries.push((*start, end, name.clone().into_owned()));
        }
        Self { entries }
    }

    /// Returns the symbol at an address.
    pub fn find(&self, address: u64) -> Option<&str> {
        let at = self.entries.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
        let (_, end, name) = &self.entries[at];
        (address < *end).then_some(name.as_str())
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

// Functions of an ELF file.

/// Returns (start, size, name) of each function, and of each label in code.
fn elf_functions(bytes: &[u8]) -> Option<Vec<(u64, u64, Cow<'_, str>)>> {
    let file = File::parse(bytes).ok()?;
    // A stripped library has its exported functions in the dynamic table only.
    let found = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        match symbol.kind() {
            SymbolKind::Text => {}
            SymbolKind::Label | SymbolKind::Unknown if !name.starts_with(['.', '$']) => {
                let section = file.section_by_index(symbol.section_index()?).ok()?;
                if section.kind() != SectionKind::Text {
                    return None;
                }
            }
            _ => return None,
        }
        symbol.is_definition().then_some((symbol.address(), symbol.size(), Cow::Borrowed(name)))
    });
    Some(found.collect())
}

// A kernel's own list of its symbols: `ADDRESS TYPE NAME MODULE`.

/// Returns (start, 0, name) of each function; those of a module with its name.
fn kallsyms_functions(text: &str) -> Vec<(u64, u64, Cow<'_, str>)> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(u64, u64, Cow<'_, str>)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok().filter(|&address| address != 0)?;
    let of_code = matches!(kind, "t" | "T" | "w" | "W");
    let module = words.next();
    let name = || module.map_or(Cow::Borrowed(name), |module| Cow::Owned(format!("{name} {module}")));
    of_code.then(|| (address, 0, name()))
}

// Names of functions as they are written in the source.

/// Longest name that is shown demangled: a short symbol may stand for a name without end.
const LONGEST: usize = 4096;

/// Returns a symbol as a reader knows it: Rust's without hash, others as they are. A module of the kernel's, which follows the symbol in
/// brackets, stays.
pub fn demangled(symbol: &str) -> String {
    let (symbol, module) = symbol.split_at(symbol.find(' ').unwrap_or(symbol.len()));
    let mut name = Bounded(String::new());
    let found = rustc_demangle::try_demangle(symbol).ok().and_then(|symbol| write!(name, "{symbol:#}").ok());
    if found.is_some() && !name.0.is_empty() { name.0 + module } else { symbol.to_owned() + module }
}

/// Text that takes no more than [`LONGEST`] bytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
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
        assert_eq!(of(&found, 2).entries.len(), 2, "names have as much room as they are given");
        let symbols = of(&found, 3);
        let names: Vec<_> = [0xf, 0x10, 0x1f, 0x20, 0x23, 0x24, 0x30, 0x4_0000].map(|at| symbols.find(at)).into();
        assert_eq!(names, [None, Some("a"), Some("a"), Some("b"), Some("b"), None, Some("c"), Some("c")]);
        assert_eq!((symbols.find(u64::MAX), symbols.entries.len()), (None, 3));
        assert!(Symbols::default().find(1).is_none());
    }

    #[test]
    fn functions_are_listed_and_hidden_addresses_are_none() {
        let text = "ffffffff81000000 T _text\nffffffff81000040 t one\nffffffffc0000000 t two\t[loop]\n\
            ffffffff82000000 D data\n0000000000000000 T hidden\nnonsense\n";
        let names: Vec<_> = kallsyms_functions(text).into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(names, ["_text", "one", "two [loop]"]);
        assert_eq!(kallsyms_functions(text)[1].0, 0xffff_ffff_8100_0040);
    }

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("_ZN6triage9workloads4rand11draw_shared17h2790c4996fa9a298E", "triage::workloads::rand::draw_shared"),
            ("_ZN26_$LT$F$u20$as$u20$a..B$GT$2go17h2790c4996fa9a298E.llvm.77", "<F as a::B>::go"),
            ("_RNvMsi_NtNtNtCsjrHSEGnQ3l9_3std3sys2fs4unixNtB5_4File4read", "<std::sys::fs::unix::File>::read"),
            ("rand", "rand"),
            ("_RNvCs4_1a1b [rust_module]", "a::b [rust_module]"),
            ("i", "i"),
            ("_ZN", "_ZN"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "_ZNSt6vectorIiSaIiEE9push_backERKi"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }
}
