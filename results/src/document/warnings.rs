//! Caveats as data: what a reader should know before trusting a figure.

use super::Counts;
use super::agreement::{Agreement, DOUBTFUL};
use super::arm::{Arm, ArmKind};
use super::envelope::{Document, Tool, Warning};
use super::no_overflows;
pub use super::no_overflows::{LIVELOCK, NO_OVERFLOWS};
use super::parameters::Parameters;
use super::rounds::Round;
use crate::host::noise::Status;
use crate::host::{HostFacts, noise};
use crate::metric::{NMI_HANDLER, ROTATION, SET_UP};
use cpu_list::CpuList;

/// Code of the warning that a run ended before its intervals were as narrow as asked.
pub const UNSURE: &str = "until-ci";
/// Code of the warning that some periods had no overflow of their own, but not nine of ten.
pub const LATE_PERIODS: &str = "late-periods";
/// Code of the warning that a simulated figure is known to a range only.
pub const UNIDENTIFIED: &str = "unidentified";
/// Share of stolen CPU time above which it is worth a warning.
const STEAL: f64 = 0.01;

/// Collects all caveats of a document.
pub fn collect(document: &Document) -> Vec<Warning> {
    let mut found = of_run(&document.tool, &document.host);
    let mut add = |code: &str, message: String| found.push(Warning::of_all(code, message));
    let parameters = &document.parameters;
    let cpus = if document.is_simulated() {
        parameters.cpus.unwrap_or(parameters.vcpus)
    } else {
        document.host.online().map_or(1, |list| list.len() as u64)
    };
    if parameters.vcpus > cpus {
        let vcpus = parameters.vcpus;
        add("overcommit", format!("{vcpus} vCPUs share {cpus} CPUs: latencies hold waiting times"));
    }
    if let Some(message) = document.host.model_percent.and_then(model_off) {
        add("model-off", message);
    }
    if parameters.quick {
        add("quick", "a quick run: its figures are indicative only".to_owned());
    }
    if shares_first_event(document) {
        add(
            "shared-first-event",
            "guests of several strategies were alive at the same time: the cost of the host's first such event and of its last close is \
             in none of their figures; take --guest-rounds 1, unless others hold such an event anyway"
                .to_owned(),
        );
    }
    if !parameters.is_replayed() && document.arms.iter().any(|arm| arm.own.counts.played > 0) {
        add(
            "played",
            "the payload's own instructions are in a played handler: where KVM emulates them it takes several times the guest's; compare \
             differences between arms, not × floor"
                .to_owned(),
        );
    }
    let counts = Agreement::of(document);
    if let Some(share) = [counts.between_arms, counts.between_events]
        .into_iter()
        .flatten()
        .reduce(f64::max)
        .filter(|&share| share > DOUBTFUL)
    {
        let percent = share * 100.0;
        add(
            "counts-differ",
            format!(
                "scaled counts that should agree differ by {percent:.0} %: raise --mux-interval, of which rotations may take much, or --window"
            ),
        );
    }
    if counts.never_counted > 0 {
        let events = counts.never_counted;
        add("not-counted", format!("a counter was never left for {events} of an arm's events: raise --window"));
    }
    // A simulated host has no settings.
    if !parameters.backend.starts_with("sim:") {
        let pinned = document.parameters.pin.as_deref().and_then(|list| list.parse::<CpuList>().ok());
        found.extend(of_settings(&document.host, &pinned.map_or_else(Vec::new, |list| list.0)));
    }
    found.extend(no_overflows::of(document));
    for arm in &document.arms {
        found.extend(of_arm(arm, parameters));
    }
    found
}

/// Says how far choices by a model can be trusted, if it is more than a tenth off what it was made from.
pub fn model_off([low, high]: [u64; 2]) -> Option<String> {
    let off = low < 90 || high > 110;
    off.then(|| {
        format!(
            "the model takes {low} to {high} % of what its runs took: it does not tell strategies apart that are closer"
        )
    })
}

