//! What runs of guests found: the answer first, one table, what must be known about it, and all of it where that is asked for.

use super::column::{self, Figures, Place};
use super::fold::{Cell, Table};
use super::layout::{self, name, plural, ratio_with, time};
use super::ranking::{fastest, listed, origin};
use super::report::{Part, Report};
use crate::answers;
use crate::choice::{AS_GOOD, choose, contenders, is_modelled, is_whole, rank, regrets, with_figures};
use crate::document::warnings::LATE_PERIODS;
use crate::document::{Arm, ArmKind, Document, Experiment, Status, Warning};
use crate::error::Exit;
use crate::metric::{HOST_WORK, Metric, NMI_HANDLER, ROTATION, SET_UP};
use crate::paired::{self, MIN_ROUNDS, Ratio, Statistic};

/// The strategy that others are compared with: that of KVM before 5.5, the oldest.
const OLDEST: &str = "recreate";
/// Headings of the columns of host work that the first table has.
const WORK: [&str; 3] = ["opens", "ops", "perf ops"];
/// Returns the results of one or several workloads as they are shown first; `more` says how to see the rest.
pub fn brief(documents: &[Document], more: &str) -> Report {
    let mut report = Report::default();
    let Some(first) = documents.first() else { return report };
    if let Some(found) = finding(documents) {
        report.note(found);
        report.gap();
    }
    head(documents, &mut report);
    for document in documents {
        let mut own = Report::default();
        known(document, &mut own);
        course(document, &mut own);
        for part in own.parts {
            let of = if documents.len() > 1 { format!("{}: ", events(document)) } else { String::new() };
            match part {
                Part::Line(text) | Part::Note(text) => report.note(of + text.trim_start()),
                other => report.parts.push(other),
            }
        }
    }
    place(first, &mut report);
    if !more.is_empty() {
        report.line(more);
    }
    report
}

/// Returns a result as it is shown whole: as at first, then each pair of arms and all columns; at the end the answer.
pub fn report(document: &Document) -> Report {
    let mut report = Report::new(format!("vpmu {}", document.experiment));
    let metric = metric(document);
    let (all, per, places) = if metric.key == SET_UP.key {
        ("set-ups", "", [Place::SetUp, Place::SetUpWork])
    } else {
        let per = if metric.key == ROTATION.key { " per rotation" } else { " per PMI" };
        ("samples", per, [Place::Latency, Place::Work])
    };
    head(std::slice::from_ref(document), &mut report);
    known(document, &mut report);
    pairs(document, metric, &mut report);
    let there = document.arms.iter().filter(|arm| arm.not_available.is_none());
    let arms: Vec<_> = there.map(|arm| (name(arm), Figures::new(arm, arm.metric(metric)))).collect();
    column::add(&mut report, format!("All {all} of all rounds together"), places[0], &arms);
    column::add(&mut report, format!("Host work{per}"), places[1], &arms);
    place(document, &mut report);
    course(document, &mut report);
    report.verdict = fastest(document, metric).map(|fastest| (Exit::Done, fastest));
    report
}

/// Adds the first table, an arm a row: its p50 and ratio to the floor, and what it made the host do.
fn head(documents: &[Document], report: &mut Report) {
    let several = documents.len() > 1;
    let set_up = documents[0].parameters.set_up.is_some();
    let of_work = if set_up { Place::SetUpWork } else { Place::Work };
    let columns = || column::columns(of_work).filter(|column| WORK.contains(&column.heading));
    let head = several.then_some("workload").into_iter().chain(["arm", "p50 [95 %]", "× floor [95 %]"]);
    let mut table = Table::new(head.chain(columns().map(|column| column.heading)));
    if several {
        table = table.keys(2).left(1);
    }
    for document in documents {
        let metric = metric(document);
        for (place, arm) in document.arms.iter().enumerate().filter(|(_, arm)| arm.not_available.is_none()) {
            let level = paired::level(arm, metric.key, Statistic::P50);
            let over = match (arm.kind, level) {
                (ArmKind::Floor, Some(_)) => "1".into(),
                _ => Cell::ratio(answers::over_floor(document, place, metric).as_ref()),
            };
            let work = columns().map(|column| column.cell(&Figures::new(arm, arm.metric(metric))));
            let cells = several.then(|| events(document).into()).into_iter();
            table.add_row(cells.chain([name(arm).into(), Cell::level(metric.key, level.as_ref()), over]).chain(work));
        }
    }
    report.heading(heading(&documents[0], !several));
    report.table(table);
    let per = if set_up { "set-up" } else { "PMI or rotation" };
    report.note(format!(
        "p50: median over rounds of each round's median; × floor: of paired rounds, floor: an estimated lower bound; opens, ops: host \
         events opened and operations on them, per {per}"
    ));
}

