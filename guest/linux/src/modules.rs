//! The kernel modules that a guest needs, from a distribution's folder of them.
//!
//! The folder is that of a package (`lib/modules/RELEASE`), installed or unpacked: nothing that depmod(8) writes is used.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};
use results::open;
use thiserror::Error;

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

/// Finds the modules `names` of kernel `release` with those that they need, each after what it needs. What is built
/// into the kernel is left out. A folder without the list of those (Debian's since 7) cannot say what is absent: there,
/// a name of `names` that has no file is taken as built in.
pub fn needed(folder: &Path, release: &str, names: &[&str]) -> Result<Vec<Module>, ModuleError> {
    let mut files = BTreeMap::new();
    index(folder, &mut files)?;
    let builtin = open::found(&folder.join("modules.builtin"), MOST_BYTES);
    let builtin = builtin.and_then(open::text).ok();
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
        let path = self.files.get(name).cloned().ok_or_else(|| {
            let by = needed_by.map(|by| format!(", which {by} needs,")).unwrap_or_default();
            let folder = self.path.display();
            ModuleError(format!("module {name}{by} is not in {folder}, and not among the kernel's built-in ones"))
        })?;
        let bytes = read(&path)?;
        let (release, depends) = parse(&bytes).map_err(|what| of(&path)(format!("not a kernel module: {what}")))?;
        if release != self.release {
            return Err(of(&path)(format!("built for kernel {release}; the kernel is {}", self.release)));
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
    let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(of(folder))?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(of(folder))?.is_dir() {
            index(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.entry(name).or_insert(path);
        }
    }
    Ok(())
}

/// Returns a module's name as the kernel has it.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads a module's `.modinfo`: the release of the kernel it was built for, which is the first word of `vermagic`, and the
/// modules that are to be loaded before it.
fn parse(bytes: &[u8]) -> Result<(String, Vec<String>), String> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let section = file.section_by_name(".modinfo").ok_or("it has no section .modinfo")?;
    let (mut release, mut depends) = (String::new(), Vec::new());
    for word in section.data().map_err(|error| error.to_string())?.split(|&byte| byte == 0) {
        match String::from_utf8_lossy(word).split_once('=') {
            Some(("vermagic", magic)) => magic.split_whitespace().next().unwrap_or_default().clone_into(&mut release),
            Some(("depends", names)) => depends.extend(names.split(',').filter(|name| !name.is_empty()).map(plain)),
            _ => {}
        }
    }
    if release.is_empty() { Err("its .modinfo has no vermagic".to_owned()) } else { Ok((release, depends)) }
}

/// Most bytes of a module. The largest of Debian's, a graphics driver's, has 30 MB with its symbols.
const MOST_BYTES: u64 = 256 << 20;

/// Ends of modules' names.
const ENDINGS: [&str; 4] = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"];

/// Reads a module and unpacks it.
fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let file = io::BufReader::new(open::found(path, MOST_BYTES).map_err(of(path))?);
    let unpacked = match path.extension().and_then(OsStr::to_str) {
        Some("gz") => all(flate2::bufread::MultiGzDecoder::new(file)),
        Some("xz") => all(lzma_rust2::XzReader::new(file, true)),
        Some("zst") => zstd::Decoder::with_buffer(file).and_then(all),
        _ => all(file),
    };
    unpacked.map_err(of(path))
}

