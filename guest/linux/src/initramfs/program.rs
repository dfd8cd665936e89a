//! A file of the host with everything that it needs to run in a guest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use results::open;

use super::builder::{Initramfs, Private};
use super::error::{InitramfsError, host};

/// Most bytes of a file: those that a RAM disk has.
const MOST_BYTES: u64 = 1 << 30;

/// Folders in which `#!/usr/bin/env` looks for its program.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

/// The loader of x86-64 programs with glibc. It lists what a program needs and runs nothing of it, nor a loader that the program names.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Folders in which it looks by itself.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

impl Initramfs {
    /// Adds a program of the host (an ELF file or a script) with its interpreter and shared libraries.
    /// Libraries that a program opens by itself (dlopen(3)) and modules of a script's interpreter are not known here.
    pub fn program(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        let bytes = open::found_bytes(from, MOST_BYTES).map_err(host(from))?;
        if !is_elf(&bytes) && !bytes.starts_with(b"#!") {
            return Err(not_a_program(from));
        }
        self.with_needs(guest, from, &bytes, 0o755)
    }

    /// Adds whatever is at a path of the host: a program as [`Self::program`] does, another file as it is, a folder with
    /// everything below it, links as links. `guest` is its path in the guest.
    pub fn copy(&mut self, guest: &str, from: &Path) -> Result<(), InitramfsError> {
        let metadata = fs::metadata(from).map_err(host(from))?;
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
            // A script of a folder is data unless it can be started; an ELF file of another processor is data.
            let runs = loader(&bytes).is_ok() || bytes.starts_with(b"#!") && mode & 0o111 != 0;
            self.file(guest, mode, &bytes)?;
            if runs {
                let added = self.needs(guest, from, &bytes);
                // A shared object may need what the program that loads it brings: without it, it is data.
                return if is_shared_object(&bytes) { Ok(()) } else { added };
            }
        }
        Ok(())
    }

    /// Adds a program, and what it needs.
    fn with_needs(&mut self, guest: &str, from: &Path, bytes: &[u8], mode: u32) -> Result<(), InitramfsError> {
        self.file(guest, mode, bytes)?;
        self.needs(guest, from, bytes)
    }

    fn needs(&mut self, guest: &str, from: &Path, bytes: &[u8]) -> Result<(), InitramfsError> {
        if is_elf(bytes) {
            self.libraries_of(guest, from, bytes)
        } else {
            self.interpreters_of(from, &first_line(bytes))
        }
    }

    /// Adds the loader of a program or shared object, and its shared libraries where the guest's loader looks for them: in the C
    /// library's folder. One in a folder of its own stays there.
    fn libraries_of(&mut self, guest: &str, program: &Path, bytes: &[u8]) -> Result<(), InitramfsError> {
        let of_program = |what: String| InitramfsError::of(program, what);
        let Some(loader) = loader(bytes).map_err(of_program)? else { return Ok(()) };
        if loader != LOADER {
            return Err(of_program(format!("its loader is {loader}, not {LOADER}; link it statically")));
        }
        let real = fs::canonicalize(program).map_err(host(program))?;
        let list =
            Command::new(LOADER).env_clear().arg("--list").arg(&real).output().map_err(host(Path::new(LOADER)))?;
        let (text, why) = (String::from_utf8_lossy(&list.stdout), String::from_utf8_lossy(&list.stderr));
        if !list.status.success() {
            return Err(of_program(format!("{LOADER} cannot list its libraries: {}", why.trim())));
        }
        let libraries = listed(&text).map_err(of_program)?;
        let libc = libraries.iter().find(|(name, _)| *name == "libc.so.6").and_then(|(_, path)| path.rsplit_once('/'));
        for (name, path) in libraries {
            let at = Path::new(path);
            let folder = at.parent().unwrap_or(at).canonicalize().map_err(host(at))?;
            let usual = format!("{}/{name}", libc.map_or("/usr/lib", |(folder, _)| folder));
            if name.starts_with('/') || USUAL.iter().any(|usual| folder == Path::new(usual)) {
                let bytes = open::found_bytes(at, MOST_BYTES).map_err(host(at))?;
                self.file(if name.starts_with('/') { name } else { &usual }, 0o755, &bytes)?;
                continue;
            }
            let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            let path = folder.join(name);
            let from_origin = has("$ORIGIN").then(|| moved(&path, &real, Path::new(guest)));
            let by_path = has(&folder.to_string_lossy()).then(|| path.clone());
            let sought = [from_origin, by_path].into_iter().flatten().map(|path| text_of(&path)).collect();
            self.private.push(Private { path: text_of(&path), usual, sought });
        }
        Ok(())
    }

    /// Adds the libraries that stay in their own folders. A link leads to each: that of one whose program does not look there itself must
    /// have its place.
    pub(super) fn private_libraries(&mut self) -> Result<(), InitramfsError> {
        let private = std::mem::take(&mut self.private);
        for Private { path, .. } in &private {
            // It may have come with its folder.
            if !self.has(path) {
                let bytes = open::found_bytes(Path::new(path), MOST_BYTES).map_err(host(Path::new(path)))?;
                self.file(path, 0o755, &bytes)?;
            }
        }
        let is_found = |one: &Private| one.sought.iter().any(|path| self.has(path));
        let (found, sole): (Vec<_>, Vec<_>) = private.iter().partition(|one| is_found(one));
        sole.iter().try_for_each(|one| self.link(&one.usual, &one.path))?;
        for Private { path, usual, .. } in found {
            if !self.has(usual) {
                self.link(usual, path)?;
            }
        }
        Ok(())
    }

    /// Adds the interpreter in the first line of a script.
    fn interpreters_of(&mut self, script: &Path, line: &str) -> Result<(), InitramfsError> {
        let mut words = line.split_whitespace();
        let interpreter = words.next().ok_or_else(|| not_a_program(script))?;
        self.interpreter(script, interpreter)?;
        if interpreter.ends_with("/env") {
            // `env -S` and settings of variables come before the name.
            let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let name = name.ok_or_else(|| no_interpreter(script, "of env"))?;
            let path = PATH.iter().map(|folder| format!("{folder}/{name}")).find(|path| Path::new(path).is_file());
            self.interpreter(script, &path.ok_or_else(|| no_interpreter(script, name))?)?;
        }
        Ok(())
    }

    /// Adds an interpreter at the same path as on the host, which must be a program: a script may name any file.
    fn interpreter(&mut self, script: &Path, path: &str) -> Result<(), InitramfsError> {
        let at = Path::new(path);
        if !at.is_absolute() || !at.exists() {
            return Err(no_interpreter(script, path));
        }
        let bytes = open::found_bytes(at, MOST_BYTES).map_err(host(at))?;
        loader(&bytes).map_err(|_| {
            InitramfsError(format!("{} names the interpreter {path}, which is no program for it", script.display()))
        })?;
        self.with_needs(path, at, &bytes, 0o755)
    }
}

