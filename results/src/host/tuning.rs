//! Tuning of the host: settings that make a measurement noisy, or another one than the reader thinks, and its cores.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fs::HostFs;
use cpu_list::CpuList;

/// Settings, and which CPUs share a core. `None` or empty: the host does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tuning {
    /// Transparent huge pages: always, madvise or never.
    pub thp: Option<String>,
    /// True if the kernel moves pages between NUMA nodes, with page faults to find out.
    pub numa_balancing: Option<bool>,
    /// True if KSM merges equal pages, which makes the guest's writes fault.
    pub ksm: Option<bool>,
    /// `kvm.halt_poll_ns`: how long KVM polls at most before a halted vCPU's thread sleeps.
    pub halt_poll_ns: Option<u64>,
    /// The deepest idle state of CPU 0 that is enabled.
    pub deepest_idle: Option<IdleState>,
    /// CPUs that share a core, a list per core, e.g. "0,40"; cores with one thread are left out.
    pub smt_siblings: Vec<String>,
}

/// A CPU's idle state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleState {
    /// Its name, e.g. C6.
    pub name: String,
    /// Time it takes to leave it, µs.
    pub exit_latency_us: u64,
}

/// CPU time since boot of all CPUs together, in clock ticks of 1/100 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    /// Stolen.
    pub steal: u64,
    /// All states together, stolen included.
    pub total: u64,
}

impl Tuning {
    /// Reads every setting that was not read at its begin.
    pub(super) fn read(fs: &HostFs, begun: Self) -> Self {
        let flag = |path: &str| fs.number(path).map(|n| n != 0);
        Self {
            thp: fs.text("sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(selected),
            numa_balancing: flag("proc/sys/kernel/numa_balancing"),
            // 2 is "stop, and unmerge".
            ksm: fs.number("sys/kernel/mm/ksm/run").map(|n| n == 1),
            halt_poll_ns: fs.number("sys/module/kvm/parameters/halt_poll_ns").and_then(|n| n.try_into().ok()),
            deepest_idle: deepest_idle(fs),
            ..begun
        }
    }

    /// Returns whether the host reports nothing.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the CPUs that share a core with `cpu`, without itself.
    pub fn siblings(&self, cpu: u32) -> Vec<u32> {
        self.smt_siblings
            .iter()
            .filter_map(|list| list.parse::<CpuList>().ok())
            .find(|list| list.0.contains(&cpu))
            .map_or_else(Vec::new, |list| list.0.into_iter().filter(|&other| other != cpu).collect())
    }
}

/// Returns the word in brackets, as sysfs shows which of several is selected.
fn selected(text: &str) -> Option<String> {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(word.to_owned())
}

fn deepest_idle(fs: &HostFs) -> Option<IdleState> {
    let dir = "sys/devices/system/cpu/cpu0/cpuidle";
    let number = |state: &str, file| fs.number(&format!("{dir}/{state}/{file}"));
    let enabled = fs.each(dir, "/name").filter(|(state, _)| number(state, "disable") != Some(1));
    let states = enabled.filter_map(|(state, name)| {
        Some(IdleState { name, exit_latency_us: number(&state, "latency")?.try_into().ok()? })
    });
    states.max_by_key(|state| state.exit_latency_us)
}

pub(super) fn smt_siblings(fs: &HostFs) -> Vec<String> {
    let lists = fs.each("sys/devices/system/cpu", "/topology/thread_siblings_list").map(|(_, list)| list);
    let several = lists.filter(|list| list.parse::<CpuList>().is_ok_and(|cpus| cpus.0.len() > 1));
    several.collect::<BTreeSet<String>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostFacts;
    use crate::hosts::tree;

    const CPU: &str = "sys/devices/system/cpu";

    #[test]
    fn settings_are_read_as_the_kernel_writes_them() {
        let idle = |state: &str, file: &str| format!("{CPU}/cpu0/cpuidle/{state}/{file}");
        let owned = [
            (format!("{CPU}/online"), "0-3\n"),
            (format!("{CPU}/cpu0/topology/thread_siblings_list"), "0,2\n"),
            (format!("{CPU}/cpu1/topology/thread_siblings_list"), "1\n"),
            (format!("{CPU}/cpu2/topology/thread_siblings_list"), "0,2\n"),
            (idle("state0", "name"), "POLL\n"),
            (idle("state0", "latency"), "0\n"),
            (idle("state1", "name"), "C1\n"),
            (idle("state1", "latency"), "2\n"),
            (idle("state2", "name"), "C6\n"),
            (idle("state2", "latency"), "133\n"),
            (idle("state2", "disable"), "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled".to_owned(), "always [madvise] never\n"),
            ("sys/kernel/mm/ksm/run".to_owned(), "1\n"),
            ("proc/sys/kernel/numa_balancing".to_owned(), "0\n"),
            ("sys/module/kvm/parameters/halt_poll_ns".to_owned(), "200000\n"),
        ];
        let files: Vec<(&str, &str)> = owned.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_dir, fs) = tree(&files);
        let tuning = HostFacts::read(&fs).tuning;
        assert_eq!((tuning.thp.as_deref(), tuning.halt_poll_ns), (Some("madvise"), Some(200_000)));
        assert_eq!((tuning.ksm, tuning.numa_balancing), (Some(true), Some(false)));
        assert_eq!(tuning.deepest_idle, Some(IdleState { name: "C1".to_owned(), exit_latency_us: 2 }));
        assert_eq!(tuning.smt_siblings, ["0,2"]);
        assert_eq!((tuning.siblings(2), tuning.siblings(1)), (vec![0], vec![]));
    }
}
