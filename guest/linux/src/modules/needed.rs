//! Modules with the modules that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::error::ModuleError;
use super::info::{Info, parse, plain};
use super::unpack::{ENDINGS, read};

/// A module, unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The bytes for finit_module(2).
    pub bytes: Vec<u8>,
}

/// The modules of one folder.
struct Folder<'a> {
    path: &'a Path,
    release: &'a str,
    files: BTreeMap<String, PathBuf>,
    /// Names of built-in modules, if the folder lists them.
    builtin: Option<BTreeSet<String>>,
    found: Vec<Module>,
    /// Names that are found, or on the way to be.
    seen: BTreeSet<String>,
}

/// Finds the modules `names` of kernel `release` with those that they need, each after what it needs. What is built into the kernel is left
/// out. A folder without the list of those (Debian's since 7) cannot say what is absent: there, a name of `names` that has no file
/// is taken as built in.
pub fn needed(folder: &Path, release: &str, names: &[&str]) -> Result<Vec<Module>, ModuleError> {
    let mut files = BTreeMap::new();
    index(folder, &mut files)?;
    let builtin = fs::read_to_string(folder.join("modules.builtin")).ok();
    let builtin = builtin.map(|list| list.lines().filter_map(|line| name_of(Path::new(line))).collect());
    let mut folder = Folder { path: folder, release, files, builtin, found: Vec::new(), seen: BTreeSet::new() };
    for name in names {
        folder.add(&plain(name), None)?;
    }
    Ok(folder.found)
}

impl Folder<'_> {
    fn is_builtin(&self, name: &str, needed_by: Option<&str>) -> bool {
        // A module needs modules, never what is built in.
        let unknown = needed_by.is_none() && !self.files.contains_key(name);
        self.builtin.as_ref().map_or(unknown, |list| list.contains(name))
    }

    fn add(&mut self, name: &str, needed_by: Option<&str>) -> Result<(), ModuleError> {
        if self.is_builtin(name, needed_by) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).cloned().ok_or_else(|| ModuleError::Absent {
            name: name.to_owned(),
            needed_by: needed_by.map(str::to_owned),
            folder: self.path.to_owned(),
        })?;
        let bytes = read(&path)?;
        let Info { release, depends } = parse(&path, &bytes)?;
        if release != self.release {
            return Err(ModuleError::Version { path, found: release, release: self.release.to_owned() });
        }
        for other in depends {
            self.add(&other, Some(name))?;
        }
        self.found.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }
}

fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    ENDINGS.iter().find_map(|ending| file.strip_suffix(ending)).map(plain)
}

/// Indexes the modules below a folder. Links are not followed: `build` and `source` lead out of it.
fn index(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), ModuleError> {
    let error = |error| ModuleError::File { path: folder.to_owned(), error };
    let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(error)?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(error)?.is_dir() {
            index(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.entry(name).or_insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a section's header (ELF64).
    fn section(name: u32, kind: u32, offset: usize, size: usize) -> Vec<u8> {
        let mut header = [&name.to_le_bytes()[..], &kind.to_le_bytes(), &[0; 16]].concat();
        for number in [offset as u64, size as u64, 0, 1, 0] {
            header.extend(number.to_le_bytes());
        }
        header
    }

    /// Builds a relocatable ELF file with two sections: its names, and `.modinfo`.
    fn module(info: &str) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.names\0.modinfo\0";
        let info = info.replace(' ', "\0");
        let table = 64 + NAMES.len() + info.len();
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([1, 0, 62, 0, 1, 0, 0, 0]);
        bytes.extend([0; 16]);
        bytes.extend((table as u64).to_le_bytes());
        bytes.extend([0; 4]);
        for number in [64_u16, 0, 0, 64, 3, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(NAMES);
        bytes.extend(info.as_bytes());
        bytes.extend(section(0, 0, 0, 0));
        bytes.extend(section(1, 3, 64, NAMES.len()));
        bytes.extend(section(8, 1, 64 + NAMES.len(), info.len()));
        bytes
    }

    fn folder(modules: &[(&str, &str)], builtin: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, info) in modules {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, module(info)).unwrap();
        }
        fs::write(folder.path().join("modules.builtin"), builtin).unwrap();
        folder
    }

    fn names(folder: &Path, names: &[&str]) -> Result<Vec<String>, ModuleError> {
        Ok(needed(folder, "6.1", names)?.into_iter().map(|module| module.name).collect())
    }

    #[test]
    fn each_module_comes_after_what_it_needs_and_once() {
        let folder = folder(
            &[
                ("kernel/a/virtio.ko", "depends= vermagic=6.1"),
                ("kernel/b/virtio-ring.ko", "depends=virtio vermagic=6.1"),
                ("kernel/virtio_mmio.ko", "license=GPL depends=virtio-ring,virtio vermagic=6.1"),
                ("kernel/virtio_console.ko", "depends=virtio_ring,virtio,hvc_console vermagic=6.1"),
                ("kernel/never.ko", "depends=nothing vermagic=5.0"),
            ],
            "kernel/drivers/tty/hvc/hvc-console.ko\n",
        );
        let found = names(folder.path(), &["virtio-mmio", "virtio_console"]).unwrap();
        assert_eq!(found, ["virtio", "virtio_ring", "virtio_mmio", "virtio_console"]);
        assert_eq!(names(folder.path(), &["hvc_console"]).unwrap(), [""; 0]);
        let error = names(folder.path(), &["never"]).unwrap_err().to_string();
        assert!(error.contains("for kernel 5.0") && error.contains("kernel is 6.1"), "{error}");
    }

    #[test]
    fn what_is_absent_is_named_with_the_module_that_needs_it() {
        let folder = folder(
            &[
                ("a.ko", "depends=b vermagic=6.1"),
                ("c.ko", "depends=d vermagic=6.1"),
                ("d.ko", "depends=c vermagic=6.1"),
            ],
            "",
        );
        let error = names(folder.path(), &["a"]).unwrap_err().to_string();
        assert!(error.contains("module b, which a needs,"), "{error}");
        assert!(names(folder.path(), &["e"]).unwrap_err().to_string().starts_with("module e is not in"));
        assert_eq!(names(folder.path(), &["c"]).unwrap(), ["d", "c"], "a circle ends");
    }

    #[test]
    fn without_a_list_of_what_is_built_in_only_needs_are_known() {
        let folder = folder(&[("a.ko", "depends=b vermagic=6.1"), ("c.ko", "vermagic=6.1")], "");
        fs::remove_file(folder.path().join("modules.builtin")).unwrap();
        assert_eq!(names(folder.path(), &["c", "d"]).unwrap(), ["c"]);
        assert!(matches!(names(folder.path(), &["a"]), Err(ModuleError::Absent { .. })));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let folder = folder(&[("a.ko", "license=GPL")], "");
        fs::write(folder.path().join("b.ko"), "text").unwrap();
        for name in ["a", "b"] {
            assert!(matches!(names(folder.path(), &[name]), Err(ModuleError::NotAModule { .. })), "{name}");
        }
    }
}
