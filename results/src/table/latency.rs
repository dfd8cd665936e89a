//! Latency and host work of each arm.

use super::column::{self, Figures, Place};
use super::layout::{name, plural, time};
use super::ranking;
use super::report::Report;
use super::summary;
use crate::answers;
use crate::document::warnings::{LATE_PERIODS, UNIDENTIFIED};
use crate::document::{ArmKind, Document, Status, Warning};
use crate::error::Exit;
use crate::metric::{HOST_WORK, NMI_HANDLER, ROTATION, SET_UP};

/// Returns a document's warnings, one line each; the host's settings together in one, since `doctor` describes them. Those that the
/// [report] has are left out, and late periods, on which nobody can act: the document has them.
pub fn warnings(warnings: &[Warning]) -> impl Iterator<Item = String> {
    let settings: Vec<&str> =
        warnings.iter().filter(|warning| warning.remedy.is_some()).map(|warning| warning.code.as_str()).collect();
    let settings = (!settings.is_empty())
        .then(|| format!("noise sources on this host: {}; see `vpmu doctor`", settings.join(", ")));
    let own = warnings.iter().filter(|one| one.remedy.is_none() && ![UNIDENTIFIED, LATE_PERIODS].contains(&&*one.code));
    let own = own.map(|warning| match &warning.arm {
        Some(arm) => format!("{arm}: {}", warning.message),
        None => warning.message.clone(),
    });
    own.chain(settings)
}

/// Says what a document is of: the metric, the workload where it is one alone, the guest.
pub(super) fn heading(document: &Document, with_workload: bool) -> String {
    let parameters = &document.parameters;
    let what = match answers::metric(parameters).key {
        key if key == NMI_HANDLER.key => "Guest NMI handler latency",
        key if key == SET_UP.key => "perf stat in the guest",
        key if key == HOST_WORK.key => "Host's work for a trace on a model",
        _ => "Guest rotation latency (all events, at a tick)",
    };
    let simulated = if document.is_simulated() { "SIMULATED: " } else { "" };
    let workload = if with_workload { format!(", {}", parameters.workload) } else { String::new() };
    let cpu = parameters.other_cpu().map(|cpu| format!(", {cpu}")).unwrap_or_default();
    let on = parameters.cpus.map(|cpus| format!(" on {}", plural(cpus as usize, "CPU"))).unwrap_or_default();
    let enabled = parameters.set_up.as_ref().map(|set_up| format!(", enabled {}", set_up.enable)).unwrap_or_default();
    let vcpus = plural(parameters.vcpus as usize, "vCPU");
    format!("{simulated}{what}{workload}{enabled}, {vcpus}{on}{cpu}")
}

/// Returns the result as it is shown: tables, circumstances, what is incomplete, and at the end the answer.
pub fn report(document: &Document) -> Report {
    let mut report = Report::new(format!("vpmu {}", document.experiment));
    let metric = answers::metric(&document.parameters);
    let (all, per, places) = if metric.key == SET_UP.key {
        ("set-ups", "", [Place::SetUp, Place::SetUpWork])
    } else {
        let per = if metric.key == ROTATION.key { " per rotation" } else { " per PMI" };
        ("samples", per, [Place::Latency, Place::Work])
    };
    report.heading(heading(document, true));
    summary::report(document, metric, &mut report);
    let there = document.arms.iter().filter(|arm| arm.not_available.is_none());
    let arms: Vec<_> = there.map(|arm| (name(arm), Figures::new(arm, arm.metric(metric)))).collect();
    column::add(&mut report, format!("All {all} of all rounds together"), places[0], &arms);
    column::add(&mut report, format!("Host work{per}"), places[1], &arms);
    // KVM's own vPMU is tried in every run, and no surprise where there is none.
    for arm in document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
        let why = arm.not_available.iter();
        report.notes(why.map(|why| format!("{}: not available because {why}", arm.name)));
    }
    surroundings(document, &mut report);
    let fastest = ranking::fastest(document, metric);
    report.verdict = fastest.map(|fastest| (Exit::Done, fastest));
    report
}

/// Describes the circumstances of the measurement, and what is incomplete.
fn surroundings(document: &Document, report: &mut Report) {
    place(document, report);
    course(document, report);
}

/// Describes what was measured, and where.
pub(super) fn place(document: &Document, report: &mut Report) {
    let parameters = &document.parameters;
    if document.arms.iter().any(|arm| arm.stand_in) {
        let backend = &parameters.backend;
        report.line(format!("backend: {backend}, a stand-in for hardware events\n  (compare arms only)"));
    } else {
        report.line(format!("backend: {}", parameters.backend));
    }
    report.line(format!("host: {}", document.host.class));
    if let Some(linux) = &parameters.linux {
        let release = linux.release.as_deref().unwrap_or("of an unknown release");
        report.line(format!("guest: Linux {release}, CPU {}, {}", linux.cpu, linux.perf));
    }
}

