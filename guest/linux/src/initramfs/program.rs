//! A file of the host with everything that it needs to run in a guest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use results::open;

use super::builder::Initramfs;
use super::error::{InitramfsError, host};
use super::libraries;
use super::libraries::{Elf, Folder, Found, MOST_BYTES, plain};

/// Longest chain of links from one name of a library to the next.
const MOST_LINKS: usize = 8;

/// Longest chain of files each of which needs the next: far more than libraries have, and few enough for the stack.
const MOST_NEEDS: usize = 100;

/// Folders in which `#!/usr/bin/env` looks for its program.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Initramfs {
    /// Adds a program of the host (an ELF file or a script) with its interpreter and shared libraries, which keep their paths.
    /// Libraries that a program opens by itself (dlopen(3)) and modules of a script's interpreter are not known here.
    pub fn program(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        self.named.add(from);
        // A link to a program of another name is that program under this name.
        let real = fs::canonicalize(from).map_err(host(from))?;
        let bytes = open::found_bytes(&real, MOST_BYTES).map_err(host(&real))?;
        if !libraries::is_elf(&bytes) && !bytes.starts_with(b"#!") {
            return Err(not_a_program(from));
        }
        self.with_needs(guest, &real, &bytes, 0o755, &[])
    }

    /// Adds whatever is at a path of the host: a program as [`Self::program`] does, another file as it is, a folder with
    /// everything below it, links as links. `guest` is its path in the guest.
    pub fn copy(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        let metadata = fs::metadata(from).map_err(host(from))?;
        self.named.add(from);
        self.below(guest.trim_end_matches('/'), from, &metadata)
    }

    fn below(&mut self, guest: &str, from: &Path, metadata: &fs::Metadata) -> Result<(), InitramfsError> {
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_symlink() {
            let target = fs::read_link(from).map_err(host(from))?;
            self.link(guest, &target.to_string_lossy())?;
        } else if metadata.is_dir() {
            self.folder(guest, mode)?;
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
                return self.with_needs(guest, &real, &bytes, mode, &[]);
            }
            self.file(guest, mode, &bytes)?;
        }
        Ok(())
    }

    /// Adds a file that is at `real` on the host, and what it needs. `inherited` are RPATHs of the files that need it.
    fn with_needs(
        &mut self,
        guest: &str,
        real: &Path,
        bytes: &[u8],
        mode: u32,
        inherited: &[Folder],
    ) -> Result<(), InitramfsError> {
        if !self.done.insert(guest.to_owned()) {
            return Ok(());
        }
        if self.depth == MOST_NEEDS {
            let why = format!("files that need it, and those that need them, are more than {MOST_NEEDS}");
            return Err(InitramfsError::of(real, why));
        }
        self.file(guest, mode, bytes)?;
        self.depth += 1;
        let added = if libraries::is_elf(bytes) {
            libraries::parse(real, bytes).and_then(|wishes| {
                let host = real.parent().unwrap_or(Path::new("/")).to_owned();
                self.needs_of(real, &wishes, &Folder { host, guest: parent(guest).to_owned() }, inherited)
            })
        } else {
            self.interpreter_of(real, &first_line(bytes))
        };
        self.depth -= 1;
        added
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
            let found = found.ok_or_else(|| {
                let (program, searched) = (real.display(), self.search.describe(first));
                InitramfsError(format!(
                    "{program} needs {name}, which is not on this host (searched: {searched}); install the package that has it"
                ))
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
            self.link(&path, &format!("{}/{name}", folder.guest))?;
        }
        for _ in 0..MOST_LINKS {
            let Ok(target) = fs::read_link(folder.host.join(&name)) else { break };
            let Some(target) = target.to_str().filter(|target| !target.contains('/')) else { break };
            let path = plain(&format!("{}/{name}", folder.guest));
            self.link(&path, target)?;
            target.clone_into(&mut name);
        }
        let guest = plain(&format!("{}/{name}", folder.guest));
        self.with_needs(&guest, &folder.host.join(&name), &bytes, 0o755, inherited)
    }

    /// Adds the interpreter in the first line of a script.
    fn interpreter_of(&mut self, script: &Path, line: &str) -> Result<(), InitramfsError> {
        let mut words = line.split_whitespace();
        let interpreter = words.next().ok_or_else(|| not_a_program(script))?;
        // As the kernel has it, a script's interpreter may be a script.
        let runs = |bytes: &[u8]| libraries::fits(bytes) || bytes.starts_with(b"#!");
        self.interpreter(script, interpreter, runs)?;
        if interpreter.ends_with("/env") {
            // `env -S` and settings of variables come before the name.
            let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let name = name.ok_or_else(|| no_interpreter(script, "of env"))?;
            let path = PATH.iter().map(|folder| format!("{folder}/{name}")).find(|path| Path::new(path).is_file());
            let path = path.ok_or_else(|| no_interpreter(script, name))?;
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
            .ok_or_else(|| no_interpreter(program, path))?;
        self.named.check(&real, program)?;
        let bytes = open::found_bytes(&real, MOST_BYTES).map_err(host(&real))?;
        if !runs(&bytes) {
            let why = format!("{} names the interpreter {path}, which is no program for it", program.display());
            return Err(InitramfsError(why));
        }
        self.with_needs(&plain(path), &real, &bytes, 0o755, &[])
    }
}

/// Returns the words after `#!`.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim_start_matches("#!").trim().to_owned()
}

fn not_a_program(path: &Path) -> InitramfsError {
    InitramfsError::of(path, "neither an ELF program nor a script with #!")
}

fn no_interpreter(program: &Path, name: &str) -> InitramfsError {
    InitramfsError(format!("{} needs the interpreter {name}, which is not on this host", program.display()))
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
        let path = |path: &Path| vec![path.to_str().unwrap().to_owned()];
        let of_path = Elf { needed: path(&library), ..Elf::default() };
        let of_runpath = Elf { needed: vec!["libx.so".to_owned()], runpath: path(folder.path()), ..Elf::default() };
        for wishes in [&of_path, &of_runpath] {
            // The modes of the library and of its folder.
            for (mode, above, named, may) in [
                (0o644, 0o755, false, true),
                (0o640, 0o755, false, false),
                (0o640, 0o755, true, true),
                (0o644, 0o700, false, false),
            ] {
                set(&library, mode);
                set(folder.path(), above);
                let mut initramfs = Initramfs::new();
                if named {
                    initramfs.copy("/root/libx.so", &library).unwrap();
                }
                let added = initramfs.needs_of(Path::new("/p"), wishes, &Folder::same("/bin"), &[]);
                assert_eq!(added.is_ok(), may, "{mode:o} in {above:o}: {added:?}");
            }
        }
    }
}
