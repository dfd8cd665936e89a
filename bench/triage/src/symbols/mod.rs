//! Names of addresses in processes and in the kernel.

mod maps;
mod module;

use std::collections::HashMap;
use std::path::PathBuf;

use perf_data::symbols::{Symbols, demangled};
use serde::Serialize;

pub use maps::Maps;
pub use module::Module;

/// Owner of a frame that belongs to no file.
pub const KERNEL: &str = "[kernel]";

/// A function, as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// Its name; without one, the offset in its file.
    pub symbol: String,
    /// The file's name, or [`KERNEL`].
    pub module: String,
}

impl Frame {
    /// Returns whether it is the kernel's.
    #[must_use]
    pub fn in_kernel(&self) -> bool {
        self.module == KERNEL
    }
}

/// Files and the kernel by what they define; read once.
#[derive(Debug, Default)]
pub struct Names {
    kernel: Option<Symbols>,
    modules: HashMap<PathBuf, Option<Module>>,
}

impl Names {
    /// With the kernel's symbols of this host, if it shows them.
    #[must_use]
    pub fn of_this_host() -> Self {
        let kernel = std::fs::read_to_string("/proc/kallsyms").ok();
        let kernel = kernel.map(|text| Symbols::of_kallsyms(&text)).filter(|symbols| !symbols.is_empty());
        Self { kernel, modules: HashMap::new() }
    }

    /// The kernel's function at an address.
    #[must_use]
    pub fn in_kernel(&self, address: u64) -> Frame {
        let name = self.kernel.as_ref().and_then(|symbols| symbols.find(address));
        // An address of its own would split one function into many frames.
        let symbol = name.map_or_else(|| "(hidden)".to_owned(), demangled);
        Frame { symbol, module: KERNEL.to_owned() }
    }

    /// The function of user code at an address.
    pub fn in_user(&mut self, maps: &Maps, address: u64) -> Frame {
        let Some(map) = maps.find(address) else {
            return Frame { symbol: format!("{address:#x}"), module: "[unknown]".to_owned() };
        };
        let (name, offset) = (map.name(), map.offset_of(address));
        let found = self.module(&map.path).and_then(|module| module.symbol(offset));
        let symbol = found.map_or_else(|| format!("+{offset:#x}"), demangled);
        Frame { symbol, module: name }
    }

    /// The file of a mapping; `None`: it cannot be read, or is no ELF file.
    pub fn module(&mut self, path: &std::path::Path) -> Option<&Module> {
        self.modules.entry(path.to_owned()).or_insert_with(|| Module::read(path)).as_ref()
    }
}
