//! Files that come out of a guest: whole under their name, or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use linux_guest::agent::{Agent, AgentError};
use results::error::Error;
use tempfile::TempDir;

/// Most bytes of a list of the kernel's: several times those of a distribution's with all modules.
const MOST_OF_LIST: u64 = 64 << 20;

/// The file or folder of the host that `--get` of `path` makes below `output`.
pub(super) fn target(output: &Path, path: &str) -> PathBuf {
    output.join(path.trim_end_matches('/').rsplit('/').next().unwrap_or(path))
}

/// Checks, before anything begins, that what `--get` brings has a free place of its own.
pub(super) fn check(output: &Path, paths: &[String]) -> Result<(), Error> {
    let mut targets = Vec::new();
    for path in paths {
        let cannot = |why: String, remedy: &str| Error::usage(format!("cannot get {path} from the guest"), why, remedy);
        if !path.starts_with('/') || path.trim_end_matches('/').is_empty() {
            return Err(cannot("it is no absolute path of a file".to_owned(), "give e.g. /tmp/perf.data"));
        }
        let target = target(output, path);
        if target.symlink_metadata().is_ok() {
            return Err(cannot(format!("{} exists", target.display()), "remove it, or give another --output"));
        }
        if targets.contains(&target) {
            return Err(cannot(format!("another --get makes {}, too", target.display()), "get their folder"));
        }
        targets.push(target);
    }
    Ok(())
}

/// Brings a file or folder of the guest to its [`target`].
pub(super) fn get(agent: &mut Agent<'_>, path: &str, output: &Path) -> Result<(), AgentError> {
    let target = target(output, path);
    let scratch = scratch(output)?;
    let copy = scratch.path().join("copy");
    agent.get_tree(path, &copy)?;
    fs::rename(&copy, &target).map_err(failed(&target))
}

/// Brings a file of the guest's kernel to `target`, which is replaced.
pub(super) fn fetch(agent: &mut Agent<'_>, path: &str, target: &Path) -> Result<(), AgentError> {
    let mut file = fs::File::create(target).map_err(failed(target))?;
    agent.get(path, MOST_OF_LIST, &mut file).map(drop)
}

/// Brings the guest's folder `path` into `folder`, which exists: files of the same name are replaced, others stay.
pub(super) fn merge(agent: &mut Agent<'_>, path: &str, folder: &Path) -> Result<(), AgentError> {
    let scratch = scratch(folder)?;
    let copy = scratch.path().join("copy");
    agent.get_tree(path, &copy)?;
    merge_folder(&copy, folder)
}

/// A folder on the same file system, which is gone at the end.
fn scratch(beside: &Path) -> Result<TempDir, AgentError> {
    tempfile::Builder::new().prefix(".vpmu-").tempdir_in(beside).map_err(failed(beside))
}

fn merge_folder(from: &Path, to: &Path) -> Result<(), AgentError> {
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let entry = entry.map_err(failed(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let is_folder = entry.file_type().map_err(failed(&source))?.is_dir();
        // A link is replaced, never followed.
        match target.symlink_metadata() {
            Ok(found) if is_folder && found.is_dir() => merge_folder(&source, &target)?,
            _ => fs::rename(&source, &target).map_err(failed(&target))?,
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
    use super::*;

    #[test]
    fn what_is_there_already_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let get = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            check(folder.path(), &paths).map_err(|error| error.to_string())
        };
        get(&["/tmp/perf.data", "/var/log/"]).unwrap();
        fs::write(folder.path().join("perf.data"), "x").unwrap();
        assert!(get(&["/tmp/perf.data"]).unwrap_err().contains("exists"));
        assert!(get(&["/a/x", "/b/x"]).unwrap_err().contains("another --get"));
        assert!(get(&["x"]).is_err() && get(&["/"]).is_err() && get(&[""]).is_err());
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
        std::os::unix::fs::symlink(outside.path(), to.path().join("l")).unwrap();
        let refused = merge_folder(from.path(), to.path());
        let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap_or_default();
        assert!(fs::read_dir(outside.path()).unwrap().next().is_none(), "nothing goes through a link");
        assert!(refused.is_err(), "a link is in the folder's place");
        fs::remove_file(to.path().join("l")).unwrap();
        merge_folder(from.path(), to.path()).unwrap();
        assert_eq!([read("a"), read("d/b"), read("d/c"), read("l/x")], ["new", "new", "kept", "new"]);
    }
}
