//! What runs of guests found: the answer first, one table, what must be known about it, and all of it where that is asked for.

use super::column::{self, Place};
use super::fold::{Cell, Table};
use super::layout::{plural, time};
use super::plain::{lacks, plain};
use super::ranking::{listed, origin, times, unranked};
use super::report::Report;
use crate::answers;
use crate::choice::{AS_GOOD, LeftOut, Ranked, choose, contenders, is_modelled, rank, regrets};
use crate::document::warnings::NO_FIGURE;
use crate::document::{Answer, Arm, ArmKind, Document, Record, Status, Warning, other_cpu};
use crate::error::Exit;
use crate::metric::{Metric, NMI_HANDLER, ROTATION, SET_UP};
use crate::paired::{self, MIN_ROUNDS, Ratio};
use serde_json::json;

/// The strategy that others are compared with: that of KVM before 5.5, the oldest.
const OLDEST: &str = "recreate";

/// Returns the results of one or several workloads as they are shown: the answer, one table, what must be known about it, and all
/// columns if they are `whole`.
pub fn report(documents: &[Document], whole: bool) -> Report {
    let mut report = Report::default();
    let Some(first) = documents.first() else { return report };
    report.title = format!("vpmu {}", first.experiment);
    report.notes(choice(documents).map_or_else(|why| why, Some));
    head(documents, &mut report);
    let of = |document| if documents.len() > 1 { format!("{}: ", events(document)) } else { String::new() };
    for document in documents {
        report.notes(known(document, whole || documents.len() == 1).into_iter().map(|text| of(document) + &text));
    }
    for document in documents.iter().filter(|_| whole) {
        let per = match metric(document).key {
            key if key == SET_UP.key => "set-up",
            key if key == ROTATION.key => "rotation",
            _ => "PMI",
        };
        let heading = format!("{}All samples of all rounds together", of(document));
        column::add(&mut report, heading, Place::Latency, document);
        column::add(&mut report, format!("{}Host work per {per}", of(document)), Place::Work, document);
    }
    place(first, &mut report);
    report
}

/// Returns any document as it is shown whole: that of guests with their tables, another as [`plain`] does.
pub fn of_record(record: &Record) -> Report {
    record.as_guests().map_or_else(|| plain(record), |document| report(&[document], true))
}

/// Adds the first table, an arm a row: its p50 and ratio to the floor, and what it made the host do.
fn head(documents: &[Document], report: &mut Report) {
    let several = documents.len() > 1;
    let columns = || column::columns(Place::Answer);
    let level = paired::heading(metric(&documents[0]).key);
    let head = several.then_some("workload").into_iter().chain(["arm", level, "× floor [95 %]"]);
    let mut table = Table::new(head.chain(columns().map(|column| column.heading)));
    if several {
        table = table.keys(2).left(1);
    }
    for document in documents {
        for (name, arm, figures) in column::rows(document) {
            let level = paired::level(arm, metric(document).key);
            let over = match (arm.kind, level) {
                (ArmKind::Floor, Some(_)) => "1".into(),
                _ => Cell::ratio(over_floor(document, arm).as_ref()),
            };
            let cells = several.then(|| events(document).into()).into_iter();
            let cells = cells.chain([name.into(), Cell::level(metric(document).key, level.as_ref()), over]);
            table.add_row(cells.chain(columns().map(|column| column.cell(&figures))));
        }
    }
    report.heading(heading(&documents[0], !several));
    report.table(table);
    let per = if documents[0].parameters.set_up.is_some() { "set-up" } else { "PMI or rotation" };
    let means = if documents[0].is_replayed() {
        "mean: over all parts of the trace; × floor: of means"
    } else {
        "p50: median over rounds of each round's median; × floor: middle of the rounds' own ratios, not p50 ÷ p50"
    };
    let work = column::legend(Place::Answer);
    report.note(format!("{means}; floor: an estimated lower bound; {work}; each per {per}"));
}

