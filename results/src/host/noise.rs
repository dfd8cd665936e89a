//! Finds noise sources on this host: settings and other users of its CPUs, from facts alone. `doctor` and the warnings
//! of every result show these findings.

use serde::Serialize;

use super::facts::HostFacts;

/// Leaving an idle state that takes longer than this shows among handler latencies of tens of µs.
const DEEP_IDLE_US: u64 = 10;
/// Samples a second a guest may want: ten events at 1 kHz each.
const SAMPLES_WANTED: i64 = 10_000;

/// A line a check, here and of the doctor: its name, why it matters, and the command or what else helps.
const CHECKS: &str = include_str!("checks.txt");

/// Returns every finding. `pinned` are the CPUs the vCPUs are pinned to; empty: none.
///
/// Facts that the host does not tell are "unknown" and give no warning.
pub fn findings(host: &HostFacts, pinned: &[u32]) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut add = |check: &'static str, good: bool, found: String| {
        all.push(Finding::of(check, Status::warn_unless(good), found));
    };
    let known = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
    let on_off = |value: Option<bool>| known(value.map(|on| if on { "on" } else { "off" }));
    let (tuning, idle) = (&host.tuning, host.tuning.deepest_idle.as_ref());
    let cpus = host.online().map_or(1, |online| online.len().max(1));

    add("governor", host.governor.as_deref().is_none_or(|g| g == "performance"), known(host.governor.as_deref()));
    add("turbo", host.turbo != Some(true), on_off(host.turbo));
    let down = idle.map(|state| format!("down to {}, {} µs to leave", state.name, state.exit_latency_us));
    let shallow = idle.is_none_or(|state| state.exit_latency_us <= DEEP_IDLE_US);
    add("C-states", shallow, down.unwrap_or_else(|| "unknown, or left to the hypervisor".to_owned()));
    let (invariant, source) = (host.invariant_tsc, host.clocksource.as_deref());
    let rate = if invariant { "invariant" } else { "not invariant" };
    add("TSC", invariant && source.is_none_or(|c| c == "tsc"), format!("{rate}, clock source {}", known(source)));

    let place = if host.virtualized { "this host is itself a guest" } else { "bare metal" };
    add("virtualized", !host.virtualized, place.to_owned());
    let load = host.loadavg_1m.map(|load| format!("{load:.2} on {cpus} CPUs"));
    // Half a CPU of foreign load per CPU already shares cores with the vCPU now and then.
    add("load", host.loadavg_1m.is_none_or(|load| load < 0.5 * cpus as f64), known(load.as_deref()));
    let steal = host.steal_before.filter(|t| t.total > 0).map_or(0.0, |t| t.steal as f64 / t.total as f64);
    add("steal", steal < 0.001, format!("{:.2} % of CPU time since boot", steal * 100.0));
    let quota = host.quota.map(|quota| format!("{:.2} CPUs of the control group", quota.cpus));
    add("CPU quota", quota.is_none(), quota.unwrap_or_else(|| "none".to_owned()));
    let shared = host.smt.as_deref() == Some("on") && !tuning.smt_siblings.is_empty() && pinned.is_empty();
    let alone = known(host.smt.as_deref());
    add("SMT", !shared, if shared { alone + ", and vCPUs are not pinned: any may get a busy sibling" } else { alone });

    let watchdog = match (host.nmi_watchdog, host.hardware_pmu) {
        (Some(true), true) => "on: it holds a hardware counter of each CPU, so a further event is cheap",
        (Some(false), true) => "off: a guest's hardware event is the host's only one, and costly to create",
        (Some(_), false) => "without effect: there is no hardware PMU",
        (None, _) => "unknown",
    };
    add("NMI watchdog", !(host.hardware_pmu && host.nmi_watchdog == Some(true)), watchdog.to_owned());
    add("huge pages", tuning.thp.as_deref() != Some("always"), known(tuning.thp.as_deref()));
    add("KSM", tuning.ksm != Some(true), on_off(tuning.ksm));
    add("NUMA balancing", tuning.numa_balancing != Some(true), on_off(tuning.numa_balancing));
    let poll = tuning.halt_poll_ns.map(|ns| ns.to_string());
    add("halt_poll_ns", tuning.halt_poll_ns.is_none_or(|ns| ns == 0), known(poll.as_deref()));
    let rate = host.perf_max_sample_rate.map(|rate| format!("{rate} a second"));
    let enough = host.perf_max_sample_rate.is_none_or(|rate| rate >= SAMPLES_WANTED);
    add("perf sample rate", enough, known(rate.as_deref()));
    // Raw events of a thread are those of the P-cores' PMU, so on an E-core they count nothing, and say nothing.
    if host.perf_pmus.iter().any(|pmu| pmu == "cpu_atom") {
        let kinds = "cores of two kinds, each with a PMU of its own (cpu_core, cpu_atom)";
        add("hybrid processor", false, kinds.to_owned());
    }
    all
}

