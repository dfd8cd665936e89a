//! The file of a recording, what lies beside it under its name, and an earlier recording of that name.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use results::write::Target;

/// The list of symbols of a Linux guest's kernel.
pub const KALLSYMS: &str = "kallsyms";
/// The image or the payload itself. A recording has its path in it, so that it stays where it is.
pub const IMAGE: &str = "image";

/// Returns the file with the recording's name, a dot and a word.
pub fn with(recording: &Path, word: &str) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

/// Creates a recording. An earlier one of the name gets `.old` behind its name, as perf has it, with what lies beside it. What lies
/// there without a recording goes: it is not the next one's.
///
/// # Errors
/// The file's.
pub fn begin(path: &Path) -> io::Result<File> {
    let target = Target::of(path)?.mode(0o600);
    target.check()?;
    let (old, displaces) = (with(path, "old"), is_file(path));
    // A link is moved itself: its file stays what it is.
    if displaces {
        fs::rename(path, &old)?;
    }
    for word in [KALLSYMS, IMAGE] {
        let (own, kept) = (with(path, word), with(&old, word));
        if displaces {
            remove(&kept)?;
            unless_missing(fs::rename(&own, &kept))?;
        } else {
            remove(&own)?;
        }
    }
    target.create()
}

/// Removes a file or a link, if it is there; nothing else.
///
/// # Errors
/// The file's.
pub fn remove(path: &Path) -> io::Result<()> {
    if is_file(path) { unless_missing(fs::remove_file(path)) } else { Ok(()) }
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_symlink())
}

fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn an_earlier_recording_is_kept_with_its_symbols_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("x.data"), folder.path().join("elsewhere"));
        let old = with(&path, "old");
        let text = |path: &Path| fs::read_to_string(path).ok();
        // The list of symbols of a recording that is gone is not the next one's.
        for (file, word) in [(&path, "stale"), (&old, "older")] {
            fs::write(with(file, KALLSYMS), word).unwrap();
        }
        begin(&path).unwrap().write_all(b"first").unwrap();
        assert_eq!((text(&with(&path, KALLSYMS)), text(&with(&old, KALLSYMS)).as_deref()), (None, Some("older")));
        fs::write(with(&path, KALLSYMS), "first").unwrap();
        begin(&path).unwrap().write_all(b"second").unwrap();
        let kept = [&path, &old, &with(&old, KALLSYMS)].map(|file| text(file).unwrap());
        assert_eq!(kept, ["second", "first", "first"]);
        assert_eq!(text(&with(&path, KALLSYMS)), None);
        fs::write(&elsewhere, "kept").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        begin(&path).unwrap().write_all(b"third").unwrap();
        assert!(old.is_symlink() && text(&elsewhere).as_deref() == Some("kept"));
        assert_eq!(text(&with(&old, KALLSYMS)), None, "of the one before");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for name in ["/dev/stdout", "/dev/fd/1"] {
            assert!(begin(Path::new(name)).unwrap_err().to_string().contains("link of the system"));
        }
        // Neither a folder of that name nor a device is a recording.
        assert!(begin(folder.path()).is_err());
        remove(Path::new("/dev/null")).unwrap();
        assert!(Path::new("/dev/null").exists());
    }
}
