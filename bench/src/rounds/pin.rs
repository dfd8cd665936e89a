//! The host CPUs of a guest's vCPUs.

use std::fmt;
use std::str::FromStr;

use cpu_list::CpuList;
use results::error::Error;

/// What `--pin` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinChoice {
    /// Pinned where the host has more than one CPU and each vCPU can have its own: neighbouring slices then share more of what
    /// a CPU's throughput does.
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
            list => Self::List(list.parse()?),
        })
    }
}

impl fmt::Display for PinChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Nowhere => f.write_str("none"),
            Self::List(list) => list.fmt(f),
        }
    }
}

impl PinChoice {
    /// The CPU of each of `vcpus` vCPUs, or none. `usable` are the CPUs that this process may use; `None`: unknown, as in a
    /// simulation.
    ///
    /// # Errors
    /// Exit 2 for a list that is too short, or has a CPU that is not usable.
    pub(super) fn cpus(&self, vcpus: u64, usable: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        let list = match self {
            Self::Nowhere => return Ok(Vec::new()),
            Self::Auto => return Ok(usable.map_or_else(Vec::new, |usable| chosen(vcpus, usable))),
            Self::List(list) => list,
        };
        if (list.0.len() as u64) < vcpus {
            return Err(Error::usage(
                format!("--pin {list} has {} CPUs for {vcpus} vCPUs", list.0.len()),
                "each vCPU needs its own",
                "name more CPUs, or take fewer --vcpus",
            ));
        }
        if let Some(usable) = usable
            && let Some(cpu) = list.0.iter().find(|cpu| !usable.contains(cpu))
        {
            let usable = CpuList(usable.to_vec());
            return Err(Error::usage(
                format!("--pin {list}: CPU {cpu} is not online, or this process may not use it"),
                "",
                format!("take from {usable}"),
            ));
        }
        Ok(list.0.clone())
    }
}

/// The last CPUs: the first ones take most of a host's interrupts.
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
    fn words_and_lists_are_read_and_shown() {
        for text in ["auto", "none", "2-3,5"] {
            assert_eq!(text.parse::<PinChoice>().unwrap().to_string(), text);
        }
        assert!("nowhere".parse::<PinChoice>().is_err());
    }
}