/// Says what a document is of: the metric, the workload where it is one alone, the guest.
fn heading(document: &Document, with_workload: bool) -> String {
    let parameters = &document.parameters;
    let name = metric(document).name;
    let what = name[..1].to_uppercase() + &name[1..];
    let simulated = if document.is_simulated() { "SIMULATED: " } else { "" };
    let workload = if with_workload { format!(", {}", parameters.workload) } else { String::new() };
    let cpu = other_cpu(&parameters.cpu).map(|cpu| format!(", {cpu}")).unwrap_or_default();
    let on = parameters.cpus.map(|cpus| format!(" on {}", plural(cpus as usize, "CPU"))).unwrap_or_default();
    let enabled = parameters.set_up.as_ref().map(|set_up| format!(", enabled {}", set_up.enable)).unwrap_or_default();
    let vcpus = plural(parameters.vcpus as usize, "vCPU");
    format!("{simulated}{what}{workload}{enabled}, {vcpus}{on}{cpu}")
}

/// Says what must be known of a document's figures, and how the run went; `whole`: and which arms nothing tells apart.
fn known(document: &Document, whole: bool) -> Vec<String> {
    let (parameters, metric) = (&document.parameters, metric(document));
    let mut said = Vec::new();
    if document.arms.iter().any(|arm| is_modelled(&arm.name) && arm.kind == ArmKind::Strategy) {
        said.push("the floor bounds a PMU whose accesses exit: those of a mediated one do not".to_owned());
    }
    let short = document.arms.iter().map(|arm| (&arm.name, paired::short(arm, metric.key)));
    let short = short.filter(|(_, short)| *short > 0);
    said.extend(short.map(|(arm, short)| format!("{arm}: {} of few samples left out", plural(short, "round"))));
    let is_open = |(arm, base): &(&Arm, &Arm)| {
        ratio(document, arm, base).is_some_and(|ratio| ratio.interval.is_some() && !ratio.is_distinguishable())
    };
    let open = paired::in_plan_order(&document.arms, metric.key).into_iter().filter(is_open);
    let open: Vec<String> = open.map(|(arm, base)| format!("{} and {}", arm.name, base.name)).collect();
    // Of several workloads, whose first line names what is as good, this would be two lines more.
    if whole && !open.is_empty() {
        said.push(format!("not distinguishable: {}", open.join(", ")));
    }
    let is_below = |arm: &Arm| {
        let over = over_floor(document, arm).and_then(|over| over.interval);
        arm.kind == ArmKind::Strategy && !is_modelled(&arm.name) && over.is_some_and(|over| over.high < 1.0)
    };
    if !document.is_replayed() && document.arms.iter().any(is_below) {
        let text = "the floor is no lower bound here: its own timer took longer; compare strategies with one another";
        said.push(text.to_owned());
    }
    said.extend(document.warnings.iter().filter(|one| NO_FIGURE.contains(&&*one.code)).map(line));
    // KVM's own vPMU is tried in every run, and no surprise where there is none.
    for arm in document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm) {
        said.extend(arm.not_available.iter().map(|why| format!("{}: not available because {why}", arm.name)));
    }
    let rounds = document.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    let asked = plural(usize::try_from(parameters.rounds).unwrap_or(usize::MAX), "round");
    let clock = if document.is_simulated() { " of simulated time" } else { "" };
    let in_time = parameters.until_ci.is_some() && parameters.duration_ns.is_none_or(|ns| document.wall_ns < ns);
    let early = match document.status {
        Status::Complete if rounds as u64 >= parameters.rounds => "",
        Status::Complete if in_time => "; every interval was narrow enough",
        Status::Complete => "; the time was up",
        other => &format!("; {}", other.words()),
    };
    said.push(format!(
        "{rounds} of {asked} in {}{clock}, seed {}{early}",
        time(document.wall_ns as f64),
        document.seed
    ));
    said.extend(lacks(document));
    said
}

/// The name of a workload's events.
fn events(document: &Document) -> &str {
    let workload = &document.parameters.workload;
    workload.strip_suffix("/ftest").unwrap_or(workload)
}

