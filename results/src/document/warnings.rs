//! Caveats as data: what a reader should know before trusting a figure.

use super::arm::{Arm, ArmKind};
use super::envelope::{Document, Tool, Warning};
use super::guest::EventCount;
use super::parameters::Parameters;
use super::rounds::Round;
use super::summary::Summary;
use crate::error::Error;
use crate::host::noise::Status;
use crate::host::{HostFacts, noise};
use crate::metric::{NMI_HANDLER, ROTATION, SET_UP};
use crate::template;
use cpu_list::CpuList;
use minijinja::context;
use minijinja::value::Serde;
use serde_json::Value;

/// Code of the warning that a run ended before its intervals were as narrow as asked.
pub const UNSURE: &str = "until-ci";
/// Code of the warning of arms that no counter overflowed in.
pub const NO_OVERFLOWS: &str = "no-overflows";
/// Code of the warning of an arm whose guest gets no period whole.
pub const LIVELOCK: &str = "livelock";
/// Codes of warnings that say why an arm has no figure: tables and rankings have them.
pub const NO_FIGURE: [&str; 2] = [LIVELOCK, NO_OVERFLOWS];
/// Share of stolen CPU time above which it is worth a warning.
const STEAL: f64 = 0.01;
/// Difference of scaled counts from which on it is worth a warning: what is scaled is an estimate, and a stand-in's clock stops while
/// others have the CPU, the guest's does not.
const DOUBTFUL: f64 = 0.2;

