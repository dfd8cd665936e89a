//! The initramfs: the init, the folders that it mounts on, and what the caller adds.

use super::archive::{Archive, Entry, S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use super::error::InitramfsError;
use crate::INIT;

/// Folders of `/` that are links into `/usr`, as on every distribution of today. What is added below one is added below
/// the other.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Empty folders, for mounts and for programs that take them for granted.
const FOLDERS: &str = "dev etc mnt modules proc root run sys tmp usr/bin usr/lib usr/lib64 usr/sbin var";

/// Files that a guest has unless the caller adds its own.
const FILES: [(&str, &str); 2] = [("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("/etc/group", "root:x:0:\n")];

/// An initramfs under construction.
#[derive(Debug, Default)]
pub struct Initramfs {
    archive: Archive,
    /// Names of the modules, in the order in which the init loads them.
    modules: Vec<String>,
    pub(super) private: Vec<Private>,
}

/// A library in none of the loader's folders.
#[derive(Debug)]
pub(super) struct Private {
    /// Its path on the host and in the guest.
    pub(super) path: String,
    /// Its name in a folder of the loader's.
    pub(super) usual: String,
    /// Where its program looks for it by itself: in an absolute RUNPATH, or from $ORIGIN.
    pub(super) sought: Vec<String>,
}

fn merged(path: &str) -> String {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if path.starts_with('/') && MERGED.contains(&first) && path.len() > first.len() + 1 {
        format!("/usr{path}")
    } else {
        path.to_owned()
    }
}

impl Initramfs {
    /// Starts an initramfs with the init and nothing to run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), InitramfsError> {
        self.add(path, S_IFREG | mode & 0o7777, bytes, (0, 0))
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), InitramfsError> {
        self.add(path, S_IFLNK | 0o777, target.as_bytes(), (0, 0))
    }

    pub(super) fn folder(&mut self, path: &str, mode: u32) -> Result<(), InitramfsError> {
        self.add(path, S_IFDIR | mode & 0o7777, &[], (0, 0))
    }

    fn add(&mut self, path: &str, mode: u32, contents: &[u8], device: (u32, u32)) -> Result<(), InitramfsError> {
        self.archive.add(&merged(path), Entry { mode, contents: contents.to_vec(), device })
    }

    /// Adds a kernel module and its parameters, as in `NAME=VALUE NAME=VALUE`; the init loads modules in the order in
    /// which they were added.
    pub fn module(&mut self, name: &str, bytes: &[u8], parameters: &str) -> Result<(), InitramfsError> {
        self.file(&format!("/modules/{name}.ko"), 0o644, bytes)?;
        self.modules.push(format!("{name}.ko {parameters}").trim_end().to_owned());
        Ok(())
    }

    /// Returns whether there is something at a path.
    pub fn has(&self, path: &str) -> bool {
        self.archive.has(&merged(path))
    }

    /// Returns the archive's bytes.
    pub fn finish(mut self) -> Result<Vec<u8>, InitramfsError> {
        self.private_libraries()?;
        for folder in FOLDERS.split(' ') {
            self.folder(&format!("/{folder}"), 0o755)?;
        }
        for name in MERGED {
            self.link(&format!("/{name}"), &format!("usr/{name}"))?;
        }
        for (path, text) in FILES {
            if !self.has(path) {
                self.file(path, 0o644, text.as_bytes())?;
            }
        }
        // The kernel opens it for process 1 before anything is mounted.
        self.add("/dev/console", S_IFCHR | 0o600, &[], (5, 1))?;
        self.file("/init", 0o755, INIT)?;
        let mut list = self.modules.join("\n");
        list.push('\n');
        self.file("/modules/list", 0o644, list.as_bytes())?;
        Ok(self.archive.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;

    fn has(bytes: &[u8], text: &str) -> bool {
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Returns whether an archive has an entry of this name: behind a header, which ends with a checksum of 0.
    fn has_entry(bytes: &[u8], name: &str) -> bool {
        has(bytes, &format!("00000000{name}\0"))
    }

    fn executable(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_guest_has_the_init_folders_and_modules_in_order() {
        let mut initramfs = Initramfs::new();
        initramfs.module("b", b"1", "").unwrap();
        initramfs.module("a", b"2", "x=1 y").unwrap();
        initramfs.file("/etc/passwd", 0o644, b"mine").unwrap();
        initramfs.link("/lib/x", "y").unwrap();
        assert!(initramfs.file("/usr/lib/x", 0o644, b"").is_err(), "/lib is /usr/lib");
        let bytes = initramfs.finish().unwrap();
        assert!(has(&bytes, "b.ko\na.ko x=1 y\n") && has(&bytes, "mine") && !has(&bytes, "root:x:0:0:r"));
        for name in ["init", "dev/console", "modules/a.ko", "proc", "usr/bin", "lib", "etc/passwd"] {
            assert!(has_entry(&bytes, name), "{name}");
        }
        assert!(Initramfs::new().finish().unwrap() == Initramfs::new().finish().unwrap());
    }

    #[test]
    fn a_path_is_plain_and_has_one_thing() {
        let mut initramfs = Initramfs::new();
        for (path, mode, bytes, is_right) in [
            ("/a/d", 0o644, &b""[..], true),
            ("/a/d", 0o755, b"", true),
            ("/a/d", 0o644, b"x", false),
            ("/a/d/e", 0o644, b"", false),
            ("/a", 0o644, b"", false),
            ("a/d", 0o644, b"", false),
            ("/a/../d", 0o644, b"", false),
            ("/", 0o644, b"", false),
            ("//a", 0o644, b"", false),
        ] {
            assert_eq!(initramfs.file(path, mode, bytes).is_ok(), is_right, "{path}");
        }
        assert!(initramfs.folder("/a", 0o700).is_ok() && initramfs.link("/a/d", "x").is_err());
    }

    #[test]
    fn a_program_comes_with_its_loader_and_libraries() {
        let mut initramfs = Initramfs::new();
        let this = std::env::current_exe().unwrap();
        initramfs.program("/bin/this", &this).unwrap();
        initramfs.program("/usr/bin/this", &this).unwrap();
        assert!(initramfs.has("/lib64/ld-linux-x86-64.so.2"));
        assert!(initramfs.has("/bin/this") && initramfs.has("/usr/bin/this"));
        assert!(
            ["/lib/x86_64-linux-gnu", "/lib64", "/lib"]
                .iter()
                .any(|folder| initramfs.has(&format!("{folder}/libc.so.6")))
        );
        let bytes = initramfs.finish().unwrap();
        assert!(has_entry(&bytes, "usr/bin/this") && !has_entry(&bytes, "bin/this"));
    }

    #[test]
    fn shared_objects_come_with_their_libraries_and_those_of_one_name_stay_apart() {
        let folder = tempfile::tempdir().unwrap();
        let cc = |at: &Path, line: &str| {
            let made = std::process::Command::new("cc").current_dir(at).args(line.split(' ')).output();
            made.is_ok_and(|made| made.status.success())
        };
        let mut initramfs = Initramfs::new();
        for (value, name) in [(1, "a b"), (2, "c")] {
            let at = folder.path().join(name);
            fs::create_dir_all(at.join("lib")).unwrap();
            fs::write(at.join("f.c"), format!("int puts(char *); int f(void) {{ return puts(\"\") + {value}; }}"))
                .unwrap();
            fs::write(at.join("main.c"), "int f(void); int main(void) { return f(); }").unwrap();
            let library = "-shared -fPIC -o lib/libprivate.so f.c";
            if !cc(&at, library) || !cc(&at, "-o main main.c -Llib -lprivate -Wl,-rpath,$ORIGIN/lib") {
                eprintln!("skipped: no cc");
                return;
            }
            initramfs.copy(&format!("/root/{value}"), &at).unwrap();
        }
        assert!(initramfs.has("/root/1/lib/libprivate.so"));
        let both = ["a b/main", "c/main"].map(|name| folder.path().join(name));
        initramfs.finish().unwrap();
        // Away from their folders, both would find the same one.
        let mut initramfs = Initramfs::new();
        initramfs.copy("/bin/1", &both[0]).unwrap();
        initramfs.copy("/bin/2", &both[1]).unwrap();
        assert!(initramfs.finish().unwrap_err().to_string().starts_with("two different files"));
        let mut initramfs = Initramfs::new();
        initramfs.copy("/root/plugin.so", &folder.path().join("c/lib/libprivate.so")).unwrap();
        assert!(initramfs.has("/lib64/ld-linux-x86-64.so.2"), "it needs libc.so.6");
    }

    #[test]
    fn what_would_block_is_refused_at_once() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/file"), "text").unwrap();
        mknodat(CWD, at("a/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        symlink("a/fifo", at("link")).unwrap();
        executable(&at("script"), &format!("#!{}\n", at("a/fifo").display()));
        for (name, why) in [
            ("a", "it is a FIFO, not a regular file"),
            ("a/fifo", "it is a FIFO, not a regular file"),
            ("link", "it is a FIFO, not a regular file"),
            ("script", "it is a FIFO, not a regular file"),
        ] {
            let error = Initramfs::new().copy("/x", &at(name)).unwrap_err().to_string();
            assert!(error.ends_with(why), "{name}: {error}");
        }
        let error = Initramfs::new().program("/x", Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.ends_with("it is a device, not a regular file"), "{error}");
        fs::remove_file(at("a/fifo")).unwrap();
        let mut initramfs = Initramfs::new();
        initramfs.copy("/x", &at("a")).unwrap();
        assert!(initramfs.has("/x/file"));
    }

    #[test]
    fn a_script_comes_with_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        executable(&script, "#!/usr/bin/env -S sh -e\necho\n");
        let mut initramfs = Initramfs::new();
        initramfs.program("/script", &script).unwrap();
        for path in ["/script", "/usr/bin/env", "/bin/sh", "/usr/bin/sh"] {
            assert!(initramfs.has(path), "{path}");
        }
        for (text, expected) in [
            ("#!/nowhere/sh\n", "needs the interpreter /nowhere/sh"),
            ("#!/usr/bin/env nowhere\n", "needs the interpreter nowhere"),
            ("text", "neither an ELF program nor a script"),
            ("#!\n", "neither an ELF program nor a script"),
            ("#!/etc/passwd\n", "which is no program for it"),
            ("\u{7f}ELF", "damaged ELF file"),
        ] {
            executable(&script, text);
            let error = Initramfs::new().program("/script", &script).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        assert!(Initramfs::new().program("/x", &folder.path().join("none")).is_err());
    }

    #[test]
    fn a_folder_is_copied_with_what_its_programs_need() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("sub/empty")).unwrap();
        executable(&top.join("sub/run"), "#!/bin/sh\n");
        fs::write(top.join("data"), "#!/nowhere/x\n").unwrap();
        symlink("sub/run", top.join("link")).unwrap();
        let mut initramfs = Initramfs::new();
        initramfs.copy("/opt/top/", &top).unwrap();
        assert!(initramfs.has("/bin/sh") && initramfs.has("/opt/top/data"));
        let bytes = initramfs.finish().unwrap();
        assert!(has_entry(&bytes, "opt/top/link") && has_entry(&bytes, "opt/top/sub/empty"));
    }
}
