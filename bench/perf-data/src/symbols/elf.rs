//! Functions of an ELF file.

use std::borrow::Cow;

use object::read::File;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, SymbolKind};
use object::{ObjectSegment as _, SegmentFlags, elf};

use super::limit::{MOST, NAME};

/// Most segments that are looked at: a file of code has about ten.
const SEGMENTS: usize = 256;

/// Returns (start, size, name) of each function, and of each label in code.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<(u64, u64, Cow<'_, str>)>> {
    let file = File::parse(bytes).ok()?;
    // A stripped library has its exported functions in the dynamic table only.
    let found = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty() && name.len() <= NAME)?;
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
    Some(found.take(MOST).collect())
}

/// Returns (place in the file, bytes, address) of each segment.
pub(super) fn loads(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
    let Ok(file) = File::parse(bytes) else { return Vec::new() };
    let load = |(at, size): (u64, u64), address| (at, size, address);
    file.segments().take(SEGMENTS).map(|segment| load(segment.file_range(), segment.address())).collect()
}

/// Returns the lowest address of executable code.
pub(super) fn lowest_code(bytes: &[u8]) -> Option<u64> {
    let file = File::parse(bytes).ok()?;
    let executable = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0);
    file.segments().filter(|segment| executable(segment.flags())).map(|segment| segment.address()).min()
}

/// Returns the id in the notes.
pub(super) fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    File::parse(bytes).ok()?.build_id().ok()?.map(<[u8]>::to_vec)
}
