//! A file of the host with everything that it needs to run in a guest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use results::open;

use super::builder::Initramfs;
use super::error::{InitramfsError, host};

/// Most bytes of a file: those that a RAM disk has.
const MOST_BYTES: u64 = 1 << 30;

/// Folders in which `#!/usr/bin/env` looks for its program.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

/// The loader of x86-64 programs with glibc. It lists what a program needs and runs nothing of it, nor a loader that the program names.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

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
            if runs {
                return self.with_needs(guest, from, &bytes, mode);
            }
            self.file(guest, mode, &bytes)?;
        }
        Ok(())
    }

    /// Adds a program, and what it needs.
    fn with_needs(&mut self, guest: &str, from: &Path, bytes: &[u8], mode: u32) -> Result<(), InitramfsError> {
        self.file(guest, mode, bytes)?;
        if is_elf(bytes) { self.libraries_of(from, bytes) } else { self.interpreters_of(from, &first_line(bytes)) }
    }

    /// Adds the loader of a program, and its shared libraries where the guest's loader looks for all of them: in the C library's folder.
    fn libraries_of(&mut self, program: &Path, bytes: &[u8]) -> Result<(), InitramfsError> {
        let of_program = |what: String| InitramfsError::of(program, what);
        let Some(loader) = loader(bytes).map_err(of_program)? else { return Ok(()) };
        if loader != LOADER {
            return Err(of_program(format!("its loader is {loader}, not {LOADER}; link it statically")));
        }
        let real = fs::canonicalize(program).map_err(host(program))?;
        let listed =
            Command::new(LOADER).env_clear().arg("--list").arg(real).output().map_err(host(Path::new(LOADER)))?;
        let (text, why) = (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
        if !listed.status.success() {
            return Err(of_program(format!("{LOADER} cannot list its libraries: {}", why.trim())));
        }
        // `NAME => PATH (0x...)`; `PATH (0x...)` of the loader and of libraries that are needed by a path; the vDSO has none.
        let mut libraries = Vec::new();
        for line in text.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [name, "=>", "not", "found"] => {
                    let why = format!("it needs {name}, which is not on this host; install the package that has it");
                    return Err(of_program(why));
                }
                [name, "=>", path, ..] if !name.contains('/') => libraries.push((name, path)),
                [path, ..] if path.starts_with('/') => libraries.push(("", path)),
                _ => {}
            }
        }
        let libc = libraries.iter().find(|(name, _)| *name == "libc.so.6").and_then(|(_, path)| path.rsplit_once('/'));
        for (name, path) in libraries {
            let bytes = open::found_bytes(Path::new(path), MOST_BYTES).map_err(host(Path::new(path)))?;
            let guest =
                libc.filter(|_| !name.is_empty()).map_or(path.to_owned(), |(folder, _)| format!("{folder}/{name}"));
            self.file(&guest, 0o755, &bytes)?;
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

/// Returns whether a file begins as ELF files do.
fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Returns the loader of an ELF file for the guest's processor, if it is not static; or says what else the file is.
fn loader(bytes: &[u8]) -> Result<Option<String>, String> {
    let damaged = |error: object::Error| format!("a damaged ELF file, or not a 64-bit one: {error}");
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    if machine != EM_X86_64 {
        return Err(format!("an ELF file of machine {machine}; the guest is x86-64"));
    }
    for segment in header.program_headers(endian, bytes).map_err(damaged)? {
        if let Some(loader) = segment.interpreter(endian, bytes).map_err(damaged)? {
            let text = String::from_utf8_lossy(loader.strip_suffix(&[0]).unwrap_or(loader));
            return Ok(Some(text.into_owned()));
        }
    }
    Ok(None)
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
