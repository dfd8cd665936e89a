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
            let files = symbols.chain(&console).filter_map(|target| Some((target.named()?.0, target.path())));
            for (folder, path) in files.chain(output.iter().map(|folder| (folder, folder.path()))) {
                refuse_inside(share, folder, path)?;
            }
        }
        Ok(Self { share, output, console })
    }
}

/// Checks that nothing is written to a guest's share but what the guest sends: that would take the place of the other.
pub(crate) fn refuse_inside(share: &Folder, folder: &Folder, path: &Path) -> Result<(), Error> {
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
mod tests;