/// Returns whether the first event of this backend costs a host more than another one.
pub fn first_open_is_expensive(backend: &str) -> bool {
    backend == "hardware" || backend.starts_with("tracepoint:")
}

/// Returns whether events of one arm spared another arm the cost of a host's first event.
pub fn shares_first_event(document: &Document) -> bool {
    let arms = document.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy && arm.not_available.is_none());
    document.parameters.rounds_per_guest.is_some_and(|rounds| rounds > 1)
        && arms.filter(|arm| first_open_is_expensive(&arm.backend)).count() > 1
}

/// Warns of what affects the figures of any experiment: the tool's build, what the kernel complained of, and time that a
/// suspension, the hypervisor or a quota took from the run.
pub fn of_run(tool: &Tool, host: &HostFacts) -> Vec<Warning> {
    let mut found = Vec::new();
    if tool.profile != "release" {
        found.push(Warning::of_all("debug-build", "this is a debug build; build with --release for figures"));
    }
    if let Some(lines) = host.complaints.as_ref().filter(|lines| !lines.is_empty()) {
        let message = format!("the host's kernel complained meanwhile: {}", lines.join("; "));
        found.push(Warning::of_all("kernel-log", message));
    }
    if let Some(share) = host.steal_share().filter(|&share| share > STEAL) {
        let percent = share * 100.0;
        let message = format!("the hypervisor took {percent:.1} % of this host's CPU time meanwhile");
        found.push(Warning::of_all("steal", message));
    }
    if let Some((quota, stopped)) = host.quota.and_then(|quota| Some((quota, quota.meanwhile()?)))
        && stopped.throttled > 0
    {
        let message = format!(
            "the CPU quota of the control group ({:.2} CPUs) stopped the measurement in {} of {} periods, for {:.1} s of CPU time",
            quota.cpus,
            stopped.throttled,
            stopped.periods,
            stopped.throttled_us as f64 / 1e6
        );
        found.push(Warning::of_all("cpu-quota", message));
    }
    found
}

/// Warns of what `doctor` finds in the host's settings; steal and a quota are judged by the run's own.
pub fn of_settings(host: &HostFacts, pinned: &[u32]) -> impl Iterator<Item = Warning> {
    noise::findings(host, pinned)
        .into_iter()
        .filter(|finding| finding.status != Status::Ok && !["steal", "CPU quota"].contains(&finding.check))
        .map(|finding| Warning {
            code: finding.check.to_lowercase().replace(' ', "-"),
            arm: None,
            message: format!("{}: {}; {}", finding.check, finding.found, finding.why),
            remedy: Some(finding.remedy),
        })
}

/// A count that should be 0, its code, and what it means.
type Caveat = (u64, &'static str, String);

fn of_arm(arm: &Arm, parameters: &Parameters) -> Vec<Warning> {
    let mut caveats = of_rounds(arm, parameters);
    caveats.extend(of_guest(arm, parameters));
    caveats.extend(of_linux(arm));
    caveats.push(of_replay(arm));
    caveats.extend(of_host(arm));
    caveats
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(_, code, message)| Warning { code: code.to_owned(), arm: Some(arm.name.clone()), message, remedy: None })
        .collect()
}

fn of_rounds(arm: &Arm, parameters: &Parameters) -> Vec<Caveat> {
    let rounds = arm.rounds.len();
    let count = |wanted: &dyn Fn(Round) -> bool| arm.rounds.iter().filter(|round| wanted(*round)).count() as u64;
    let broken = count(&|round| !round.complete);
    let is_short = |round: Round| round.complete && measured(arm, round.at, parameters) < parameters.samples;
    // A part of a trace has what it has.
    let short = if parameters.is_replayed() { 0 } else { count(&is_short) };
    let (left_out, reason) = (arm.left_out.len() as u64, |all: &[String]| all.first().cloned().unwrap_or_default());
    let broken = if left_out > 0 { 0 } else { broken };
    vec![
        (broken, "incomplete", format!("{broken} of {rounds} rounds are incomplete: {}", reason(&arm.incomplete))),
        (
            left_out,
            "left-out",
            format!(
                "{} not whole and left out, beside {rounds} rounds: {}",
                counted(left_out, "turn is", "turns are"),
                reason(&arm.left_out)
            ),
        ),
        (short, "fewer-samples", format!("--time-limit ended {short} of {rounds} rounds before --samples was reached")),
    ]
}

