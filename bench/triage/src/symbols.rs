//! Names of addresses in processes and in the kernel.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use perf_data::symbols::{Image, Symbols, demangled};
use results::open::found_bytes;

/// Largest file of a program that is read for its names.
const MOST_BYTES: u64 = 1 << 30;

/// Owner of a frame that belongs to no file.
pub const KERNEL: &str = "[kernel]";

/// A function, as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Its name; without one, the offset in its file.
    pub symbol: String,
    /// The file's name, or [`KERNEL`].
    pub module: String,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.symbol, self.module)
    }
}

impl Frame {
    /// Returns whether it is the kernel's.
    pub fn in_kernel(&self) -> bool {
        self.module == KERNEL
    }
}

/// Files and the kernel by what they define; read once.
#[derive(Debug, Default)]
pub struct Names {
    kernel: Option<Symbols>,
    modules: HashMap<PathBuf, Option<Image>>,
}

impl Names {
    /// Starts with the kernel's symbols of this host, if it shows them.
    pub fn of_this_host() -> Self {
        let kernel = std::fs::read_to_string("/proc/kallsyms").ok();
        let kernel = kernel.map(|text| Symbols::of_kallsyms(&text)).filter(|symbols| !symbols.is_empty());
        Self { kernel, modules: HashMap::new() }
    }

    /// Finds the kernel's function at an address.
    pub fn in_kernel(&self, address: u64) -> Frame {
        let name = self.kernel.as_ref().and_then(|symbols| symbols.find(address));
        // An address of its own would split one function into many frames.
        let symbol = name.map_or_else(|| "(hidden)".to_owned(), demangled);
        Frame { symbol, module: KERNEL.to_owned() }
    }

    /// Finds the function of user code at an address.
    pub fn in_user(&mut self, maps: &Maps, address: u64) -> Frame {
        let Some(map) = maps.find(address) else {
            return Frame { symbol: format!("{address:#x}"), module: "[unknown]".to_owned() };
        };
        let (name, offset) = (map.name(), map.offset_of(address));
        let found = self.module(&map.path).and_then(|image| image.find(offset));
        let symbol = found.map_or_else(|| format!("+{offset:#x}"), demangled);
        Frame { symbol, module: name }
    }

    /// Opens the file of a mapping; `None`: it cannot be read, or is no ELF file.
    pub fn module(&mut self, path: &Path) -> Option<&Image> {
        let read = || {
            // A name in brackets is no file.
            path.is_absolute().then(|| Image::read(&found_bytes(path, MOST_BYTES).ok()?)).flatten()
        };
        self.modules.entry(path.to_owned()).or_insert_with(read).as_ref()
    }
}

// The executable mappings of a process, `/proc/PID/maps`.

/// A mapping of a file's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    start: u64,
    end: u64,
    offset: u64,
    /// The file, or a name in brackets.
    pub path: PathBuf,
}

impl Map {
    /// Returns the last part of the path.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Returns the place in the file.
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }
}

/// Mappings by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(Vec<Map>);

impl Maps {
    /// Reads those of a process; none if it has ended.
    pub fn of(pid: i32) -> Self {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(line).collect())
    }

    /// Finds the mapping that an address is in.
    pub fn find(&self, address: u64) -> Option<&Map> {
        self.0.iter().find(|map| (map.start..map.end).contains(&address))
    }
}

fn line(line: &str) -> Option<Map> {
    let mut words = line.splitn(6, ' ');
    let (range, flags, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?.trim_start();
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let map = Map { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path: Path::new(path).to_owned() };
    (flags.contains('x') && !path.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_address_and_has_a_place_in_its_file() {
        let maps = Maps::parse(
            "55d0c000-55d0f000 r--p 00000000 fe:00 12    /usr/bin/a tool\n\
         55d10000-55d20000 r-xp 00001000 fe:00 12    /usr/bin/a tool\n\
         7ffe0000-7ffe2000 r-xp 00000000 00:00 0     [vdso]\n7f000000-7f001000 r-xp 00000000 00:00 0 \nnonsense\n",
        );
        let map = maps.find(0x55d1_0010).unwrap();
        assert_eq!((map.name().as_str(), map.offset_of(0x55d1_0010)), ("a tool", 0x1010));
        assert_eq!(maps.find(0x7ffe_0000).unwrap().name(), "[vdso]");
        assert!(maps.find(0x55d0_c000).is_none() && maps.find(0x7f00_0000).is_none() && maps.find(0).is_none());
        assert_eq!(Maps::of(0), Maps::default());
    }
}