/// Ratio of two arms of a document by its metric.
fn ratio(document: &Document, arm: &Arm, base: &Arm) -> Option<Ratio> {
    paired::over_runs(document, arm, base, metric(document).key)
}

/// Ratio of an arm to the floor; `None` of the floor itself.
fn over_floor(document: &Document, arm: &Arm) -> Option<Ratio> {
    let floor = document.arms.iter().find(|floor| floor.kind == ArmKind::Floor && floor.name != arm.name)?;
    ratio(document, arm, floor)
}

/// Chooses the strategy that the rule of `advise` does, if all results have it, with those that are as good; or says why there is no
/// choice, if there is anything to say, and whether measuring better would give one.
fn chosen(documents: &[Document]) -> Result<(String, String), Option<(bool, String)>> {
    let (found, lacks): (Vec<_>, Vec<_>) =
        documents.iter().map(|document| regrets(document, metric(document), column::work)).unzip();
    let strategies = rank(found.iter().map(Vec::as_slice));
    if let Some((one, as_good, open)) = choose(&strategies, true).filter(|(one, ..)| one.results == documents.len()) {
        // Of handlers six rounds that tell nothing apart may be a turn of `ab`, which is no failure.
        let behind =
            |other: &Ranked| other.results == one.results && other.worst_interval.low > one.worst_interval.high;
        if !open.is_empty() && !strategies.iter().any(behind) && documents[0].parameters.set_up.is_some() {
            let with: Vec<String> = documents.iter().map(number).collect();
            let why = "none is told from another; take more --rounds, or a host that is less busy";
            return Err(Some((
                true,
                format!("of the strategies with {} {why}", listed(with.iter().map(|one| &**one))),
            )));
        }
        return Ok((one.arm.clone(), listed(as_good.iter().map(|one| &*one.arm))));
    }
    // Where no figures are wanting there was one strategy, which is no question; what is not available is said.
    let open = |(one, lacks): (_, &Vec<LeftOut>)| Some((one, lacks.iter().find(|lack| lack.is_open)?.clone()));
    Err(documents.iter().zip(&lacks).find_map(open).map(|(document, lack)| {
        let (metric, count) = (metric(document), |arm| paired::counting(arm, metric(document).key).count());
        let rounds = contenders(document, metric).map(count).min().unwrap_or(MIN_ROUNDS);
        if rounds < MIN_ROUNDS {
            (false, format!("no interval of {}; take more (--rounds, --duration)", plural(rounds, "round")))
        } else {
            (true, format!("{} with {}: {}", lack.what, number(document), lack.why))
        }
    }))
}

/// Adds to the answers of results what the first line says of each: the chosen strategy beside another. Returns whether it says any, or
/// that there is no answer, with which they end. An interrupted run has none.
pub fn add_choice(documents: &mut [Document]) -> bool {
    if documents.iter().any(|document| document.status == Status::Interrupted) {
        return false;
    }
    let found = chosen(documents);
    let is_open = matches!(found, Err(Some((true, _))));
    for document in documents {
        document.exit = if is_open { Some(Exit::Inconclusive.code()) } else { document.exit };
        let Ok((name, _)) = &found else { continue };
        let own = answers::of(document, metric(document).key).into_iter().find(|own| own.arm == *name);
        let choice = own.zip(beside(document, name)).map(|(own, (base, found))| Answer {
            choice: true,
            rounds: found.rounds as u64,
            ..own.beside(base, found)
        });
        document.answer.extend(choice.map(|choice| json!(choice)));
    }
    is_open || found.is_ok()
}

