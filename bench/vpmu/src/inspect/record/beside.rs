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

/// Creates a recording, and says whether it displaced one. An earlier one of the name gets `.old` behind its name, as perf has it, with
/// what lies beside it. What lies there without a recording goes: it is not the next one's.
///
/// # Errors
/// The file's.
pub fn begin(path: &Path) -> io::Result<(File, bool)> {
    let target = Target::of(path)?.mode(0o600);
    target.check()?;
    let displaces = is_file(path);
    // A link is moved itself: its file stays what it is.
    rename(path, &earlier(path, displaces))?;
    let created = target.create().inspect_err(|_| take_back(path, displaces))?;
    Ok((created, displaces))
}

/// Takes a recording back whose guest did not begin; what it displaced is where it was.
pub fn take_back(path: &Path, displaced: bool) {
    let _ = remove(path);
    // Why the guest did not begin is the error to report.
    let _ = rename(&earlier(path, displaced), path);
}

fn earlier(path: &Path, displaced: bool) -> PathBuf {
    if displaced { with(path, "old") } else { path.to_owned() }
}

/// Moves a recording and what lies beside it; where both names are one, what lies there without it is removed.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    unless_missing(fs::rename(from, to))?;
    for word in [KALLSYMS, IMAGE] {
        remove(&with(to, word))?;
        unless_missing(fs::rename(with(from, word), with(to, word)))?;
    }
    Ok(())
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
        begin(&path).unwrap().0.write_all(b"first").unwrap();
        assert_eq!((text(&with(&path, KALLSYMS)), text(&with(&old, KALLSYMS)).as_deref()), (None, Some("older")));
        fs::write(with(&path, KALLSYMS), "first").unwrap();
        begin(&path).unwrap().0.write_all(b"second").unwrap();
        let kept = [&path, &old, &with(&old, KALLSYMS)].map(|file| text(file).unwrap());
        assert_eq!(kept, ["second", "first", "first"]);
        assert_eq!(text(&with(&path, KALLSYMS)), None);
        let (_, displaced) = begin(&path).unwrap();
        take_back(&path, displaced);
        assert_eq!(text(&path).as_deref(), Some("second"), "the guest did not begin");
        fs::write(&elsewhere, "kept").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        begin(&path).unwrap().0.write_all(b"third").unwrap();
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