/// Says what a document is of: the metric, the workload where it is one alone, the guest.
fn heading(document: &Document, with_workload: bool) -> String {
    let parameters = &document.parameters;
    let what = match metric(document).key {
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

/// Says what must be known of a document's figures.
fn known(document: &Document, report: &mut Report) {
    let metric = metric(document);
    if document.arms.iter().any(|arm| is_modelled(&arm.name) && arm.kind == ArmKind::Strategy) {
        report.line("the floor bounds a PMU whose accesses exit: those of a mediated one do not");
    }
    let short = document.arms.iter().map(|arm| (&arm.name, paired::short(arm, metric.key)));
    for (arm, short) in short.filter(|(_, short)| *short > 0) {
        report.line(format!("{arm}: {} of few samples left out", plural(short, "round")));
    }
    let pairs = against(document, metric);
    let open = pairs.iter().filter(|pair| pair.ratio.interval.is_some() && !pair.ratio.is_distinguishable());
    let open: Vec<String> = open.map(|pair| format!("{} and {}", pair.arm, pair.base)).collect();
    if !open.is_empty() {
        report.note(format!("not distinguishable: {}", open.join(", ")));
    }
    let doubtful = document.arms.iter().filter(|arm| arm.own.doubts().next().is_some());
    let doubtful: Vec<String> = doubtful.map(|arm| arm.name.clone()).collect();
    if !doubtful.is_empty() {
        report.note(format!("not whole: {} (the warnings say why)", listed(&doubtful)));
    }
    let floor = document.arms.iter().find(|arm| arm.kind == ArmKind::Floor);
    let below = |arm: &&Arm| {
        let over = floor.and_then(|floor| ratio(document, arm, floor)).and_then(|over| over.interval);
        arm.kind == ArmKind::Strategy && !is_modelled(&arm.name) && over.is_some_and(|over| over.high < 1.0)
    };
    if !document.is_replayed() && document.arms.iter().any(|arm| below(&arm)) {
        report.note("the floor is no lower bound here: its own timer took longer; compare strategies with one another");
    }
    // KVM's own vPMU is tried in every run, and no surprise where there is none.
    for arm in document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
        report.notes(arm.not_available.iter().map(|why| format!("{}: not available because {why}", arm.name)));
    }
}

/// The answer: of one workload the order of its strategies, of several the strategy that is best in all of them.
pub fn finding(documents: &[Document]) -> Option<String> {
    match documents {
        [one] => fastest(one, metric(one)),
        several => choice(several),
    }
}

/// The name of a workload's events.
fn events(document: &Document) -> &str {
    let workload = &document.parameters.workload;
    workload.strip_suffix("/ftest").unwrap_or(workload)
}

/// Ratio of two arms of a document by its metric.
fn ratio(document: &Document, arm: &Arm, base: &Arm) -> Option<Ratio> {
    paired::over_runs(document, arm, base, metric(document).key, Statistic::P50)
}

/// Describes the strategy that the rule of `advise` chooses, beside others in each workload.
fn choice(documents: &[Document]) -> Option<String> {
    let first = documents.first()?;
    let rounds = documents.iter().filter_map(|one| one.arms.iter().map(|arm| arm.rounds.len()).max()).min()?;
    if rounds < MIN_ROUNDS {
        let rounds = plural(rounds, "round");
        return Some(format!("no answer: {rounds} give no interval; take more (--rounds, --duration)"));
    }
    let (found, lacks): (Vec<_>, Vec<_>) =
        documents.iter().map(|document| regrets(document, metric(document), column::work)).unzip();
    let strategies = rank(found.iter().map(Vec::as_slice));
    let chosen = choose(&strategies, true).filter(|(one, ..)| one.results == documents.len());
    let Some((chosen, as_good, _)) = chosen else {
        // Where no figures are wanting there was one strategy, which is no question; what is not available is said.
        let (document, lack) = documents
            .iter()
            .zip(&lacks)
            .find_map(|(one, lacks)| Some((one, lacks.iter().find(|lack| lack.is_open)?)))?;
        return Some(format!("no answer: {} with {}: {}", lack.what, number(document), lack.why));
    };
    let what = if metric(first).key == NMI_HANDLER.key { " handler time" } else { " time" };
    let nouns = std::iter::once(what).chain(std::iter::repeat(""));
    let name = &chosen.strategy;
    let parts: Vec<String> =
        documents.iter().zip(nouns).filter_map(|(document, what)| beside(document, name, what)).collect();
    let mut said = vec![format!("{name}: {}{}", parts.join(", "), origin(first))];
    if !as_good.is_empty() {
        said.push(format!("as good: {}", listed(&as_good.iter().map(|one| one.strategy.clone()).collect::<Vec<_>>())));
    }
    for document in documents {
        let out: Vec<String> =
            with_figures(document, metric(document)).filter(|arm| !is_whole(arm)).map(|arm| arm.name.clone()).collect();
        if !out.is_empty() {
            said.push(format!("not whole with {}, so not ranked: {}", number(document), listed(&out)));
        }
    }
    Some(said.join("; "))
}

fn ranked(document: &Document) -> Vec<&Arm> {
    contenders(document, metric(document)).collect()
}

fn metric(document: &Document) -> &'static Metric {
    answers::metric(&document.parameters)
}