/// Describes the strategy that the rule of `advise` chooses, beside others in each workload; or says why there is none.
fn choice(documents: &[Document]) -> Result<String, Option<String>> {
    let none = |(is_open, why)| if is_open { format!("no answer: {why}") } else { why };
    let (first, (name, as_good)) = (&documents[0], chosen(documents).map_err(|why| why.map(none))?);
    let what = if metric(first).key == NMI_HANDLER.key { " handler time" } else { " time" };
    let nouns = std::iter::once(what).chain(std::iter::repeat(""));
    let part = |(document, what): (&Document, &str)| {
        let (base, found) = beside(document, &name)?;
        Some(times(&found, &format!("{}'s{what} with {}", base.name, number(document))))
    };
    let parts: Vec<String> = documents.iter().zip(nouns).filter_map(part).collect();
    let is_cut = documents.iter().any(|document| document.status == Status::Interrupted);
    let cut = if is_cut { " (interrupted)" } else { "" };
    let mut said = format!("{name}: {}{}{cut}", parts.join("; "), origin(first));
    if !as_good.is_empty() {
        said.extend(["; as good: ", &as_good]);
    }
    let with = |one| unranked(one, metric(one), &format!(" with {}", number(one)));
    Ok(said + &documents.iter().filter_map(with).collect::<String>())
}

fn metric(document: &Document) -> &'static Metric {
    answers::metric(&document.parameters)
}

/// The events of a workload, as a number; those of a trace are in it.
fn number(document: &Document) -> String {
    match document.parameters.events.len() {
        0 => events(document).to_owned(),
        count if document.parameters.samples_events() => plural(count, "event"),
        count => plural(count, "counting event"),
    }
}

/// Places a strategy beside the fastest other one of a workload if that is faster, else beside the oldest: an equal tells nothing.
fn beside<'a>(document: &'a Document, name: &str) -> Option<(&'a Arm, Ratio)> {
    let own = document.arm(name)?;
    let others = contenders(document, metric(document)).filter(|arm| arm.name != name);
    let mut others: Vec<_> = others.filter_map(|arm| Some((arm, ratio(document, own, arm)?))).collect();
    others.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    let is_behind = |found: &Ratio| found.ratio > 1.0 + AS_GOOD && found.is_distinguishable();
    let ahead = others.first().filter(|(_, found)| is_behind(found));
    ahead.or_else(|| others.iter().find(|(arm, _)| arm.name == OLDEST)).or(others.first()).copied()
}

/// Describes what was measured, and where.
fn place(document: &Document, report: &mut Report) {
    let parameters = &document.parameters;
    let stand_in = document.arms.iter().any(|arm| arm.stand_in);
    let what = if stand_in { ", a stand-in for hardware events (compare arms only)" } else { "" };
    report.note(format!("backend: {}{what}", parameters.backend));
    let fitted = if document.is_simulated() { "; what is fitted: vpmu show models NAME" } else { "" };
    report.note(format!("host: {}{fitted}", document.host.class));
    report.notes(parameters.linux.as_ref().map(|linux| {
        let release = linux.release.as_deref().unwrap_or("of an unknown release");
        format!("guest: Linux {release}, CPU {}, {}", linux.cpu, linux.perf)
    }));
}

/// Returns a document's warnings, one line each; the host's settings together in one, since `doctor` describes them. Documents up
/// to 30 November 2026 warn of the first period without an overflow of its own: nobody can act on a few.
pub fn warnings(warnings: &[Warning]) -> impl Iterator<Item = String> {
    let settings: Vec<&str> =
        warnings.iter().filter(|warning| warning.remedy.is_some()).map(|warning| warning.code.as_str()).collect();
    let settings = (!settings.is_empty())
        .then(|| format!("noise sources on this host: {}; see `vpmu doctor`", settings.join(", ")));
    let own =
        warnings.iter().filter(|one| one.remedy.is_none() && !matches!(&*one.code, "late-periods" | "missed-periods"));
    own.map(line).chain(settings)
}

