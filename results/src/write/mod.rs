//! Writing results so that a reader, or a killed run, never meets half a file.

mod folder;
mod output;
mod target;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub use folder::Folder;
pub use output::OutputFolder;
pub use target::{Pending, Target};

use crate::error::Error;

/// Replaces `path` by `text`, as [`Target::replace`] does.
///
/// # Errors
/// Returns the errors of the file system.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    Target::of(path)?.replace(text)
}

/// Writes `path` as [`replace`] does, unless something is there; false if so.
///
/// # Errors
/// Returns the errors of the file system.
pub fn place(path: &Path, text: &[u8]) -> io::Result<bool> {
    Target::of(path)?.place(text)
}

/// Opens a regular file, or makes it, to read it and add to its end.
///
/// # Errors
/// Returns the errors of the file system; a link is one.
pub fn append(path: &Path) -> io::Result<File> {
    Target::of(path)?.append()
}

/// Checks that `path` can be written, before anything is measured, and holds its folder.
///
/// # Errors
/// Exit 2, with the reason.
pub fn check_file(path: &Path) -> Result<Target, Error> {
    let checked = Target::of(path).and_then(|target| target.check().map(|()| target));
    checked.map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Error::usage(what, error.to_string(), "give -o a file in a folder that you may write to")
    })
}

/// Checks that writing `output` does not destroy one of the files that it is made of.
///
/// # Errors
/// Exit 2: it is one of them, by whatever name.
pub fn check_no_input<P: AsRef<Path>>(output: &Path, inputs: impl IntoIterator<Item = P>) -> Result<(), Error> {
    // A link is replaced and not followed; a pipe or a device is no worse for it.
    let Some(found) = output.symlink_metadata().ok().filter(|found| found.is_file() || found.is_symlink()) else {
        return Ok(());
    };
    let is_output = |input: P| {
        let ways = [input.as_ref().symlink_metadata(), input.as_ref().metadata()];
        ways.into_iter().flatten().any(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
    };
    if inputs.into_iter().any(is_output) {
        return Err(Error::usage(format!("{} is also an input", output.display()), "", "give it another name"));
    }
    Ok(())
}

/// Now, in seconds since 1970; 0 before that.
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time in UTC: `2026-01-31T23:59:59Z`.
pub fn utc(unix: u64) -> String {
    // The last second of the year 9999; a clock that is further off gets it.
    const LAST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(LAST))).to_string()
}

