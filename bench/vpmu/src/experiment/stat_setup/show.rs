//! Tables of the result for a terminal.

use std::fmt::Write as _;

use cpu_list::CpuList;
use results::document::{Status, Summary};
use results::metric::TOTAL;
use results::paired::MIN_ROUNDS;
use results::stats::interval::Interval;
use results::table::layout::{self, dash, time};
use results::table::{Report, Table};
use stat_setup::unit::Outcome;

use super::document::{Arm, Comparison, Document};

/// One of the times of a phase, if it has any.
fn times<'a>(arm: &'a Arm, phase: &str, time: &str) -> Option<&'a Summary> {
    arm.metrics.get(&format!("phases/{phase}/{time}"))
}

fn header(first: &str, arms: &[Arm], last: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    for phase in arms.iter().flat_map(|arm| &arm.own.phases) {
        // A phase without calls gets no column.
        if !names.contains(&phase.phase) && arms.iter().any(|arm| times(arm, &phase.phase, "call_ns").is_some()) {
            names.push(phase.phase.clone());
        }
    }
    let mut all = vec![first.to_owned()];
    all.extend(names.iter().cloned());
    all.extend(last.iter().map(|&text| text.to_owned()));
    (names, all)
}

/// Returns one row per arm, one column per phase.
fn by_phase(
    arms: &[Arm],
    get: impl Fn(&Arm, &super::document::PhaseResult) -> String,
    last: &[&str],
    more: impl Fn(&Arm) -> Vec<String>,
) -> Table {
    let (names, head) = header("strategy", arms, last);
    let mut table = Table::new(head);
    for arm in arms {
        let mut row = vec![arm.name.clone()];
        let phase = |name: &String| arm.own.phase(name).filter(|_| times(arm, name, "call_ns").is_some());
        row.extend(names.iter().map(|name| phase(name).map_or_else(dash, |phase| get(arm, phase))));
        row.extend(more(arm));
        table.add_row(row);
    }
    table
}

fn number(n: Option<u64>) -> String {
    n.map_or_else(|| "?".to_owned(), |n| n.to_string())
}

const WORK_LEGEND: &str = "user, sys: CPU time; calls: on events, and about affinity; syscalls: all of the process; remote: \
                           functions queued to another CPU; RES, CAL: reschedule and function-call interrupts that all CPUs \
                           received, a broadcast to 9 CPUs as 9, with those of other programs; TLB: shootdowns among CAL; \
                           moves: migrations of its threads; fds: files opened; ? where it cannot be seen";

fn work(arms: &[Arm]) -> Table {
    let head = ["strategy", "user", "sys", "calls", "syscalls", "remote", "RES", "CAL", "TLB", "moves", "fds"];
    let mut table = Table::new(head);
    for arm in arms {
        let sum = |get: fn(&super::document::PhaseResult) -> f64| time(arm.own.phases.iter().map(get).sum());
        let traffic = arm
            .own
            .phases
            .iter()
            .map(|phase| phase.traffic)
            .reduce(stat_setup::monitor::Traffic::plus)
            .unwrap_or_default();
        table.add_row(vec![
            arm.name.clone(),
            sum(|phase| phase.user_ns),
            sum(|phase| phase.sys_ns),
            arm.own.phases.iter().map(|phase| phase.syscalls).sum::<u64>().to_string(),
            number(traffic.syscalls),
            number(traffic.remote_calls),
            number(traffic.reschedules),
            number(traffic.function_calls),
            number(traffic.tlb_shootdowns),
            number(traffic.migrations),
            number(arm.own.check.as_ref().map(|check| check.opened)),
        ]);
    }
    table
}

/// Adds the first hundred events without a count, in perf's terms.
fn not_whole(document: &Document, report: &mut Report) {
    let lost = document.extra.events.iter().filter(|event| !event.outcome.is_whole());
    let (shown, rest): (Vec<_>, Vec<_>) = lost.enumerate().partition(|(i, _)| *i < 100);
    for (_, event) in shown {
        let (word, why) = match &event.outcome {
            Outcome::NotSupported { why } => ("<not supported>", why),
            Outcome::NotCounted { why } => ("<not counted>", why),
            _ => continue,
        };
        let copies = if event.copies > 1 { format!(" ({} of them)", event.copies) } else { String::new() };
        report.note(format!("{word:>16}  {}{copies}: {}", event.name, results::error::one_line(why)));
    }
    if !rest.is_empty() {
        report.line(format!("{:>16}  and {} more", "", rest.len()));
    }
}

