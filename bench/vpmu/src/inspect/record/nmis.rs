//! The NMIs of a recorded payload, by the clock of its samples: `FILE.nmis`, so that a slow one leads to what was running.

use std::io;
use std::path::Path;

use guest::abi::LOG_NMI;
use perf_data::plain;
use results::write::Target;
use serde::{Deserialize, Serialize};
use vmm::outcome::RunOutcome;
use vmm::sample::Moment;

/// Largest file that is read.
const LARGEST: u64 = 64 << 20;
/// Most runs in a file: none takes more than 70 bytes.
const MOST: usize = 900_000;

/// An NMI handler's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmi {
    /// The vCPU.
    pub vcpu: usize,
    /// Its entry, CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// Time that it took, ns.
    pub took: u64,
}

/// All that the guest's log has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmis {
    /// Handlers in the order of vCPU and time.
    pub nmis: Vec<Nmi>,
}

impl Nmis {
    /// Those of a run between two moments.
    #[must_use]
    pub fn of(outcome: &RunOutcome, first: Moment, last: Moment) -> Self {
        let mut nmis = Vec::new();
        for (vcpu, of) in outcome.vcpus.iter().enumerate() {
            let khz = of.left.tsc.khz.max(1);
            for entry in of.left.log.iter().filter(|entry| entry.kind == LOG_NMI) {
                // The log is the guest's: what makes no sense is left out.
                let host = entry.tsc_entry.wrapping_sub(of.left.tsc.offset.cast_unsigned());
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
        Self { nmis }
    }

    /// Writes it; returns how many runs were left out, the shortest, as a file of all would be too large to be read.
    ///
    /// # Errors
    /// The file's.
    pub fn write(mut self, target: &Target) -> io::Result<usize> {
        let left_out = self.bound(MOST);
        target.replace(&serde_json::to_vec(&self)?)?;
        Ok(left_out)
    }

    fn bound(&mut self, most: usize) -> usize {
        let left_out = self.nmis.len().saturating_sub(most);
        if left_out > 0 {
            self.nmis.sort_unstable_by_key(|nmi| std::cmp::Reverse(nmi.took));
            self.nmis.truncate(most);
            self.nmis.sort_unstable_by_key(|nmi| (nmi.vcpu, nmi.at));
        }
        left_out
    }

    /// Reads it; `None` if there is none, or it is not one.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice::<Self>(&plain::read(path, LARGEST).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_reads_back_and_another_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data.nmis");
        assert!(Nmis::read(&path).is_none());
        let nmis = Nmis { nmis: vec![Nmi { vcpu: 1, at: 5, took: 7 }] };
        assert_eq!(nmis.clone().write(&Target::of(&path).unwrap()).unwrap(), 0);
        assert_eq!(Nmis::read(&path), Some(nmis));
        for other in ["{}", "", "{\"nmis\":[1]}"] {
            fs::write(&path, other).unwrap();
            assert_eq!(Nmis::read(&path), None, "{other}");
        }
    }

    #[test]
    fn the_longest_runs_are_kept_and_a_file_of_them_can_be_read() {
        let nmi = |vcpu, at, took| Nmi { vcpu, at, took };
        let mut nmis = Nmis { nmis: vec![nmi(0, 1, 5), nmi(0, 2, 9), nmi(1, 1, 7)] };
        assert_eq!((nmis.bound(3), nmis.bound(2)), (0, 1));
        assert_eq!(nmis.nmis, [nmi(0, 2, 9), nmi(1, 1, 7)]);
        let longest = serde_json::to_string(&nmi(999, u64::MAX, u64::MAX)).unwrap().len() as u64 + 1;
        assert!(longest * MOST as u64 + 100 < LARGEST, "{longest} bytes");
    }
}