/// The events of a workload, as a number.
fn number(document: &Document) -> String {
    plural(document.parameters.events.len(), "event")
}

/// The strategy beside this one that is the fastest of a workload, and how this one stands to it.
fn fastest_other<'a>(document: &'a Document, name: &str) -> Option<(&'a Arm, Ratio)> {
    let own = document.arm(name)?;
    let others = ranked(document).into_iter().filter(|arm| arm.name != name);
    let ratios = others.filter_map(|arm| Some((arm, ratio(document, own, arm)?)));
    ratios.max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
}

/// Places a strategy beside the fastest other one of a workload, or where it is faster than that beside the oldest.
fn beside(document: &Document, name: &str, what: &str) -> Option<String> {
    let own = document.arm(name)?;
    let (other, found) = fastest_other(document, name)?;
    let oldest = || {
        let oldest = ranked(document).into_iter().find(|arm| arm.name == OLDEST && arm.name != name)?;
        Some((oldest, ratio(document, own, oldest)?))
    };
    let is_first = found.ratio < 1.0 - AS_GOOD && found.interval.is_none_or(|interval| interval.excludes(1.0));
    let (base, found) = if is_first { oldest().unwrap_or((other, found)) } else { (other, found) };
    let figure = ratio_with(&found);
    let (value, interval) = figure.split_once(' ').unwrap_or((&figure, ""));
    Some(format!("{value} × {}'s{what} with {} {interval}", base.name, number(document)).trim_end().to_owned())
}

/// Comparison of an arm with another one in one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The arm.
    pub arm: String,
    /// The other.
    pub base: String,
    /// Its ratio to the other.
    pub ratio: Ratio,
}

impl Against {
    /// Formats the comparison as a sentence without a full stop.
    pub fn sentence(&self) -> String {
        let Self { arm, base, ratio } = self;
        let doubt = match ratio.interval {
            None => ": too few for an interval",
            Some(_) if ratio.is_distinguishable() => "",
            Some(_) => ",\n  not distinguishable",
        };
        format!("{arm} against {base}: {}, {}{doubt}", layout::ratio_with(ratio), plural(ratio.rounds, "round"))
    }
}

/// Returns the pairs of a document that are worth comparing by a metric: strategies with one another, and with the
/// floor those that it does not lie clearly below.
pub fn against<E: Experiment>(document: &Document<E>, metric: &Metric) -> Vec<Against> {
    let compared = |(arm, base): (&Arm, &Arm)| {
        let ratio = paired::over_runs(document, arm, base, metric.key, Statistic::P50)?;
        Some((base.kind, Against { arm: arm.name.clone(), base: base.name.clone(), ratio }))
    };
    let pairs = paired::in_plan_order(&document.arms, metric.key);
    let near = |ratio: &Ratio| ratio.interval.is_some_and(|interval| interval.low <= 1.0);
    let found = pairs.into_iter().filter_map(compared);
    found.filter(|(base, one)| *base != ArmKind::Floor || near(&one.ratio)).map(|(_, one)| one).collect()
}

/// Adds a sentence for each pair of arms, and what their intervals are of.
fn pairs(document: &Document, metric: &Metric, report: &mut Report) {
    let pairs = against(document, metric);
    if !pairs.is_empty() {
        report.gap();
    }
    for pair in &pairs {
        report.line(pair.sentence());
    }
    let with_intervals = || pairs.iter().filter(|pair| pair.ratio.interval.is_some());
    if document.is_simulated() || with_intervals().next().is_none() {
        return;
    }
    let default = layout::percent(paired::BETWEEN_RUNS.error);
    report.line(format!("intervals of ratios allow for how runs differ: {default} %"));
    let few = with_intervals().map(|pair| pair.ratio.guests).filter(|guests| *guests < paired::groups::MIN_GUESTS);
    if let Some(guests) = few.min() {
        let do_not = if guests == 1 { "does not" } else { "do not" };
        report.line(format!("{} an arm {do_not} show how guests differ", plural(guests, "guest")));
    }
}

