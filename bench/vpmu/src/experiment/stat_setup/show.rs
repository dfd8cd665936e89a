//! The result as it is shown: the answer, phases, ratios, notes.

use results::document::{Arm, Record, Status};
use results::metric::{ELAPSED, TO_COUNTS, TOTAL};
use results::paired::{MIN_ROUNDS, Ratio, over_runs};
use results::table::layout::{self, dash, plural, time};
use results::table::{Report, Table, state};
use stat_setup::method::Phase;

use super::peer::NONE;

/// Half of the widest interval that answers: to twice the ratio, and to half of it.
const WIDEST: f64 = 1.0;

/// Returns the ratio of an arm's total to `auto`'s.
fn over_auto(document: &Record, arm: &Arm) -> Option<Ratio> {
    let auto = document.arm("auto").filter(|auto| auto.name != arm.name)?;
    over_runs(document, arm, auto, TOTAL.key)
}

/// Returns the arm of stock perf's fastest grouping.
fn perf(document: &Record) -> Option<&Arm> {
    // The best grouping is the last.
    document.arms.iter().rfind(|arm| arm.name.starts_with("perf "))
}

/// Returns in how many rounds an arm took no longer than its start-up, and of how many, if these are so many that the middle half of
/// rounds, which a ratio is of, is partly of them: no time, but what stands for none.
pub(crate) fn too_short(arm: &Arm) -> Option<(usize, usize)> {
    let totals: Vec<f64> = arm.rounds.metrics.get(TOTAL.key)?.medians().collect();
    let short = totals.iter().filter(|&&total| total <= NONE as f64).count();
    (short > 0 && 4 * short >= totals.len()).then_some((short, totals.len()))
}

/// Returns the ratio that is the answer, and of what it is: that of stock perf's fastest grouping, a process less its start-up, to
/// `auto`, which counts in groups, too; without perf that of perf's order since Linux 5.5.
fn answer(document: &Record) -> Option<(String, Ratio)> {
    let perf = perf(document);
    let how = if perf.is_some() { "less start-up, and warm" } else { "as perf since Linux 5.5, both warm" };
    let arm = perf.or(document.arm("cpu-major"))?;
    Some((format!("{} ÷ auto, {how}", arm.name), over_auto(document, arm)?))
}

/// Returns whether the answer is no open one: with stock perf there is to be an interval, and none is too wide.
pub(crate) fn is_answered(document: &Record) -> bool {
    let sure = |found: &Ratio, asked: bool| found.half_width().map_or(!asked, |half| half <= WIDEST);
    perf(document).and_then(too_short).is_none()
        && answer(document).is_none_or(|(what, found)| sure(&found, what.starts_with("perf ")))
}

/// Returns the median times of phases and the ratio to `auto`, one row per arm.
fn phases(document: &Record) -> Table {
    let names = Phase::ALL.map(Phase::name);
    // Commands alone are processes with a time of their own.
    let process = document.arms.iter().any(|arm| arm.metrics.contains_key(ELAPSED.key)).then_some("process");
    let header = ["arm"].into_iter().chain(names).chain(["total", "counts"]).chain(process).chain(["÷ auto [95 %]"]);
    let mut table = Table::new(header);
    for arm in &document.arms {
        let keys = names.map(|name| format!("phases/{name}/wall_ns")).into_iter();
        let keys =
            keys.chain([TOTAL.key, TO_COUNTS.key].into_iter().chain(process.map(|_| ELAPSED.key)).map(str::to_owned));
        let p50 = |key: String| arm.metrics.get(&key).map(|found| found.p50).filter(|p50| *p50 > NONE);
        let times = keys.map(|key| p50(key).map_or_else(dash, |p50| time(p50 as f64)));
        let over = over_auto(document, arm).filter(|_| too_short(arm).is_none());
        let over = over.map_or_else(dash, |found| layout::ratio_with(&found));
        table.add_row(std::iter::once(arm.name.clone()).chain(times).chain([over]));
    }
    table
}

