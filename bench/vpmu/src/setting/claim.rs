//! CPUs that runs of this tool are pinned to, so that two of them at the same time do not take the same ones.
//!
//! A claim is an abstract Unix socket (unix(7)): bound by one process at a time, gone with it, and without a file. It binds
//! only runs that claim, in one network namespace; other pinned tasks are not affected.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use cpu_list::CpuList;

/// A CPU that this process has claimed, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    /// `None` where the host has no such sockets: nobody can claim there.
    _socket: Option<UnixDatagram>,
}

impl Claim {
    /// Claims a CPU; `None` if another process did.
    #[must_use]
    pub fn of(cpu: u32) -> Option<Self> {
        Self::named(&format!("vpmu/cpu/{cpu}"))
    }

    fn named(name: &str) -> Option<Self> {
        let bound = SocketAddr::from_abstract_name(name).and_then(|address| UnixDatagram::bind_addr(&address));
        match bound {
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            bound => Some(Self { _socket: bound.ok() }),
        }
    }
}

/// Claims CPUs; a warning if another run has some of them.
#[must_use]
pub fn all(cpus: &[u32]) -> (Vec<Claim>, Option<String>) {
    let (mut claims, mut taken) = (Vec::new(), Vec::new());
    for &cpu in cpus {
        match Claim::of(cpu) {
            Some(claim) => claims.push(claim),
            None => taken.push(cpu),
        }
    }
    let taken = CpuList(taken);
    let warning =
        format!("warning: another run of vpmu is pinned to CPU {taken}: give each run CPUs of its own, --pin LIST");
    (claims, (!taken.0.is_empty()).then_some(warning))
}

/// Moves the CPUs that another process has claimed to the front: the choice is made from the end.
#[must_use]
pub fn free_last(cpus: Vec<u32>) -> Vec<u32> {
    let (free, taken): (Vec<u32>, Vec<u32>) = cpus.into_iter().partition(|&cpu| Claim::of(cpu).is_some());
    [taken, free].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_claimed_once_at_a_time() {
        // No other test, and no run, claims this one.
        let name = format!("vpmu/test/{}", std::process::id());
        let claim = Claim::named(&name).unwrap();
        assert!(Claim::named(&name).is_none());
        drop(claim);
        assert!(Claim::named(&name).is_some());
    }

    #[test]
    fn claimed_cpus_come_first() {
        // Beyond any host's CPUs, and apart from those of another process with this test.
        let cpus = [1, 2, 3].map(|n| 1_000_000_000 + 4 * std::process::id() + n);
        let _claim = Claim::of(cpus[2]).unwrap();
        assert_eq!(free_last(cpus.to_vec()), [cpus[2], cpus[0], cpus[1]]);
    }
}
