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
use results::document::{Document, Parameters, SCHEMA, Warning, warnings};
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
    if let Some(why) = until_ci.and_then(|wanted| precision::missing(&document, wanted)) {
        document.warnings.push(Warning::of_all(warnings::UNSURE, why));
    }
    document.conclude(answers::metric(&document.parameters).key);
    document.ended_by(error.as_ref());
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
        first_guest_instruction_ns: first_instruction.map(ns),
        answer: Vec::new(),
        exit: None,
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
#[expect(clippy::format_push_string, reason = "a transcript grows line by line")]
mod tests {
    use std::path::Path;

    use guest::abi::LOG_ROTATION;
    use results::document::ArmKind;
    use results::error::Exit;
    use vmm::outcome::{End, VcpuOutcome};

    use super::*;
    use crate::arms::rounds::mock::{Call, MockRunner, experiment, plan};
    use crate::arms::rounds::options::OPEN_ENDED;

    type Change = fn(&Call<'_>, &mut VcpuOutcome);

    /// Guests of a mock, with what is changed of them. The file has what the runner was asked for, in order, and what the document says.
    #[test]
    fn arms_take_turns_and_the_document_says_how_they_fared() {
        let cases: [(&str, &str, Option<u64>, Change); 14] = [
            ("fresh guests in the seed's order", "--rounds 3", None, |_, _| ()),
            ("another seed", "--rounds 3 --seed 2", None, |_, _| ()),
            ("an arm that hangs is given up", "--rounds 4", None, |call, vcpu| {
                if call.arm == "reuse" && !call.warmup && call.turn >= 1 {
                    vcpu.end = End::TimedOut;
                }
            }),
            (
                "one bad round of many is left out with its pair",
                "--rounds 40 --strategy gate,reuse",
                None,
                |call, vcpu| {
                    vcpu.left.log.iter_mut().for_each(|entry| entry.tsc_exit += 20 * call.turn);
                    if call.arm == "reuse" && !call.warmup && call.turn == 5 {
                        vcpu.end = End::TimedOut;
                    }
                },
            ),
            ("a counting run misses no period", "--rounds 6 --samples 1 --workload counting1", None, |_, vcpu| {
                let report = vcpu.left.report.as_mut().unwrap();
                // Its period is the counter's width, and a restart begins it anew.
                (report.counts[0], report.periods[0], vcpu.left.log[0].kind) = (1000, 100, LOG_ROTATION);
            }),
            // A mock's guest takes 5 ms: 5 rounds of 4 arms, the first of them the warm-up, are 100 ms.
            ("a bound ends it after the round in which it passes", "--rounds 9 --duration 81ms", None, |_, _| ()),
            ("a bound that passes earlier", "--rounds 9 --duration 79ms", None, |_, _| ()),
            ("guests live over rounds", "--rounds 5 --strategy reuse", Some(2), |_, _| ()),
            ("a guest that hangs ends its session", "--rounds 6 --strategy reuse", Some(2), |call, vcpu| {
                if call.arm == "reuse" && (call.guest, call.turn) == (Some(1), 1) {
                    vcpu.end = End::TimedOut;
                }
            }),
            ("guests that hang in their warm-ups", "--rounds 4 --strategy reuse", Some(2), |call, vcpu| {
                if call.arm == "reuse" && call.warmup {
                    vcpu.end = End::TimedOut;
                    vcpu.account.host.last_error = Some("lost its counter".to_owned());
                }
            }),
            ("an interrupt drops the cut round for all", "--rounds 6 --strategy reuse", Some(2), |call, vcpu| {
                if (call.guest, call.turn) == (Some(1), 2) {
                    vcpu.end = End::Stopped;
                }
            }),
            ("an interrupt before the first round", "--rounds 6 --strategy reuse", Some(2), |_, vcpu| {
                vcpu.end = End::Stopped;
            }),
            // Constant figures have no width: the looks after ten and thirteen guests are good.
            ("until intervals are narrow", "--until-ci 2%", Some(2), |_, _| ()),
            ("until the order is known", "--duration 60s --strategy recreate,reuse", Some(2), |_, _| ()),
        ];
        let mut text = String::new();
        for (what, line, rounds_per_guest, change) in cases {
            let mut runner = MockRunner::changed(change);
            let words: Vec<&str> = ["--samples", "40"].into_iter().chain(line.split(' ')).collect();
            let mut plan = plan(&words).unwrap();
            if !line.contains("--rounds") {
                plan.parameters.rounds = OPEN_ENDED;
            }
            plan.parameters.rounds_per_guest = rounds_per_guest;
            (plan.simulated, plan.until_order) = (what.starts_with("a bound"), what == "until the order is known");
            let found = experiment(&plan, &mut runner);
            text += &format!("# {what}\n");
            if plan.parameters.rounds < 7 {
                text += &(runner.asked.borrow().join("; ") + "\n");
            }
            let Finished { document, .. } = match found {
                Ok(found) => found,
                Err(error) => {
                    text += &format!("{error}\n");
                    continue;
                }
            };
            text += &format!("{:?} of {} rounds\n", document.status, document.parameters.rounds);
            for arm in &document.arms {
                let rounds = arm.rounds.iter().map(|round| (round.guest, round.complete));
                let mut rounds: Vec<_> = rounds.collect();
                rounds.dedup();
                let own = &arm.own;
                let counts = (arm.rounds.len(), own.counts.nmis, own.counts.periods_missed, &own.events_held.tail);
                text += &format!("{}: {counts:?} {rounds:?} {:?}\n", arm.name, (&arm.not_available, &arm.incomplete));
            }
            for answer in answers::of(&document, answers::metric(&document.parameters).key) {
                let parts = (&answer.metric, answer.rounds, answer.whole, answer.ratio);
                text += &format!("answer {}: {parts:?}\n", answer.arm);
            }
            for warning in document.warnings.iter().filter(|one| one.remedy.is_none() && one.code != "debug-build") {
                text += &format!("{}: {}\n", warning.code, warning.message);
            }
        }
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arms/rounds/tests/turns.txt"), &text);
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
            let mut runner = MockRunner::changed(|_, _| ());
            runner.absent = absent;
            let error = experiment(&plan, &mut runner).unwrap_err();
            assert!(error.exit == Exit::Host && runner.asked.borrow().is_empty());
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
