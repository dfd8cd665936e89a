//! A file of the host with everything that it needs to run in a guest.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use results::open;

use super::error::InitramfsError;
use super::libraries;
use super::libraries::{Elf, Folder, Found, MOST_BYTES, Search, plain};

/// Longest chain of links from one name of a library to the next.
const MOST_LINKS: usize = 8;

/// Longest chain of files each of which needs the next: far more than libraries have, and few enough for the stack.
const MOST_NEEDS: usize = 100;

/// Folders in which `#!/usr/bin/env` looks for its program.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

/// One thing to add to the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A file.
    File {
        /// Its path in the guest.
        path: String,
        /// Its permissions.
        mode: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        /// Its path in the guest.
        path: String,
        /// Its target.
        target: String,
    },
    /// A folder.
    Folder {
        /// Its path in the guest.
        path: String,
        /// Its permissions.
        mode: u32,
    },
}

/// Finds files and what they need.
#[derive(Debug)]
pub(super) struct Collector {
    search: Search,
    named: Named,
    /// Files that are being collected, each because the one before needs it.
    depth: usize,
    /// Paths in the guest that are collected, with their needs.
    done: BTreeSet<String>,
    items: Vec<Item>,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            search: Search::new(Path::new("/")),
            named: Named::default(),
            depth: 0,
            done: BTreeSet::new(),
            items: Vec::new(),
        }
    }
}

