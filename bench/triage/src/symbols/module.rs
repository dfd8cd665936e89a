//! An ELF file: its functions and its rules to find callers.

use std::path::Path;

use object::read::File;
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use perf_data::plain::Code;
use perf_data::symbols::Symbols;

use crate::unwind::Table;

/// A file that processes have mapped.
#[derive(Debug)]
pub struct Module {
    /// (offset in the file, length, address) of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    symbols: Symbols,
    /// Table by which callers are found.
    pub table: Table,
}

impl Module {
    /// Reads a file; `None` if it cannot be read, is no plain file of a bounded size, or is no ELF file.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let bytes = Code::open(path)?.read()?;
        let file = File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let section = file.section_by_name(".eh_frame");
        let frames = section.and_then(|section| Some((section.data().ok()?.to_vec(), section.address())));
        Some(Self {
            segments: segments.collect(),
            symbols: Symbols::of_elf(&bytes).unwrap_or_default(),
            table: frames.map(|(bytes, address)| Table::new(bytes, address)).unwrap_or_default(),
        })
    }

    /// The file's own address of a place in it.
    #[must_use]
    pub fn address(&self, offset: u64) -> Option<u64> {
        let inside = |&&(start, length, _): &&(u64, u64, u64)| offset >= start && offset - start < length;
        self.segments.iter().find(inside).map(|(start, _, address)| address.wrapping_add(offset - start))
    }

    /// The function at a place in the file.
    #[must_use]
    pub fn symbol(&self, offset: u64) -> Option<&str> {
        self.symbols.find(self.address(offset)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_functions_and_rules() {
        let module = Module::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(module.symbols.len() > 100 && module.table.len() > 100);
        let main = module.symbols.address("main").unwrap();
        let (start, _, address) = module.segments.iter().rfind(|(_, _, address)| *address <= main).copied().unwrap();
        assert_eq!(module.symbol(start + (main - address)), Some("main"));
        assert!(Module::read(Path::new("/etc/passwd")).is_none() && Module::read(Path::new("/nowhere")).is_none());
    }
}
