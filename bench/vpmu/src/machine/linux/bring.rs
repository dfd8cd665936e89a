//! Files that come out of a guest: whole under their name, or not at all, in a folder that was empty before it began.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use linux_guest::agent::{Agent, AgentError};
use results::error::Error;
use results::open::Folder;
use results::write::Target;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat};

use super::spec::LinuxSpec;
use crate::terminal::console::complain;

/// Most bytes of a list of the kernel's: several times those of a distribution's with all modules.
const MOST_OF_LIST: u64 = 64 << 20;

/// A folder that was empty when it was opened: nothing of a guest's meets a file of the host's there.
#[derive(Debug)]
pub(super) struct Output {
    folder: Folder,
    /// For messages: it may lead elsewhere by now.
    path: PathBuf,
}

impl Output {
    /// Opens the folder of what `--get` brings, if it brings something, before anything begins.
    pub(super) fn of(spec: &LinuxSpec) -> Result<Option<Self>, Error> {
        check(&spec.get)?;
        if spec.output.output.is_some() && spec.get.is_empty() {
            return Err(Error::usage("--output is the folder of what --get brings", "", "give --get PATH"));
        }
        spec.output.output.as_deref().map(Self::open).transpose()
    }

    /// Opens the folder, and makes it if need be.
    fn open(path: &Path) -> Result<Self, Error> {
        let opened = || {
            let output = Self { folder: Folder::make(path)?, path: path.to_owned() };
            let is_empty = output.folder.names()?.is_empty();
            if is_empty { Ok(output) } else { Err(io::Error::other("it is not empty")) }
        };
        opened().map_err(|error| {
            let what = format!("cannot use --output {}", path.display());
            Error::output(what, &error, "give a new folder, or an empty one")
        })
    }
}

/// The name that `--get` of `path` makes.
fn last_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

/// Checks that what `--get` brings has a place of its own.
fn check(paths: &[String]) -> Result<(), Error> {
    let mut names = Vec::new();
    for path in paths {
        let cannot = |why: String, remedy: &str| Error::usage(format!("cannot get {path} from the guest"), why, remedy);
        let name = last_name(path);
        if !path.starts_with('/') || matches!(name, "" | "." | "..") {
            return Err(cannot("it is no absolute path of a file".to_owned(), "give e.g. /tmp/perf.data"));
        }
        if names.contains(&name) {
            return Err(cannot(format!("another --get makes {name}, too"), "get their folder"));
        }
        names.push(name);
    }
    Ok(())
}