/// Formats a count of something, with its verb.
fn counted(count: u64, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

fn of_linux(arm: &Arm) -> Vec<Caveat> {
    let Some(linux) = &arm.own.linux else { return Vec::new() };
    let (complaints, complained) = (linux.complaints, linux.complained.join("; "));
    let lost = linux.records("LOST").saturating_add(linux.records("LOST_SAMPLES"));
    let throttled = linux.records("THROTTLE");
    let trace = linux.trace_lost;
    vec![
        (complaints, "guest-complaints", format!("the guests' kernel complained: {complained}")),
        (lost, "guest-lost-samples", format!("perf in the guest lost samples ({lost} records)")),
        (
            throttled,
            "guest-throttled",
            format!("the guest's perf throttled sampling {throttled} times: raise --period"),
        ),
        (trace, "trace-full", format!("{trace} entries did not fit the guest's trace: take fewer --samples")),
    ]
}

/// Code of a warning: what a trace's guest read, a replay's reads otherwise.
pub const READ_OTHERWISE: &str = "read-otherwise";

/// Says how a replay differs from its trace.
fn of_replay(arm: &Arm) -> Caveat {
    let Counts { played, pmis_absent, counters_otherwise, values_otherwise, .. } = arm.own.counts;
    let first = arm.own.first_otherwise.as_deref().unwrap_or("not noted in a replay");
    (
        pmis_absent + values_otherwise,
        READ_OTHERWISE,
        format!(
            "of {played} accesses {values_otherwise} read another value than the trace has, and {counters_otherwise} another count, which is this \
             run's own; {pmis_absent} PMIs of it did not come; the first: {first}"
        ),
    )
}

fn of_guest(arm: &Arm, parameters: &Parameters) -> Vec<Caveat> {
    let more = arm.own.counts.surplus;
    let fewer = arm.own.lost.unwrap_or(0).saturating_sub(more);
    let unseen = arm.own.overflows_lost.unwrap_or(0);
    let missed = arm.own.counts.periods_missed;
    // A handler of AMD's finds overflows whose NMIs come behind it, as on hardware; Linux expects them.
    let unknown = if parameters.has_amd() { 0 } else { arm.own.counts.nmis_without_status };
    let dropped = arm.own.counts.log_dropped;
    let invalid = arm.own.counts.log_invalid;
    // KVM's own vPMU reports no deliveries.
    let unmatched = if arm.kind == ArmKind::Kvm { 0 } else { arm.own.counts.delivery_unmatched };
    let negative = arm.own.counts.delivery_negative;
    vec![
        (
            fewer,
            "lost-nmis",
            format!("{} delivered but not taken by the guest", counted(fewer, "NMI was", "NMIs were")),
        ),
        (more, "surplus-nmis", format!("the guest took {} more than delivered", counted(more, "NMI", "NMIs"))),
        (unseen, "lost-overflows", format!("VMM and guest differ by {unseen} overflows")),
        (
            missed,
            if arm.own.mostly_missed() > 0 { "missed-periods" } else { LATE_PERIODS },
            format!(
                "{missed} of {} counted without an overflow of their own: the host reported it late or never, or --period is too short for \
                 the handling of one",
                counted(missed.saturating_add(arm.own.counts.guest_overflows), "period was", "periods were")
            ),
        ),
        (unknown, "unknown-nmis", format!("{unknown} NMIs found no overflow in GLOBAL_STATUS")),
        (dropped, "log-full", format!("the guest's log was full: {dropped} entries are not in the figures")),
        (invalid, "log-invalid", format!("{invalid} log entries make no sense and are not in the figures")),
        (
            unmatched,
            "delivery-unmatched",
            format!(
                "deliveries of {unmatched} vCPU runs do not match handler entries; \
                 their delivery latency is left out"
            ),
        ),
        (
            negative,
            "delivery-negative",
            format!("{negative} handler entries precede their delivery: the TSC offset is off"),
        ),
    ]
}

fn of_host(arm: &Arm) -> Vec<Caveat> {
    let undeliverable = arm.own.counts.undeliverable;
    let pinned = arm.own.counts.pinned_errors;
    let throttled = arm.own.counts.throttled;
    let Counts { blind, ungated, .. } = arm.own.counts;
    let failed = arm.own.counts.failed_opens;
    let refused = arm.own.counts.refused_periods;
    let off = if arm.kind == ArmKind::Kvm { arm.own.counts.empty_kicks } else { 0 };
    let error = arm.own.last_error.as_deref().unwrap_or("no error text");
    vec![
        (
            undeliverable,
            "undeliverable",
            format!("{undeliverable} PMIs had an LVTPC delivery mode this VMM does not know"),
        ),
        (
            pinned,
            "pinned-errors",
            format!("{pinned} times the host had no counter for a pinned event: counts are too low ({error})"),
        ),
        (
            throttled,
            "throttled",
            format!("the host throttled sampling {throttled} times: overflows are missing; raise --period"),
        ),
        (
            blind,
            "records-unseen",
            format!(
                "the host's records of events did not reach the VMM in {}: throttling cannot be seen there, and each signal costs a `read` of \
                 every running event",
                counted(blind, "run of a vCPU", "runs of a vCPU")
            ),
        ),
        (
            ungated,
            "gate-lost",
            format!(
                "the gate fell apart to single events in {}, as its events got no counters together: the arm is no gate there",
                counted(ungated, "run of a vCPU", "runs of a vCPU")
            ),
        ),
        (
            off,
            "dropped-overflows",
            format!("{off} overflows came while their counter was off, and KVM was not told of them"),
        ),
        (failed, "failed-opens", format!("{failed} host events did not open ({error}): their counters did not count")),
        (refused, "refused-periods", format!("the host refused {refused} periods; their events were opened anew")),
    ]
}

/// Samples of a round per vCPU.
fn measured(arm: &Arm, at: usize, parameters: &Parameters) -> u64 {
    let count = |metric| arm.rounds.metric(metric, at).map_or(0, |summary| summary.count);
    let all = if parameters.samples_events() {
        // The log may be full before the target is reached; NMIs are counted regardless.
        arm.rounds.counts.nmis.get(at).copied().unwrap_or(0).max(count(&NMI_HANDLER))
    } else {
        count(&ROTATION).max(count(&SET_UP))
    };
    all / parameters.vcpus.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::host::{CpuTime, Quota, Throttling};

    fn codes(change: impl FnOnce(&mut Document)) -> Vec<String> {
        let mut document = fixture::document(2);
        document.tool.profile = "release".to_owned();
        document.host.loadavg_1m = Some(0.1);
        document.host.virtualized = false;
        change(&mut document);
        collect(&document).into_iter().map(|w| w.code).collect()
    }

    #[test]
    fn a_clean_result_has_no_caveat() {
        assert!(codes(|_| {}).is_empty());
    }

    #[test]
    fn what_doctor_finds_in_a_host_is_in_its_results_with_the_remedy() {
        let found = codes(|document| {
            document.host.virtualized = true;
            document.host.tuning.halt_poll_ns = Some(200_000);
            document.host.governor = Some("powersave".to_owned());
        });
        assert_eq!(found, ["governor", "virtualized", "halt_poll_ns"]);
        let mut document = fixture::document(10);
        let warnings = collect(&document);
        let load = warnings.iter().find(|warning| warning.code == "load").unwrap();
        assert!(load.remedy.as_deref().is_some_and(|remedy| remedy.contains("--pin")), "{load:?}");
        document.parameters.backend = "sim:icx-2021".to_owned();
        assert!(collect(&document).iter().all(|warning| warning.remedy.is_none()), "a simulated host has no settings");
    }

    #[test]
    fn strategies_that_spared_each_other_the_first_event_are_named() {
        let of = |backend: &str, rounds_per_guest: Option<u64>| {
            codes(|document| {
                document.parameters.rounds_per_guest = rounds_per_guest;
                for arm in document.arms.iter_mut().filter(|arm| arm.kind == ArmKind::Strategy) {
                    arm.backend = backend.to_owned();
                }
            })
        };
        for dear in ["hardware", "tracepoint:kvm/kvm_exit"] {
            assert_eq!(of(dear, Some(20)), ["shared-first-event"]);
            assert!(of(dear, None).is_empty());
        }
        assert!(of("cpu-clock", Some(20)).is_empty());
    }

    #[test]
    fn missed_periods_are_of_all_that_were_counted() {
        let mut document = fixture::document(2);
        for (overflows, code, shown) in [(985, "missed-periods", true), (2_100, LATE_PERIODS, false)] {
            let arm = &mut document.arms[0];
            (arm.own.counts.periods_missed, arm.own.counts.guest_overflows) = (18_663, overflows);
            let all = collect(&document);
            let line = &all.iter().find(|warning| warning.code == code).unwrap().message;
            assert!(line.starts_with(&format!("18663 of {} periods were counted", 18_663 + overflows)), "{line}");
            assert_eq!(crate::table::warnings(&all).any(|one| one.contains("periods were counted")), shown);
        }
    }

    #[test]
    fn whatever_may_make_a_count_wrong_is_reported() {
        let found = codes(|document| {
            document.tool.profile = "debug".to_owned();
            document.host.loadavg_1m = Some(9.0);
            document.host.steal_before = Some(CpuTime { steal: 0, total: 0 });
            document.host.steal_after = Some(CpuTime { steal: 5, total: 100 });
            let throttled = |throttled| Throttling { periods: 10 + throttled, throttled, throttled_us: 100_000 };
            document.host.quota = Some(Quota { cpus: 0.1, before: throttled(3), after: Some(throttled(4)) });
            document.host.complaints = Some(vec!["perf: interrupt took too long".to_owned()]);
            document.parameters.vcpus = 4;
            let arm = &mut document.arms[0];
            for n in [
                &mut arm.own.counts.nmis_without_status,
                &mut arm.own.counts.periods_missed,
                &mut arm.own.counts.undeliverable,
                &mut arm.own.counts.log_dropped,
                &mut arm.own.counts.log_invalid,
                &mut arm.own.counts.delivery_unmatched,
                &mut arm.own.counts.delivery_negative,
                &mut arm.own.counts.pinned_errors,
                &mut arm.own.counts.throttled,
                &mut arm.own.counts.blind,
                &mut arm.own.counts.ungated,
                &mut arm.own.counts.failed_opens,
                &mut arm.own.counts.refused_periods,
            ] {
                *n = 1;
            }
            let linux = arm.own.linux.insert(crate::document::LinuxArm::default());
            (linux.complaints, linux.trace_lost) = (1, 1);
            linux.perf_records = ["LOST", "THROTTLE"].map(|kind| (kind.to_owned(), 1)).into();
            (arm.own.lost, arm.own.counts.surplus) = (Some(2), 2);
            arm.rounds.complete[0] = false;
            document.arms[1].own.lost = Some(2);
        });
        // Each has a code of its own.
        assert_eq!(found.iter().collect::<std::collections::BTreeSet<_>>().len(), 27, "{found:?}");
    }
}