fn host(path: &Path) -> impl FnOnce(std::io::Error) -> InitramfsError + '_ {
    |error| InitramfsError::Host { path: path.to_owned(), error }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Collector {
    /// Takes the items collected since the last call.
    pub(super) fn take(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.items)
    }

    /// Adds a program: an ELF file or a script.
    pub(super) fn program(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        self.named.add(from);
        // A link to a program of another name is that program under this name.
        let real = fs::canonicalize(from).map_err(host(from))?;
        let bytes = open::found_bytes(&real, MOST_BYTES).map_err(host(&real))?;
        if !libraries::is_elf(&bytes) && !bytes.starts_with(b"#!") {
            return Err(InitramfsError::NotAProgram(from.to_owned()));
        }
        self.with_needs(guest, &real, bytes, 0o755, &[])
    }

    /// Adds any file or folder: a program with its needs, a folder with everything below it, links as links.
    pub(super) fn any(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        let metadata = fs::metadata(from).map_err(host(from))?;
        self.named.add(from);
        self.below(guest, from, &metadata)
    }

    fn below(&mut self, guest: &str, from: &Path, metadata: &fs::Metadata) -> Result<(), InitramfsError> {
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_symlink() {
            let target = fs::read_link(from).map_err(host(from))?;
            self.items.push(Item::Link { path: guest.to_owned(), target: target.to_string_lossy().into_owned() });
        } else if metadata.is_dir() {
            self.items.push(Item::Folder { path: guest.to_owned(), mode });
            let entries = fs::read_dir(from).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(host(from))?;
            for entry in entries {
                let path = format!("{guest}/{}", entry.file_name().to_string_lossy());
                self.below(&path, &entry.path(), &entry.metadata().map_err(host(&entry.path()))?)?;
            }
        } else {
            let bytes = open::found_bytes(from, MOST_BYTES).map_err(host(from))?;
            let real = fs::canonicalize(from).map_err(host(from))?;
            // A script of a folder is data unless it can be started; an ELF file of another processor is data.
            let runs = if libraries::is_elf(&bytes) {
                libraries::fits(&bytes)
            } else {
                bytes.starts_with(b"#!") && mode & 0o111 != 0
            };
            if runs {
                return self.with_needs(guest, &real, bytes, mode, &[]);
            }
            self.items.push(Item::File { path: guest.to_owned(), mode, bytes });
        }
        Ok(())
    }

    /// Adds a file that is at `real` on the host, and what it needs. `inherited` are RPATHs of the files that need it.
    fn with_needs(
        &mut self,
        guest: &str,
        real: &Path,
        bytes: Vec<u8>,
        mode: u32,
        inherited: &[Folder],
    ) -> Result<(), InitramfsError> {
        if !self.done.insert(guest.to_owned()) {
            return Ok(());
        }
        if self.depth == MOST_NEEDS {
            return Err(InitramfsError::TooDeep { path: real.to_owned(), most: MOST_NEEDS });
        }
        self.depth += 1;
        let collected = self.collect(guest, real, bytes, mode, inherited);
        self.depth -= 1;
        collected
    }

    fn collect(
        &mut self,
        guest: &str,
        real: &Path,
        bytes: Vec<u8>,
        mode: u32,
        inherited: &[Folder],
    ) -> Result<(), InitramfsError> {
        if libraries::is_elf(&bytes) {
            let wishes = libraries::parse(real, &bytes)?;
            let origin =
                Folder { host: real.parent().unwrap_or(Path::new("/")).to_owned(), guest: parent(guest).to_owned() };
            self.items.push(Item::File { path: guest.to_owned(), mode, bytes });
            self.needs_of(real, &wishes, &origin, inherited)
        } else {
            let line = first_line(&bytes);
            self.items.push(Item::File { path: guest.to_owned(), mode, bytes });
            self.interpreter_of(real, &line)
        }
    }

    fn needs_of(
        &mut self,
        real: &Path,
        wishes: &Elf,
        origin: &Folder,
        inherited: &[Folder],
    ) -> Result<(), InitramfsError> {
        if let Some(interpreter) = &wishes.interpreter {
            self.interpreter(real, interpreter, libraries::fits)?;
        }
        let folders =
            |paths: &[String]| paths.iter().filter_map(|path| Folder::of_path(path, origin)).collect::<Vec<_>>();
        let mut rpath = folders(&wishes.rpath);
        rpath.extend_from_slice(inherited);
        let runpath = folders(&wishes.runpath);
        // RPATHs of the files above count only where a file has no RUNPATH of its own.
        let first = if runpath.is_empty() { &rpath } else { &runpath };
        for name in &wishes.needed {
            let found = if name.contains('/') {
                let (folder, _) = name.rsplit_once('/').unwrap_or_default();
                open::found_bytes(Path::new(name), MOST_BYTES)
                    .ok()
                    .filter(|bytes| libraries::fits(bytes))
                    .map(|bytes| Found { folder: Folder::same(folder), bytes, configured: false })
            } else {
                self.search.find(name, first)
            };
            let found = found.ok_or_else(|| InitramfsError::Library {
                program: real.to_owned(),
                library: name.clone(),
                searched: self.search.describe(first),
            })?;
            let name = name.rsplit('/').next().unwrap_or(name);
            self.named.check(&found.folder.host.join(name), real)?;
            self.library(name, found, &rpath)?;
        }
        Ok(())
    }

    /// Adds a shared library under the name by which it is needed. Where that is a link to a file beside it, as `libx.so.1` is to
    /// `libx.so.1.2`, it stays one.
    fn library(&mut self, name: &str, found: Found, inherited: &[Folder]) -> Result<(), InitramfsError> {
        let Found { folder, bytes, configured } = found;
        let mut name = name.to_owned();
        if configured {
            let path = format!("{}/{name}", self.search.loaders_own());
            self.items.push(Item::Link { path, target: format!("{}/{name}", folder.guest) });
        }
        for _ in 0..MOST_LINKS {
            let Ok(target) = fs::read_link(folder.host.join(&name)) else { break };
            let Some(target) = target.to_str().filter(|target| !target.contains('/')) else { break };
            let path = plain(&format!("{}/{name}", folder.guest));
            self.items.push(Item::Link { path, target: target.to_owned() });
            target.clone_into(&mut name);
        }
        let guest = plain(&format!("{}/{name}", folder.guest));
        self.with_needs(&guest, &folder.host.join(&name), bytes, 0o755, inherited)
    }

    /// Adds the interpreter in the first line of a script.
    fn interpreter_of(&mut self, script: &Path, line: &str) -> Result<(), InitramfsError> {
        let mut words = line.split_whitespace();
        let Some(interpreter) = words.next() else { return Err(InitramfsError::NotAProgram(script.to_owned())) };
        // As the kernel has it, a script's interpreter may be a script.
        let runs = |bytes: &[u8]| libraries::fits(bytes) || bytes.starts_with(b"#!");
        self.interpreter(script, interpreter, runs)?;
        if interpreter.ends_with("/env") {
            // `env -S` and settings of variables come before the name.
            let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let missing =
                |name: &str| InitramfsError::Interpreter { program: script.to_owned(), interpreter: name.to_owned() };
            let name = name.ok_or_else(|| missing("of env"))?;
            let path = PATH.iter().map(|folder| format!("{folder}/{name}")).find(|path| Path::new(path).is_file());
            let path = path.ok_or_else(|| missing(name))?;
            self.interpreter(script, &path, runs)?;
        }
        Ok(())
    }

    /// Adds an interpreter at the same path as on the host, which must be of a kind that `runs`: a program may name any file.
    fn interpreter(
        &mut self,
        program: &Path,
        path: &str,
        runs: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), InitramfsError> {
        let real = fs::canonicalize(path)
            .ok()
            .filter(|_| path.starts_with('/'))
            .ok_or_else(|| InitramfsError::Interpreter { program: program.to_owned(), interpreter: path.to_owned() })?;
        self.named.check(&real, program)?;
        let bytes = open::found_bytes(&real, MOST_BYTES).map_err(host(&real))?;
        if !runs(&bytes) {
            let (program, interpreter) = (program.to_owned(), path.to_owned());
            return Err(InitramfsError::NotAnInterpreter { program, interpreter });
        }
        self.with_needs(&plain(path), &real, bytes, 0o755, &[])
    }
}

