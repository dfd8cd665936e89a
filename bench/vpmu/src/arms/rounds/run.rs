//! Every arm once per round, in random order, and a document at the end of each session.

use super::guest_arm::arms;
use super::plan::Plan;
use super::precision;
use crate::arms::arm::runner::Runner;
use crate::engine::{self, About, Arm as _, Context, Measured, State};
use results::answers;
use results::document::{Document, Warning, warnings};
use results::error::Error;
use results::paired::Looks;
use results::table::layout::{percent, plural};

/// Runs the plan.
///
/// # Errors
/// If no arm can run here, or if nothing was measured before an error.
pub(crate) fn run(plan: &Plan, runner: &Runner, context: Context<'_, Document>) -> Result<Measured, Error> {
    let mut arms = arms(plan, runner, context.stop)?;
    context.progress.expect(&expectation(plan, arms.iter().filter(|arm| arm.runs()).count()));
    let parameters = plan.parameters.clone();
    let until_ci = parameters.until_ci;
    let complete = &|document: &mut Document, is_last: bool| {
        if plan.is_open_ended() {
            // Without a wanted number of rounds, it is that of the rounds there are.
            document.parameters.rounds = document.arms.iter().map(|arm| arm.rounds.len() as u64).max().unwrap_or(0);
        }
        document.warnings = warnings::collect(document);
        if is_last {
            let missing = until_ci.and_then(|wanted| precision::missing(document, wanted));
            document.warnings.extend(missing.map(|why| Warning::of_all(warnings::UNSURE, why)));
            document.conclude(answers::metric(&document.parameters).key);
        }
    };
    let place = parameters.set_up.as_ref().map(|_| "guest");
    let about = About { name: plan.experiment, place, parameters, complete };
    let mut looks = Looks::default();
    let mut enough = |state: &State, look: &mut dyn FnMut() -> Document| {
        let mut is_sure = || match until_ci {
            Some(wanted) => precision::is_reached(&look(), wanted),
            None => precision::order_is_known(&look()),
        };
        // Guests differ, so a look is taken between them.
        state.between_sessions && (plan.until_order || until_ci.is_some()) && looks.are_enough(&mut is_sure)
    };
    engine::measure(&mut arms, &plan.rounds(), &about, context, &mut enough)
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
        let cases: [(&str, &str, Option<u64>, Change); 15] = [
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
            ("one of two warm-ups hangs", "--rounds 2 --warmup 2 --strategy reuse", Some(2), |call, vcpu| {
                if call.arm == "reuse" && (call.guest, call.turn) == (Some(0), 0) {
                    vcpu.end = End::TimedOut;
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
            let runner = MockRunner::changed(change);
            let words: Vec<&str> = ["--samples", "40"].into_iter().chain(line.split(' ')).collect();
            let mut plan = plan(&words).unwrap();
            if !line.contains("--rounds") {
                plan.parameters.rounds = OPEN_ENDED;
            }
            plan.parameters.rounds_per_guest = rounds_per_guest;
            (plan.simulated, plan.until_order) = (what.starts_with("a bound"), what == "until the order is known");
            let found = experiment(&plan, &runner);
            text += &format!("# {what}\n");
            if plan.parameters.rounds < 7 {
                text += &(runner.asked.borrow().join("; ") + "\n");
            }
            let (document, _) = match found {
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
            let error = experiment(&plan, &runner).unwrap_err();
            assert!(error.exit == Exit::Host && runner.asked.borrow().is_empty());
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
