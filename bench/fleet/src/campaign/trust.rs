//! Who can have written what is in a campaign's folder. Whoever submits a campaign runs its binaries, so a folder that another user
//! made or can change is not acted on.
//!
//! The way to the folder is walked from the root by descriptors, and no link is followed on it: each step must belong
//! to this user or to root, and nobody else may be able to put another in its place. What was checked then stays under
//! its path.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use results::error::Error;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::process::{getegid, geteuid, getgroups};

/// Others whom this user trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Only root.
    #[default]
    Own,
    /// The members of his groups as well: what they can write to runs as him.
    Group,
}

/// The user of this process.
struct Me {
    user: u32,
    groups: Vec<u32>,
}

impl Me {
    fn of_this_process() -> io::Result<Self> {
        let mut groups: Vec<u32> = getgroups()?.into_iter().map(rustix::fs::Gid::as_raw).collect();
        groups.push(getegid().as_raw());
        Ok(Self { user: geteuid().as_raw(), groups })
    }

    /// Says why others could have changed what has this owner, group and mode, or what is in it; `None` if they could
    /// not. `way` is a folder that leads to another: in one with the sticky bit nobody replaces what belongs to
    /// another.
    fn doubt(&self, (user, group, mode): (u32, u32, u32), trust: Trust, way: bool) -> Option<String> {
        let shared = trust == Trust::Group && self.groups.contains(&group);
        let mode = Mode::from_raw_mode(mode);
        let sticky = way && mode.contains(Mode::SVTX);
        if user != 0 && user != self.user && !shared {
            Some(format!("it belongs to user {user}"))
        } else if mode.contains(Mode::WOTH) && !sticky {
            Some("every user can write to it".to_owned())
        } else if mode.contains(Mode::WGRP) && !sticky && !shared {
            Some(format!("group {group} can write to it"))
        } else {
            None
        }
    }
}

/// Checks the folder at `path`; gives back its path without links.
///
/// # Errors
/// Exit 2 if others could have changed it, with the step that they could change.
pub fn folder(path: &Path, trust: Trust) -> Result<PathBuf, Error> {
    let (real, _) = walked(path, trust, false)?;
    Ok(real)
}

/// Checks the folder in which one is to be made, which may be one that everybody can write to as /tmp.
///
/// # Errors
/// Errors of [`folder`].
pub fn place(path: &Path, trust: Trust) -> Result<(), Error> {
    walked(path, trust, true).map(drop)
}

/// Opens a file of a folder that was checked, if nobody else could have changed it.
///
/// # Errors
/// Errors of [`folder`], and those of a file that is not regular, or larger than `most` bytes.
pub fn file(path: &Path, trust: Trust, most: u64) -> Result<File, Error> {
    let failed = |error: io::Error| unusable(path, error.to_string());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let (_, dir) = walked(parent, trust, false)?;
    let file = results::open::at(&dir, name, most).map_err(failed)?;
    let owner = owner(&file).map_err(failed)?;
    match Me::of_this_process().map_err(failed)?.doubt(owner, trust, false) {
        None => Ok(file),
        Some(why) => Err(refuse(path, path, &why)),
    }
}

/// Makes a folder that its owner can write to, and his group where it shares it.
///
/// # Errors
/// Returns the errors of the file system.
pub fn make(path: &Path, trust: Trust) -> io::Result<()> {
    builder(trust).recursive(true).create(path)
}

/// Makes a new folder, in a folder that is there.
///
/// # Errors
/// Returns the errors of the file system.
pub fn make_new(path: &Path, trust: Trust) -> io::Result<()> {
    builder(trust).create(path)
}

fn builder(trust: Trust) -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(if trust == Trust::Group { 0o775 } else { 0o755 });
    builder
}

/// Returns whether this user, or root, owns the folder.
pub fn is_own(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == geteuid().as_raw() || meta.uid() == 0)
}