/// Returns the load of other work before or after a measurement, if it is enough to share CPUs with it.
pub fn load(before: &HostFacts, mut after: HostFacts) -> Option<String> {
    // The measurement itself, a guest at a time, is a load of one.
    after.loadavg_1m = after.loadavg_1m.map(|load| (load - 1.0).max(0.0));
    let busy = |finding: &Finding| finding.check == "load" && finding.status != Status::Ok;
    [before, &after]
        .into_iter()
        .find_map(|host| findings(host, &[]).into_iter().find(busy))
        .map(|finding| finding.found)
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Fine.
    Ok,
    /// It works, but the figures or the choice suffer.
    Warn,
    /// Something does not work at all.
    Missing,
}

impl Status {
    /// Creates a warning unless `ok`.
    pub const fn warn_unless(ok: bool) -> Self {
        if ok { Self::Ok } else { Self::Warn }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// Subject of the check.
    pub check: &'static str,
    /// Outcome of the check.
    pub status: Status,
    /// Fact that was found.
    pub found: String,
    /// Reason why it matters.
    pub why: &'static str,
    /// Remedy; empty if nothing needs doing.
    pub remedy: String,
}

impl Finding {
    /// Creates a finding, with why it matters and what helps by its check. The remedy is dropped where all is fine.
    pub fn of(check: &'static str, status: Status, found: impl Into<String>) -> Self {
        let about = CHECKS.lines().find_map(|line| line.strip_prefix(check)?.strip_prefix(" | ")).unwrap_or_default();
        let (why, helps) = about.split_once(" | ").unwrap_or((about, ""));
        Self { check, status, found: found.into(), why, remedy: String::new() }.mended_by(helps)
    }

    /// Gives it another remedy, where not all is fine.
    #[must_use]
    pub fn mended_by(self, remedy: impl Into<String>) -> Self {
        if self.status == Status::Ok { self } else { Self { remedy: remedy.into(), ..self } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{IdleState, Quota};
    use crate::hosts::{CASCADE_LAKE, PVM, tree};

    fn cascade_lake(change: impl FnOnce(&mut HostFacts)) -> HostFacts {
        let (_dir, fs) = tree(&CASCADE_LAKE);
        let mut host = HostFacts::read(&fs);
        host.nmi_watchdog = Some(false);
        host.kernel = Some("6.1.0-50-amd64".to_owned());
        change(&mut host);
        host
    }

    fn warned(host: &HostFacts, pinned: &[u32]) -> Vec<&'static str> {
        let findings = findings(host, pinned);
        for finding in &findings {
            assert!(!finding.found.is_empty() && !finding.why.is_empty(), "{finding:?}");
            assert_eq!(finding.remedy.is_empty(), finding.status == Status::Ok, "{finding:?}");
        }
        findings.iter().filter(|f| f.status == Status::Warn).map(|f| f.check).collect()
    }

    #[test]
    fn a_well_tuned_host_has_no_finding_and_a_silent_one_none_but_its_clock() {
        assert!(warned(&cascade_lake(|_| {}), &[]).is_empty());
        assert_eq!(warned(&HostFacts::default(), &[]), ["TSC"]);
    }

    #[test]
    fn each_setting_that_spoils_a_measurement_is_found() {
        type Change = fn(&mut HostFacts);
        let cases: [(&str, Change); 15] = [
            ("SMT", |host| host.tuning.smt_siblings = vec!["0,40".to_owned()]),
            ("hybrid processor", |host| host.perf_pmus = ["cpu_atom", "cpu_core"].map(str::to_owned).to_vec()),
            ("governor", |host| host.governor = Some("performance, powersave".to_owned())),
            ("turbo", |host| host.turbo = Some(true)),
            ("C-states", |host| {
                host.tuning.deepest_idle = Some(IdleState { name: "C6".to_owned(), exit_latency_us: 133 });
            }),
            ("TSC", |host| host.clocksource = Some("hpet".to_owned())),
            ("virtualized", |host| host.virtualized = true),
            ("load", |host| host.loadavg_1m = Some(45.0)),
            ("CPU quota", |host| {
                host.quota = Some(Quota { cpus: 0.1, stopped_us_before: 0, stopped_us_after: None });
            }),
            ("NMI watchdog", |host| host.nmi_watchdog = Some(true)),
            ("huge pages", |host| host.tuning.thp = Some("always".to_owned())),
            ("KSM", |host| host.tuning.ksm = Some(true)),
            ("NUMA balancing", |host| host.tuning.numa_balancing = Some(true)),
            ("halt_poll_ns", |host| host.tuning.halt_poll_ns = Some(200_000)),
            ("perf sample rate", |host| host.perf_max_sample_rate = Some(5000)),
        ];
        for (check, change) in cases {
            assert_eq!(warned(&cascade_lake(change), &[]), [check]);
        }
        let siblings = |host: &mut HostFacts| host.tuning.smt_siblings = vec!["0,40".to_owned()];
        assert!(warned(&cascade_lake(siblings), &[0]).is_empty());
        let (_dir, fs) = tree(&PVM);
        assert!(warned(&HostFacts::read(&fs), &[]).contains(&"steal"));
    }
}
