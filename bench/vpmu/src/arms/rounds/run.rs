//! Every arm once per round, in random order, and a document at the end of each session.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::guest_arm::{GuestArm, Guests};
use super::plan::Plan;
use super::precision;
use crate::arms::arm::runner::ArmRunner;
use crate::engine::{self, Arm as _, Course, State};
use crate::setting::process;
use crate::terminal::progress::Progress;
use host_pmu::stats::ns;
use results::answers;
use results::document::{Document, GuestExtra, Parameters, SCHEMA, Warning, warnings};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::paired::Looks;
use results::table::layout::{percent, plural};
use results::write::now_unix;

/// The surroundings of an experiment.
pub(crate) struct Context<'a> {
    /// Start of the process's `main`.
    pub(crate) process_began: Instant,
    /// Set when the user wants it to end.
    pub(crate) stop: &'a AtomicBool,
    /// Source of the host's facts, read again at each save.
    pub(crate) fs: &'a HostFs,
    /// The host before the experiment.
    pub(crate) host: HostFacts,
    /// The command line, program name first.
    pub(crate) command_line: Vec<String>,
    /// Progress display.
    pub(crate) progress: &'a mut dyn Progress,
    /// Called with the document at the end of each session, and at least every few seconds if rounds were finished.
    pub(crate) save: &'a mut dyn FnMut(&Document) -> Result<(), Error>,
}

/// Outcome of an experiment.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The document as last saved.
    pub(crate) document: Document,
    /// The error that ended it early, if one did. The rounds before it are in the document.
    pub(crate) error: Option<Error>,
}

/// Runs the plan.
///
/// # Errors
/// If no arm can run here, or if nothing was measured before an error.
pub(crate) fn run(plan: &Plan, runner: &mut dyn ArmRunner, context: Context<'_>) -> Result<Finished, Error> {
    let guests = Guests::new(plan, runner, context.stop, context.process_began);
    // A simulation has no date and no wall clock: its document follows from the model, the seed and the parameters.
    let began_unix = if plan.simulated { 0 } else { now_unix() };
    let Context { stop, fs, mut host, command_line, progress, save, .. } = context;
    let mut arms = guests.arms()?;
    progress.expect(&expectation(plan, arms.iter().filter(|arm| arm.runs()).count()));
    let mut document = |arms: &[GuestArm<'_>], state: &State, last: bool| {
        host.finish(fs);
        document(plan, arms, (state, guests.first_instruction.get(), last), (&command_line, began_unix, &host))
    };
    let (mut looks, until_ci) = (Looks::default(), plan.parameters.until_ci);
    let mut enough = |state: &State, look: &mut dyn FnMut() -> Document| {
        let mut is_sure = || match until_ci {
            Some(wanted) => precision::is_reached(&look(), wanted),
            None => precision::order_is_known(&look()),
        };
        // Guests differ, so a look is taken between them.
        state.between_sessions && (plan.until_order || until_ci.is_some()) && looks.are_enough(&mut is_sure)
    };
    let course = Course { document: &mut document, enough: &mut enough, saves_sessions: true, save: &mut *save };
    let (mut document, error) = engine::measure(&mut arms, &plan.rounds(), (stop, progress), course)?;
    document.extra.answers = answers::of(&document);
    if let Some(why) = until_ci.and_then(|wanted| precision::missing(&document, wanted)) {
        document.warnings.push(Warning::of_all(warnings::UNSURE, why));
    }
    save(&document)?;
    Ok(Finished { document, error })
}