/// Describes how the run went, and what is incomplete.
pub(super) fn course(document: &Document, report: &mut Report) {
    let parameters = &document.parameters;
    let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let wall = time(document.wall_ns as f64);
    let asked = plural(usize::try_from(parameters.rounds).unwrap_or(usize::MAX), "round");
    let clock = if document.is_simulated() { " of simulated time" } else { "" };
    let mut line = format!("{rounds} of {asked} in {wall}{clock}, seed {}", document.seed);
    if document.status == Status::Complete && (rounds as u64) < parameters.rounds {
        let narrow = parameters.until_ci.is_some() && parameters.duration_ns.is_none_or(|ns| document.wall_ns < ns);
        let bound = || parameters.duration_ns.map_or_else(String::new, |ns| format!(" ({})", time(ns as f64)));
        line += &if narrow {
            "; every interval was narrow enough".to_owned()
        } else {
            "; the time was up".to_owned() + &bound()
        };
    }
    report.line(line);
    match document.status {
        Status::Complete => {}
        Status::Running => report.line("the experiment was still running"),
        Status::Interrupted => report.line("interrupted: finished rounds only"),
        Status::Incomplete => report.line("* incomplete:"),
    }
    for arm in &document.arms {
        arm.incomplete.iter().for_each(|why| report.line(format!("  {}: {why}", arm.name)));
        arm.left_out.iter().for_each(|why| report.line(format!("  {}: left out: {why}", arm.name)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{UNIDENTIFIED, Warning};
    use crate::document::{
        Column, Document, EventCount, LinuxParameters, PhaseResult, SET_UP, SetUpParameters, Status, Summary,
        latency_histogram,
    };
    use crate::{fixture, metric};

    fn set_up() -> Document {
        let mut document = fixture::of_strategies(10, &["recreate", "reuse"]);
        let set_up = SetUpParameters { enable: "each".to_owned(), window_ticks: 2, gap_ticks: 1 };
        document.parameters.set_up = Some(set_up);
        document.parameters.workload = "64 counting events/ftest".to_owned();
        for (arm, ns) in document.arms.iter_mut().zip([43_163_000, 2_000, 1_000]) {
            let mut histogram = latency_histogram();
            histogram.saturating_record(ns);
            let summary = Summary::of(&histogram).unwrap();
            let rounds = arm.rounds.len();
            let column = Column { count: vec![1; rounds], p50: vec![summary.p50; rounds], ..Column::default() };
            arm.rounds.metrics.insert(metric::SET_UP.key.to_owned(), column);
            arm.metrics.insert(metric::SET_UP.key.to_owned(), summary.clone());
            let ops = [("open".to_owned(), 140), ("pause".to_owned(), 2)];
            let phase = PhaseResult {
                begun: 10,
                msr_reads: 20,
                msr_writes: 22,
                host_ops: ops.into_iter().collect(),
                host_ops_ns: 9,
            };
            for key in ["program", "enable", "read", "disable", "rotate", SET_UP] {
                arm.own.phases.insert(key.to_owned(), phase.clone());
                for time in ["call_ns", "total_ns"] {
                    arm.metrics.insert(format!("phases/{key}/{time}"), summary.clone());
                }
            }
            let event = |count| EventCount { count, enabled_ns: 200, running_ns: 100, scaled: None };
            arm.own.event_counts = vec![event(100), event(90), EventCount::default()];
        }
        document
    }

    /// What tables have to show, each with what it shows.
    fn documents() -> [(&'static str, Document); 5] {
        let whole = fixture::document(10);
        let mut doubtful = whole.clone();
        doubtful.status = Status::Incomplete;
        doubtful.arms[0].incomplete.push("round 2, vCPU 0: the time limit passed".into());
        doubtful.arms[1].own.lost = Some(3);
        doubtful.warnings = crate::document::warnings::collect(&doubtful);
        let message = "1.34 to 1.52 × floor by the form of the model".to_owned();
        let arm = Some("recreate".to_owned());
        doubtful.warnings.push(Warning { code: UNIDENTIFIED.to_owned(), arm, message, remedy: None });
        let mut linux = fixture::document(3);
        (linux.parameters.rounds, linux.parameters.duration_ns) = (9, Some(2_000_000_000));
        linux.parameters.linux = Some(LinuxParameters {
            release: Some("6.1.0-50".to_owned()),
            cpu: "clx".to_owned(),
            perf: "perf version 6.1".to_owned(),
            memory: 1 << 29,
            command: "perf record".to_owned(),
        });
        let own = &mut linux.arms[0].own;
        (own.counts.deferred, own.counts.deferred_delivered, own.counts.deferred_dropped) = (5, 2, 3);
        let mut large = whole.clone();
        for arm in &mut large.arms {
            (arm.own.counts.nmis, arm.own.lost) = (1_000_000, Some(100));
            if let Some(delivery) = arm.metrics.get("pmi_delivery_ns").cloned() {
                arm.metrics.insert("signal_ns".to_owned(), delivery);
            }
            for summary in arm.metrics.values_mut() {
                (summary.p50, summary.max) = (43_163_000, Some(43_163_000));
            }
        }
        [
            ("a whole run", whole),
            ("a run that is not whole", doubtful),
            ("a Linux guest, ended by its duration", linux),
            ("large figures", large),
            ("a guest's set-up", set_up()),
        ]
    }

    #[test]
    fn tables_are_as_they_should_be_and_fit_60_columns() {
        let mut all = String::new();
        for (what, document) in documents() {
            let text = super::report(&document).text(60);
            let tables = text.split("backend: ").next().unwrap();
            let wide = tables.lines().find(|line| line.chars().count() > 60 && !line.contains("not available"));
            // Sentences of other runs have commands in them, which are not broken.
            assert!(wide.is_none() || !what.starts_with("large"), "{wide:?} in\n{text}");
            all.extend(["# ", what, "\n\n", &text, "\n"]);
        }
        trials::golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tables.txt")), &all);
    }
}