/// Reads what the loader lists: the names and paths of libraries, with a name that is a path where one is needed by it.
fn listed(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        // `NAME => PATH (0x...)`; `NAME (0x...)` of the vDSO, the loader, and libraries that are needed by a path.
        let line = line.rsplit_once(" (0x").map_or(line, |(line, _)| line);
        match line.split_once(" => ").unwrap_or((line, line)) {
            ("linux-vdso.so.1" | "statically linked", _) => {}
            (name, "not found") => {
                return Err(format!("it needs {name}, which is not on this host; install the package that has it"));
            }
            (name, path) if path.starts_with('/') && (name.starts_with('/') || !name.contains('/')) => {
                libraries.push((name, path));
            }
            (name, _) => {
                return Err(format!(
                    "it needs {name}, which depends on where it is started; link it by name or by a whole path"
                ));
            }
        }
    }
    Ok(libraries)
}

/// Returns where a library is to its program's copy in the guest as it is to the program.
fn moved(library: &Path, program: &Path, guest: &Path) -> PathBuf {
    let same = library.components().zip(program.components()).take_while(|(a, b)| a == b).count();
    let folder = guest.ancestors().nth(program.components().count() - same).unwrap_or(Path::new("/"));
    folder.join(library.components().skip(same).collect::<PathBuf>())
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns whether a file begins as ELF files do.
fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Returns whether an ELF file names no loader.
fn is_shared_object(bytes: &[u8]) -> bool {
    let Ok(header) = FileHeader64::<Endianness>::parse(bytes) else { return false };
    let named =
        |endian| Some(header.program_headers(endian, bytes).ok()?.iter().any(|one| one.p_type(endian) == PT_INTERP));
    header.endian().ok().and_then(named) == Some(false)
}

/// Returns the loader of an ELF file for the guest's processor, if it is not static: that of a shared object is whichever loads it. Or
/// says what else the file is.
fn loader(bytes: &[u8]) -> Result<Option<String>, String> {
    let damaged = |error: object::Error| format!("a damaged ELF file, or not a 64-bit one: {error}");
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    if machine != EM_X86_64 {
        return Err(format!("an ELF file of machine {machine}; the guest is x86-64"));
    }
    let mut is_dynamic = false;
    for segment in header.program_headers(endian, bytes).map_err(damaged)? {
        // A file of debugging information alone has an empty one.
        is_dynamic |= segment.p_type(endian) == PT_DYNAMIC && segment.p_filesz(endian) > 0;
        if let Some(loader) = segment.interpreter(endian, bytes).map_err(damaged)? {
            let text = String::from_utf8_lossy(loader.strip_suffix(&[0]).unwrap_or(loader));
            return Ok(Some(text.into_owned()));
        }
    }
    Ok(is_dynamic.then(|| LOADER.to_owned()))
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
    fn what_the_loader_lists_is_read_or_refused() {
        for (line, expected) in [
            ("linux-vdso.so.1 (0x00007fa2627bc000)", Ok(None)),
            ("statically linked", Ok(None)),
            ("libc.so.6 => /lib/x/libc.so.6 (0x00007fa262455000)", Ok(Some(("libc.so.6", "/lib/x/libc.so.6")))),
            ("/lib64/ld.so.2 (0x00007fa2627be000)", Ok(Some(("/lib64/ld.so.2", "/lib64/ld.so.2")))),
            ("/lib64/ld.so.2 => /usr/lib64/ld.so.2 (0x1)", Ok(Some(("/lib64/ld.so.2", "/usr/lib64/ld.so.2")))),
            ("lib a.so => /opt/my (0x) lib/lib a.so (0x1)", Ok(Some(("lib a.so", "/opt/my (0x) lib/lib a.so")))),
            ("liba.so => not found", Err("it needs liba.so, which is not on this host")),
            ("lib dir/liba.so (0x00007fb94abbc000)", Err("it needs lib dir/liba.so, which depends on where")),
            ("./liba.so => ./liba.so (0x1)", Err("it needs ./liba.so, which depends on where")),
            ("liba.so (0x1)", Err("it needs liba.so, which depends on where")),
            ("", Err("it needs ")),
        ] {
            match (listed(&format!("\t{line}\n")), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected.into_iter().collect::<Vec<_>>()),
                (Err(why), Err(expected)) => assert!(why.starts_with(expected), "{why}"),
                (read, _) => panic!("{line}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_library_moves_with_its_program() {
        let moved = |library: &str, program: &str, guest: &str| {
            text_of(&moved(Path::new(library), Path::new(program), Path::new(guest)))
        };
        assert_eq!(moved("/opt/a/lib/liba.so", "/opt/a/bin/x", "/root/a/bin/x"), "/root/a/lib/liba.so");
        assert_eq!(moved("/opt/a/liba.so", "/opt/a/x", "/bin/x"), "/bin/liba.so");
        assert_eq!(moved("/lib/liba.so", "/opt/a/bin/x", "/x"), "/lib/liba.so");
    }
}