/// Conditions of a whole document: their codes, and the sentence where one holds.
type Condition = (&'static str, fn(&Document) -> Option<String>);

const CONDITIONS: [Condition; 7] = [
    ("overcommit", |document| {
        let (parameters, online) = (&document.parameters, document.host.online().map_or(1, |list| list.len() as u64));
        let cpus = if document.is_simulated() { parameters.cpus.unwrap_or(parameters.vcpus) } else { online };
        let vcpus = Some(parameters.vcpus).filter(|vcpus| *vcpus > cpus)?;
        let many = if cpus == 1 { "" } else { "s" };
        Some(format!("{vcpus} vCPUs share {cpus} CPU{many}: latencies hold waiting times"))
    }),
    ("model-off", |document| document.host.model_percent.and_then(model_off)),
    ("quick", |document| document.parameters.quick.then(|| "a quick run: its figures are indicative only".to_owned())),
    ("played", |document| {
        let text = "the payload's own instructions are in a played handler: where KVM emulates them it takes several times the guest's; \
                    compare differences between arms, not × floor";
        let played = document.arms.iter().any(|arm| arm.own.counts.played > 0);
        (played && !document.parameters.is_replayed()).then(|| text.to_owned())
    }),
    ("counts-differ", |document| {
        let percent = disagreement(document).filter(|share| *share > DOUBTFUL)? * 100.0;
        let Parameters { events, gp_counters, fixed_counters, .. } = &document.parameters;
        let why = if events.len() as u64 > gp_counters + fixed_counters {
            "raise --mux-interval, of which rotations may take much"
        } else {
            "none is multiplexed, so that others may have had the CPU; see `vpmu doctor`"
        };
        Some(format!("scaled counts that should agree differ by {percent:.0} %: {why}"))
    }),
    ("not-counted", |document| {
        let never = |arm: &Arm| arm.own.event_counts.iter().filter(|event| event.running_ns == 0).count();
        let events = document.arms.iter().map(never).max().filter(|events| *events > 0)?;
        Some(format!("a counter was never left for {events} of an arm's events: give fewer --events"))
    }),
    (NO_OVERFLOWS, |document| {
        let Parameters { period, backend, workload, .. } = &document.parameters;
        let limit = ms(document.parameters.time_limit_ns);
        is_silent(document).then(|| match backend.strip_prefix("tracepoint:") {
            Some(_) => format!(
                "no overflow in any arm: {backend} occurs fewer than {period} times in {limit} of {workload}; lower --period, or take \
                 work that causes it (--workload io for VM exits)"
            ),
            None => format!(
                "no overflow in any arm: --period {period} is longer than --time-limit {limit}; lower it or raise the limit"
            ),
        })
    }),
];

/// Collects all caveats of a document.
pub fn collect(document: &Document) -> Vec<Warning> {
    let mut found = of_run(&document.tool, &document.host);
    found.extend(CONDITIONS.iter().filter_map(|(code, holds)| Some(Warning::of_all(code, holds(document)?))));
    let parameters = &document.parameters;
    // A simulated host has no settings.
    if !parameters.backend.starts_with("sim:") {
        let pinned = parameters.pin.as_deref().and_then(|list| list.parse::<CpuList>().ok());
        found.extend(of_settings(&document.host, &pinned.map_or_else(Vec::new, |list| list.0)));
    }
    found.extend(document.arms.iter().flat_map(|arm| of_arm(arm, document)));
    found
}

/// Returns how much scaled counts differ that should agree (count × enabled / running, per time enabled): (largest − smallest) / largest,
/// of one event between arms whose host events count the same, or between the events of an arm where all of them count one clock.
///
/// Host work takes time from the guest, which hardware does not count and a clock of the host does. So where a clock stands in, the
/// counts themselves are compared between arms, and elsewhere an event's share of all that its arm counted.
fn disagreement(document: &Document) -> Option<f64> {
    // A tracepoint's occurrences come in bursts, many of them in the set-ups themselves: no rate is that of a part of the time.
    let arms = || document.arms.iter().filter(|arm| !arm.own.event_counts.is_empty());
    let is_burst = document.parameters.backend.starts_with("tracepoint:");
    let spread = |rates: Vec<f64>| {
        let most = rates.iter().copied().reduce(f64::max).filter(|most| *most > 0.0)?;
        Some((most - rates.into_iter().fold(most, f64::min)) / most)
    };
    let rates = |arm: &Arm| arm.own.event_counts.iter().filter_map(EventCount::rate).collect::<Vec<f64>>();
    // The floor counts the TSC, and so do stand-ins after scaling.
    let stand_in = arms().any(|arm| arm.stand_in);
    let same_events = |arm: &&Arm| arm.kind == ArmKind::Strategy || stand_in && arm.kind == ArmKind::Floor;
    let whole = |arm: &Arm| if stand_in { 1.0 } else { rates(arm).iter().sum() };
    let of_event = |event: usize| {
        let rate = |arm: &Arm| Some(arm.own.event_counts.get(event)?.rate()? / whole(arm));
        spread(arms().filter(same_events).filter_map(rate).collect())
    };
    let events = arms().map(|arm| arm.own.event_counts.len()).max().unwrap_or(0);
    let one_clock = arms().filter(|arm| arm.stand_in || arm.kind == ArmKind::Floor).map(|arm| spread(rates(arm)));
    (0..events).map(of_event).chain(one_clock).flatten().reduce(f64::max).filter(|_| !is_burst)
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// Returns the strategies that were to sample and ended a round.
fn sampled(document: &Document) -> impl Iterator<Item = &Arm> {
    let samples = document.parameters.events.iter().any(|event| event.period > 0);
    document
        .arms
        .iter()
        .filter(move |arm| samples && arm.kind == ArmKind::Strategy && arm.rounds.complete.contains(&true))
}

/// Returns the time in which an arm without a figure restarts its periods, where that takes longer than a tick: no period is ever whole.
fn restart(arm: &Arm, document: &Document) -> Option<u64> {
    // A handler that finds the driver off is no figure either.
    let stuck = arm.own.counts.overflows == 0 || arm.metric(&NMI_HANDLER).is_none();
    let rotation = arm.metric(&ROTATION).map(|rotation| rotation.p50).filter(|_| stuck);
    rotation
        .filter(|&p50| p50 >= document.parameters.mux_interval_ns && sampled(document).any(|one| one.name == arm.name))
}

/// Returns whether no strategy that was to sample had an overflow, and none of them livelocks.
fn is_silent(document: &Document) -> bool {
    let mut all = sampled(document).peekable();
    all.peek().is_some() && all.all(|arm| arm.own.counts.overflows == 0 && restart(arm, document).is_none())
}

/// Says how far choices by a model can be trusted, if it is more than a tenth off what it was made from.
pub fn model_off([low, high]: [u64; 2]) -> Option<String> {
    let off = low < 90 || high > 110;
    off.then(|| format!("the model takes {low} to {high} % of its runs' times: it tells no closer strategies apart"))
}

/// Warns of what affects the figures of any experiment: the tool's build, what the kernel complained of, and time that a
/// suspension, the hypervisor or a quota took from the run.
pub fn of_run(tool: &Tool, host: &HostFacts) -> Vec<Warning> {
    let mut found = Vec::new();
    if tool.profile != "release" {
        found.push(Warning::of_all("debug-build", "this is a debug build; build with --release for figures"));
    }
    if let Some(share) = host.steal_share().filter(|&share| share > STEAL) {
        let percent = share * 100.0;
        let message = format!("the hypervisor took {percent:.1} % of this host's CPU time meanwhile");
        found.push(Warning::of_all("steal", message));
    }
    let stopped = host.quota.and_then(|quota| Some((quota.cpus, quota.stopped_us().filter(|us| *us > 0)?)));
    found.extend(stopped.map(|(cpus, us)| {
        let seconds = us as f64 / 1e6;
        let message =
            format!("the control group's CPU quota ({cpus:.2} CPUs) stopped the run for {seconds:.1} s of CPU time");
        Warning::of_all("cpu-quota", message)
    }));
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

/// Templates of the texts of an arm's counts that should be 0, by their codes, in the order of the warnings. Behind a code is the key of
/// its count, or the path, or a sum of some, if it is not one of [`CAVEATS`]. `n` is the
/// count, `own` has all of the arm's.
const TEXTS: &str = include_str!("caveats.txt");

type Count = fn(&Arm, &Document) -> u64;

/// The counts that take more than a look at a key.
const CAVEATS: [(&str, Count); 10] = [
    (LIVELOCK, |arm, document| restart(arm, document).unwrap_or(0)),
    (NO_OVERFLOWS, |arm, document| {
        let silent = |one: &Arm| one.name == arm.name && one.own.counts.overflows == 0;
        u64::from(restart(arm, document).is_none() && !is_silent(document) && sampled(document).any(silent))
    }),
    ("incomplete", |arm, _| if arm.left_out.is_empty() { rounds(arm, |round| !round.complete) } else { 0 }),
    ("left-out", |arm, _| arm.left_out.len() as u64),
    ("fewer-samples", short),
    ("lost-nmis", |arm, _| arm.own.lost.unwrap_or(0).saturating_sub(arm.own.counts.surplus)),
    ("short-period", |arm, _| {
        let (missed, overflows) = (arm.own.counts.periods_missed, arm.own.counts.guest_overflows);
        if missed > overflows { missed } else { 0 }
    }),
    // A handler of AMD's finds overflows whose NMIs come behind it, as on hardware; Linux expects them.
    ("unknown-nmis", |arm, document| {
        if ["milan", "genoa"].contains(&&*document.parameters.cpu) { 0 } else { arm.own.counts.nmis_without_status }
    }),
    // KVM's own vPMU reports no deliveries.
    ("delivery-unmatched", |arm, _| if arm.kind == ArmKind::Kvm { 0 } else { arm.own.counts.delivery_unmatched }),
    ("dropped-overflows", |arm, _| if arm.kind == ArmKind::Kvm { arm.own.counts.empty_kicks } else { 0 }),
];

/// Returns each code, the key of its count, and its text.
fn texts() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    TEXTS.lines().filter_map(|line| line.split_once(": ")).map(|(code, text)| {
        let (code, key) = code.split_once(' ').unwrap_or((code, ""));
        (code, key, text)
    })
}

fn of_arm(arm: &Arm, document: &Document) -> impl Iterator<Item = Warning> {
    let own = serde_json::to_value(&arm.own).unwrap_or_default();
    texts().filter_map(move |(code, key, text)| {
        let count = CAVEATS.iter().find(|(own, _)| *own == code);
        let of_key = |key| own.pointer(&format!("/{key}")).and_then(Value::as_u64).unwrap_or(0);
        let sum = || key.split('+').map(of_key).fold(0, u64::saturating_add);
        let n = count.map_or_else(sum, |(_, count)| count(arm, document));
        // Never: the texts are constants, of which a test fills in each.
        let message = || message(text, n, arm, document).expect("every name in a text has a value");
        (n > 0).then(|| Warning { arm: Some(arm.name.clone()), ..Warning::of_all(code, message()) })
    })
}

/// Fills in a text of an arm's count.
fn message(text: &str, n: u64, arm: &Arm, document: &Document) -> Result<String, Error> {
    let counts = &arm.own.counts;
    let values = context! {
        n,
        time => ms(n),
        tick => ms(document.parameters.mux_interval_ns),
        rounds => arm.rounds.len(),
        incomplete => arm.incomplete.first(),
        left_out => arm.left_out.first(),
        periods => counts.periods_missed.saturating_add(counts.guest_overflows),
        complained => arm.own.linux.as_ref().map(|linux| linux.complained.join("; ")),
        own => minijinja::Value::from(Serde(&arm.own)),
    };
    template::text(text, values)
}

fn rounds(arm: &Arm, wanted: impl Fn(Round) -> bool) -> u64 {
    arm.rounds.iter().filter(|round| wanted(*round)).count() as u64
}

/// Counts the rounds that ended early; a part of a trace has what it has, and an arm without a figure gets none by fewer samples.
fn short(arm: &Arm, document: &Document) -> u64 {
    let parameters = &document.parameters;
    let count = |metric, at| arm.rounds.metric(metric, at).map_or(0, |summary: Summary| summary.count);
    let measured = |at: usize| {
        if parameters.samples_events() {
            // The log may be full before the target is reached; NMIs are counted regardless.
            arm.rounds.counts.nmis.get(at).copied().unwrap_or(0).max(count(&NMI_HANDLER, at))
        } else {
            count(&ROTATION, at).max(count(&SET_UP, at))
        }
    };
    let is_short = |round: Round| round.complete && measured(round.at) / parameters.vcpus.max(1) < parameters.samples;
    let has_none = parameters.samples_events() && arm.metric(&NMI_HANDLER).is_none();
    if parameters.is_replayed() || has_none { 0 } else { rounds(arm, is_short) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::latency_histogram;
    use crate::fixture;
    use crate::host::{CpuTime, Quota};

    fn codes(change: impl FnOnce(&mut Document)) -> Vec<String> {
        let mut document = fixture::document(2);
        document.tool.profile = "release".to_owned();
        document.host.loadavg_1m = Some(0.1);
        document.host.virtualized = false;
        change(&mut document);
        collect(&document).into_iter().map(|w| w.code).collect()
    }

    #[test]
    fn every_name_in_a_text_has_a_value() {
        let document = fixture::document(2);
        let fill = |text: &str, n| message(text, n, &document.arms[0], &document);
        for (code, _, text) in texts() {
            for said in [1, 2].map(|n| fill(text, n).unwrap_or_else(|error| panic!("{code}: {error:#}"))) {
                assert!(!said.contains(['{', '}']), "{said}");
            }
        }
        assert!(fill("{{ round }} of {{ rounds }}", 1).is_err());
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
    fn missed_periods_are_of_all_that_were_counted() {
        let mut document = fixture::document(2);
        for (overflows, line) in [(400, Some("recreate: 600 of 1000 periods were counted without")), (600, None)] {
            let arm = &mut document.arms[0];
            (arm.own.counts.periods_missed, arm.own.counts.guest_overflows) = (600, overflows);
            let all = collect(&document);
            let found = crate::table::warnings(&all).find(|one| one.contains("periods were counted"));
            assert_eq!(found.as_deref().map(|found| &found[..line.unwrap().len()]), line);
        }
    }

    #[test]
    fn whatever_may_make_a_count_wrong_is_reported() {
        let found = codes(|document| {
            document.tool.profile = "debug".to_owned();
            document.host.loadavg_1m = Some(9.0);
            document.host.steal_before = Some(CpuTime::default());
            document.host.steal_after = Some(CpuTime { steal: 5, total: 100 });
            document.host.quota = Some(Quota { cpus: 0.1, stopped_us_before: 3, stopped_us_after: Some(4) });
            document.parameters.vcpus = 4;
            let arm = &mut document.arms[0];
            // Every count of an arm is 1.
            let mut counts = serde_json::to_value(crate::document::Counts::default()).unwrap();
            for name in ["blind", "ungated", "pmis_absent"] {
                counts[name] = 1.into();
            }
            counts.as_object_mut().unwrap().values_mut().for_each(|count| *count = 1.into());
            counts["periods_missed"] = 2.into();
            arm.own.counts = serde_json::from_value(counts).unwrap();
            let linux = arm.own.linux.insert(crate::document::LinuxArm::default());
            (linux.complaints, linux.trace_lost) = (1, 1);
            linux.perf_records = ["LOST", "THROTTLE"].map(|kind| (kind.to_owned(), 1)).into();
            (arm.own.lost, arm.own.overflows_lost, arm.own.counts.surplus) = (Some(2), Some(1), 2);
            arm.rounds.complete[0] = false;
            document.arms[1].own.lost = Some(2);
        });
        // Each has a code of its own, and each text a count; of some only one can be.
        assert_eq!(found.iter().collect::<std::collections::BTreeSet<_>>().len(), 28, "{found:?}");
        let others = [LIVELOCK, NO_OVERFLOWS, "left-out", "fewer-samples", "dropped-overflows"];
        for (code, ..) in texts().filter(|(code, ..)| !others.contains(code)) {
            assert!(found.iter().any(|one| one == code), "{code} has no count");
        }
        assert!(CAVEATS.iter().all(|(own, _)| texts().any(|(code, ..)| code == *own)), "a count has no text");
        // Each part of a text's sum is a count by itself.
        let summed = texts().filter(|(code, ..)| CAVEATS.iter().all(|(own, _)| own != code));
        for (code, part) in summed.flat_map(|(code, key, _)| key.split('+').map(move |part| (code, part))) {
            let mut document = fixture::document(2);
            let mut own = serde_json::to_value(&document.arms[0].own).unwrap();
            own["linux"] = serde_json::to_value(crate::document::LinuxArm::default()).unwrap();
            *part.split('/').fold(&mut own, |at, name| &mut at[name]) = 1.into();
            document.arms[0].own = serde_json::from_value(own).unwrap();
            assert!(collect(&document).iter().any(|one| one.code == code), "{code}: {part}");
        }
    }

    /// Returns the lines about overflows of a document whose named arms had none.
    fn of_silent(silent: &[&str], change: impl FnOnce(&mut Document)) -> Vec<String> {
        let mut document = fixture::document(2);
        for arm in &mut document.arms {
            arm.own.counts.overflows = u64::from(!silent.contains(&arm.name.as_str()));
        }
        change(&mut document);
        let all = collect(&document).into_iter().filter(|one| [NO_OVERFLOWS, LIVELOCK].contains(&&*one.code));
        all.map(|one| format!("{}: {}", one.arm.unwrap_or_default(), one.message)).collect()
    }

    #[test]
    fn arms_without_an_overflow_are_named_with_a_cause() {
        let all = ["recreate", "reuse", "reuse-lazy"];
        let counting = |document: &mut Document| document.parameters.events[0].period = 0;
        assert!(of_silent(&[], |_| {}).is_empty() && of_silent(&all, counting).is_empty());
        let of_tracepoint =
            |document: &mut Document| document.parameters.backend = "tracepoint:kvm/kvm_exit".to_owned();
        for (found, said) in [
            (
                of_silent(&all, |_| {}),
                ": no overflow in any arm: --period 2000000 is longer than --time-limit 1100.0 ms",
            ),
            (of_silent(&all, of_tracepoint), "--workload io"),
            (of_silent(&["recreate"], |_| {}), "recreate: no overflow, where other arms had some"),
        ] {
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
        let mut times = latency_histogram();
        times.record(20_000_000).unwrap();
        // A few overflows that met the driver switched off are no figure.
        let slow = |overflows, has_figure| {
            of_silent(&["recreate"], |document| {
                let arm = &mut document.arms[0];
                arm.metrics.insert(ROTATION.key.to_owned(), super::Summary::of(&times).unwrap());
                arm.own.counts.overflows = overflows;
                arm.metrics.retain(|key, _| has_figure || key != NMI_HANDLER.key);
            })
        };
        let line =
            "recreate: livelock: to stop and restart its events takes 20.0 ms, a tick is 4.0 ms, so no period is ever";
        assert!(slow(0, true)[0].starts_with(line) && slow(14, true).is_empty() && slow(14, false) == slow(0, true));
    }

    /// Returns the disagreement of arms whose events count so much in 100 ns.
    fn differ(counts: [&[u64]; 3], stand_in: bool, backend: &str) -> Option<f64> {
        let mut document = fixture::of_strategies(10, &["recreate", "reuse"]);
        document.parameters.backend = backend.to_owned();
        let event = |&count: &u64| {
            let running_ns = if count > 0 { 100 } else { 0 };
            EventCount { count, enabled_ns: 200, running_ns, scaled: None }
        };
        for (arm, counts) in document.arms.iter_mut().zip(counts) {
            arm.own.event_counts = counts.iter().map(event).collect();
            arm.stand_in &= stand_in;
        }
        disagreement(&document)
    }

    #[test]
    fn counts_of_stand_ins_agree_themselves_and_those_of_hardware_by_their_shares() {
        assert_eq!(differ([&[200, 190], &[200, 200], &[100, 200]], true, "cpu-clock"), Some(0.5));
        // Host work took half of the guest's time in the second arm; the floor is no hardware.
        assert_eq!(differ([&[200, 50], &[100, 25], &[3, 3]], false, "hardware"), Some(0.0));
        assert!(differ([&[200, 50], &[100, 50], &[3, 3]], false, "hardware").is_some_and(|share| share > 0.3));
        // An event without a counter has no rate, and neither have bursts.
        assert_eq!(differ([&[200, 200], &[200, 0], &[200, 200]], true, "cpu-clock"), Some(0.0));
        assert_eq!(differ([&[200, 200], &[200, 0], &[200, 200]], true, "tracepoint:kvm/kvm_exit"), None);
        assert_eq!(differ([&[], &[], &[]], true, "cpu-clock"), None);
        let never = EventCount { count: 0, enabled_ns: 200, running_ns: 0, scaled: None };
        assert_eq!(codes(|document| document.arms[0].own.event_counts = vec![never]), ["not-counted"]);
    }
}