/// Returns a warning with the name of its arm.
fn line(warning: &Warning) -> String {
    warning.arm.as_ref().map_or(warning.message.clone(), |arm| format!("{arm}: {}", warning.message))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::{LinuxParameters, SetUpParameters};
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
            let text = super::report(std::slice::from_ref(&document), true).text(60);
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
        super::report(&documents, false).text(400).lines().next().expect("an answer").to_owned()
    }

    #[test]
    fn the_answer_is_the_least_worst_strategy_beside_the_fastest_or_the_oldest() {
        let times = [("recreate", 3000, 1200), ("reuse", 2600, 1100), ("gate", 1500, 1150), ("pool", 2600, 1145)];
        for (arms, first, second) in [
            ("recreate reuse gate", "0.500 × recreate", "; 1.045 × reuse's with 1 event ["),
            // An equal tells nothing, unless there is no other.
            ("recreate gate pool", "0.500 × recreate", "; 0.958 × recreate's with 1 event ["),
            ("gate pool", "0.577 × pool", "; 1.004 × pool's with 1 event ["),
        ] {
            let there = || times.iter().filter(|one| arms.split(' ').any(|name| name == one.0));
            let [ten, one] = [0, 1].map(|at| there().map(|one| (one.0, [one.1, one.2][at])).collect::<Vec<_>>());
            let (text, wanted) = (said(&ten, &one), format!("gate: {first}'s handler time with "));
            assert!(text.starts_with(&wanted) && text.contains(second), "{text}");
        }
        let text = said(&[("recreate", 3000), ("reuse", 1500)], &[("recreate", 1200), ("gate", 1100)]);
        assert!(text.starts_with("Guest NMI"), "one strategy in each is no choice: {text}");
        let mut both = [1, 2].map(|_| fixture::of_strategies(10, &["recreate", "reuse"]));
        let mut cut = both.clone();
        cut[1].status = Status::Interrupted;
        assert!(add_choice(&mut both.clone()) && !add_choice(&mut cut), "what was cut has no choice");
        both[1].arms[0].own.lost = Some(1);
        let text = super::report(&both, false).text(400);
        assert!(text.starts_with("no answer: recreate with ") && text.contains("it has no whole figures\n"), "{text}");
        let mut one = [fixture::document(10)];
        one[0].arms[1].own.lost = Some(1);
        let text = super::report(&one, false).text(400);
        assert!(text.contains("; not whole with 1 event, so not ranked: reuse\n"), "{text}");
        let text = said(&[("recreate", 3000), ("reuse", 3000)], &[("recreate", 1200), ("reuse", 1200)]);
        assert!(text.starts_with("recreate: 1.000 × reuse's") && text.ends_with("; as good: reuse"), "{text}");
        let wild = record(9, 5, |arm, round| 1000 + (round * 7 + arm.len() as u64) % 5 * 100).as_guests().unwrap();
        let set_ups = wild.to_json().unwrap().replace(NMI_HANDLER.key, SET_UP.key);
        let mut one: [Document; 1] = [serde_json::from_str(&set_ups).unwrap()];
        one[0].parameters.set_up = Some(SetUpParameters { enable: "each".to_owned(), window_ticks: 2, gap_ticks: 1 });
        let why = choice(&one).unwrap_err().unwrap();
        assert!(why.starts_with("no answer: of the strategies with 1 event none is told from another; "), "{why}");
        assert!(add_choice(&mut one) && one[0].exit == Some(Exit::Inconclusive.code()));
    }

    #[test]
    fn pairs_that_are_not_told_apart_are_named() {
        let host = Host { rounds: 400, rounds_per_guest: 1, ..Host::default() };
        let arms = host.run(&[1.3_f64.ln(), 1.2_f64.ln(), 1.204_f64.ln(), 0.0], &mut Random::new(3));
        let template = record(160, 1, |_, _| 1000);
        let arms: Vec<_> = arms.iter().map(|turns| turns[..160].to_vec()).collect();
        let said = known(&fixture::of_turns(&template, 5, &arms).as_guests().unwrap(), true);
        let open: Vec<&String> = said.iter().filter(|line| line.starts_with("not distinguishable")).collect();
        assert_eq!(open, ["not distinguishable: reuse-lazy and reuse"]);
    }
}
