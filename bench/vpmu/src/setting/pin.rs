//! The host CPUs of a guest's vCPUs.

use std::str::FromStr;

use cpu_list::CpuList;
use results::error::Error;
use results::host::{HostFacts, HostFs};

/// Meaning of `--pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinChoice {
    /// Pinned where the host has more than one CPU and each vCPU can have its own: neighbouring turns then share more
    /// of the changes of a CPU's throughput.
    #[default]
    Auto,
    /// Not pinned.
    Nowhere,
    /// vCPU i on the i-th of these.
    List(CpuList),
}

impl FromStr for PinChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::Nowhere,
            list => Self::List(list.parse().map_err(|why| format!("{why}; auto and none are choices, too"))?),
        })
    }
}

impl PinChoice {
    /// Returns the CPU of each of `vcpus` vCPUs, or none. `usable` are the CPUs that this process may use; `None`: unknown, as in a
    /// simulation.
    ///
    /// # Errors
    /// Exit 2 for a list that is too short, or has a CPU that is not usable.
    pub(crate) fn cpus(&self, vcpus: u64, usable: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        let list = match self {
            Self::Nowhere => return Ok(Vec::new()),
            Self::Auto => return Ok(usable.map_or_else(Vec::new, |usable| chosen(vcpus, usable))),
            Self::List(list) => list,
        };
        if (list.0.len() as u64) < vcpus {
            return Err(Error::usage(
                format!("--pin {list} has fewer CPUs ({}) than there are vCPUs ({vcpus})", list.0.len()),
                "each vCPU needs its own",
                "name more CPUs, or take fewer --vcpus",
            ));
        }
        if let Some(usable) = usable
            && let Some(cpu) = list.0.iter().find(|cpu| !usable.contains(cpu))
        {
            let mut usable = CpuList(usable.to_vec());
            usable.0.sort_unstable();
            return Err(Error::usage(
                format!("--pin {list}: CPU {cpu} is not online, or this process may not use it"),
                "",
                format!("take from {usable}"),
            ));
        }
        Ok(list.0.clone())
    }
}

/// Returns the CPUs of this host that this process may use, if they are known.
pub fn usable(host: &HostFacts) -> Option<Vec<u32>> {
    usable_cpus(host, HostFs::default().text("proc/self/status").as_deref())
}

/// Parses Cpus_allowed from the text of `/proc/self/status` and keeps the online CPUs. The last of each core come last,
/// so that the end of the list has as many cores as it can.
pub fn usable_cpus(host: &HostFacts, status: Option<&str>) -> Option<Vec<u32>> {
    let allowed = status.and_then(|status| status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")));
    let allowed = allowed.and_then(|list| list.parse::<CpuList>().ok());
    let may = |cpu: &u32| allowed.as_ref().is_none_or(|allowed| allowed.0.contains(cpu));
    let mut usable: Vec<u32> = host.online()?.into_iter().filter(may).collect();
    usable.sort_unstable();
    let shares = |cpu: u32| host.tuning.siblings(cpu).into_iter().any(|other| other > cpu && may(&other));
    let (first, last): (Vec<u32>, Vec<u32>) = usable.iter().partition(|&&cpu| shares(cpu));
    Some([first, last].concat())
}

/// Chooses the last CPUs: the first ones take most of a host's interrupts.
fn chosen(vcpus: u64, usable: &[u32]) -> Vec<u32> {
    let vcpus = usize::try_from(vcpus).unwrap_or(usize::MAX);
    if usable.len() < 2 || vcpus > usable.len() { Vec::new() } else { usable[usable.len() - vcpus..].to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_the_last_cpus_where_each_vcpu_has_its_own() {
        let cpus = |vcpus, usable: &[u32]| PinChoice::Auto.cpus(vcpus, Some(usable)).unwrap();
        assert_eq!((cpus(1, &[0, 1]), cpus(2, &[0, 1, 5])), (vec![1], vec![1, 5]));
        assert_eq!((cpus(2, &[2, 3]), cpus(3, &[0, 1]), cpus(1, &[4])), (vec![2, 3], vec![], vec![]));
        assert!(PinChoice::Auto.cpus(1, None).unwrap().is_empty(), "a simulated host has no CPUs of this one");
        assert!(PinChoice::Nowhere.cpus(1, Some(&[0, 1])).unwrap().is_empty());
    }

    #[test]
    fn vcpus_get_cores_of_their_own_before_they_share_one() {
        let mut host = HostFacts { cpus_online: Some("0-7".to_owned()), ..HostFacts::default() };
        host.tuning.smt_siblings = ["0,4", "1,5", "2,6", "3,7"].map(str::to_owned).to_vec();
        assert_eq!(usable_cpus(&host, None).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        host.tuning.smt_siblings = ["0-1", "2-3", "4-5", "6-7"].map(str::to_owned).to_vec();
        assert_eq!(usable_cpus(&host, None).unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
        let status = Some("Name:\tvpmu\nCpus_allowed_list:\t0-2,4\n");
        assert_eq!(usable_cpus(&host, status).unwrap(), [0, 1, 2, 4]);
        assert_eq!(PinChoice::Auto.cpus(3, usable_cpus(&host, status).as_deref()).unwrap(), [1, 2, 4]);
        assert_eq!(usable_cpus(&HostFacts::default(), status), None);
    }
}
