//! Options that every comparison of arms takes, whatever its guest does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cpu_list::CpuList;
use host_pmu::backend::BackendKey;
use results::error::Error;
use results::host::HostFacts;
use vmm::machine::Cpu;

use crate::setting::backend::BackendChoice;
use crate::setting::parse::{duration_in, number_in, pmu_version, processor, share};
use crate::setting::strategy::StrategyChoice;

/// Most vCPUs a payload has room for; KVM's own limit is checked when the VM is made.
const MAX_VCPUS: u64 = guest::abi::MAX_VCPUS as u64;
/// Rounds of an experiment that something else ends: the duration, or the width of its intervals.
pub const OPEN_ENDED: u64 = 1_000_000;
/// Rounds by default.
const ROUNDS: u64 = 240;
/// Bound by default on a run whose rounds are not given.
const LONGEST: Duration = Duration::from_secs(36);
/// Bound on a run that ends when its figures are sure.
const LONGEST_SURE: Duration = Duration::from_secs(600);
/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 24;
/// Its bound.
const LONGEST_QUICK: Duration = Duration::from_secs(5);

/// Arms, guest and rounds of a comparison, on a real or a simulated host.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ArmsOptions {
    /// Strategies to compare: preset names or .toml files
    ///
    /// `vpmu show strategies` lists the presets. The floor (the same guest without host events) is always added. mediated and
    /// mediated-filter are models: of simulated guests only.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "recreate,reuse,reuse-lazy",
        help_heading = "Comparison"
    )]
    pub strategy: Vec<StrategyChoice>,

    /// The guest's tick: rotation of multiplexed events, task switches
    #[arg(long, value_name = "TIME", default_value = "4ms", help_heading = "Guest",
          value_parser = duration_in(Duration::from_micros(100)..=Duration::from_secs(10)))]
    pub mux_interval: Duration,

    /// Virtual CPUs, a thread and a vPMU each
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=MAX_VCPUS), help_heading = "Guest")]
    pub vcpus: u64,

    /// Architectural PMU version of the guest: 2, as KVM's, or 4, as Cascade Lake's
    #[arg(long, value_name = "N", default_value = "2", value_parser = pmu_version, help_heading = "Guest")]
    pub pmu_version: u64,

    /// Rounds that count; every arm runs once in each [default: 240, or as many as 36s allow]
    #[arg(long, value_name = "N", value_parser = number_in(1..=100_000), help_heading = "Rounds")]
    pub rounds: Option<u64>,

    /// Rounds before those, with fewer samples, of each guest that lives on; their figures are discarded
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=1000), help_heading = "Rounds")]
    pub warmup: u64,

    /// NMIs per arm, round and vCPU (rotations, if the workload only counts)
    #[arg(long, value_name = "N", default_value = "25", value_parser = number_in(1..=1_000_000), help_heading = "Rounds")]
    pub samples: u64,

    /// A guest's measured phase ends after this time, even with fewer samples
    #[arg(long, value_name = "TIME", default_value = "1100ms", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(3600)))]
    pub time_limit: Duration,

    /// Bound on the whole run: it ends after the round in which this time passes
    ///
    /// Only whole rounds count, so the result is complete, with fewer rounds. In a simulation it is the simulated guests' time.
    #[arg(long, value_name = "TIME", help_heading = "Rounds",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)))]
    pub duration: Option<Duration>,

    /// Seed of the order of arms within each round, and of simulated hosts
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(0..=u64::MAX), help_heading = "Rounds")]
    pub seed: u64,
}

/// Returns the help of `--backend`.
fn backends() -> String {
    format!(
        "Event source behind the guest's counters\n\nauto, {}, cpu-clock:RATE (as 20MHz), tracepoint:GROUP/NAME or sim:MODEL (`vpmu show models`). auto takes \
         hardware where the host has a PMU, else cpu-clock, a stand-in, else a simulation; `vpmu doctor` says which and why.",
        BackendKey::PLAIN.join(", ")
    )
}

/// The host that a comparison runs on, and the guest's processor, of which a simulation has no choice.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Host")]
pub struct HostOptions {
    /// Event source behind the guest's counters
    #[arg(long, value_name = "KEY", default_value = "auto", long_help = backends())]
    pub backend: BackendChoice,

    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none
    ///
    /// auto takes the last CPUs that this process may use, one for each vCPU, where there is more than one.
    #[arg(long, value_name = "CPULIST", default_value = "auto")]
    pub pin: PinChoice,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,

    /// Processor of the guest, Linux or payload
    #[arg(long, value_name = "MODEL", default_value = "clx", value_parser = processor(), help_heading = "Guest")]
    pub cpu: Cpu,
}

/// The end of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Rounds")]
pub struct LengthOptions {
    /// A few seconds; the figures are indicative only
    #[arg(long, conflicts_with_all = ["rounds", "duration", "until_ci"])]
    pub quick: bool,

    /// End when each ratio's 95 % interval is at most this wide to either side, e.g. 2%
    ///
    /// Judged are the ratios of the first table: of strategies to one another (of more than three: to the one before) and to the
    /// floor, at two looks in a row, the first after ten guests an arm. Without --rounds or --duration it gives up after ten minutes.
    /// Exit 3 if it is not reached.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub until_ci: Option<f64>,

    /// Rounds in which an arm's guest lives on before a fresh one replaces it [default: 20, or 1]
    ///
    /// 1 is the default of hardware events and tracepoints: the first one of a host and the last close may take tens of ms, which
    /// guests that live at the same time spare each other. Where others hold such an event anyway, as the NMI watchdog does, more
    /// rounds per guest make the intervals narrower.
    #[arg(long, value_name = "N", value_parser = number_in(1..=10_000))]
    pub guest_rounds: Option<u64>,
}

impl LengthOptions {
    /// Returns the number of rounds, and the bound on the whole run. Rounds that are asked for are not cut short.
    pub(super) fn rounds(&self, arms: &ArmsOptions) -> (u64, Option<Duration>) {
        let (rounds, longest) = match (self.quick, self.until_ci, arms.duration) {
            (true, ..) => (QUICK_ROUNDS, LONGEST_QUICK),
            (false, _, Some(duration)) => (OPEN_ENDED, duration),
            (false, Some(_), None) => (OPEN_ENDED, LONGEST_SURE),
            (false, None, None) => (ROUNDS, LONGEST),
        };
        (arms.rounds.unwrap_or(rounds), arms.duration.or_else(|| arms.rounds.is_none().then_some(longest)))
    }
}

/// Meaning of `--pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinChoice {
    /// Pinned where the host has more than one CPU and each vCPU can have its own: neighbouring turns then share more of the changes of a
    /// CPU's throughput.
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
                format!("--pin {list} has {} CPUs for {vcpus} vCPUs", list.0.len()),
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

/// Parses Cpus_allowed from the text of `/proc/self/status` and keeps the online CPUs. The last of each core come last, so that the end of
/// the list has as many cores as it can.
#[must_use]
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

    #[test]
    fn words_and_lists_are_read_and_shown() {
        for text in ["auto", "none", "2-3,5"] {
            assert_eq!(text.parse::<PinChoice>().unwrap().to_string(), text);
        }
        assert!("nowhere".parse::<PinChoice>().unwrap_err().ends_with("auto and none are choices, too"));
    }
}