/// Returns the words after `#!`.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim_start_matches("#!").trim().to_owned()
}

/// Returns the name that a file of the host has in the guest if none is given: its absolute path.
pub(super) fn absolute(from: &Path) -> Result<PathBuf, InitramfsError> {
    std::path::absolute(from).map_err(host(from))
}

/// Files and folders that the user named.
#[derive(Debug, Default)]
pub(super) struct Named(BTreeSet<PathBuf>);

impl Named {
    /// Adds a file or folder that the user named.
    pub(super) fn add(&mut self, from: &Path) {
        // A path that does not exist is refused by its reader.
        self.0.extend(fs::canonicalize(from));
    }

    /// Checks that `program` may have `path`, which it asks for itself. Run by root, it could ask for anything, and
    /// whoever made it sees what is in the guest: it gets what everybody may read on this host, or what the user named.
    pub(super) fn check(&self, path: &Path, program: &Path) -> Result<(), InitramfsError> {
        // A path that does not exist is another error.
        let Ok(real) = fs::canonicalize(path) else { return Ok(()) };
        let may = |path: &Path, bit| fs::metadata(path).is_ok_and(|found| found.mode() & bit != 0);
        // Folders above what the user named are no secret.
        let passable = |folder: &Path| may(folder, 0o001) || self.0.iter().any(|named| named.starts_with(folder));
        if self.0.iter().any(|named| real.starts_with(named))
            || (may(&real, 0o004) && real.ancestors().skip(1).all(passable))
        {
            return Ok(());
        }
        Err(InitramfsError::NotEveryones { program: program.to_owned(), path: real })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_not_everybody_may_read_is_refused_unless_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(folder.path(), 0o755);
        let library = folder.path().join("libx.so");
        fs::write(&library, crate::INIT).unwrap();
        let of_path = Elf { needed: vec![library.to_str().unwrap().to_owned()], ..Elf::default() };
        let runpath = vec![folder.path().to_str().unwrap().to_owned()];
        let of_runpath = Elf { needed: vec!["libx.so".to_owned()], runpath, ..Elf::default() };
        let needs = |wishes: &Elf, named: bool| {
            let mut collector = Collector::default();
            if named {
                collector.any("/root/libx.so", &library).unwrap();
            }
            collector.needs_of(Path::new("/p"), wishes, &Folder::same("/bin"), &[])
        };
        for wishes in [&of_path, &of_runpath] {
            for (mode, everybody) in [(0o644, true), (0o640, false)] {
                set(&library, mode);
                assert_eq!(needs(wishes, false).is_ok(), everybody, "{mode:o}");
                needs(wishes, true).unwrap();
            }
            set(&library, 0o644);
            set(folder.path(), 0o700);
            assert!(matches!(needs(wishes, false), Err(InitramfsError::NotEveryones { .. })));
            set(folder.path(), 0o755);
        }
    }
}