fn peer(document: &Document, report: &mut Report) {
    let Some(peer) = &document.extra.peer else { return };
    let mut table = Table::new(["command", "min", "p50", "max", "p50 less start-up", "to counts"]);
    for arm in &peer.arms {
        let less = arm.less_startup_ns.map_or_else(dash, |ns| time(ns.max(0) as f64));
        table.add_row(vec![
            if arm.name.starts_with("vpmu") { arm.name.clone() } else { format!("perf {}", arm.name) },
            layout::ns(arm.wall_ns.min),
            time(arm.wall_ns.p50 as f64),
            layout::ns(arm.wall_ns.max),
            less,
            arm.to_counts_ns.as_ref().map_or_else(dash, |counts| time(counts.p50 as f64)),
        ]);
    }
    report.gap();
    report.heading(format!("Beside stock perf ({}), whole processes", peer.version));
    report.table(table);
    if let Some((perf, own)) = peer.counted {
        report.line(format!("counts: perf gave {perf}, this tool {own}"));
    }
}

/// Formats a ratio with its interval.
fn comparison(one: &Comparison) -> String {
    let Comparison { what, ratio, interval, .. } = one;
    let figure = layout::ratio_in(*ratio, interval.map(|[low, high]| Interval { low, high }));
    let few = match interval {
        None => ", too few for an interval",
        Some([low, high]) if *low <= 1.0 && 1.0 <= *high => ", not distinguishable",
        Some(_) => "",
    };
    format!("{figure} ×: {what}; {}{few}", rounds(one.rounds))
}

/// Formats the answer; a ratio without an interval is none.
fn answer(one: &Comparison, done: u64) -> String {
    if one.interval.is_some() {
        return format!("answer: {}", comparison(one));
    }
    let (of, least) =
        (rounds(done), if done < MIN_ROUNDS as u64 { "" } else { ", as the others are no longer than their start-up" });
    format!("no answer: {} of {of} can be compared{least}; an interval takes {MIN_ROUNDS} (--rounds)", one.rounds)
}

fn rounds(n: u64) -> String {
    if n == 1 { "1 round".to_owned() } else { format!("{n} rounds") }
}