/// Returns the document so far; `last`: nothing follows.
fn document(
    plan: &Plan,
    arms: &[GuestArm<'_>],
    (state, first_instruction, last): (&State, Option<Duration>, bool),
    (command_line, began_unix, host): (&[String], u64, &HostFacts),
) -> Document {
    let whole = arms.iter().all(|arm| arm.fold.is_complete());
    // Without a wanted number of rounds, it is that of the rounds there are.
    let kept = arms.iter().map(|arm| arm.fold.rounds().len() as u64).max().unwrap_or(0);
    let rounds = if plan.is_open_ended() { kept } else { plan.parameters.rounds };
    let mut document = Document {
        path: PathBuf::new(),
        schema: SCHEMA.to_owned(),
        experiment: plan.experiment.to_owned(),
        place: plan.parameters.set_up.is_some().then(|| "guest".to_owned()),
        tool: process::tool(),
        command_line: command_line.to_vec(),
        started_unix: began_unix,
        wall_ns: ns(state.wall),
        status: state.status(last, whole),
        seed: plan.seed,
        parameters: Parameters { rounds, ..plan.parameters.clone() },
        host: host.clone(),
        arms: arms.iter().map(|arm| arm.fold.result()).collect(),
        warnings: Vec::new(),
        extra: GuestExtra { first_guest_instruction_ns: first_instruction.map(ns), answers: Vec::new() },
    };
    document.warnings = warnings::collect(&document);
    document
}

/// Tells a user who waits for the result what to expect.
fn expectation(plan: &Plan, arms: usize) -> String {
    let arms = plural(arms, "arm");
    let rounds = plural(usize::try_from(plan.parameters.rounds).unwrap_or(usize::MAX), "round");
    let what = match plan.parameters.until_ci {
        Some(share) => format!("rounds of {arms} until every ratio is known to ± {} %", percent(share)),
        None if plan.is_open_ended() => format!("as many rounds of {arms} as fit"),
        None => format!("{rounds} of {arms}"),
    };
    if plan.simulated {
        return format!("{}: simulating {what}", plan.parameters.workload);
    }
    let bound = plan.duration().map_or_else(String::new, |bound| format!(" in at most {} s", bound.as_secs().max(1)));
    let pinned = plan.parameters.pin.as_ref().map_or("not pinned".to_owned(), |list| format!("pinned to CPU {list}"));
    format!("{}: {what}{bound}, {pinned}", plan.parameters.workload)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use guest::abi::LOG_ROTATION;
    use vmm::outcome::End;

    use super::*;
    use crate::arms::rounds::mock::{self, MockRunner, experiment, plan};
    use crate::arms::rounds::options::OPEN_ENDED;
    use results::document::{ArmKind, Status};
    use results::error::Exit;

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    fn document(plan: &Plan, mut runner: MockRunner) -> Document {
        experiment(plan, &mut runner, &never(), &mut |_| Ok(())).unwrap().document
    }

    #[test]
    fn every_available_arm_warms_up_and_then_runs_once_a_round_in_the_seeds_order() {
        let order = |seed| {
            let plan = plan(&["--rounds", "6", "--samples", "40", "--seed", seed]).unwrap();
            let mut runner = MockRunner::good();
            experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap();
            runner.runs
        };
        let runs = order("1");
        assert!(runs == order("1") && runs != order("2"));
        assert_eq!(runs.len(), 4 * 7);
        assert!(runs[..4].iter().all(|(_, turn, samples)| turn.warmup && *samples == 10));
        for ((_, turn, samples), n) in runs[4..].iter().zip(0..) {
            assert!(!turn.warmup && *samples == 40);
            assert_eq!((turn.index, turn.position), (n / 4, n % 4));
        }
        let document = mock::finished(&["--rounds", "3"]).document;
        let [recreate, _, _, floor, kvm] = &document.arms[..] else { panic!() };
        assert_eq!(recreate.own.counts.nmis, 3 * 40, "the warm-up is not counted");
        assert!(recreate.stand_in && !floor.stand_in);
        assert_eq!(kvm.not_available.as_deref(), Some("the mock has no vPMU of its own"));
    }

    #[test]
    fn an_incomplete_round_is_kept_and_marked_and_an_arm_that_hangs_is_given_up() {
        let plan = plan(&["--rounds", "6", "--samples", "40"]).unwrap();
        let runner = MockRunner::changed(|call, vcpu| {
            if call.arm == "reuse" && !call.warmup && call.turn >= 1 {
                vcpu.end = End::TimedOut;
            }
        });
        let document = document(&plan, runner);
        assert_eq!(document.status, Status::Incomplete);
        let reuse = &document.arms[1];
        assert_eq!(reuse.rounds.complete, [true, false, false]);
        assert!(reuse.incomplete[0].contains("round 1, vCPU 0: the time limit passed"));
        assert!(reuse.incomplete.last().unwrap().contains("given up"));
        assert_eq!(document.arms[0].rounds.len(), 6);
        assert!(document.warnings.iter().any(|w| w.code == "incomplete"));
    }

    #[test]
    fn one_bad_round_of_many_leaves_the_run_whole_and_is_said() {
        let plan = plan(&["--rounds", "40", "--samples", "40", "--strategy", "gate,reuse"]).unwrap();
        let document = document(
            &plan,
            MockRunner::changed(|call, vcpu| {
                for entry in &mut vcpu.left.log {
                    entry.tsc_exit += 20 * call.turn;
                }
                if call.arm == "reuse" && !call.warmup && call.turn == 5 {
                    vcpu.end = End::TimedOut;
                }
            }),
        );
        assert_eq!(document.status, Status::Complete);
        let whole: Vec<_> = document.extra.answers.iter().map(|answer| (answer.rounds, answer.whole)).collect();
        assert_eq!(whole, [(40, true), (39, true), (40, true)]);
        // The pair is left out, and shifts no other.
        assert_eq!(document.extra.answers[1].times_floor, Some(1.0));
        let warning = document.warnings.iter().find(|warning| warning.code == "left-out").unwrap();
        let said = "1 turn is not whole and left out, beside 40 rounds: round 5, vCPU 0: the";
        assert!(warning.message.starts_with(said), "{warning:?}");
        let text = results::table::report(&document).text(200);
        assert!(text.contains("reuse: left out: round 5, vCPU 0: the time limit passed"), "{text}");
    }

    #[test]
    fn a_counting_run_is_judged_by_its_rotation_and_misses_no_period() {
        let plan = plan(&["--rounds", "6", "--samples", "1", "--workload", "counting1"]).unwrap();
        let runner = MockRunner::changed(|_, vcpu| {
            let report = vcpu.left.report.as_mut().unwrap();
            // Its period is the counter's width, and a restart begins it anew.
            (report.counts[0], report.periods[0], vcpu.left.log[0].kind) = (1000, 100, LOG_ROTATION);
        });
        let document = document(&plan, runner);
        assert!(document.arms.iter().all(|arm| arm.own.counts.periods_missed == 0));
        assert!(document.extra.answers.iter().all(|one| one.metric == "rotation_ns"), "{:?}", document.extra);
    }

    #[test]
    fn a_host_without_any_arm_or_without_one_below_kvm_is_exit_4() {
        let below = plan(&["--strategy", "recreate,kvm:recreate,kvm:stock"]).unwrap();
        let kinds: Vec<_> = below.arms.iter().map(|arm| (arm.kind, arm.backend == "kvm")).collect();
        let kvm = (ArmKind::Kvm, true);
        assert_eq!(kinds, [(ArmKind::Strategy, false), kvm, kvm, (ArmKind::Floor, false), kvm]);
        let all = vec![ArmKind::Strategy, ArmKind::Floor, ArmKind::Kvm];
        for (plan, absent, needle) in
            [(plan(&[]).unwrap(), all, "no arm can run"), (below, vec![ArmKind::Kvm], "arm kvm:recreate cannot run")]
        {
            let mut runner = MockRunner::good();
            runner.absent = absent;
            let error = experiment(&plan, &mut runner, &never(), &mut |_| Ok(())).unwrap_err();
            assert_eq!((error.exit, runner.runs.len()), (Exit::Host, 0));
            assert!(error.to_string().contains(needle), "{error}");
        }
    }

    #[test]
    fn a_duration_ends_the_experiment_after_the_round_in_which_it_passes() {
        let mut plan = plan(&["--rounds", "9", "--samples", "40"]).unwrap();
        // A mock's guest takes 5 ms: 5 rounds of 4 arms, the first of them the warm-up, are 100 ms.
        plan.simulated = true;
        for (ms, rounds) in [(1, 1), (81, 4), (79, 3), (10_000, 9)] {
            plan.parameters.duration_ns = Some(ms * 1_000_000);
            let document = document(&plan, MockRunner::good());
            assert_eq!(document.status, Status::Complete);
            assert!(document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm).all(|arm| arm.rounds.len() == rounds));
        }
    }

    /// A plan whose guests live for two rounds each.
    fn sessions(rounds: &str) -> Plan {
        let mut plan = plan(&["--rounds", rounds, "--samples", "40", "--strategy", "reuse"]).unwrap();
        plan.parameters.rounds_per_guest = Some(2);
        plan
    }

    #[test]
    fn guests_live_over_the_rounds_of_a_session_and_all_arms_change_together() {
        let (mut runner, mut saves) = (MockRunner::good(), Vec::new());
        let mut save = |document: &Document| {
            saves.push(document.arms[0].rounds.len());
            Ok(())
        };
        let document = experiment(&sessions("5"), &mut runner, &never(), &mut save).unwrap().document;
        assert!(runner.runs.is_empty(), "no guest for one turn alone");
        assert_eq!(saves, [2, 4, 5], "at the end of each session");
        assert_eq!(document.status, Status::Complete);
        for arm in &document.arms[..2] {
            let guests: Vec<_> = arm.rounds.iter().map(|round| (round.index, round.guest)).collect();
            assert_eq!(guests, [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]);
            let starts: Vec<_> = arm.rounds.guest_start_us.iter().map(|start| *start > 0).collect();
            assert_eq!(starts, [true, false, true, false, true]);
            assert_eq!((arm.own.counts.nmis, arm.own.events_held.tail.as_slice()), (5 * 40, &[2, 1][..]));
            assert!(arm.own.workload.is_some(), "the baselines are those before the warm-ups");
        }
        let lives = runner.lives.borrow();
        let life = |what: &str| lives.iter().filter(|line| line.starts_with(what)).cloned().collect::<Vec<_>>();
        // The first turn of each guest is its warm-up.
        assert_eq!(life("reuse 0"), ["reuse 0 opens", "reuse 0.0", "reuse 0.1", "reuse 0.2", "reuse 0 closes"]);
        assert_eq!(life("floor 2"), ["floor 2 opens", "floor 2.0", "floor 2.1", "floor 2 closes"]);
        let place = |line: &str| lives.iter().position(|l| l == line).unwrap();
        assert!(place("reuse 0 closes") < place("floor 1 opens") && place("floor 0 closes") < place("reuse 1 opens"));
        assert!(place("floor 1 opens") < place("reuse 1.0") && place("reuse 1 opens") < place("floor 1.0"));
    }

    #[test]
    fn a_guest_that_hangs_ends_the_session_and_the_others_go_on() {
        let runner = MockRunner::changed(|call, vcpu| {
            if call.arm == "reuse" && (call.guest, call.turn) == (Some(1), 1) {
                vcpu.end = End::TimedOut;
            }
        });
        let document = document(&sessions("6"), runner);
        assert_eq!(document.status, Status::Incomplete);
        let [reuse, floor] = [0, 1].map(|arm: usize| {
            document.arms[arm].rounds.iter().map(|round| (round.guest, round.complete)).collect::<Vec<_>>()
        });
        assert_eq!(reuse, [(0, true), (0, true), (1, false), (2, true), (2, true), (3, true)]);
        assert_eq!(floor, [(0, true), (0, true), (1, true), (2, true), (2, true), (3, true)]);
        let why = &document.arms[0].incomplete;
        assert!(why[0].contains("round 2, vCPU 0: the time limit passed"), "{why:?}");
    }

    #[test]
    fn an_arm_whose_guests_hang_in_their_warm_ups_is_given_up_and_the_others_go_on() {
        let runner = MockRunner::changed(|call, vcpu| {
            if call.arm == "reuse" && call.warmup {
                vcpu.end = End::TimedOut;
                vcpu.account.host.last_error = Some("lost its counter".to_owned());
            }
        });
        let document = document(&sessions("4"), runner);
        assert_eq!(document.status, Status::Incomplete);
        assert_eq!([document.arms[0].rounds.len(), document.arms[1].rounds.len()], [0, 4]);
        let why = document.arms[0].incomplete.join("; ");
        for needle in ["warm-up: the time limit passed", "given up after 2 turns", "lost its counter"] {
            assert!(why.contains(needle), "{why}");
        }
    }

    #[test]
    fn an_interrupt_in_a_session_drops_the_cut_round_for_all() {
        let stop = std::rc::Rc::new(never());
        let flag = std::rc::Rc::clone(&stop);
        let mut runner = MockRunner::changed(move |call, vcpu| {
            if (call.guest, call.turn) == (Some(1), 2) {
                flag.store(true, Ordering::Relaxed);
                vcpu.end = End::Stopped;
            }
        });
        let Finished { document, error } = experiment(&sessions("6"), &mut runner, &stop, &mut |_| Ok(())).unwrap();
        assert!(document.status == Status::Interrupted && error.is_none());
        let cut = runner.lives.borrow().iter().filter(|line| line.ends_with(" 1.2")).count();
        assert_eq!(cut, 1, "no other arm begins the round");
        assert_eq!([document.arms[0].rounds.len(), document.arms[1].rounds.len()], [3, 3]);
        assert!(document.arms.iter().all(|arm| arm.incomplete.is_empty()));
    }

    #[test]
    fn a_run_until_its_intervals_are_narrow_or_its_order_is_known_ends_between_guests() {
        // Constant figures have no width: the looks after ten and thirteen guests are good.
        let mut plan = sessions("1");
        plan.parameters.rounds = OPEN_ENDED;
        for until_ci in [Some(0.02), None] {
            if until_ci.is_none() {
                plan = plan_of_two();
            }
            (plan.parameters.until_ci, plan.until_order) = (until_ci, until_ci.is_none());
            let document = document(&plan, MockRunner::good());
            assert_eq!(document.status, Status::Complete);
            assert_eq!((document.arms[0].rounds.len(), document.parameters.rounds), (26, 26));
            assert!(document.warnings.iter().all(|warning| warning.code != "until-ci"));
        }
    }

    /// A plan without an end of strategies of which one is twice as slow.
    fn plan_of_two() -> Plan {
        let mut plan = plan(&["--samples", "40", "--strategy", "recreate,reuse"]).unwrap();
        (plan.parameters.rounds, plan.parameters.rounds_per_guest) = (OPEN_ENDED, Some(2));
        plan
    }
}