/// Brings a file or folder of the guest to `output`, under its own name: at most `most` bytes.
pub(super) fn get(agent: &mut Agent<'_>, path: &str, most: u64, output: &Output) -> Result<(), AgentError> {
    let (name, to) = (last_name(path), &output.folder);
    let target = output.path.join(name);
    let scratch = tempfile::Builder::new().prefix(".vpmu-").tempdir_in(to.by_descriptor()).map_err(failed(&target))?;
    let partial = scratch.path().file_name().unwrap_or_default().to_owned();
    let inside = openat(to, &partial, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let inside = inside.map_err(|error| failed(&target)(error.into()))?;
    let got = agent.get_tree(path, most, inside.as_fd(), &target).and_then(|()| {
        let is_taken = statat(to, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let moved = if is_taken { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) };
        moved.and_then(|()| Ok(renameat(&inside, name, to, name)?)).map_err(failed(&target))
    });
    // What came, or why it did not, is the result.
    if let Err(left) = scratch.close().map_err(failed(&output.path.join(partial))) {
        complain(&format!("warning: a part of it is left: {left}"));
    }
    got
}

/// Brings the list of the kernel's symbols to `target`, which is replaced. Behind a tab perf reads a module's name, and drops the symbols
/// of one that the recording does not map: a space leaves it in the symbol.
pub(super) fn kallsyms(agent: &mut Agent<'_>, target: &Target) -> Result<(), AgentError> {
    let mut list = agent.get("/proc/kallsyms", MOST_OF_LIST)?;
    list.iter_mut().filter(|byte| **byte == b'\t').for_each(|byte| *byte = b' ');
    target.replace(&list).map_err(failed(target.path()))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> AgentError {
    let what = path.display().to_string();
    move |error| AgentError::Host { what, error }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::fake::{self, FILE, FOLDER, file, refused};
    use super::*;

    const MOST: u64 = 1 << 20;

    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn the_folder_is_new_or_empty_and_each_path_has_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("a/new");
        drop(Output::open(&new).unwrap());
        drop(Output::open(&new).unwrap());
        symlink("nowhere", new.join("link")).unwrap();
        for path in [&new, &std::env::current_exe().unwrap()] {
            let error = Output::open(path).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains("give a new folder"), "{error}");
        }
        let get = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            check(&paths).map_err(|error| error.to_string())
        };
        get(&["/tmp/perf.data", "/var/log/"]).unwrap();
        assert!(get(&["/a/x", "/b/x"]).unwrap_err().contains("another --get"));
        for path in ["x", "/", "", "/x/..", "/."] {
            assert!(get(&[path]).is_err(), "{path}");
        }
    }

    #[test]
    fn a_folder_that_its_user_swaps_for_a_link_sends_nothing_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let [user, real, root] = ["user", "real", "root"].map(|name| folder.path().join(name));
        fs::create_dir(&root).unwrap();
        let output = Output::open(&user).unwrap();
        let folders = ["", "d"].map(|path| file(FOLDER, path, 0o755, b""));
        let files = [file(FILE, "d/f", 0o7777, b"x"), file(FILE, "g", 0o644, b"x")];
        let (mut agent, guest) = fake::start({
            let [user, real, root] = [&user, &real, &root].map(Clone::clone);
            move |_, _, _| {
                let scratch = fs::read_dir(&user).unwrap().next().unwrap().unwrap().path();
                fs::rename(&scratch, user.join("moved")).unwrap();
                symlink(&root, &scratch).unwrap();
                fs::rename(&user, &real).unwrap();
                symlink(&root, &user).unwrap();
                [folders.concat(), files.concat()].concat()
            }
        });
        get(&mut agent, "/tree", MOST, &output).unwrap();
        drop(agent);
        guest.join().unwrap();
        assert_eq!(count(&root), 0);
        let file = real.join("tree/d/f");
        assert_eq!((fs::read(&file).unwrap(), count(&real.join("tree"))), (b"x".to_vec(), 2));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7000, 0);
    }

    #[test]
    fn what_begins_and_does_not_come_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, out) = (folder.path().join("x"), folder.path().join("out"));
        fs::write(&path, "kept").unwrap();
        let output = Output::open(&out).unwrap();
        fs::write(out.join("kept"), "kept").unwrap();
        let (mut agent, _guest) = fake::start(|_, _, path| match path {
            b"/flood\0" | b"/kept\0" => {
                [file(FOLDER, "", 0o755, b""), file(FILE, "f", 0o644, &vec![0; 60_000])].concat()
            }
            _ => refused(),
        });
        assert!(kallsyms(&mut agent, &Target::of(&path).unwrap()).is_err());
        assert!(get(&mut agent, "/tmp/y", MOST, &output).is_err());
        let flooded = get(&mut agent, "/flood", 50_000, &output);
        assert!(matches!(flooded, Err(AgentError::Flood { .. })), "{flooded:?}");
        let met = get(&mut agent, "/kept", MOST, &output);
        assert!(matches!(met, Err(AgentError::Host { .. })), "{met:?}");
        assert_eq!([&path, &out.join("kept")].map(|path| fs::read(path).unwrap()), [b"kept", b"kept"]);
        assert_eq!((count(folder.path()), count(&out)), (2, 1));
    }
}
