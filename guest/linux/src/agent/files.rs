//! Files and folders out of the guest.

use std::os::fd::BorrowedFd;
use std::path::Path;

use super::client::{Agent, path_of, refusal};
use super::error::AgentError;
use super::extract::{Entry, Extraction};
use crate::protocol::{DATA, DONE, ENTRY, ERROR, GET};

/// Cost of a file, a folder or a link on the host beside its name and its bytes.
const ENTRY_COST: u64 = 512;

impl Agent<'_> {
    /// Fetches a file of the guest up to its end, whatever its size is said to be: files of sysfs and tracefs, too.
    pub fn get(&mut self, path: &str, most: u64) -> Result<Vec<u8>, AgentError> {
        match <[_; 1]>::try_from(self.get_files(path, most)?) {
            Ok([(name, bytes)]) if name.is_empty() => Ok(bytes),
            _ => Err(AgentError::Protocol("another file than the one that was asked for")),
        }
    }

    /// Copies a file or folder of the guest, links as links, into `folder`, under the last name of `to`, which nothing
    /// may have there. The rest of `to` is for messages. On an error, what was copied so far is kept.
    pub fn get_tree(&mut self, path: &str, most: u64, folder: BorrowedFd<'_>, to: &Path) -> Result<(), AgentError> {
        let mut extraction = Extraction::new(folder, to);
        self.collect(path, most, |kind, payload| match kind {
            ENTRY => extraction.enter(&Entry::parse(payload)?),
            _ => extraction.data(payload),
        })
    }

    /// Fetches the files at and below a path of the guest with what is in them: at most `most` bytes. The path asked for
    /// is "" if it is a file itself.
    pub fn get_files(&mut self, path: &str, most: u64) -> Result<Vec<(String, Vec<u8>)>, AgentError> {
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        // Only a file has data.
        let mut is_file = false;
        self.collect(path, most, |kind, payload| {
            if kind == ENTRY {
                let name = Entry::parse(payload)?.file();
                is_file = name.is_some();
                found.extend(name.map(|name| (name, Vec::new())));
                return Ok(());
            }
            let held = found.last_mut().filter(|_| is_file).ok_or(AgentError::Protocol("data of no file"))?;
            held.1.extend_from_slice(payload);
            Ok(())
        })?;
        Ok(found)
    }

    /// Asks for a path, and gives each ENTRY and DATA to `take`. This is the one place that bounds the files of a guest:
    /// bytes, names and [`ENTRY_COST`] for each file, folder and link are at most `most`.
    fn collect(
        &mut self,
        asked: &str,
        most: u64,
        mut take: impl FnMut(u8, &[u8]) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        self.request(GET, &path_of(asked)?)?;
        let mut left = Some(most);
        loop {
            let frame = self.wait_for("it sends files")?;
            match frame.kind {
                ENTRY | DATA => {
                    let cost = frame.payload.len() as u64 + if frame.kind == ENTRY { ENTRY_COST } else { 0 };
                    left = left.and_then(|left| left.checked_sub(cost));
                    let taken = match left {
                        Some(_) => take(frame.kind, &frame.payload),
                        None => Err(AgentError::Flood { path: asked.to_owned(), most }),
                    };
                    if taken.is_err() {
                        self.drain();
                        return taken;
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
}
