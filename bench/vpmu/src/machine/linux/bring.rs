//! Files that come out of a guest: whole under their name, or not at all, in folders that were opened before it began.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use linux_guest::agent::{Agent, AgentError};
use results::error::Error;
use results::write::{Folder, Target, check_file};
use rustix::fs::FileType;
use tempfile::TempDir;

use super::spec::LinuxSpec;

/// Most bytes of a list of the kernel's: several times those of a distribution's with all modules.
const MOST_OF_LIST: u64 = 64 << 20;

/// The places on the host that something of a guest comes to.
#[derive(Debug)]
pub(super) struct Places {
    /// The folder that the guest has a copy of.
    pub(super) share: Option<Folder>,
    /// The folder of what `--get` brings.
    pub(super) output: Option<Folder>,
    /// The file of its console.
    pub(super) console: Option<Target>,
}

impl Places {
    /// Opens them, before anything begins.
    pub(super) fn open(spec: &LinuxSpec) -> Result<Self, Error> {
        let folder = |path: &PathBuf, option: &str| {
            let absent = |error: io::Error| {
                Error::usage(format!("{option} {} is no folder", path.display()), error.to_string(), "make it first")
            };
            Folder::open(path).map_err(absent)
        };
        let share = spec.share.as_ref().map(|path| folder(path, "--share")).transpose()?;
        let output = Some(&spec.output).filter(|_| !spec.get.is_empty());
        let output = output.map(|path| folder(path, "--output")).transpose()?;
        if let Some(output) = &output {
            check(output, &spec.get)?;
        }
        let console = spec.console.as_deref().map(check_file).transpose()?;
        if let Some(share) = &share {
            let symbols = spec.symbols.iter().flat_map(|symbols| [&symbols.kallsyms, &symbols.modules]);
            for file in symbols.chain(&console) {
                refuse_file_inside(share, file.path())?;
            }
            if let Some(output) = &output {
                refuse_inside(share, output, output.path())?;
            }
        }
        Ok(Self { share, output, console })
    }
}

/// Checks that nothing is written to a guest's share but what the guest sends: that would take the place of the other.
fn refuse_inside(share: &Folder, folder: &Folder, path: &Path) -> Result<(), Error> {
    let remedy = "write it to a folder outside of the share";
    let what = format!("cannot write to {}", path.display());
    match folder.is_within(share) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let why = format!("it is in --share {}, where files of the guest take its place", share.path().display());
            Err(Error::usage(what, why, remedy))
        }
        Err(error) => Err(Error::usage(what, format!("is it in --share? {error}"), remedy)),
    }
}

/// Checks a file as [`refuse_inside`] does.
pub(crate) fn refuse_file_inside(share: &Folder, path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Folder::open(parent).map_or(Ok(()), |folder| refuse_inside(share, &folder, path))
}

/// The name that `--get` of `path` makes.
fn last_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

/// Checks that what `--get` brings has a free place of its own.
fn check(output: &Folder, paths: &[String]) -> Result<(), Error> {
    let mut names = Vec::new();
    for path in paths {
        let cannot = |why: String, remedy: &str| Error::usage(format!("cannot get {path} from the guest"), why, remedy);
        let name = last_name(path);
        if !path.starts_with('/') || matches!(name, "" | "." | "..") {
            return Err(cannot("it is no absolute path of a file".to_owned(), "give e.g. /tmp/perf.data"));
        }
        let target = output.path().join(name);
        if !matches!(output.kind(OsStr::new(name)), Ok(None)) {
            return Err(cannot(format!("{} exists", target.display()), "remove it, or give another --output"));
        }
        if names.contains(&name) {
            return Err(cannot(format!("another --get makes {}, too", target.display()), "get their folder"));
        }
        names.push(name);
    }
    Ok(())
}

/// Brings a file or folder of the guest to `output`, under its own name, which nothing may have.
pub(super) fn get(agent: &mut Agent<'_>, path: &str, output: &Folder) -> Result<(), AgentError> {
    let name = last_name(path);
    let target = output.path().join(name);
    let scratch = Scratch::beside(output)?;
    agent.get_tree(path, scratch.folder.as_fd(), &target)?;
    scratch.folder.rename_new_into(OsStr::new(name), output, OsStr::new(name)).map_err(failed(&target))
}

/// Brings a file of the guest's kernel to `target`, which is replaced.
pub(super) fn fetch(agent: &mut Agent<'_>, path: &str, target: &Target) -> Result<(), AgentError> {
    let mut file = target.begin().map_err(failed(target.path()))?;
    agent.get(path, MOST_OF_LIST, &mut file)?;
    file.finish().map_err(failed(target.path()))
}

