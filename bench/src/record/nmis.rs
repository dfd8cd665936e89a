//! The NMIs of a recorded payload, by the clock of its samples: `FILE.nmis`, so that a slow one leads to what was running.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use guest::abi::LOG_NMI;
use serde::{Deserialize, Serialize};
use vmm::outcome::RunOutcome;
use vmm::sample::Moment;

/// Its name in the file.
const SCHEMA: &str = "vpmu-nmis/1";
/// Largest file that is read.
const LARGEST: u64 = 64 << 20;

/// An NMI handler's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmi {
    /// The vCPU.
    pub vcpu: usize,
    /// Its entry, CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// How long it took, ns.
    pub took: u64,
}

/// All that the guest's log has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmis {
    schema: String,
    /// By vCPU and time.
    pub nmis: Vec<Nmi>,
}

/// The file of a recording.
#[must_use]
pub fn beside(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".nmis");
    name.into()
}

impl Nmis {
    /// Those of a run between two moments.
    #[must_use]
    pub fn of(outcome: &RunOutcome, first: Moment, last: Moment) -> Self {
        let mut nmis = Vec::new();
        for (vcpu, of) in outcome.vcpus.iter().enumerate() {
            let khz = of.tsc.khz.max(1);
            for entry in of.log.iter().filter(|entry| entry.kind == LOG_NMI) {
                // The log is the guest's: what makes no sense is left out.
                let host = entry.tsc_entry.wrapping_sub(of.tsc.offset.cast_unsigned());
                let (Some(ticks), Some(at)) = (entry.tsc_exit.checked_sub(entry.tsc_entry), first.ns_at(last, host))
                else {
                    continue;
                };
                let took = u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(khz)).unwrap_or(u64::MAX);
                if (first.ns..=last.ns).contains(&at) && took <= last.ns - at {
                    nmis.push(Nmi { vcpu, at, took });
                }
            }
        }
        Self { schema: SCHEMA.to_owned(), nmis }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        results::write::replace(path, &serde_json::to_vec(self)?)
    }

    /// Reads it; `None` if there is none, or it is not one.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        if found.len() > LARGEST {
            return None;
        }
        serde_json::from_slice::<Self>(&fs::read(path).ok()?).ok().filter(|read| read.schema == SCHEMA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_and_another_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("x.data"));
        assert!(path.ends_with("x.data.nmis") && Nmis::read(&path).is_none());
        let nmis = Nmis { schema: SCHEMA.to_owned(), nmis: vec![Nmi { vcpu: 1, at: 5, took: 7 }] };
        nmis.write(&path).unwrap();
        assert_eq!(Nmis::read(&path), Some(nmis));
        for other in ["{}", "", "{\"schema\":\"vpmu-nmis/2\",\"nmis\":[]}", "{\"schema\":\"vpmu-nmis/1\",\"nmis\":[1]}"]
        {
            fs::write(&path, other).unwrap();
            assert_eq!(Nmis::read(&path), None, "{other}");
        }
    }
}