/// Describes what was measured, and where.
fn place(document: &Document, report: &mut Report) {
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
fn course(document: &Document, report: &mut Report) {
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
    if document.status != Status::Complete {
        report.line(format!("* {}", document.status.words()));
    }
    for arm in &document.arms {
        arm.incomplete.iter().for_each(|why| report.line(format!("  {}: {why}", arm.name)));
        arm.left_out.iter().for_each(|why| report.line(format!("  {}: left out: {why}", arm.name)));
    }
}

/// Returns a document's warnings, one line each; the host's settings together in one, since `doctor` describes them. Those that the
/// [report] has are left out, and late periods, on which nobody can act: the document has them.
pub fn warnings(warnings: &[Warning]) -> impl Iterator<Item = String> {
    let settings: Vec<&str> =
        warnings.iter().filter(|warning| warning.remedy.is_some()).map(|warning| warning.code.as_str()).collect();
    let settings = (!settings.is_empty())
        .then(|| format!("noise sources on this host: {}; see `vpmu doctor`", settings.join(", ")));
    let own = warnings.iter().filter(|one| one.remedy.is_none() && one.code != LATE_PERIODS);
    let own = own.map(|warning| match &warning.arm {
        Some(arm) => format!("{arm}: {}", warning.message),
        None => warning.message.clone(),
    });
    own.chain(settings)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::LinuxParameters;
    use crate::fixture::{self, record, timed};
    use crate::synthetic::{Host, Random};

    /// What tables have to show, each with what it shows.
    fn documents() -> [(&'static str, Document); 4] {
        let whole = fixture::document(10);
        let mut doubtful = whole.clone();
        doubtful.status = Status::Incomplete;
        doubtful.arms[0].incomplete.push("round 2, vCPU 0: the time limit passed".into());
        doubtful.arms[1].own.lost = Some(3);
        doubtful.warnings = crate::document::warnings::collect(&doubtful);
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

    /// The first line of two workloads with these times, and the floor at 1000 ns.
    fn said(ten: &[(&str, u64)], one: &[(&str, u64)]) -> String {
        let documents = [ten, one].map(|times| timed(40, times).as_guests().expect("a document of guests"));
        brief(&documents, "").text(400).lines().next().expect("an answer").to_owned()
    }

    #[test]
    fn the_answer_is_the_least_worst_strategy_beside_the_fastest_or_the_oldest() {
        let text = said(
            &[("recreate", 3000), ("reuse", 2600), ("gate", 1500)],
            &[("recreate", 1200), ("reuse", 1100), ("gate", 1150)],
        );
        assert!(
            text.starts_with("gate: 0.500 × recreate's handler time with ") && text.contains(", 1.045 × reuse's"),
            "{text}"
        );
        let text = said(&[("recreate", 3000), ("reuse", 1500)], &[("recreate", 1200), ("gate", 1100)]);
        assert!(text.starts_with("Guest NMI"), "one strategy in each is no choice: {text}");
        let mut both = [1, 2].map(|_| fixture::of_strategies(10, &["recreate", "reuse"]));
        both[1].arms[0].own.lost = Some(1);
        let text = brief(&both, "").text(400);
        assert!(text.starts_with("no answer: recreate with ") && text.contains("it has no whole figures\n"), "{text}");
        let text = said(&[("recreate", 3000), ("reuse", 3000)], &[("recreate", 1200), ("reuse", 1200)]);
        assert!(text.starts_with("recreate: 1.000 × reuse's") && text.ends_with("; as good: reuse"), "{text}");
    }

    #[test]
    fn pairs_are_distinguishable_or_not_and_the_floor_is_left_out_where_it_is_clearly_below() {
        let host = Host { rounds: 400, rounds_per_guest: 1, ..Host::default() };
        let arms = host.run(&[1.3_f64.ln(), 1.2_f64.ln(), 1.204_f64.ln(), 0.0], &mut Random::new(3));
        let template = record(1, 1, |_, _| 1000);
        let arms: Vec<_> = arms.iter().map(|turns| turns[..160].to_vec()).collect();
        let found = against(&fixture::of_turns(&template, 5, &arms), &NMI_HANDLER);
        let sentences: Vec<String> = found.iter().map(Against::sentence).collect();
        assert_eq!(found.len(), 3, "{sentences:?}");
        assert!(sentences[0].starts_with("reuse against recreate: 0.91"), "{sentences:?}");
        assert!(sentences[0].ends_with("], 160 rounds"), "{sentences:?}");
        let alike = &sentences[2];
        assert!(alike.starts_with("reuse-lazy against reuse: ") && alike.ends_with("not distinguishable"), "{alike}");
    }
}
