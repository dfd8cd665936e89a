//! Files and folders into the guest and out of it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::client::{Agent, SLICE, refusal, zero_ended};
use super::error::AgentError;
use super::extract::{Copied, Entry, Extraction};
use crate::protocol::{COMMIT, DATA, DONE, ENTRY, ERROR, FILE, FOLDER, GET, GET_TREE, LINK, MAX_PATH, MAX_PAYLOAD};

/// Cost of a file, a folder or a link on the host beside its name and its bytes.
const ENTRY_COST: u64 = 512;

const OTHER_FILE: AgentError = AgentError::Protocol("another file than the one that was asked for");

/// Lists the names in a folder, sorted.
fn names_in(folder: &fs::File) -> std::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn host(path: &Path) -> impl FnOnce(std::io::Error) -> AgentError + '_ {
    |error| AgentError::Host { path: path.to_owned(), error }
}

impl Agent<'_> {
    /// Copies a file or folder of the host, links as links, to `path` in the guest, in place of files that are there;
    /// folders above it are made. It is open already, so its own path, `from`, is for messages. What is below it is
    /// reached by real folders only, whoever swaps them for links meanwhile.
    pub fn put_tree(&mut self, opened: fs::File, from: &Path, path: &str) -> Result<Copied, AgentError> {
        let mut copied = Copied::default();
        let sent = self.put_opened(opened, from, path, &mut copied);
        let done = self.commit();
        sent?;
        done?;
        Ok(copied)
    }

    fn put_opened(
        &mut self,
        mut opened: fs::File,
        from: &Path,
        path: &str,
        copied: &mut Copied,
    ) -> Result<(), AgentError> {
        let metadata = opened.metadata().map_err(host(from))?;
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_file() {
            copied.files += 1;
            self.entry(FILE, mode, path, b"")?;
            copied.bytes += self.data(&mut opened, "the source of a file")?;
            return Ok(());
        }
        if !metadata.is_dir() {
            copied.left_out += 1;
            return Ok(());
        }
        copied.folders += 1;
        self.entry(FOLDER, mode, path, b"")?;
        for name in names_in(&opened).map_err(host(from))? {
            let from = from.join(&name);
            let Some(name) = name.to_str() else {
                let error = std::io::Error::other("the name is not UTF-8");
                return Err(AgentError::Host { path: from, error });
            };
            self.put_named(&opened, name, &from, &format!("{}/{name}", path.trim_end_matches('/')), copied)?;
        }
        Ok(())
    }

    fn put_named(
        &mut self,
        folder: &fs::File,
        name: &str,
        from: &Path,
        path: &str,
        copied: &mut Copied,
    ) -> Result<(), AgentError> {
        let failed = |error: Errno| AgentError::Host { path: from.to_owned(), error: error.into() };
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new()).map_err(failed)?;
                copied.links += 1;
                self.entry(LINK, 0o777, path, target.as_bytes())
            }
            FileType::RegularFile | FileType::Directory => {
                // It may be another file by now: a pipe is not waited for.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let opened = openat(folder, name, flags, Mode::empty()).map_err(failed)?;
                self.put_opened(opened.into(), from, path, copied)
            }
            _ => {
                copied.left_out += 1;
                Ok(())
            }
        }
    }

    /// Copies a file of the guest to `to`, up to its end, whatever its size is said to be: files of sysfs and tracefs,
    /// too. One of more than `most` bytes is an error.
    pub fn get(&mut self, path: &str, most: u64, to: &mut dyn Write) -> Result<u64, AgentError> {
        let (mut bytes, mut begun) = (0, false);
        self.collect(path, 0, |kind, payload| {
            if kind == ENTRY {
                // One file, that which was asked for.
                let is_it = Entry::parse(payload)?.file().is_some_and(|name| name.is_empty());
                return if is_it && !std::mem::replace(&mut begun, true) { Ok(()) } else { Err(OTHER_FILE) };
            }
            if !begun {
                return Err(OTHER_FILE);
            }
            bytes += payload.len() as u64;
            if bytes > most {
                return Err(AgentError::Flood { path: path.to_owned(), most });
            }
            to.write_all(payload).map_err(|error| AgentError::Stream { what: "the copy of a file", error })
        })?;
        Ok(bytes)
    }

    /// Copies a file or folder of the guest, links as links, into `folder`, under the last name of `to`, which nothing
    /// may have there. The rest of `to` is for messages. On an error, what was copied so far is kept.
    pub fn get_tree(&mut self, path: &str, folder: BorrowedFd<'_>, to: &Path) -> Result<Copied, AgentError> {
        let mut extraction = Extraction::new(folder, to);
        self.collect(path, GET_TREE, |kind, payload| match kind {
            ENTRY => extraction.enter(&Entry::parse(payload)?),
            _ => extraction.data(payload),
        })?;
        Ok(extraction.copied())
    }

    /// Fetches the files at and below a path of the guest with what is in them: at most `files`, whose names and
    /// contents are together at most `bytes`. The path asked for is "" if it is a file itself.
    pub fn get_files(&mut self, path: &str, files: usize, bytes: usize) -> Result<Vec<(String, Vec<u8>)>, AgentError> {
        let flood = || AgentError::Flood { path: path.to_owned(), most: bytes as u64 };
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        let (mut entries, mut length) = (0, 0);
        // Only a file has data.
        let mut is_file = false;
        self.collect(path, GET_TREE, |kind, payload| {
            if kind == ENTRY {
                entries += 1;
                let name = Entry::parse(payload)?.file();
                is_file = name.is_some();
                length += name.as_ref().map_or(0, String::len);
                found.extend(name.map(|name| (name, Vec::new())));
                // Folders, links and what cannot be read count, too.
                return if entries > files.saturating_mul(2).max(16) || found.len() > files || length > bytes {
                    Err(flood())
                } else {
                    Ok(())
                };
            }
            length += payload.len();
            match found.last_mut() {
                Some(_) if is_file && length > bytes => Err(flood()),
                Some((_, held)) if is_file => {
                    held.extend_from_slice(payload);
                    Ok(())
                }
                _ => Err(AgentError::Protocol("data of no file")),
            }
        })?;
        Ok(found)
    }

    /// Asks for a path, and gives each ENTRY and DATA to `take`.
    fn collect(
        &mut self,
        asked: &str,
        flags: u32,
        mut take: impl FnMut(u8, &[u8]) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let path = zero_ended(asked)?;
        self.request(GET, &[&flags.to_le_bytes(), &path])?;
        loop {
            let frame = self.wait_for(self.patience, "it sends files")?;
            match frame.kind {
                ENTRY | DATA => {
                    let cost = frame.payload.len() as u64 + if frame.kind == ENTRY { ENTRY_COST } else { 0 };
                    let [most, left] = &mut self.budget;
                    let taken = match left.checked_sub(cost) {
                        Some(rest) => {
                            *left = rest;
                            take(frame.kind, &frame.payload)
                        }
                        None => {
                            *left = 0;
                            Err(AgentError::Flood { path: asked.to_owned(), most: *most })
                        }
                    };
                    if let Err(error) = taken {
                        self.drain();
                        return Err(error);
                    }
                }
                DONE | ERROR => {
                    self.replied();
                    return if frame.kind == DONE { Ok(()) } else { Err(refusal(&frame.payload)) };
                }
                _ => return Err(AgentError::Protocol("a reply of another request while files are copied")),
            }
        }
    }

    fn entry(&mut self, kind: u8, mode: u32, path: &str, target: &[u8]) -> Result<(), AgentError> {
        if target.len() >= MAX_PATH {
            return Err(AgentError::TooLarge { what: "a link's target", length: target.len(), most: MAX_PATH - 1 });
        }
        let path = zero_ended(path)?;
        self.room()?;
        self.wire.queue(ENTRY, &[&[kind], &mode.to_le_bytes(), &path, target, &[0]])
    }

    /// Sends everything that `from` has; returns the number of bytes.
    fn data(&mut self, from: &mut dyn Read, what: &'static str) -> Result<u64, AgentError> {
        let mut chunk = vec![0; MAX_PAYLOAD];
        let mut bytes = 0;
        loop {
            let count = match from.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(AgentError::Stream { what, error }),
            };
            self.room()?;
            self.wire.queue(DATA, &[&chunk[..count]])?;
            bytes += count as u64;
        }
    }

    /// Waits until a frame can be queued.
    fn room(&mut self) -> Result<(), AgentError> {
        let mut last = Instant::now();
        while !self.wire.has_room() {
            if let Some(error) = self.early(last.elapsed(), self.patience, "files are sent to it") {
                return Err(error);
            }
            if self.wire.step(SLICE, None)?.moved {
                last = Instant::now();
            }
        }
        Ok(())
    }

    /// Ends the files sent; the guest says what became of them.
    fn commit(&mut self) -> Result<u64, AgentError> {
        self.request(COMMIT, &[])?;
        self.done("files are sent to it")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::protocol::HEADER;

    #[test]
    fn what_a_user_swaps_for_a_link_or_a_pipe_does_not_go_in() {
        let folder = tempfile::tempdir().unwrap();
        let [user, root, real] = ["user", "root", "real"].map(|name| folder.path().join(name));
        fs::create_dir(&user).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        fs::write(user.join("mine"), "mine").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, user.join("pipe"), FileType::Fifo, 0o666.into(), 0).unwrap();
        symlink(&root, user.join("below")).unwrap();
        symlink(root.join("secret"), user.join("file")).unwrap();
        let opened = fs::File::open(&user).unwrap();
        fs::rename(&user, &real).unwrap();
        symlink(&root, &user).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // A guest that takes everything.
        let guest = std::thread::spawn(move || {
            let (mut sent, mut header) = (Vec::new(), [0; HEADER]);
            while theirs.read_exact(&mut header).is_ok() {
                let [kind, length @ ..] = header;
                let mut payload = vec![0; u32::from_le_bytes(length) as usize];
                theirs.read_exact(&mut payload).unwrap();
                sent.extend(payload);
                if kind == COMMIT {
                    theirs.write_all(&[&[DONE, 8, 0, 0, 0][..], &[0; 8]].concat()).unwrap();
                }
            }
            sent
        });
        let copied = Agent::new(ours).unwrap().put_tree(opened, &user, "/share").unwrap();
        assert_eq!(copied, Copied { files: 1, folders: 1, links: 2, left_out: 1, bytes: 4 });
        let sent = String::from_utf8_lossy(&guest.join().unwrap()).into_owned();
        assert!(sent.contains("/share/mine") && !sent.contains("/share/secret"), "{sent:?}");
    }
}
