//! Did it get slower, and can it be believed? Two sets of results, arm by arm and metric by metric.
//!
//! Two questions, kept apart. *Did one arm change?* is asked of its ratio to the floor in paired rounds, which a host's drift does
//! not move. *Did all arms change together?* is asked of absolute times, which it does move: they are judged by how runs differ,
//! and that takes [`MIN_RUNS`] runs a side.
//!
//! An arm got slower only if the change is significant (adjusted by Holm's method for the number of rows) *and* strong. "No
//! change" is said only where a slow-down beyond a bound can be excluded.

mod change;
mod counts;
mod facts;
mod group;
mod judge;
mod row;
mod sample;
mod show;

pub use counts::per_pmi;
pub(crate) use facts::{definitions, differences};
pub use facts::{doubt_of, facts};
pub use group::{MIN_RUNS, group_key, group_label};
pub(crate) use group::{grouped, reference};
pub use judge::{Comparison, Group, Side, arms, compare};
pub use row::{GEOMEAN, Over, Question, Row, SideLevel, judge};
pub(crate) use sample::asked;
pub use sample::{CompareSpec, ROUNDS};
pub use show::report;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::document::Record;
    use crate::error::Exit;
    use crate::fixture::{changed, record, value};
    use crate::synthetic::{Host, Random};
    use crate::verdict::{Limits, Verdict};

    /// Rounds that differ by some per mille, an outlier among them.
    fn ns(round: u64) -> u64 {
        if round % 7 == 3 { 120_000 } else { 70_000 + round * 37 % 11 * 20 }
    }

    /// A run of so many rounds with a document that is changed.
    fn with(rounds: u64, at: u64, change: impl Fn(&mut Value)) -> Record {
        let mut value = value(rounds, at, |_, round| ns(round + at));
        change(&mut value);
        changed(value)
    }

    fn same(_: &mut Value) {}

    /// Makes `reuse` take so many times as long.
    fn slow(at: u64, tenths: u64) -> Record {
        record(20, at, |arm, round| if arm == "reuse" { ns(round) * tenths / 10 } else { ns(round + 3) })
    }

    fn text(found: &Comparison) -> String {
        report(found, true).text(200)
    }

    fn one(record: &Record) -> &[Record] {
        std::slice::from_ref(record)
    }

    fn of(base: &Record, new: &Record) -> Comparison {
        compare(("a", one(base)), ("b", one(new)), &<_>::default()).unwrap()
    }

    fn main<'a>(comparison: &'a Comparison, arm: &str) -> &'a Row {
        comparison.rows().find(|row| row.arm == arm && row.metric == "nmi_handler_ns").unwrap()
    }

    /// Returns the exit, and the verdict on an arm's main metric.
    fn said(comparison: &Comparison, arm: &str) -> (u8, Verdict) {
        (comparison.exit, main(comparison, arm).verdict)
    }

    #[test]
    fn the_same_again_is_no_regression_and_shows_what_is_judged() {
        let found = of(&record(10, 5, |_, round| ns(round)), &record(10, 6, |_, round| ns(round + 3)));
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
        let found = of(&base, &slow(6, 11));
        assert_eq!(said(&found, "reuse"), (3, Verdict::Inconclusive), "{}", text(&found));
        assert!(text(&found).contains("one run a side shows no change below 20 %"), "{}", text(&found));
        let found = of(&base, &slow(6, 20));
        assert_eq!((said(&found, "reuse"), said(&found, "recreate").1), ((1, Verdict::Slower), Verdict::NoChange));
        let row = main(&found, "reuse");
        assert!((row.change.unwrap() - 1.0).abs() < 0.01 && row.change_interval.unwrap().low > 0.5);
        let [before, after] = [row.base, row.new].map(|side| side.value.unwrap());
        assert!((after / before - 1.0 - row.change.unwrap()).abs() < 1e-9, "columns agree: {row:?}");
        assert!(row.p_value_adjusted.unwrap() > row.p_value.unwrap());
        assert_eq!(said(&of(&slow(6, 20), &base), "reuse"), (0, Verdict::Faster));
    }

    #[test]
    fn more_operations_are_a_regression_however_long_they_take() {
        let work = |at: u64, pauses: u64, more: &dyn Fn(&mut Value)| {
            with(20, at, |value| {
                value["arms"][1]["host_ops"]["pause"]["count"] = json!(pauses);
                more(value);
            })
        };
        let base = work(5, 800, &same);
        assert_eq!(of(&base, &work(6, 800, &same)).exit, 0);
        let found = of(&base, &work(6, 820, &same));
        let says = found.verdict.starts_with("regression: same time, ")
            && found.verdict.contains("more host operations (reuse: ");
        assert!(found.exit == 1 && says, "{}", found.verdict);
        let row = found.rows().find(|row| row.arm == "reuse" && row.metric == "pause/PMI").unwrap();
        assert!(row.verdict == Verdict::Slower && (row.change.unwrap() - 0.025).abs() < 1e-9, "{row:?}");
        assert!(report(&found, false).text(80).contains("MORE"), "{}", text(&found));
        assert_eq!(of(&work(5, 820, &same), &base).exit, 0, "fewer is no regression");
        assert_eq!(of(&base, &work(6, 801, &same)).exit, 0, "an operation in one round is the host's load");
        // Where rounds do not repeat a little more is the host's load.
        let unlike = |value: &mut Value| value["arms"][1]["rounds"]["opens"] = json!((0..20).collect::<Vec<_>>());
        let noisy = |pauses| of(&work(5, 800, &unlike), &work(6, pauses, &unlike));
        assert_eq!((noisy(840).exit, noisy(8000).exit), (0, 1), "{}", text(&noisy(8000)));
        let found = of(&base, &work(6, 0, &|value| value["arms"][1]["host_ops"] = json!({})));
        assert!(found.exit == 3 && found.verdict.contains("counts are on one side only"), "{}", found.verdict);
        let found = of(&base, &work(6, 900, &|value| value["parameters"]["samples"] = json!(7)));
        let why = "note: unlike: samples: 40 / 7: counts are not compared";
        assert!(found.exit == 0 && text(&found).contains(why), "{}", text(&found));
    }

    #[test]
    fn an_arm_without_a_ratio_is_open_and_a_metric_that_the_reference_lacks_is_not_judged() {
        let zero = |at| {
            with(10, at, |value| {
                for column in value["arms"][3]["rounds"]["metrics"].as_object_mut().unwrap().values_mut() {
                    for quantile in ["p50", "mean"] {
                        column[quantile].as_array_mut().unwrap().fill(json!(0));
                    }
                }
            })
        };
        let found = of(&zero(5), &zero(6));
        assert!(found.exit == 3 && main(&found, "reuse").why.contains("one of the two is 0 ns"), "{}", text(&found));
        let lacks = |at| {
            with(10, at, |value| {
                for part in ["metrics", "rounds"] {
                    let of = &mut value["arms"][1][part];
                    let of = if part == "rounds" { &mut of["metrics"] } else { of };
                    of["more_ns"] = of["nmi_handler_ns"].clone();
                }
            })
        };
        let found = of(&lacks(5), &lacks(6));
        let why = "note: reuse more_ns: not judged: floor has none to divide it by";
        assert!(found.exit == 0 && text(&found).contains(why), "{}", text(&found));
    }

    #[test]
    fn a_change_of_all_arms_is_not_passed_in_silence() {
        let times = |factor: u64| move |_: &str, round: u64| ns(round) * factor / 10;
        let of = |factor| of(&record(20, 5, times(10)), &record(20, 6, times(factor)));
        assert_eq!(said(&of(15), "geomean"), (3, Verdict::Inconclusive), "{}", text(&of(15)));
        assert!(of(15).verdict.contains("geomean: moved by +50.0 %"), "{}", of(15).verdict);
        assert_eq!(said(&of(11), "geomean"), (0, Verdict::NotJudged));
    }

    #[test]
    fn figures_that_are_not_whole_are_not_judged_as_if() {
        let base = record(20, 5, |_, round| ns(round));
        let of_new = |change: &dyn Fn(&mut Value)| {
            let mut new = value(20, 6, |arm, round| if arm == "reuse" { 2 * ns(round) } else { ns(round) });
            change(&mut new);
            of(&base, &changed(new))
        };
        assert_eq!(of_new(&same).exit, 1);
        let lost = of_new(&|d| d["arms"][1]["lost"] = json!(3));
        // The doubt stands beside the regression, and does not hide it.
        assert_eq!(said(&lost, "reuse"), (1, Verdict::Slower));
        assert!(text(&lost).contains("SLOWER: not whole: NEW: 3 NMIs delivered and not taken"), "{}", text(&lost));
        for (key, value, why) in [
            ("periods_missed", json!(900_000_000), "900000000 periods"),
            ("incomplete", json!(["round 2"]), "incomplete: round 2"),
        ] {
            let found = of_new(&|d| d["arms"][1][key] = value.clone());
            assert!(found.exit == 1 && text(&found).contains(why), "{}", text(&found));
        }
        let floor = of_new(&|d| d["arms"][3]["throttled"] = json!(1));
        assert_eq!(said(&floor, "recreate"), (1, Verdict::Inconclusive), "{}", text(&floor));
        let same = of(&base, &with(20, 6, |value| value["status"] = json!("interrupted")));
        assert_eq!(said(&same, "reuse"), (3, Verdict::Inconclusive), "{}", text(&same));
    }

    #[test]
    fn a_simulated_run_on_one_side_changes_nothing_for_the_others() {
        let other = with(20, 9, |value| {
            value["parameters"]["backend"] = json!("sim:bare-metal");
            value["host"]["kernel"] = json!("7.0");
        });
        let base = record(20, 5, |_, round| ns(round));
        let beside = |run: Record| compare(("a", one(&base)), ("b", &[run, other.clone()]), &<_>::default()).unwrap();
        let found = beside(record(20, 6, |_, round| ns(round + 3)));
        assert_eq!((found.exit, found.unlike.len()), (0, 0), "{}", text(&found));
        let note = "sim:bare-metal, 1 vCPU (1 document): only in NEW, ";
        assert_eq!(found.notes.iter().filter(|one| one.contains(note)).count(), 1, "{:?}", found.notes);
        // Beside it NEW has nothing but BASE's own run.
        let error = compare(("a", one(&base)), ("b", &[base.clone(), other.clone()]), &<_>::default()).unwrap_err();
        assert!(error.exit == Exit::Inconclusive && error.why.contains("is also in a"), "{error}");
    }

    #[test]
    fn arms_of_one_result_are_compared_in_their_rounds() {
        let one = record(20, 5, |arm, round| if arm == "reuse" { ns(round) * 21 / 20 } else { ns(round) });
        let by = |list: [&str; 2], request: &CompareSpec| {
            arms("x", &one, &CompareSpec { arms: list.map(str::to_owned).to_vec(), ..request.clone() })
        };
        let of = |list: [&str; 2]| by(list, &<_>::default());
        let found = of(["recreate", "reuse"]).unwrap();
        assert_eq!(said(&found, "reuse"), (1, Verdict::Slower), "{}", text(&found));
        let exit = found.rows().find(|row| row.metric == "exit_path_ns").unwrap();
        assert_eq!(exit.verdict, Verdict::NotJudged);
        let asked = CompareSpec { metrics: vec!["exit_path_ns".to_owned()], ..<_>::default() };
        assert_eq!(by(["recreate", "reuse"], &asked).unwrap().exit, 1);
        assert_eq!(of(["recreate", "reuse-lazy"]).unwrap().exit, 0);
        assert_eq!(of(["reuse", "recreate"]).unwrap().exit, 0, "faster is no regression");
        assert!(of(["reuse", "reues"]).unwrap_err().to_string().contains("there are floor, recreate, reuse"));
        let error = of(["reuse", "kvm"]).unwrap_err().to_string();
        let why = one.arm("kvm").unwrap().not_available.as_deref().unwrap();
        assert!(error.contains(why) && !error.split("there are").last().unwrap().contains("kvm"), "{error}");
    }

    /// Runs of a side on a host, two starts apart, whose second arm takes `slow` more and all of them `all` more.
    fn side(host: &Host, starts: impl Iterator<Item = u64>, [slow, all]: [f64; 2], random: &mut Random) -> Vec<Record> {
        let template = record(host.rounds as u64, 1, |_, _| 1000);
        let logs = [0.15, 0.1 + slow, 0.1, 0.0].map(|log| log + all);
        starts.map(|at| crate::fixture::of_turns(&template, at, &host.run(&logs, random))).collect()
    }

    #[test]
    fn all_arms_are_judged_of_runs_in_turns_alone() {
        let host = Host { modes: false, rounds: 20, rounds_per_guest: 1, drift: 0.01, ..Host::default() };
        let pair = |starts: [Vec<u64>; 2]| {
            let (mut random, [base, new]) = (Random::new(1), starts);
            let base = side(&host, base.into_iter(), [0.0, 0.0], &mut random);
            let new = side(&host, new.into_iter(), [0.0, 0.1], &mut random);
            compare(("a", &base), ("b", &new), &<_>::default()).unwrap()
        };
        let turns = pair([(0..8).map(|n| 100 + 2 * n).collect(), (0..8).map(|n| 101 + 2 * n).collect()]);
        let other = pair([(100..108).collect(), (108..116).collect()]);
        assert_eq!(said(&other, "geomean"), (0, Verdict::NotJudged), "{}", text(&other));
        assert_eq!(said(&turns, "geomean"), (1, Verdict::Slower), "{}", text(&turns));
        assert!(text(&other).contains("of 8 and 8 runs; "), "{}", text(&other));
        assert!(text(&turns).contains("of 8 and 8 runs, in turns (8 pairs); "), "{}", text(&turns));
    }

    /// Compares so many pairs of turns whose arms take these times as long in NEW, with some per cent of spread from pair to pair.
    fn in_turns(pairs: u64, ratios: [u64; 3], change: impl Fn(usize, u64, &mut Value)) -> Comparison {
        let turn = |side: usize, pair: u64| {
            let noise = |arm: u64| 98_000 + 4_000 * ((pair * 37 + arm * 11 + side as u64 * 7) % 41) / 40;
            let of = |arm: &str| ["recreate", "reuse", "reuse-lazy"].iter().position(|name| *name == arm).unwrap_or(3);
            let ratio = |arm: usize| if side == 1 { ratios.get(arm).copied().unwrap_or(100) } else { 100 };
            let mut value = value(6, pair, |arm, _| noise(of(arm) as u64) * ratio(of(arm)) / 100);
            change(side, pair, &mut value);
            changed(value)
        };
        let [base, new] = [0, 1].map(|side| (0..pairs).map(|pair| turn(side, pair)).collect::<Vec<_>>());
        let metrics = vec!["nmi_handler_ns".to_owned()];
        let asked = CompareSpec { metrics, turns: true, unlike_hosts_allowed: true, ..<_>::default() };
        compare(("a", &base), ("b", &new), &asked).unwrap()
    }

    #[test]
    fn turns_are_judged_by_their_times_of_each_arm_and_of_all_together() {
        let of = |ratios| in_turns(60, ratios, |_, _, _| ());
        let found = of([100, 106, 100]);
        assert_eq!((said(&found, "reuse"), said(&found, GEOMEAN).1), ((1, Verdict::Slower), Verdict::NoChange));
        assert_eq!((said(&found, "floor").1, main(&found, "reuse").blocks), (Verdict::NoChange, 60));
        assert!(text(&found).contains("60 and 60 runs, in turns (60 pairs)"), "{}", text(&found));
        assert_eq!(said(&of([106; 3]), GEOMEAN), (1, Verdict::Slower));
        assert_eq!((said(&of([90, 100, 100]), "recreate"), of([100; 3]).exit), ((0, Verdict::Faster), 0));
        let few = in_turns(3, [100; 3], |_, _, _| ());
        assert_eq!((said(&few, "reuse"), main(&few, "reuse").p_value), ((3, Verdict::Inconclusive), None));
        assert!(main(&few, "reuse").why.starts_with("too few pairs: an interval needs 5"), "{}", text(&few));
    }

    #[test]
    fn pairs_that_are_not_whole_are_left_out_and_many_of_them_hide_no_slow_down() {
        let of = |tenths: u64, bad: u64| {
            in_turns(40, [100, tenths, 100], move |side, pair, value| {
                if side == 1 && pair < bad {
                    value["arms"][1]["incomplete"] = json!(["a guest failed"]);
                }
            })
        };
        let few = of(100, 2);
        assert_eq!((said(&few, "reuse"), main(&few, "reuse").blocks, few.exit), ((0, Verdict::NoChange), 38, 0));
        let note = "reuse: 2 of 40 pairs are left out: NEW: incomplete: a guest failed";
        assert!(few.notes.iter().any(|said| said == note), "{:?}", few.notes);
        let many = of(100, 20);
        let why = "inconclusive: reuse: 20 of 40 pairs are left out: NEW: incomplete: a guest failed; ";
        assert!(many.exit == 3 && many.verdict.starts_with(why), "{}", many.verdict);
        assert_eq!(said(&of(106, 20), "reuse"), (1, Verdict::Slower));
    }

    #[test]
    fn counts_of_turns_that_repeat_are_exact_and_others_go_by_exits() {
        let of = |pauses: &dyn Fn(usize, u64) -> u64| {
            in_turns(30, [100; 3], |side, pair, value| {
                value["arms"][1]["host_ops"]["pause"]["count"] = json!(pauses(side, pair));
            })
        };
        let operations = |found: &Comparison| {
            found.rows().find(|row| row.arm == "reuse" && row.metric == "operations/PMI").unwrap().verdict
        };
        assert_eq!(operations(&of(&|_, _| 7240)), Verdict::NoChange);
        let found = of(&|side, _| 7240 + side as u64);
        assert_eq!((operations(&found), found.exit), (Verdict::Slower, 1));
        assert!(found.verdict.contains("regression: same time, 0.0"), "{}", found.verdict);
        // The host disturbs some turns; what both sides have in turns is no build's.
        let disturbed = |more: u64| {
            move |side: usize, pair: u64| 7240 + more * side as u64 + if pair % 5 < 2 { 13 * pair } else { 0 }
        };
        assert_eq!([0, 1].map(|n| operations(&of(&disturbed(n)))), [Verdict::NoChange, Verdict::Slower]);
        let sometimes = |share: u64| move |side: usize, pair: u64| 7240 + u64::from(side == 1 && pair % 10 < share);
        assert_eq!([1, 4].map(|n| operations(&of(&sometimes(n)))), [Verdict::NoChange, Verdict::Slower]);
        let noisy = |more: u64| move |side: usize, pair: u64| 40_000 + pair * 37 % 13 * 60 + more * side as u64;
        assert_eq!((operations(&of(&noisy(0))), operations(&of(&noisy(4000)))), (Verdict::NotJudged, Verdict::Slower));
    }

    #[test]
    fn unlike_hosts_are_not_judged_unless_allowed() {
        let base = record(10, 5, |_, round| ns(round));
        let mut other = value(10, 6, |arm, round| if arm == "reuse" { ns(round) * 2 } else { ns(round) });
        other["host"]["kernel"] = json!("7.0");
        let other = changed(other);
        let found = of(&base, &other);
        assert_eq!((found.exit, found.unlike.len()), (3, 1));
        assert!(text(&found).contains("unlike: kernel: unknown / 7.0"), "{}", text(&found));
        let allowed = CompareSpec { unlike_hosts_allowed: true, ..<_>::default() };
        let of = |new: &Record, allowed| compare(("a", one(&base)), ("b", one(new)), allowed).unwrap();
        assert_eq!(of(&other, &allowed).exit, 1);
        // A gate for any host: a factor of three against the floor.
        let mut far = value(10, 6, |arm, round| if arm == "floor" { 9 * ns(round) } else { 20 * ns(round) });
        far["host"]["kernel"] = json!("7.0");
        let gate = CompareSpec { limits: Limits::default().with(None, Some(2.0)), ..allowed.clone() };
        assert_eq!((of(&other, &gate).exit, of(&changed(far), &gate).exit), (0, 0));
    }

    #[test]
    fn what_only_one_side_has_is_said_and_open() {
        let base = record(10, 5, |_, round| ns(round));
        let fewer = with(10, 6, |value| drop(value["arms"].as_array_mut().unwrap().drain(..2)));
        let found = of(&base, &fewer);
        assert_eq!(said(&found, "recreate"), (3, Verdict::Inconclusive));
        assert!(found.notes.iter().any(|note| note.contains("arm recreate: only in BASE")));
        assert!(
            found.verdict.starts_with("inconclusive: arm recreate and arm reuse: only in BASE, single/ftest; "),
            "{}",
            found.verdict
        );
        let (text, both) = (text(&found), |line: &str| line.starts_with("recreate  "));
        assert!(!text.lines().any(both) && text.contains("one-sided: NEW has no rounds"), "{text}");
        let only = CompareSpec { arms: vec!["reuse-lazy".to_owned()], ..<_>::default() };
        let found = compare(("a", one(&base)), ("b", one(&fewer)), &only).unwrap();
        assert_eq!(said(&found, "reuse-lazy"), (0, Verdict::NoChange));
    }

    #[test]
    fn different_experiments_names_and_slips_are_bad_input() {
        let base = record(10, 5, |_, round| ns(round));
        let other = with(10, 6, |value| value["parameters"]["workload"] = json!("sampling10/ftest"));
        let next = record(10, 7, |_, round| ns(round));
        let error = compare(("a", one(&base)), ("b", one(&other)), &<_>::default()).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("workload is single/ftest and sampling10/ftest"));
        for wrong in [
            CompareSpec { arms: vec!["reues".to_owned()], ..<_>::default() },
            CompareSpec { metrics: vec!["nmi_handler".to_owned()], ..<_>::default() },
        ] {
            let error = compare(("a", one(&base)), ("b", one(&next)), &wrong).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains("there are"), "{error}");
        }
        // Two experiments in a folder are compared each with its own kind; one without a counterpart is said.
        let found = compare(("a", &[base.clone(), other]), ("b", one(&next)), &<_>::default()).unwrap();
        assert_eq!((found.exit, found.groups.len()), (3, 1));
        assert!(found.notes[0].starts_with("nmi-latency, sampling10/ftest"), "{:?}", found.notes);
    }

    #[test]
    fn notes_of_one_reason_are_one_and_no_more_than_ten_are_shown_unless_all_are_asked_for() {
        let mut found = of(&record(4, 5, |_, round| ns(round)), &record(4, 6, |_, round| ns(round)));
        found.notes = (10..30).flat_map(|n| [format!("{n}.json: a copy"), format!("reason {n}")]).collect();
        let short = report(&found, false).text(200);
        assert!(short.contains("reuse-lazy nmi_handler_ns: inconclusive: too few rounds"), "{short}");
        assert!(short.contains("note: 10.json, 11.json, 12.json, 13.json and 16 more: a copy\n"), "{short}");
        assert!(short.contains("reason 10\n") && !short.contains("reason 29"), "{short}");
        assert!(short.contains("more notes: -v\nBASE a (") && text(&found).contains("reason 29"), "{short}");
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
        let found = compare(("a", &side(0)), ("b", &side(5_600)), &<_>::default()).unwrap();
        let change = main(&found, "geomean").change.unwrap();
        assert!((change - 0.026).abs() < 0.002, "{change}");
    }
}
