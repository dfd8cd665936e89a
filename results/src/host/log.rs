//! Complaints of the host's kernel during a measurement.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};

use super::fs::HostFs;
use crate::error::one_line;

/// Parts of the messages that tell of lost time, lost events or a changed clock.
const COMPLAINTS: [&str; 18] = [
    "perf: ",
    "perfevents: ",
    "NMI handler",
    "NMI received for unknown reason",
    "soft lockup",
    "hard LOCKUP",
    "unchecked MSR access",
    "as unstable",
    "TSC unstable",
    "detected stalls",
    "self-detected stall",
    "detected expedited stalls",
    "RT throttling activated",
    "BUG: ",
    "WARNING: ",
    "[Hardware Error]",
    "temperature above threshold",
    "power limit notification",
];
/// Most complaints that are kept; the first ones tell the cause.
const MAX_COMPLAINTS: usize = 8;
/// Longest part of a complaint that is kept.
const MAX_TEXT: usize = 200;
/// Most records that are read at a time; a flood is not followed to its end.
const MAX_RECORDS: usize = 100_000;
/// Levels of the facility "kernel" in a record's first number.
const KERNEL_LEVELS: u32 = 8;

/// A place in the kernel's log; `None`: this user may not read it.
#[derive(Clone, Debug, Default)]
pub struct Watch(Option<Arc<File>>);

/// It is no fact of the host.
impl PartialEq for Watch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Watch {
    /// Begins behind the log's last record.
    pub(super) fn begin(fs: &HostFs) -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let log = open(fs.path("dev/kmsg"), flags, Mode::empty()).ok().map(File::from);
        Self(log.filter(|mut log| log.seek(SeekFrom::End(0)).is_ok()).map(Arc::new))
    }

    /// Adds the kernel's complaints since the last call; `None` stays where nobody can tell.
    pub(super) fn complaints(&self, found: &mut Option<Vec<String>>) {
        let Some(mut log) = self.0.as_deref() else { return };
        let found = found.get_or_insert_default();
        // The kernel's longest record is shorter, and each read gives one.
        let mut record = [0; 8192];
        for _ in 0..MAX_RECORDS {
            match log.read(&mut record) {
                Ok(1..) if found.len() >= MAX_COMPLAINTS => {}
                Ok(read @ 1..) => {
                    found.extend(String::from_utf8_lossy(&record[..read]).lines().filter_map(complaint));
                    found.truncate(MAX_COMPLAINTS);
                }
                // Records were overwritten before they were read.
                Err(error) if [ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) => {}
                _ => return,
            }
        }
    }
}

/// Returns the text of a record "priority,number,time,flags;text" if the kernel complains in it; programs write there, too.
fn complaint(line: &str) -> Option<String> {
    let (prefix, text) = line.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    let complains = priority < KERNEL_LEVELS && COMPLAINTS.iter().any(|part| text.contains(part));
    complains.then(|| one_line(text).chars().take(MAX_TEXT).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::HostFacts;
    use super::*;
    use crate::hosts::tree;

    #[test]
    fn complaints_since_the_begin_are_kept_and_neither_older_ones_nor_those_of_programs() {
        let took = "4,7,9,-;perf: interrupt took too long (2510 > 2500), lowering kernel.perf_event_max_sample_rate to 79000\n";
        let (_dir, fs) = tree(&[("dev/kmsg", took)]);
        let mut facts = HostFacts::begin(&fs);
        facts.finish(&fs);
        assert_eq!(facts.complaints.as_deref(), Some(&[][..]));
        let mut log = File::options().append(true).open(fs.path("dev/kmsg")).unwrap();
        let of_program = took.replacen('4', "12", 1);
        write!(log, "6,8,9,-;usb 1-1: new\n SUBSYSTEM=usb;WARNING: x\n{of_program}{took}").unwrap();
        facts.finish(&fs);
        let lines = facts.complaints.clone().unwrap();
        assert!(lines.len() == 1 && took.contains(&lines[0]), "{lines:?}");
        write!(log, "{}", "2,9,9,-;WARNING: \x1b[2J at kvm\n".repeat(20) + &"x".repeat(20_000)).unwrap();
        facts.finish(&fs);
        let lines = facts.complaints.unwrap();
        assert_eq!((lines.len(), &*lines[1]), (MAX_COMPLAINTS, "WARNING: [2J at kvm"));
    }
}