/// Returns the whole result as it is shown.
pub(crate) fn report(document: &Document) -> Report {
    let mut report = Report::new("vpmu stat-setup");
    let parameters = &document.parameters;
    let cpus = CpuList(parameters.cpus.clone());
    let done = document.arms.first().map_or(0, |arm| arm.rounds.len()) as u64;
    let mut heading =
        format!("Set-up of {} events on CPU {cpus} ({}), {}", parameters.events, parameters.mode, rounds(done));
    if document.status == Status::Complete && done < parameters.rounds {
        let _ = write!(heading, " of {}, ended by --duration", parameters.rounds);
    }
    report.heading(heading);
    let (answer, others) =
        document.extra.ratios.split_at(document.extra.ratios.partition_point(|one| one.like_for_like));
    for one in answer {
        report.note(self::answer(one, done));
    }
    let faster = others.iter().filter(|one| one.interval.is_some_and(|[_, high]| high < 1.0));
    if let Some(one) = faster.min_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
        report.note(format!("fastest, and not auto: {}", comparison(one)));
    }
    let p50 = |summary: Option<&Summary>| time(summary.map_or(0.0, Summary::median));
    let wall = |arm: &Arm, phase: &super::document::PhaseResult| p50(times(arm, &phase.phase, "wall_ns"));
    let total = |arm: &Arm| vec![p50(arm.metric(&TOTAL))];
    report.table(by_phase(&document.arms, wall, &["total"], total));
    report.line("phases, total: median of a round");
    let spread = document.arms.iter().filter_map(|arm| Some((arm, arm.metric(&TOTAL)?)));
    let spread =
        spread.map(|(arm, total)| format!("{} {} to {}", arm.name, layout::ns(total.min), layout::ns(total.max)));
    report.note(format!("totals of the rounds: {}", spread.collect::<Vec<_>>().join(", ")));
    for one in others {
        report.note(comparison(one));
    }
    report.gap();
    report.heading("One call on an event: p50/p99");
    let call = |arm: &Arm, phase: &super::document::PhaseResult| {
        let call = times(arm, &phase.phase, "call_ns");
        format!("{} / {}", p50(call), time(call.and_then(|call| call.p99).unwrap_or_default() as f64))
    };
    report.table(by_phase(&document.arms, call, &[], |_| Vec::new()));
    report.gap();
    report.heading("User/system time of the process, mean");
    let cpu =
        |_: &Arm, phase: &super::document::PhaseResult| format!("{} / {}", time(phase.user_ns), time(phase.sys_ns));
    report.table(by_phase(&document.arms, cpu, &[], |_| Vec::new()));
    report.gap();
    report.heading("System calls/interrupts that CPUs received/migrations of a round");
    let traffic = |_: &Arm, phase: &super::document::PhaseResult| {
        let found = phase.traffic;
        [found.syscalls, found.interrupts(), found.migrations].map(number).join("/")
    };
    report.table(by_phase(&document.arms, traffic, &[], |_| Vec::new()));
    report.gap();
    report.heading("All phases of a round");
    report.table(work(&document.arms));
    report.note(WORK_LEGEND);
    report.gap();
    for arm in document.arms.iter().filter(|arm| matches!(arm.name.as_str(), "packed" | "auto")) {
        report.note(format!("{}: {}", arm.name, arm.own.what));
    }
    if let Some(bare) = &document.extra.bare {
        let (median, what) = (time(bare.wall_ns.median()), &bare.what);
        report.note(format!("bare calls, the limit: {median} ({what}, with nothing around them)"));
    }
    counts(document, &mut report);
    not_whole(document, &mut report);
    peer(document, &mut report);
    if document.extra.events.iter().all(|event| event.class.is_none_or(stat_setup::list::Class::never_competes)) {
        report.note("software and trace events program no PMU: these are the costs of the kernel's bookkeeping");
    }
    report.note(format!("host: {}", document.host.class));
    report.line(format!("{} in {}, seed {}", ended(document.status), time(document.wall_ns as f64), document.seed));
    report
}

/// Says whether all strategies counted the same.
fn counts(document: &Document, report: &mut Report) {
    let checked =
        document.arms.iter().filter_map(|arm| arm.own.check.as_ref()).map(|check| check.checked).min().unwrap_or(0);
    if document.extra.agree {
        report.note(format!(
            "counts: all strategies opened and counted the same events; {checked} of them checked against planted work"
        ));
    } else if document.extra.disagreements.is_empty() {
        report.line("counts: not checked");
    } else {
        report.line("counts: NOT the same for all strategies");
        for line in &document.extra.disagreements {
            report.note(format!("  {line}"));
        }
    }
}

fn ended(status: Status) -> &'static str {
    match status {
        Status::Running => "still running",
        Status::Complete => "complete",
        Status::Incomplete => "incomplete",
        Status::Interrupted => "interrupted: finished rounds only",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_may_be_1_is_not_distinguishable() {
        let of = |interval| Comparison { what: "a ÷ b".into(), like_for_like: true, ratio: 1.2, interval, rounds: 9 };
        assert!(comparison(&of(Some([0.9, 1.5]))).ends_with("9 rounds, not distinguishable"));
        assert!(comparison(&of(Some([1.1, 1.5]))).ends_with("9 rounds"));
        assert!(answer(&of(Some([1.1, 1.5])), 9).starts_with("answer: 1.2"));
        let none = Comparison { rounds: 3, ..of(None) };
        assert_eq!(answer(&none, 3), "no answer: 3 of 3 rounds can be compared; an interval takes 5 (--rounds)");
        assert!(answer(&none, 5).starts_with("no answer: 3 of 5 rounds can be compared, as the others "));
    }
}