/// Brings the guest's folder `path` into `folder`: files of the same name are replaced, others stay.
pub(super) fn merge(agent: &mut Agent<'_>, path: &str, folder: &Folder) -> Result<(), AgentError> {
    let scratch = Scratch::beside(folder)?;
    let copy = OsStr::new("copy");
    agent.get_tree(path, scratch.folder.as_fd(), &folder.path().join(copy))?;
    let copied = scratch.folder.below(copy).map_err(failed(folder.path()))?;
    merge_folder(&copied, folder)
}

/// A folder in another one, which is gone at the end.
struct Scratch {
    folder: Folder,
    _removed: TempDir,
}

impl Scratch {
    fn beside(folder: &Folder) -> Result<Self, AgentError> {
        let made = || {
            // The descriptor is used: the folder's path may lead elsewhere by now.
            let by_descriptor = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
            let made = tempfile::Builder::new().prefix(".vpmu-").tempdir_in(by_descriptor)?;
            let name = made.path().file_name().unwrap_or_default();
            Ok(Self { folder: folder.below(name)?, _removed: made })
        };
        made().map_err(failed(folder.path()))
    }
}

fn merge_folder(from: &Folder, to: &Folder) -> Result<(), AgentError> {
    for name in from.names().map_err(failed(to.path()))? {
        let target = to.path().join(&name);
        let is_folder = |folder: &Folder| folder.kind(&name).map(|kind| kind == Some(FileType::Directory));
        let merged = || {
            // A link is replaced, never followed.
            if is_folder(from)? && is_folder(to)? {
                return Ok(Some((from.below(&name)?, to.below(&name)?)));
            }
            from.rename_into(&name, to, &name).map(|()| None)
        };
        if let Some((from, to)) = merged().map_err(failed(&target))? {
            merge_folder(&from, &to)?;
        }
    }
    Ok(())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> AgentError {
    let path = path.to_owned();
    move |error| AgentError::Host { path, error }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::machine::linux::fake::{self, Entry};
    use crate::machine::linux::symbols::Symbols;

    fn open(path: &Path) -> Folder {
        Folder::open(path).unwrap()
    }

    /// The files of a folder, without a link's.
    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn what_is_there_already_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let get = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            check(&open(folder.path()), &paths).map_err(|error| error.to_string())
        };
        get(&["/tmp/perf.data", "/var/log/"]).unwrap();
        fs::write(folder.path().join("perf.data"), "x").unwrap();
        assert!(get(&["/tmp/perf.data"]).unwrap_err().contains("exists"));
        symlink("nowhere", folder.path().join("link")).unwrap();
        assert!(get(&["/tmp/link"]).unwrap_err().contains("exists"));
        assert!(get(&["/a/x", "/b/x"]).unwrap_err().contains("another --get"));
        for path in ["x", "/", "", "/x/..", "/."] {
            assert!(get(&[path]).is_err(), "{path}");
        }
    }

    #[test]
    fn nothing_of_the_hosts_is_written_into_the_share() {
        type Change<'a> = &'a dyn Fn(&mut LinuxSpec, &Path);
        let folder = tempfile::tempdir().unwrap();
        let (share, outside) = (folder.path().join("share"), folder.path().join("outside"));
        fs::create_dir_all(share.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(share.join("sub"), outside.join("link")).unwrap();
        let spec = |change: Change<'_>, at: &Path| {
            let mut spec = crate::setting::parse::options::<LinuxSpec>(&["k"]).unwrap();
            spec.share = Some(share.clone());
            change(&mut spec, at);
            Places::open(&spec).map(drop).map_err(|error| error.to_string())
        };
        let changes: [(&str, Change<'_>); 3] = [
            ("--get", &|spec, at| (spec.get, spec.output) = (vec!["/x".to_owned()], at.to_owned())),
            ("--console", &|spec, at| spec.console = Some(at.join("log"))),
            ("a recording", &|spec, at| {
                let target = |name: &str| Target::of(&at.join(name)).unwrap();
                let (kallsyms, modules) = (target("perf.data.kallsyms"), target("perf.data.modules"));
                spec.symbols = Some(Symbols { kallsyms, modules, reports: std::sync::Arc::default() });
            }),
        ];
        for (name, change) in changes {
            for inside in [share.clone(), share.join("sub"), outside.join("link")] {
                let refused = spec(change, &inside).unwrap_err();
                assert!(refused.contains("it is in --share") && refused.contains("outside"), "{name}: {refused}");
            }
            spec(change, &outside).unwrap();
            spec(change, folder.path()).unwrap();
        }
        assert!(spec(&|spec, at| spec.console = Some(at.to_owned()), Path::new("/dev/stderr")).is_ok());
        assert_eq!((count(&share), count(&outside)), (1, 1), "a check leaves nothing");
    }

    #[test]
    fn a_folder_is_merged_and_links_are_not_followed() {
        let (from, to, outside) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (root, name, text) in
            [(&from, "a", "new"), (&from, "d/b", "new"), (&to, "a", "old"), (&to, "d/c", "kept"), (&from, "l/x", "new")]
        {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink(outside.path(), to.path().join("l")).unwrap();
        let merge = || merge_folder(&open(from.path()), &open(to.path()));
        let refused = merge();
        let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap_or_default();
        assert_eq!(count(outside.path()), 0, "nothing goes through a link");
        assert!(refused.is_err(), "a link is in the folder's place");
        fs::remove_file(to.path().join("l")).unwrap();
        merge().unwrap();
        assert_eq!([read("a"), read("d/b"), read("d/c"), read("l/x")], ["new", "new", "kept", "new"]);
    }

    #[test]
    fn a_folder_that_its_user_swaps_for_a_link_sends_nothing_elsewhere() {
        type Bring = fn(&mut Agent<'_>, &Folder) -> Result<(), AgentError>;
        let ways: [(&str, Bring); 2] =
            [("merge", |agent, to| merge(agent, "/share", to)), ("get", |agent, to| get(agent, "/share", to))];
        for (name, bring) in ways {
            let folder = tempfile::tempdir().unwrap();
            let [user, real, root] = ["user", "real", "root"].map(|name| folder.path().join(name));
            fs::create_dir(&user).unwrap();
            fs::create_dir(&root).unwrap();
            let sent = [
                Entry::Folder(""),
                Entry::Folder("d"),
                Entry::File("d/f", 0o7777, b"x"),
                Entry::File("g", 0o644, b"x"),
            ];
            let (mut agent, guest) = fake::start(&[("/share", &sent)], {
                let [user, real, root] = [&user, &real, &root].map(Clone::clone);
                move |_| {
                    fs::rename(&user, &real).unwrap();
                    symlink(&root, &user).unwrap();
                }
            });
            agent.hello(std::time::Duration::from_secs(60)).unwrap();
            bring(&mut agent, &open(&user)).unwrap();
            drop(agent);
            guest.join().unwrap();
            assert_eq!(count(&root), 0, "{name}");
            let top = if name == "get" { real.join("share") } else { real.clone() };
            assert_eq!((fs::read(top.join("d/f")).unwrap(), count(&top)), (b"x".to_vec(), 2), "{name}");
            assert_eq!(fs::metadata(top.join("d/f")).unwrap().permissions().mode() & 0o7000, 0, "{name}");
        }
    }

    #[test]
    fn a_scratch_folder_that_is_swapped_for_a_link_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [user, root] = ["user", "root"].map(|name| folder.path().join(name));
        fs::create_dir(&user).unwrap();
        fs::create_dir(&root).unwrap();
        let (mut agent, guest) = fake::start(&[("/share", &[Entry::Folder(""), Entry::File("f", 0o644, b"x")])], {
            let [user, root] = [&user, &root].map(Clone::clone);
            move |_| {
                let scratch = fs::read_dir(&user).unwrap().next().unwrap().unwrap().path();
                fs::rename(&scratch, user.join("moved")).unwrap();
                symlink(&root, &scratch).unwrap();
            }
        });
        agent.hello(std::time::Duration::from_secs(60)).unwrap();
        merge(&mut agent, "/share", &open(&user)).unwrap();
        drop(agent);
        guest.join().unwrap();
        assert_eq!(count(&root), 0);
        assert!(user.join("f").exists());
    }

    #[test]
    fn what_begins_and_does_not_come_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "kept").unwrap();
        let (mut agent, _guest) = fake::start(&[], |_| {});
        agent.hello(std::time::Duration::from_secs(60)).unwrap();
        assert!(fetch(&mut agent, "/proc/kallsyms", &Target::of(&path).unwrap()).is_err());
        assert!(get(&mut agent, "/tmp/y", &open(folder.path())).is_err());
        assert!(merge(&mut agent, "/share", &open(folder.path())).is_err());
        assert_eq!((fs::read(&path).unwrap(), count(folder.path())), (b"kept".to_vec(), 1));
    }
}