/// Reads owner, group and mode.
fn owner(file: impl AsFd) -> io::Result<(u32, u32, u32)> {
    let stat = fstat(file)?;
    Ok((stat.st_uid, stat.st_gid, stat.st_mode))
}

fn walked(path: &Path, trust: Trust, is_way: bool) -> Result<(PathBuf, OwnedFd), Error> {
    let failed = |error: io::Error| unusable(path, error.to_string());
    let me = Me::of_this_process().map_err(failed)?;
    let real = path.canonicalize().map_err(failed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let mut here = PathBuf::from("/");
    let mut parts = real.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
    loop {
        let next = parts.next();
        if let Some(why) = me.doubt(owner(&at).map_err(failed)?, trust, is_way || next.is_some()) {
            return Err(refuse(path, &here, &why));
        }
        let Some(part) = next else { return Ok((real, at)) };
        at = openat(&at, part.as_os_str(), flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        here.push(part);
    }
}

fn refuse(path: &Path, step: &Path, why: &str) -> Error {
    Error::usage(
        format!("{} is not safe from other users", path.display()),
        format!("{}: {why}, and what is in a campaign's folder runs as you", step.display()),
        "choose a folder that only you can change, or give --trust-group where a group of yours shares it",
    )
}

fn unusable(path: &Path, why: String) -> Error {
    Error::usage(format!("cannot use {}", path.display()), why, "choose another folder, or submit the plan again")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn doubts_are_about_owners_and_writers_other_than_this_user_and_root() {
        let me = Me { user: 7, groups: vec![70, 71] };
        for (uid, gid, mode, trust, way, expected) in [
            (7, 70, 0o755, Trust::Own, false, None),
            (0, 0, 0o755, Trust::Own, false, None),
            (8, 70, 0o755, Trust::Own, false, Some("it belongs to user 8")),
            (8, 70, 0o1777, Trust::Own, true, Some("it belongs to user 8")),
            (8, 70, 0o2770, Trust::Group, false, None),
            (8, 80, 0o2770, Trust::Group, false, Some("it belongs to user 8")),
            (7, 70, 0o775, Trust::Own, false, Some("group 70 can write to it")),
            (7, 71, 0o775, Trust::Group, false, None),
            (7, 80, 0o775, Trust::Group, false, Some("group 80 can write to it")),
            (7, 70, 0o757, Trust::Group, false, Some("every user can write to it")),
            (0, 0, 0o1777, Trust::Own, true, None),
            (0, 0, 0o1777, Trust::Own, false, Some("every user can write to it")),
        ] {
            assert_eq!(me.doubt((uid, gid, 0o040_000 | mode), trust, way).as_deref(), expected, "{uid} {gid} {mode:o}");
        }
    }

    #[test]
    fn every_step_to_the_folder_counts_and_so_does_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        for (name, mode) in [("a", 0o755), ("a/b", 0o755)] {
            set_mode(&at(name), mode);
        }
        symlink("a", at("link")).unwrap();
        std::fs::write(at("a/b/x"), "text").unwrap();
        set_mode(&at("a/b/x"), 0o644);
        let real = folder(&at("link/b"), Trust::Own).unwrap();
        assert_eq!(real, at("a/b").canonicalize().unwrap());
        file(&real.join("x"), Trust::Own, 4).unwrap();
        let refused = |at: &str| {
            let error = file(&real.join("x"), Trust::Own, 4).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(&format!("{at}: every user can write to it")), "{error}");
        };
        set_mode(&at("a/b/x"), 0o666);
        refused("a/b/x");
        set_mode(&at("a/b/x"), 0o644);
        set_mode(&at("a"), 0o777);
        refused("/a");
        // Beside what belongs to this user others may put what they like.
        set_mode(&at("a"), 0o1777);
        file(&real.join("x"), Trust::Own, 4).unwrap();
        place(&at("a"), Trust::Own).unwrap();
        assert!(folder(&at("a"), Trust::Own).is_err());
        symlink("x", at("a/b/y")).unwrap();
        assert!(file(&real.join("y"), Trust::Own, 4).is_err());
    }
}
