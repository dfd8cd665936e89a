//! The perf of this host that goes into a guest.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use results::error::Error;
use results::open;

use crate::setting::program::in_path;

/// perf's file: a path with a slash, or a name in PATH.
pub(super) fn find(perf: &Path, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let is_path = perf.to_string_lossy().contains('/');
    let found = if is_path { perf.is_file().then(|| perf.to_owned()) } else { in_path(perf, path) };
    let found = found.ok_or_else(|| {
        Error::usage(
            format!("no perf: {}", perf.display()),
            if is_path { "there is no such file" } else { "no such program is in PATH" },
            "install it (Debian package: linux-perf), or name its file with --perf, ./perf for one here",
        )
    })?;
    let mut magic = [0; 4];
    let read = open::found(&found, u64::MAX).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_ok() && magic == *b"\x7fELF" {
        return Ok(found);
    }
    Err(Error::usage(
        format!("{} is no program that can be read, but e.g. a script", found.display()),
        "a distribution's script looks for the perf of the running kernel, which the guest does not have",
        "name the perf it starts with --perf: e.g. /usr/bin/perf_6.1, or perf in a folder of /usr/lib/linux-tools",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_perf_is_a_program_of_path_or_a_file_with_a_slash_and_no_script() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("perf", &b"\x7fELF etc"[..]), ("script", b"#!/bin/sh\n"), ("empty", b"")] {
            let file = folder.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let find = |perf: &str| find(Path::new(perf), Some(folder.path().as_os_str()));
        let file = folder.path().join("perf");
        assert_eq!((find("perf").unwrap(), find(file.to_str().unwrap()).unwrap()), (file.clone(), file));
        // There is a folder `src` here, and no such program.
        for (perf, needle) in
            [("script", "is no program"), ("empty", "is no program"), ("src", "PATH"), ("./perf", "no such file")]
        {
            let error = find(perf).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }
}