/// Formats the answer; a ratio without an interval is none, and one of a wide interval, or of too many rounds without a time, is open.
fn sentence(what: &str, found: &Ratio, too_short: Option<(usize, usize)>) -> String {
    let (ratio, rounds) = (layout::ratio_with(found), plural(found.rounds, "round"));
    let open = |why: &str| format!("inconclusive: {why}; take more --rounds or --events, or a host that is less busy");
    match (found.half_width(), too_short) {
        (None, _) => format!("no interval of {rounds}; take {MIN_ROUNDS} or more (--rounds)"),
        (_, Some((short, of))) => open(&format!("in {short} of {of} rounds perf took no longer than its start-up")),
        (Some(half), _) if half > WIDEST => open(&format!("{ratio} ×: {what}; {rounds}")),
        _ => format!("answer: {ratio} ×: {what}; {rounds}"),
    }
}

/// Returns the whole result as it is shown.
pub(crate) fn report(document: &Record) -> Report {
    let mut report = Report::new("vpmu stat-setup");
    let parameter = |name: &str| document.parameter(name).unwrap_or_default();
    let done = document.arms.first().map_or(0, |arm| arm.rounds.len());
    let short = document.status == Status::Complete && (done as u64) < document.size("rounds").unwrap_or_default();
    let ended = if short { format!(" of {}, ended by --duration", parameter("rounds")) } else { String::new() };
    let of = |name: &str, unit: &str| plural(document.size(name).unwrap_or_default() as usize, unit);
    let (events, cpus) = (of("events", "event"), of("cpus", "CPU"));
    let (mode, rounds) = (parameter("mode"), plural(done, "round"));
    report.heading(format!("Set-up of {events} on {cpus} ({mode}), {rounds}{ended}"));
    report.notes(answer(document).map(|(what, found)| sentence(&what, &found, perf(document).and_then(too_short))));
    report.table(phases(document));
    report.note(
        "median of a round; total: of a process less its start-up, – if it took no longer; counts: until they are there; ÷ auto: of totals, within \
         rounds; bare calls are the limit",
    );
    state(document, &mut report);
    report
}

#[cfg(test)]
mod tests {
    use results::host::{HostFacts, HostFs};
    use serde_json::Value;

    use super::*;
    use crate::engine::Rounds;
    use crate::engine::plain::{Experiment, Plain, Sample};
    use crate::terminal::progress::Silent;

    #[test]
    fn there_is_an_answer_unless_the_interval_is_wide() {
        // In so many of the rounds perf takes long, and in the others so many ns: 1 stands for no longer than its start-up. Without it no
        // comparison was asked for.
        for (arm, longer, short, rounds, begins, is_answer) in [
            ("perf as given", 20, 1, 20, "answer: 2.00", true),
            ("perf as given", 16, 1, 20, "answer: 2.00", true),
            (
                "perf as given",
                15,
                1,
                20,
                "inconclusive: in 5 of 20 rounds perf took no longer than its start-up",
                false,
            ),
            ("perf as given", 3, 1, 20, "inconclusive: in 17 of 20 rounds", false),
            ("perf as given", 0, 1, 20, "inconclusive: in 20 of 20 rounds", false),
            ("perf as given", 10, 2, 20, "inconclusive: 0.", false),
            ("perf as given", 3, 1, 3, "no interval of 3 rounds; take 5 or more", false),
            ("cpu-major", 3, 1, 3, "no interval of 3 rounds; take 5 or more", true),
        ] {
            let mut arms = [(arm, longer, 2), ("auto", rounds, 1)].map(|(name, longer, times)| {
                Plain::new(name, "process", move |turn| {
                    let total = if turn.index < longer { times * (1000 + turn.index % 3) } else { short };
                    Ok(Some(Sample::default().with(&ELAPSED, [9000]).with(&TOTAL, [total])))
                })
            });
            let experiment = Experiment { name: "stat-setup", parameters: Value::Null, rounds: Rounds::of(rounds, 1) };
            let (fs, facts) = (HostFs::at("/nonexistent"), HostFacts::default());
            let found = experiment.measure(&mut arms, (facts, &fs), &[], &mut Silent, &mut |_| Ok(()));
            let document = found.unwrap().0;
            let text = report(&document).text(200);
            assert!(text.contains(begins), "{longer}: {text}");
            assert_eq!(is_answered(&document), is_answer, "{arm} {longer}");
        }
    }
}