/// A file name for the time, UTC: `20260131T235959Z`.
pub fn time_stamp(unix: u64) -> String {
    utc(unix).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn files_of_one_experiment_share_a_name_and_never_clobber_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = OutputFolder::open(dir.path()).unwrap();
        let json = first.write("run", "json", b"1").unwrap();
        assert_eq!(first.write("run", "json", b"2").unwrap(), json);
        let mut second = OutputFolder::open(dir.path()).unwrap();
        let other = second.write("run", "json", b"3").unwrap();
        assert_eq!(other.file_name().unwrap(), "run-2.json");
        assert_eq!(second.write("run", "hlog", b"4").unwrap().file_name().unwrap(), "run-2.hlog");
        assert_eq!(std::fs::read(json).unwrap(), b"2");
        // Nothing temporary is left.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_empty_folder_of_ours_goes_away_but_not_one_that_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("a/b");
        drop(OutputFolder::open(&ours).unwrap());
        assert!(!dir.path().join("a").exists());
        drop(OutputFolder::open(dir.path()).unwrap());
        assert!(dir.path().exists());
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = OutputFolder::open(&file).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("-o DIR"));
        assert!(check_file(dir.path()).is_err());
        assert!(check_file(&dir.path().join("none/x.json")).is_err());
        assert!(check_file(&dir.path().join("x.json")).is_ok());
        assert!(check_file(Path::new("/dev/null")).is_ok());
        assert!(replace(Path::new("/dev/null"), b"x").is_ok());
    }

    #[test]
    fn an_output_that_is_an_input_is_refused_by_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, link_to, hard] = ["a", "b", "c", "d"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::fs::write(&other, "").unwrap();
        link(&file, &link_to);
        std::fs::hard_link(&file, &hard).unwrap();
        for (output, input) in [(&file, &file), (&file, &link_to), (&link_to, &link_to), (&hard, &file)] {
            let error = check_no_input(output, [&other, input]).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains("is also an input"), "{error}");
        }
        assert!(check_no_input(&link_to, [&file]).is_ok(), "the link is replaced");
        assert!(check_no_input(&dir.path().join("new"), [&file]).is_ok());
        assert!(check_no_input(Path::new("/dev/null"), ["/dev/null"]).is_ok());
    }

    #[test]
    fn time_stamps_know_leap_years() {
        for (unix, stamp) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_164_800, "20240229T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            assert_eq!(time_stamp(unix), stamp);
        }
    }

    fn link(to: &Path, at: &Path) {
        std::os::unix::fs::symlink(to, at).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn pipe(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }

    #[test]
    fn a_link_is_replaced_and_never_followed() {
        type Writer = fn(&Target) -> io::Result<()>;
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("x"));
        let writers: [(&str, Writer); 3] = [
            ("replace", |target| target.replace(b"new")),
            ("create", |target| target.create()?.write_all(b"new")),
            ("begin", |target| {
                let mut pending = target.begin()?;
                pending.write_all(b"new")?;
                pending.finish()
            }),
        ];
        std::fs::write(&victim, "kept").unwrap();
        for to in [victim.as_path(), Path::new("/dev/null"), Path::new("nowhere")] {
            for (name, write) in writers {
                link(to, &path);
                write(&Target::of(&path).unwrap()).unwrap();
                assert!(std::fs::symlink_metadata(&path).unwrap().is_file(), "{name}");
                assert_eq!(std::fs::read(&path).unwrap(), b"new", "{name}");
                std::fs::remove_file(&path).unwrap();
            }
            link(to, &path);
            assert!(!place(&path, b"new").unwrap());
            assert!(append(&path).is_err());
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn a_folder_that_is_swapped_for_a_link_is_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (user, root) = (dir.path().join("user"), dir.path().join("root"));
        std::fs::create_dir(&user).unwrap();
        std::fs::create_dir(&root).unwrap();
        let targets = ["a", "b", "c", "d"].map(|name| check_file(&user.join(name)).unwrap());
        let mut results = OutputFolder::open(&user).unwrap();
        let mut begun = targets[3].begin().unwrap();
        std::fs::rename(&user, dir.path().join("real")).unwrap();
        link(&root, &user);
        targets[0].replace(b"x").unwrap();
        targets[1].create().unwrap();
        targets[2].append().unwrap();
        begun.write_all(b"x").unwrap();
        begun.finish().unwrap();
        results.write("e", "json", b"1").unwrap();
        results.write("e", "json", b"2").unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(dir.path().join("real")).unwrap().count(), 5);
    }

    #[test]
    fn only_pipes_and_character_devices_that_are_named_themselves_are_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        pipe(&path);
        // Neither the check nor a file beside a recording opens it.
        let target = check_file(&path).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read_to_string(path).unwrap()
        });
        target.replace(b"through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(append(&path).is_err(), "no pipe is added to, or waited for");
        link(&path, &dir.path().join("link"));
        replace(&dir.path().join("link"), b"x").unwrap();
        assert!(std::fs::symlink_metadata(dir.path().join("link")).unwrap().is_file());
        target.always_file().replace(b"file").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"file");
        replace(Path::new("/dev/null"), b"x").unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(check_file(&socket).unwrap_err().to_string().contains("it is a socket"));
        assert!(replace(&socket, b"x").is_err());
        // Only root can make one; the host's may be there.
        let block = dir.path().join("block");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &block,
            rustix::fs::FileType::BlockDevice,
            0o600.into(),
            rustix::fs::makedev(7, 200),
        );
        if made.is_ok() {
            let refused =
                [Target::of(&block).unwrap().begin().map(drop), Target::of(&block).unwrap().create().map(drop)];
            for refused in refused {
                assert_eq!(refused.unwrap_err().to_string(), "it is a block device");
            }
            assert!(check_file(&block).unwrap_err().to_string().contains("it is a block device"));
            link(&block, &dir.path().join("page.html"));
            replace(&dir.path().join("page.html"), b"x").unwrap();
            assert!(std::fs::symlink_metadata(dir.path().join("page.html")).unwrap().is_file());
            assert!(!std::fs::symlink_metadata(&block).unwrap().is_file());
        }
    }

    #[test]
    fn descriptors_of_this_process_have_names() {
        let (mut reader, writer) = io::pipe().unwrap();
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let path = PathBuf::from(format!("{folder}/{}", writer.as_raw_fd()));
            check_file(&path).unwrap().replace(b"through").unwrap();
            let mut read = [0; 7];
            reader.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"through");
        }
        for path in ["/dev/stdout", "/dev/stderr"] {
            assert!(Target::of(Path::new(path)).unwrap().named().is_none());
        }
        // A file that the user's shell opened is added to.
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"onetwo");
        assert!(check_file(Path::new("/dev/fd/+1")).is_err() && check_file(Path::new("/dev/fd/9999999")).is_err());
    }

    #[test]
    fn private_files_are_their_owners_and_what_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "old").unwrap();
        let target = Target::of(&path).unwrap().private();
        let mut pending = target.begin().unwrap();
        pending.write_all(b"half").unwrap();
        drop(pending);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        target.create().unwrap();
        assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().len()), (0o600, 0));
        assert!(check_file(&dir.path().join("results/")).unwrap_err().to_string().contains("it is a folder"));
        link(dir.path(), &dir.path().join("folder"));
        assert!(check_file(&dir.path().join("folder")).is_err(), "the link would be gone");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_with_a_passing_name_gets_its_own_or_goes() {
        let dir = tempfile::tempdir().unwrap();
        let folder = std::sync::Arc::new(Folder::open(dir.path()).unwrap());
        let begin = || folder::Unplaced::begin_named(&folder, 0o644.into()).unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        drop(begin());
        assert!(names().is_empty());
        let mut file = begin();
        assert!(file.place("a".as_ref()).unwrap());
        drop(file);
        assert!(!begin().place("a".as_ref()).unwrap());
        begin().replace("a".as_ref()).unwrap();
        assert_eq!(names(), ["a"]);
        // The name of another run that was killed.
        std::fs::write(dir.path().join(format!(".vpmu-{}-0", std::process::id())), "").unwrap();
        begin().replace("b".as_ref()).unwrap();
        assert_eq!(names().len(), 3);
    }

    #[test]
    fn a_link_of_another_user_is_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        let planted = dir.path().join("vpmu-results");
        link(&dir.path().join("real"), &planted);
        assert!(Folder::open(&planted).is_ok(), "one's own");
        // Only root may give a link away.
        if std::os::unix::fs::lchown(&planted, Some(65_534), None).is_ok() {
            assert!(Folder::open(&planted).unwrap_err().to_string().contains("another user"));
            assert!(OutputFolder::open(&planted).is_err());
        }
    }

    #[test]
    fn links_of_the_system_stay() {
        assert!(Target::of(Path::new("/dev/stdin")).unwrap().named().is_none());
        let fd = Target::of(Path::new("/dev/fd")).unwrap();
        assert!(fd.replace(b"x").unwrap_err().to_string().contains("link"));
        assert!(Path::new("/dev/fd").is_symlink());
    }
}
