//! A module's description of itself, in its section `.modinfo`.

use std::path::Path;

use object::{Object as _, ObjectSection as _};

use super::error::ModuleError;

/// The words of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// The release of the kernel it was built for: the first word of `vermagic`.
    pub(super) release: String,
    /// Modules that are to be loaded before it.
    pub(super) depends: Vec<String>,
}

/// Returns a module's name as the kernel has it.
pub(super) fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads a module's `.modinfo`.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Info, ModuleError> {
    let wrong = |what: String| ModuleError::NotAModule { path: path.to_owned(), what };
    let file =
        object::read::elf::ElfFile64::<object::Endianness>::parse(bytes).map_err(|error| wrong(error.to_string()))?;
    let section = file.section_by_name(".modinfo").ok_or_else(|| wrong("it has no section .modinfo".to_owned()))?;
    let data = section.data().map_err(|error| wrong(error.to_string()))?;
    let mut info = Info::default();
    for word in data.split(|&byte| byte == 0) {
        let word = String::from_utf8_lossy(word);
        match word.split_once('=') {
            Some(("vermagic", magic)) => {
                magic.split_whitespace().next().unwrap_or_default().clone_into(&mut info.release);
            }
            Some(("depends", names)) => {
                info.depends.extend(names.split(',').filter(|name| !name.is_empty()).map(plain));
            }
            _ => {}
        }
    }
    if info.release.is_empty() {
        return Err(wrong("its .modinfo has no vermagic".to_owned()));
    }
    Ok(info)
}
