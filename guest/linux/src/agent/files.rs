//! Files and folders out of the guest.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::client::{Agent, refusal, zero_ended};
use super::error::AgentError;
use super::extract::{Entry, Extraction};
use crate::protocol::{DATA, DONE, ENTRY, ERROR, GET, GET_TREE};

/// Cost of a file, a folder or a link on the host beside its name and its bytes.
const ENTRY_COST: u64 = 512;

const OTHER_FILE: AgentError = AgentError::Protocol("another file than the one that was asked for");

impl Agent<'_> {
    /// Copies a file of the guest to `to`, up to its end, whatever its size is said to be: files of sysfs and tracefs,
    /// too.
    pub fn get(&mut self, path: &str, most: u64, to: &mut dyn Write) -> Result<u64, AgentError> {
        let (mut bytes, mut begun) = (0, false);
        self.collect(path, 0, most, |kind, payload| {
            if kind == ENTRY {
                // One file, that which was asked for.
                let is_it = Entry::parse(payload)?.file().is_some_and(|name| name.is_empty());
                return if is_it && !std::mem::replace(&mut begun, true) { Ok(()) } else { Err(OTHER_FILE) };
            }
            if !begun {
                return Err(OTHER_FILE);
            }
            bytes += payload.len() as u64;
            to.write_all(payload).map_err(|error| AgentError::Stream { what: "the copy of a file", error })
        })?;
        Ok(bytes)
    }

    /// Copies a file or folder of the guest, links as links, into `folder`, under the last name of `to`, which nothing
    /// may have there. The rest of `to` is for messages. On an error, what was copied so far is kept.
    pub fn get_tree(&mut self, path: &str, most: u64, folder: BorrowedFd<'_>, to: &Path) -> Result<(), AgentError> {
        let mut extraction = Extraction::new(folder, to);
        self.collect(path, GET_TREE, most, |kind, payload| match kind {
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
        self.collect(path, GET_TREE, most, |kind, payload| {
            if kind == ENTRY {
                let name = Entry::parse(payload)?.file();
                is_file = name.is_some();
                found.extend(name.map(|name| (name, Vec::new())));
                return Ok(());
            }
            match found.last_mut() {
                Some((_, held)) if is_file => {
                    held.extend_from_slice(payload);
                    Ok(())
                }
                _ => Err(AgentError::Protocol("data of no file")),
            }
        })?;
        Ok(found)
    }

    /// Asks for a path, and gives each ENTRY and DATA to `take`. This is the one place that bounds the files of a guest:
    /// bytes, names and [`ENTRY_COST`] for each file, folder and link are at most `most`.
    fn collect(
        &mut self,
        asked: &str,
        flags: u32,
        most: u64,
        mut take: impl FnMut(u8, &[u8]) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let path = zero_ended(asked)?;
        self.request(GET, &[&flags.to_le_bytes(), &path])?;
        let mut left = most;
        loop {
            let frame = self.wait_for(self.patience, "it sends files")?;
            match frame.kind {
                ENTRY | DATA => {
                    let cost = frame.payload.len() as u64 + if frame.kind == ENTRY { ENTRY_COST } else { 0 };
                    let rest = left.checked_sub(cost).ok_or_else(|| AgentError::Flood { path: asked.to_owned(), most });
                    let taken = rest.and_then(|rest| {
                        left = rest;
                        take(frame.kind, &frame.payload)
                    });
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
}
