//! Did it get slower, and can it be believed? Two sets of results, arm by arm and metric by metric.
//!
//! Two questions, kept apart. *Did one arm change?* is asked of its ratio to the floor in paired rounds, which a host's drift does
//! not move. *Did all arms change together?* is asked of absolute times, which it does move: they are judged by how runs differ,
//! and that takes [`MIN_RUNS`] runs a side.
//!
//! An arm got slower only if the change is significant (adjusted by Holm's method for the number of rows) *and* strong. "No
//! change" is said only where a slow-down beyond a bound can be excluded.

mod change;
mod comparable;
mod counts;
mod judge;
mod row;
mod rules;
mod sample;
mod show;
mod turns;

pub use crate::paired::Statistic;
pub use change::Order;
pub(crate) use comparable::{definitions, differences};
pub use comparable::{facts, of_record as doubt_of};
pub use judge::{Comparison, Group, SCHEMA, Side, arms, compare, conclude, ratios};
pub use row::{Question, Row, SideLevel};
pub use rules::{CompareSpec, Rules};
pub use sample::MIN_RUNS;
pub(crate) use sample::value;
pub use sample::{group_key, group_label};
pub use show::{add, remarks, report};
pub use turns::{ALL, COUNTS, PMIS, turns};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::Record;
    use crate::fixture::{changed, record, value};
    use crate::synthetic::{Host, Modes, Random};
    use crate::verdict::Verdict;

    fn request() -> CompareSpec {
        CompareSpec::default()
    }

    /// Rounds that differ by some per mille, an outlier among them.
    fn ns(round: u64) -> u64 {
        if round % 7 == 3 { 120_000 } else { 70_000 + round * 37 % 11 * 20 }
    }

    fn text(found: &Comparison) -> String {
        report(found, true).text(200)
    }

    fn of(base: &Record, new: &Record, request: &CompareSpec) -> Comparison {
        compare(("a", std::slice::from_ref(base)), ("b", std::slice::from_ref(new)), request).unwrap()
    }

    /// Returns the verdict on an arm's main metric.
    fn verdict(comparison: &Comparison, arm: &str) -> Verdict {
        main(comparison, arm).verdict
    }

    fn main<'a>(comparison: &'a Comparison, arm: &str) -> &'a Row {
        comparison.rows().find(|row| row.arm == arm && row.metric == "nmi_handler_ns").unwrap()
    }

    #[test]
    fn the_same_again_is_no_regression_and_shows_what_is_judged() {
        let found = of(&record(10, 5, |_, round| ns(round)), &record(10, 6, |_, round| ns(round + 3)), &request());
        assert_eq!((found.exit, found.groups[0].unit), (0, "round"), "{}", text(&found));
        let of = |question| found.rows().filter(move |row| row.question == question);
        let judged: Vec<&Row> = of(Question::OneArm).filter(|row| row.verdict == Verdict::NoChange).collect();
        assert!(judged.len() == 3 && judged.iter().all(|row| row.metric == "nmi_handler_ns"), "{}", text(&found));
        assert!(of(Question::AllArms).all(|row| row.verdict == Verdict::NotJudged && row.change_interval.is_none()));
        assert!(of(Question::Counts).all(|row| row.verdict == Verdict::NoChange && row.exact));
        let short = report(&found, false).text(60);
        let wide = short.lines().find(|line| line.chars().count() > 60);
        assert!(wide.is_none() && !short.contains("exit_path_ns") && !short.contains("open/PMI"), "{short}");
        assert!(text(&found).contains("exit_path_ns") && text(&found).contains("open/PMI"), "{}", text(&found));
        // The arm that could not run is named, not dropped.
        assert!(found.notes.iter().any(|note| note.starts_with("kvm: not compared: ")), "{:?}", found.notes);
    }

    #[test]
    fn slower_in_one_arm_is_a_regression_there_alone_and_faster_the_other_way() {
        let base = record(20, 5, |_, round| ns(round));
        // Another process of another host may differ by so much.
        let slow = record(20, 6, |arm, round| if arm == "reuse" { ns(round) * 11 / 10 } else { ns(round + 3) });
        let found = of(&base, &slow, &request());
        assert_eq!((found.exit, verdict(&found, "reuse")), (3, Verdict::Inconclusive), "{}", text(&found));
        assert!(text(&found).contains("one run a side shows no change below 20 %"), "{}", text(&found));
        let slow = record(20, 6, |arm, round| if arm == "reuse" { ns(round) * 2 } else { ns(round + 3) });
        let found = of(&base, &slow, &request());
        assert_eq!((found.exit().code(), verdict(&found, "reuse")), (1, Verdict::Slower));
        assert_eq!(verdict(&found, "recreate"), Verdict::NoChange);
        let row = main(&found, "reuse");
        assert!((row.change.unwrap() - 1.0).abs() < 0.01);
        assert!(row.change_interval.unwrap().low > 0.5 && row.p_value_adjusted.unwrap() > row.p_value.unwrap());
        let back = of(&slow, &base, &request());
        assert_eq!((back.exit, verdict(&back, "reuse")), (0, Verdict::Faster));
    }

    /// A run of 20 rounds whose second arm makes so many operations of a kind in them; `more` is changed, too.
    fn of_work(at: u64, pauses: u64, more: impl Fn(&mut serde_json::Value)) -> Record {
        let mut value = value(20, at, |_, round| ns(round + at));
        value["arms"][1]["host_ops"]["pause"]["count"] = json!(pauses);
        more(&mut value);
        changed(value)
    }

    #[test]
    fn more_operations_are_a_regression_however_long_they_take() {
        let same = |_: &mut serde_json::Value| {};
        let base = of_work(5, 800, same);
        let found = of(&base, &of_work(6, 800, same), &request());
        assert_eq!(found.exit, 0, "{}", text(&found));
        let found = of(&base, &of_work(6, 808, same), &request());
        let says = found.verdict.starts_with("regression: same time, ")
            && found.verdict.contains("more host operations (reuse: ");
        assert!(found.exit == 1 && says, "{}", found.verdict);
        let row = found.rows().find(|row| row.arm == "reuse" && row.metric == "pause/PMI").unwrap();
        assert!(row.verdict == Verdict::Slower && (row.change.unwrap() - 0.01).abs() < 1e-9, "{row:?}");
        assert!(report(&found, false).text(80).contains("MORE"), "{}", text(&found));
        assert_eq!(of(&of_work(5, 808, same), &base, &request()).exit, 0, "fewer is no regression");
        // Where rounds do not repeat a little more is the host's load.
        let unlike =
            |value: &mut serde_json::Value| value["arms"][1]["rounds"]["opens"] = json!((0..20).collect::<Vec<_>>());
        let noisy = |pauses| of(&of_work(5, 800, unlike), &of_work(6, pauses, unlike), &request());
        assert_eq!((noisy(840).exit, noisy(8000).exit), (0, 1), "{}", text(&noisy(8000)));
        let none = |value: &mut serde_json::Value| value["arms"][1]["host_ops"] = json!({});
        let found = of(&base, &of_work(6, 0, none), &request());
        assert!(found.exit == 3 && found.verdict.contains("counts are on one side only"), "{}", found.verdict);
        let other = |value: &mut serde_json::Value| value["parameters"]["samples"] = json!(7);
        let found = of(&base, &of_work(6, 900, other), &request());
        assert!(
            found.exit == 0 && text(&found).contains("counts are not compared: samples differs"),
            "{}",
            text(&found)
        );
    }

    #[test]
    fn an_arm_of_no_time_has_no_ratio_and_that_is_said() {
        let zero = |at| {
            let mut value = value(10, at, |_, round| ns(round));
            for column in value["arms"][3]["rounds"]["metrics"].as_object_mut().unwrap().values_mut() {
                for quantile in ["p50", "p99", "max", "mean"] {
                    column[quantile].as_array_mut().unwrap().fill(json!(0));
                }
            }
            changed(value)
        };
        let found = of(&zero(5), &zero(6), &request());
        assert!(
            found.exit == 3 && main(&found, "reuse").why == "floor is 0 ns in 20 rounds, which have no ratio",
            "{found:?}"
        );
        let found = arms("x", &zero(5), &["floor", "reuse"].map(str::to_owned), &request()).unwrap();
        assert!(text(&found).contains("floor is 0 ns in 10 rounds, which have no ratio"), "{}", text(&found));
    }

    #[test]
    fn columns_agree() {
        // Rounds of two modes.
        let of_side = |at: u64| {
            let slow = |arm: &str, round: u64| (round * 7 + if arm == "reuse" { at } else { 0 }) % 5 < 2;
            record(40, at, |arm, round| if slow(arm, round) { 100_000 + round } else { 70_000 + round })
        };
        let found = of(&of_side(5), &of_side(6), &request());
        for row in found.rows().filter(|row| row.question != Question::Counts) {
            let (base, new) = (row.base.as_ref().unwrap(), row.new.as_ref().unwrap());
            let between = match row.question {
                Question::OneArm => new.ratio.unwrap() / base.ratio.unwrap(),
                _ => new.median_ns.unwrap() / base.median_ns.unwrap(),
            };
            assert!((between - 1.0 - row.change.unwrap()).abs() < 1e-9, "{row:?}");
        }
    }

    /// 33 strategies and the floor in 40 rounds, with three metrics each; `twice` says which arms take twice as long.
    fn of_many(at: u64, twice: impl Fn(&str) -> bool) -> Record {
        let names: Vec<String> = (0..33).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut value = crate::fixture::spread(&crate::fixture::of_strategies(40, &names));
        value["started_unix"] = json!(1_000 + at);
        for arm in value["arms"].as_array_mut().unwrap() {
            let times = if twice(arm["strategy"].as_str().unwrap()) { 2 } else { 1 };
            for metric in ["nmi_handler_ns", "pmi_delivery_ns", "exit_path_ns"] {
                if arm["kind"] != "kvm" {
                    arm["metrics"][metric]["max"] = json!(1_000_000);
                    let column = &mut arm["rounds"]["metrics"][metric];
                    let p50: Vec<u64> = (0..40).map(|round| times * ns(round + at)).collect();
                    *column = json!({"count": column["count"], "p50": p50, "max": p50});
                }
            }
        }
        changed(value)
    }

    #[test]
    fn a_doubling_in_many_rows_is_a_regression() {
        let base = of_many(5, |_| false);
        let found = of(&base, &of_many(6, |name| name != "floor"), &request());
        assert_eq!(found.exit, 1, "{}", found.verdict);
        assert_eq!(found.rows().filter(|row| row.verdict == Verdict::Slower).count(), 33);
        assert_eq!(of(&base, &of_many(6, |_| false), &request()).exit, 0);
    }

    #[test]
    fn a_change_of_all_arms_is_not_passed_in_silence() {
        let times = |factor: u64| move |_: &str, round: u64| ns(round) * factor / 10;
        let of = |factor| of(&record(20, 5, times(10)), &record(20, 6, times(factor)), &request());
        let found = of(15);
        assert_eq!((found.exit, verdict(&found, "all arms")), (3, Verdict::Inconclusive), "{}", text(&found));
        assert!(found.verdict.contains("all arms moved by +50.0 %"), "{}", found.verdict);
        assert_eq!((of(11).exit, verdict(&of(11), "all arms")), (0, Verdict::NotJudged));
    }

    fn interrupted(mut value: serde_json::Value) -> serde_json::Value {
        value["status"] = json!("interrupted");
        value
    }

    #[test]
    fn figures_that_are_not_whole_are_not_judged_as_if() {
        let base = record(20, 5, |_, round| ns(round));
        let of_new = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut new = value(20, 6, |arm, round| if arm == "reuse" { 2 * ns(round) } else { ns(round) });
            change(&mut new);
            of(&base, &changed(new), &request())
        };
        assert_eq!(of_new(&|_| {}).exit, 1);
        let lost = of_new(&|d| d["arms"][1]["lost"] = json!(3));
        // The doubt stands beside the regression, and does not hide it.
        assert_eq!((lost.exit, verdict(&lost, "reuse")), (1, Verdict::Slower));
        assert!(text(&lost).contains("SLOWER: not whole: NEW: 3 NMIs delivered and not taken"), "{}", text(&lost));
        let floor = of_new(&|d| d["arms"][3]["throttled"] = json!(1));
        assert!(floor.exit == 1 && verdict(&floor, "recreate") == Verdict::Inconclusive, "{}", text(&floor));
        let same = of(&base, &changed(interrupted(value(20, 6, |_, round| ns(round)))), &request());
        assert!(same.exit == 3 && verdict(&same, "reuse") == Verdict::Inconclusive, "{}", text(&same));
    }

    #[test]
    fn a_simulated_run_on_one_side_changes_nothing_for_the_others() {
        let mut other = value(20, 9, |_, round| ns(round));
        other["parameters"]["backend"] = json!("sim:bare-metal");
        other["host"]["kernel"] = json!("7.0");
        let (base, other) = (record(20, 5, |_, round| ns(round)), changed(other));
        let with = |run: Record| {
            compare(("a", std::slice::from_ref(&base)), ("b", &[run, other.clone()]), &request()).unwrap()
        };
        let found = with(record(20, 6, |_, round| ns(round + 3)));
        assert_eq!((found.exit, found.unlike.len()), (0, 0), "{}", text(&found));
        let notes: Vec<&String> = found.notes.iter().filter(|note| note.starts_with("only in NEW: ")).collect();
        assert!(notes.len() == 1 && notes[0].contains("sim:bare-metal, 1 vCPU (1 document)"), "{notes:?}");
        // Beside it NEW has nothing but BASE's own run.
        let found = with(base.clone());
        assert!(found.exit == 3 && found.verdict.contains("every run of NEW is also in BASE"), "{}", found.verdict);
    }

    #[test]
    fn arms_of_one_result_are_compared_in_their_rounds() {
        let one = record(20, 5, |arm, round| if arm == "reuse" { ns(round) * 21 / 20 } else { ns(round) });
        let of = |list: [&str; 2]| arms("x", &one, &list.map(str::to_owned), &request());
        let found = of(["recreate", "reuse"]).unwrap();
        assert_eq!((found.exit, verdict(&found, "reuse")), (1, Verdict::Slower), "{}", text(&found));
        let exit = found.rows().find(|row| row.metric == "exit_path_ns").unwrap();
        assert_eq!(exit.verdict, Verdict::NotJudged);
        let asked = CompareSpec { metrics: vec!["exit_path_ns".to_owned()], ..request() };
        assert_eq!(arms("x", &one, &["recreate", "reuse"].map(str::to_owned), &asked).unwrap().exit, 1);
        assert_eq!(of(["recreate", "reuse-lazy"]).unwrap().exit, 0);
        assert_eq!(of(["reuse", "recreate"]).unwrap().exit, 0, "faster is no regression");
        assert!(of(["reuse", "reues"]).unwrap_err().to_string().contains("there are recreate, reuse"));
        let error = of(["reuse", "kvm"]).unwrap_err().to_string();
        let why = one.arm("kvm").unwrap().not_available.as_deref().unwrap();
        assert!(error.contains(why) && !error.split("there are").last().unwrap().contains("kvm"), "{error}");
    }

    #[test]
    fn all_arms_are_judged_of_runs_in_turns_alone() {
        let template = record(1, 1, |_, _| 1000);
        let host = Host { modes: Modes::None, rounds: 20, rounds_per_guest: 1, drift: 0.01, ..Host::default() };
        let pair = |in_turns: bool| {
            let mut random = Random::new(1);
            let mut sides = [Vec::new(), Vec::new()];
            for run in 0..16 {
                let side = if in_turns { run % 2 } else { run / 8 };
                let turns = host.run(&[0.15, 0.1, 0.1, 0.0].map(|log| log + 0.1 * side as f64), &mut random);
                sides[side].push(crate::fixture::of_turns(&template, 100 + run as u64, &turns));
            }
            compare(("a", &sides[0]), ("b", &sides[1]), &request()).unwrap()
        };
        let (other, turns) = (pair(false), pair(true));
        assert_eq!((other.exit, verdict(&other, "all arms")), (0, Verdict::NotJudged), "{}", text(&other));
        assert_eq!((turns.exit, verdict(&turns, "all arms")), (1, Verdict::Slower), "{}", text(&turns));
        assert!(text(&other).contains("of 8 and 8 runs, one side after the other; "), "{}", text(&other));
        assert!(text(&turns).contains("of 8 and 8 runs, in turns (8 pairs); "), "{}", text(&turns));
    }

    /// Exits of comparisons of so many runs a side, taken in turns, of a host; `slow` is what the second arm takes more in NEW.
    fn exits(host: &Host, runs: u64, slow: f64, pairs: u64) -> [usize; 2] {
        let template = record(1, 1, |_, _| 1000);
        let mut exits = [0; 2];
        for seed in 0..pairs {
            let mut random = Random::new(seed);
            let mut side = |more: f64, first: u64| -> Vec<Record> {
                let run = |n| {
                    crate::fixture::of_turns(
                        &template,
                        first + 2 * n,
                        &host.run(&[0.15, 0.1 + more, 0.1, 0.0], &mut random),
                    )
                };
                (0..runs).map(run).collect()
            };
            let (base, new) = (side(0.0, 100), side(slow, 101));
            let found = compare(("a", &base), ("b", &new), &request()).unwrap();
            exits[0] += usize::from(found.exit == 1);
            exits[1] += usize::from(found.exit == 0);
        }
        exits
    }

    #[test]
    fn runs_of_the_same_seldom_raise_an_alarm_and_a_tenth_is_found() {
        // A small version of the tables in docs/comparing.md. An alarm in 1 % of the pairs: 2 and more of 20 in 2 % of the cases.
        for (modes, rounds) in [(Modes::None, 10), (Modes::InTime, 30)] {
            let host = Host { modes, rounds, rounds_per_guest: 1, ..Host::default() };
            for (runs, pairs) in [(1, 20), (8, 5)] {
                let [alarms, _] = exits(&host, runs, 0.0, pairs);
                assert!(alarms <= 1, "{modes:?}, {runs} runs: {alarms} of {pairs}");
            }
            let [found, _] = exits(&host, 8, 0.1, 5);
            assert!(found >= 4, "{modes:?}: {found} of 5");
        }
    }

    #[test]
    fn unlike_hosts_are_not_judged_unless_allowed() {
        let base = record(10, 5, |_, round| ns(round));
        let mut other = value(10, 6, |arm, round| if arm == "reuse" { ns(round) * 2 } else { ns(round) });
        other["host"]["kernel"] = json!("7.0");
        let other = changed(other);
        let found = of(&base, &other, &request());
        assert_eq!((found.exit, found.unlike.len()), (3, 1));
        assert!(text(&found).contains("unlike: kernel: unknown / 7.0"), "{}", text(&found));
        assert_eq!(of(&base, &other, &CompareSpec { unlike_hosts_allowed: true, ..request() }).exit, 1);
    }

    #[test]
    fn what_only_one_side_has_is_said_and_open() {
        let base = record(10, 5, |_, round| ns(round));
        let mut fewer = value(10, 6, |_, round| ns(round));
        fewer["arms"].as_array_mut().unwrap().remove(0);
        let found = of(&base, &changed(fewer), &request());
        assert_eq!((found.exit, verdict(&found, "recreate")), (3, Verdict::Inconclusive));
        assert!(found.notes.iter().any(|note| note.contains("only in BASE: arm recreate")));
        let (text, both) = (text(&found), |line: &&str| line.starts_with("recreate  "));
        assert!(text.lines().all(|line| !both(&line)) && text.contains("one-sided: NEW has no rounds"), "{text}");
        let only = CompareSpec { arms: vec!["reuse".to_owned()], ..request() };
        let found = of(&base, &record(10, 6, |_, round| ns(round)), &only);
        assert_eq!((found.exit, verdict(&found, "reuse")), (0, Verdict::NoChange));
    }

    #[test]
    fn different_experiments_names_and_slips_are_bad_input() {
        let base = record(10, 5, |_, round| ns(round));
        let mut other = value(10, 6, |_, round| ns(round));
        other["parameters"]["workload"] = json!("sampling10/ftest");
        let other = changed(other);
        let one = |record| std::slice::from_ref(record);
        let error = compare(("a", one(&base)), ("b", one(&other)), &request()).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("workload is single/ftest and sampling10/ftest"));
        for wrong in [
            CompareSpec { arms: vec!["reues".to_owned()], ..request() },
            CompareSpec { metrics: vec!["nmi_handler".to_owned()], ..request() },
        ] {
            let error = compare(("a", one(&base)), ("b", one(&base)), &wrong).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains("there are"), "{error}");
        }
        // Two experiments in a folder are compared each with its own kind; one without a counterpart is said.
        let both = [base.clone(), other.clone()];
        let found = compare(("a", &both), ("b", one(&base)), &request()).unwrap();
        assert_eq!((found.exit, found.groups.len()), (3, 1));
        assert!(found.notes[0].starts_with("only in BASE: nmi-latency, sampling10/ftest"));
    }

    #[test]
    fn documents_that_began_in_the_same_second_are_runs_of_their_own() {
        // NEW is 8 % slower in every arm in three of its nine runs, the first one not among them.
        let side = |slow: u64| -> Vec<Record> {
            let run = |n: u64| {
                let more = if n >= 6 { slow } else { 0 };
                let mut value = value(6, 5, |_, round| 70_000 + n * 10 + round + more);
                value["wall_ns"] = json!(1_000_000 + n + slow);
                changed(value)
            };
            (0..9).map(run).collect()
        };
        let found = compare(("a", &side(0)), ("b", &side(5_600)), &request()).unwrap();
        let all = found.rows().find(|row| row.question == Question::AllArms && row.metric == "nmi_handler_ns").unwrap();
        assert!((all.change.unwrap() - 0.026).abs() < 0.002, "{:?}", all.change);
    }

    #[test]
    fn ratios_to_the_floor_are_bounded_whatever_the_host() {
        let base = record(2, 5, |arm, _| if arm == "floor" { 1000 } else { 1100 });
        let mut other = value(2, 6, |arm, _| match arm {
            "floor" => 50_000,
            "reuse" => 180_000,
            _ => 60_000,
        });
        other["host"]["kernel"] = json!("7.0");
        let other = changed(other);
        let one = |record| std::slice::from_ref(record);
        let of = |factor| ratios(("a", one(&base)), ("b", one(&other)), factor, &request()).unwrap();
        assert_eq!(of(4.0).exit, 0, "{}", of(4.0).verdict);
        let found = of(3.0);
        let slow: Vec<&str> =
            found.rows().filter(|row| row.verdict == Verdict::Slower).map(|row| row.arm.as_str()).collect();
        assert_eq!((found.exit, slow), (1, vec!["reuse"]), "{}", text(&found));
        assert!(found.verdict.starts_with("1 of 3 ratios above 3.00 × BASE's"), "{}", found.verdict);
        let mut floorless = value(2, 7, |_, _| 1000);
        floorless["arms"].as_array_mut().unwrap().remove(3);
        let floorless = changed(floorless);
        let found = ratios(("a", one(&base)), ("b", one(&floorless)), 3.0, &request()).unwrap();
        assert_eq!(found.exit().code(), 3);
    }
}