fn all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("unpacked it has more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Folders in which a system keeps its modules, by release.
const SYSTEM: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// Finds the folder of the modules of kernel `release`: in the folder `given`, which is that folder or one above it;
/// otherwise beside the kernel's file, as a package has them. The host's own modules are those of such a kernel, too.
pub fn find(release: &str, given: Option<&Path>, kernel: &Path) -> Result<PathBuf, ModuleError> {
    let candidates = match given {
        Some(folder) => within(folder, release),
        None => beside(kernel, release),
    };
    if let Some(found) = candidates.iter().find(|folder| folder.join("kernel").is_dir()) {
        return Ok(found.clone());
    }
    let searched = candidates.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(ModuleError(format!(
        "the modules of kernel {release} are not in {searched}; give their folder with --modules DIR (Debian: unpack the kernel's package with dpkg-deb -x)"
    )))
}

fn within(folder: &Path, release: &str) -> Vec<PathBuf> {
    let mut candidates = vec![folder.join(release)];
    candidates.extend(SYSTEM.iter().map(|system| folder.join(system).join(release)));
    // A folder that is named otherwise, such as a build's: each module's own release decides.
    if release_of(folder).is_none_or(|named| named == release) {
        candidates.insert(0, folder.to_owned());
    }
    candidates
}

fn beside(kernel: &Path, release: &str) -> Vec<PathBuf> {
    let kernel = fs::canonicalize(kernel).unwrap_or_else(|_| kernel.to_owned());
    let mut candidates = Vec::new();
    // usr/lib/modules/RELEASE/vmlinuz.
    candidates.extend(kernel.parent().filter(|folder| folder.ends_with(release)).map(Path::to_owned));
    // boot/vmlinuz-RELEASE.
    if let Some(root) = kernel.parent().and_then(Path::parent) {
        candidates.extend(SYSTEM.iter().map(|system| root.join(system).join(release)));
    }
    candidates.push(Path::new("/").join(SYSTEM[0]).join(release));
    candidates.dedup();
    candidates
}

/// Returns the release in a folder's name: it begins with a number.
fn release_of(folder: &Path) -> Option<String> {
    let name = fs::canonicalize(folder).ok()?.file_name()?.to_str()?.to_owned();
    name.starts_with(|first: char| first.is_ascii_digit()).then_some(name)
}

/// A module cannot be given to the guest.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ModuleError(String);

/// The error of a file or folder.
fn of<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> ModuleError + '_ {
    move |what| ModuleError(format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a relocatable ELF64 file with two sections, its names and `.modinfo`, by words of 8 bytes.
    fn module(info: &str) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.names\0.modinfo\0";
        let (info, names) = (info.replace(' ', "\0"), NAMES.len() as u64);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let section = |name, kind: u64, at, size| bytes(&[kind << 32 | name, 0, 0, at, size, 0, 1, 0]);
        let table = 64 + names + info.len() as u64;
        // Three headers of 64 bytes at `table`, of which the second is that of the names.
        let header = [0x1_0102_464c_457f, 0, 0x1_003e_0001, 0, 0, table, 64 << 32, 64 << 16 | 3 << 32 | 1 << 48];
        let sections = [section(0, 0, 0, 0), section(1, 3, 64, names), section(8, 1, 64 + names, info.len() as u64)];
        [&bytes(&header)[..], NAMES, info.as_bytes(), &sections.concat()].concat()
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
    fn what_is_absent_is_named_with_the_module_that_needs_it_and_what_is_none_refused() {
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
        for (name, bytes) in [("f.ko", module("license=GPL")), ("g.ko", b"text".to_vec())] {
            fs::write(folder.path().join(name), bytes).unwrap();
            let error = names(folder.path(), &[&name[..1]]).unwrap_err().to_string();
            assert!(error.contains("not a kernel module"), "{error}");
        }
        // Without a list of what is built in only needs are known.
        fs::remove_file(folder.path().join("modules.builtin")).unwrap();
        assert_eq!(names(folder.path(), &["c", "e"]).unwrap(), ["d", "c"]);
        assert!(names(folder.path(), &["a"]).unwrap_err().to_string().starts_with("module b, which"));
    }

    #[test]
    fn packed_and_plain_modules_are_read_and_damage_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        // As `gzip -n`, `xz --check=crc32` and `zstd` pack it.
        let packed: [&[u8]; 3] =
            [include_bytes!("packed/vpmu.gz"), include_bytes!("packed/vpmu.xz"), include_bytes!("packed/vpmu.zst")];
        for (name, packed) in ENDINGS.iter().zip([&b"vpmu\n"[..]].into_iter().chain(packed)) {
            let path = folder.path().join(format!("a{name}"));
            let mut bytes = packed.to_vec();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path).unwrap(), b"vpmu\n", "{name}");
            if *name != ".ko" {
                fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
                assert!(read(&path).is_err(), "half of {name}");
                bytes[0] ^= 1;
                fs::write(&path, &bytes).unwrap();
                assert!(read(&path).unwrap_err().to_string().contains(name));
            }
        }
    }

    #[test]
    fn modules_are_in_the_folder_that_is_given_or_above_it_or_beside_their_kernel() {
        let root = tempfile::tempdir().unwrap();
        let root = &fs::canonicalize(root.path()).unwrap();
        let of_debian = "lib/modules/6.1.0-50-amd64";
        for path in [of_debian, "usr/lib/modules/7.2.12", "x/lib/modules/6.1", "build"] {
            fs::create_dir_all(root.join(path).join("kernel")).unwrap();
        }
        fs::create_dir(root.join("boot")).unwrap();
        fs::write(root.join("usr/lib/modules/7.2.12/vmlinuz"), "").unwrap();
        for (release, given, kernel, expected) in [
            ("6.1.0-50-amd64", None, "boot/vmlinuz-6.1.0-50-amd64", Some(of_debian)),
            ("7.2.12", None, "boot/vmlinuz-7.2.12", Some("usr/lib/modules/7.2.12")),
            ("7.2.12", None, "usr/lib/modules/7.2.12/vmlinuz", Some("usr/lib/modules/7.2.12")),
            ("5.0-none", None, "boot/vmlinuz-5.0-none", None),
            ("6.1", Some("x"), "none", Some("x/lib/modules/6.1")),
            ("6.1", Some("x/lib/modules"), "none", Some("x/lib/modules/6.1")),
            ("6.1", Some("x/lib/modules/6.1"), "none", Some("x/lib/modules/6.1")),
            ("6.2", Some("x"), "none", None),
            ("6.2", Some("x/lib/modules"), "none", None),
            ("6.2", Some("x/lib/modules/6.1"), "none", None),
            // A folder without a release in its name.
            ("6.2", Some("build"), "none", Some("build")),
            ("6.1", Some("y"), "none", None),
        ] {
            let given = given.map(|folder| root.join(folder));
            let found = find(release, given.as_deref(), &root.join(kernel));
            assert_eq!(found.as_ref().ok(), expected.map(|folder| root.join(folder)).as_ref(), "{release} {given:?}");
        }
        let error = find("6.2", Some(&root.join("x")), root).unwrap_err().to_string();
        assert!(error.contains("modules of kernel 6.2 are not in") && error.contains("--modules"), "{error}");
    }
}
