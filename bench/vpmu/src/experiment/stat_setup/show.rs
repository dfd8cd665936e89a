//! The result as it is shown: phases, ratios, notes.

use results::document::{Arm, Record, Status};
use results::metric::{ELAPSED, TO_COUNTS, TOTAL};
use results::paired::{MIN_ROUNDS, Ratio, Statistic, ratio};
use results::table::layout::{self, dash, plural, time};
use results::table::{Report, Table, state};
use stat_setup::method::Phase;

use super::peer::OWN;

/// Returns the ratios of totals, and whether the first is the answer: that of stock perf's fastest grouping to this tool, both as
/// processes less their start-ups, as `auto` counts in groups, too; without perf that of perf's order since Linux 5.5 to `auto`.
fn ratios(document: &Record) -> (Vec<(String, Ratio)>, bool) {
    let mut asked: Vec<(&str, &str, &str)> = Vec::new();
    // The best grouping is the last.
    for arm in document.arms.iter().rev().filter(|arm| arm.name.starts_with("perf ")) {
        asked.push((&arm.name, OWN, "both processes less start-up"));
        asked.push((&arm.name, "auto", "less start-up, and warm"));
        asked.push((&arm.name, "bare calls", "the limit"));
    }
    asked.push(("cpu-major", "auto", "as perf since Linux 5.5, both warm"));
    asked.extend(["event-major", "threads", "packed"].map(|name| (name, "auto", "both warm")));
    asked.push(("auto", "bare calls", "the limit"));
    let like = [OWN, "cpu-major"];
    let is_answer =
        |(one, over, _): &(&str, &str, &str)| like.contains(over) || like.contains(one) && document.arm(OWN).is_none();
    let found: Vec<_> = asked
        .iter()
        .filter_map(|all @ (one, over, how)| {
            let found = ratio(document.arm(one)?, document.arm(over)?, TOTAL.key, Statistic::P50)?;
            Some((is_answer(all), (format!("{one} ÷ {over}, {how}"), found)))
        })
        .collect();
    let has_answer = found.first().is_some_and(|(is_answer, _)| *is_answer);
    (found.into_iter().map(|(_, one)| one).collect(), has_answer)
}

/// Returns whether the answer is sure, if there is a question.
pub(crate) fn is_answered(document: &Record) -> bool {
    let (ratios, has_answer) = ratios(document);
    !has_answer || ratios.first().is_some_and(|(_, found)| found.interval.is_some())
}

/// Returns the median times of phases, one row per arm.
fn phases(arms: &[Arm]) -> Table {
    let names = Phase::ALL.map(Phase::name);
    let mut table = Table::new(["arm"].into_iter().chain(names).chain(["total", "counts", "process"]));
    for arm in arms {
        let keys = names.map(|name| format!("phases/{name}/wall_ns")).into_iter();
        let keys = keys.chain([TOTAL.key, TO_COUNTS.key, ELAPSED.key].map(str::to_owned));
        let times = keys.map(|key| arm.metrics.get(&key).map_or_else(dash, |found| time(found.median())));
        table.add_row(std::iter::once(arm.name.clone()).chain(times));
    }
    table
}

/// Formats the answer; a ratio without an interval is none.
fn answer((what, found): &(String, Ratio), done: usize) -> String {
    if found.interval.is_some() {
        return format!("answer: {} ×: {what}; {}", layout::ratio_with(found), plural(found.rounds, "round"));
    }
    let of = plural(done, "round");
    format!("no answer: {} of {of} can be compared; an interval takes {MIN_ROUNDS} (--rounds)", found.rounds)
}

/// Returns the whole result as it is shown.
pub(crate) fn report(document: &Record) -> Report {
    let mut report = Report::new("vpmu stat-setup");
    let parameter = |name: &str| document.parameter(name).unwrap_or_default();
    let done = document.arms.first().map_or(0, |arm| arm.rounds.len());
    let short = document.status == Status::Complete && (done as u64) < document.size("rounds").unwrap_or_default();
    let ended = if short { format!(" of {}, ended by --duration", parameter("rounds")) } else { String::new() };
    let cpus = plural(document.size("cpus").unwrap_or_default() as usize, "CPU");
    let (events, mode, rounds) = (parameter("events"), parameter("mode"), plural(done, "round"));
    report.heading(format!("Set-up of {events} events on {cpus} ({mode}), {rounds}{ended}"));
    let (ratios, has_answer) = ratios(document);
    report.notes(ratios.first().filter(|_| has_answer).map(|one| answer(one, done)));
    report.table(phases(&document.arms));
    report.line("median of a round; total: of a process less its start-up; counts: until they are there");
    if !ratios.is_empty() {
        let mut table = Table::new(["ratio [95 %]", "of what"]).left(1);
        for (what, ratio) in &ratios {
            table.add_row([layout::ratio_with(ratio), what.clone()]);
        }
        report.gap();
        report.table(table);
    }
    report.gap();
    state(document, &mut report);
    report
}
