//! `vpmu advise`: which strategy for these workloads, on this host or on a modelled one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Command};
use results::advice::{advise, lines};
use results::choice::{LeftOut, is_modelled};
use results::document::{Document, Record};
use results::error::{Error, Exit};
use results::paired::MIN_ROUNDS;
use results::table;
use results::table::layout::plural;
use trace::read::Trace;

use super::files::{self, Kept};
use super::measure::{Found, measure_each};
use super::options::ResultOptions;
use super::prepare::{Fallback, MakePlan, On, named_model, tried};
use crate::arms::arm::replay::{PARTS, Parts};
use crate::arms::rounds::options::{ArmsOptions, HostOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::setting::backend::Chosen;
use crate::setting::options::DurationOption;
use crate::setting::strategy::{StrategyChoice, resolve, resolve_arms};
use crate::setting::workload::Workload;
use crate::sys;
use crate::terminal::console::{self, Form, complain, print};

/// Bound on all runs on this host together.
const LONGEST: Duration = Duration::from_secs(100);
/// Rounds in which a guest lives on: ten guests an arm, which a look at the order takes, fit into the time.
const GUEST_ROUNDS: u64 = 4;
/// Least bound on a run, where those before it took its time.
const SHORTEST: Duration = Duration::from_millis(1);

/// Options of `vpmu advise`.
#[derive(Clone, Debug, Args)]
pub struct AdviseArgs {
    /// Rank the strategies of these results, files or folders, and run nothing
    #[arg(value_name = "FILE", conflicts_with_all =
          ["workload", "trace", "ArmsOptions", "HostOptions", "BehindOptions", "output", "no_save", "quiet"])]
    pub files: Vec<PathBuf>,

    /// Workloads of the guest, EVENTS[/WORK] or WORK as of nmi-latency; each is a run
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sampling10,sampling4,counting1,single")]
    pub workload: Vec<Workload>,

    /// Judge by traces in place of workloads: replayed whole on models, played back on this host
    ///
    /// On a model the figure is the host's work from one PMI to the next (exits, the VMM, operations), or from one start of
    /// counters where a trace has no PMIs, and the floor is the exits and the VMM alone; --rounds is the number of a trace's parts, by which
    /// the intervals are made. On this host it is as of nmi-latency --trace.
    #[arg(long, value_name = "DIR", num_args = 1.., help_heading = "Guest", conflicts_with_all =
          ["workload", "cpu", "vcpus", "mux_interval", "warmup", "samples", "time_limit"])]
    pub trace: Vec<PathBuf>,

    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

/// Gives a shared option the defaults and the help that it has here.
pub(super) fn with_defaults(command: Command) -> Command {
    let help = "Presets to compare; .toml files are added to these, or to the defaults";
    command.mut_arg("strategy", |arg| arg.default_values(USUAL).help(help).long_help(help))
}

/// The presets by default: that of KVM before 5.5, that of KVM since, and the ones that may be faster. Others go by their names.
const USUAL: [&str; 5] = ["recreate", "reuse-lazy", "gate", "gate-pool", "virtual"];

/// The subject of a run: a workload, or in its place the accesses of a trace.
type Load<'a> = (Workload, Option<&'a Parts>);

pub(super) fn run(args: &AdviseArgs, command_line: &[String]) -> Result<Exit, Error> {
    if !args.files.is_empty() {
        let found = files::records(&args.files, false)?;
        let (what, why) = (plural(found.unsound, "result"), "not sound, as stderr says".to_owned());
        let unsound = (found.unsound > 0).then_some(LeftOut { what, why, is_open: true });
        return show(args, &found.records, None, unsound.into_iter().collect());
    }
    let (strategy, traces) = (strategies(&args.arms.strategy)?, traces(args)?);
    let model = named_model(&args.host.behind.backend)?;
    let (runs, mut left_out) = runs(args, model.is_some(), &traces)?;
    let AdviseArgs { arms: ArmsOptions { duration: DurationOption { duration }, rounds, .. }, host, .. } = args;
    // Runs on this host share the time, those of models have it each.
    let all = duration.or(model.is_none().then_some(LONGEST)).filter(|_| duration.is_some() || rounds.is_none());
    let (began, strategy) = (Instant::now(), &strategy);
    let makes: Vec<_> = (runs.iter().enumerate())
        .map(|(at, &run)| {
            let others = u32::try_from(runs.len() - at).unwrap_or(1);
            move |chosen: &Chosen, usable: Option<&[u32]>| {
                let left =
                    all.map(|all| if chosen.simulated { all } else { all.saturating_sub(began.elapsed()) / others });
                plan(args, strategy, run, left.map(|left| left.max(SHORTEST)), chosen, usable)
            }
        })
        .collect();
    let makes: Vec<MakePlan<'_>> = makes.iter().map(|make| make as MakePlan<'_>).collect();
    // Whatever can be refused is refused before anything is measured.
    makes.iter().try_for_each(|make| tried(model.as_ref(), *make))?;
    let on = On { backend: &host.behind.backend, linux: None, model: model.as_ref(), fallback: Fallback::Never };
    let Found { documents, kept, failed } = measure_each(on, true, &args.result, &makes, command_line)?;
    // One that could not be measured might change the choice.
    let (lacks, why) = (runs.len() - documents.len(), "not measured".to_owned());
    left_out.extend((lacks > 0).then(|| LeftOut { what: plural(lacks, "run"), why, is_open: true }));
    let records = documents.iter().map(record).collect::<Result<Vec<_>, _>>()?;
    let done = show(args, &records, kept.iter().find_map(Kept::path), left_out);
    let done = done.map_err(|error| failed.clone().unwrap_or(error))?;
    let cut = || Error::new(Exit::Inconclusive, "interrupted", "", "what finished is kept");
    failed.or_else(|| sys::stopped().then(cut)).map_or(Ok(done), Err)
}

/// Returns a document as one that was read.
fn record(document: &Document) -> Result<Record, Error> {
    serde_json::from_str(&document.to_json()?).map_err(|error| Error::internal("cannot read the result", error))
}

fn plan(
    args: &AdviseArgs,
    strategy: &[StrategyChoice],
    (workload, trace): Load<'_>,
    duration: Option<Duration>,
    chosen: &Chosen,
    usable: Option<&[u32]>,
) -> Result<Plan, Error> {
    let arms = ArmsOptions { strategy: strategy.to_vec(), duration: DurationOption { duration }, ..args.arms.clone() };
    let spec = NmiLatencySpec { arms, length: <_>::default(), workload: Some(workload), period: None, freq: None };
    let mut plan = spec.plan(&PAYLOAD, &args.host, chosen, usable)?;
    plan.until_order = args.arms.rounds.is_none();
    if plan.until_order && plan.parameters.rounds_per_guest.is_some() {
        plan.parameters.rounds_per_guest = Some(GUEST_ROUNDS);
    }
    match trace {
        None => {}
        Some(parts) if chosen.simulated => plan.replay(parts),
        Some(parts) => plan.play(&parts.trace)?,
    }
    Ok(plan)
}

/// Opens the traces, and reads all of them.
fn traces(args: &AdviseArgs) -> Result<Vec<Parts>, Error> {
    let parts = |folder: &PathBuf| Parts::of(&Trace::open(folder)?, args.arms.rounds.unwrap_or(PARTS));
    args.trace.iter().map(parts).collect()
}

/// Lists the runs, and what is left out.
fn runs<'a>(args: &AdviseArgs, simulated: bool, traces: &'a [Parts]) -> Result<(Vec<Load<'a>>, Vec<LeftOut>), Error> {
    if args.arms.rounds.is_some_and(|rounds| rounds < MIN_ROUNDS as u64) {
        return Err(Error::usage("so few --rounds have no interval", "", format!("take --rounds {MIN_ROUNDS}")));
    }
    if traces.is_empty() {
        return Ok((args.workload.iter().map(|&workload| (workload, None)).collect(), Vec::new()));
    }
    let (mut runs, mut left_out) = (Vec::new(), Vec::new());
    for parts in traces {
        match parts.tells_nothing(!simulated) {
            Some(why) => {
                left_out.push(LeftOut { what: format!("trace {}", parts.trace.name()), why, is_open: false });
            }
            None => runs.push((args.workload[0], Some(parts))),
        }
    }
    if runs.is_empty() {
        let remedy = "give others, or --backend sim:MODEL where only this host lacks PMIs";
        return Err(Error::usage("no trace tells anything", lines(&left_out).join("; "), remedy));
    }
    Ok((runs, left_out))
}

/// Returns the strategies that run: presets, then those of files.
fn strategies(asked: &[StrategyChoice]) -> Result<Vec<StrategyChoice>, Error> {
    let (files, mut found): (Vec<_>, Vec<_>) =
        asked.iter().cloned().partition(|choice| matches!(choice, StrategyChoice::File(_)));
    if found.is_empty() {
        found = StrategyChoice::presets(&USUAL);
    }
    found.extend(resolve(&files)?.into_iter().map(StrategyChoice::Defined));
    resolve_arms(&found)?;
    if found.len() < 2 {
        return Err(Error::usage("one strategy leaves no choice", "", "give two or more, or leave --strategy out"));
    }
    Ok(found)
}

/// Prints the advice, with the warnings of its results, and says how the command ends.
fn show(args: &AdviseArgs, records: &[Record], saved: Option<&Path>, left_out: Vec<LeftOut>) -> Result<Exit, Error> {
    let form = Form::from(args.result.json.json);
    let is_named = |one: &StrategyChoice| matches!(one, StrategyChoice::Preset(name) if is_modelled(name));
    let modelled = args.arms.strategy.iter().any(is_named);
    let advice = advise(&records.iter().collect::<Vec<_>>(), left_out, modelled).map_err(|left_out| {
        let why = [vec!["no two strategies have whole figures in as many results".to_owned()], lines(&left_out)];
        let remedy = "give other results, other --strategy or more --duration";
        Error::new(Exit::Inconclusive, "there is no advice", why.concat().join("; "), remedy)
    })?;
    console::show(form, &advice.report(), &advice)?;
    if let (Some(first), Form::Text) = (saved, form) {
        print(&format!("saved: {} ({})\n", first.display(), plural(records.len(), "result")))?;
    }
    // A warning is shown once for all results: of each kind and arm the first.
    let mut kinds = BTreeSet::new();
    let all = records.iter().flat_map(|record| &record.warnings);
    let first: Vec<_> = all.filter(|one| kinds.insert((&one.code, &one.arm))).cloned().collect();
    table::warnings(&first).for_each(|line| complain(&format!("warning: {line}")));
    Ok(if advice.is_sure { Exit::Done } else { Exit::Inconclusive })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use results::advice::Advice;
    use results::document::Status;

    use super::*;
    use crate::arms::arm::sim;
    use crate::experiment::nmi_latency::simulated::simulate;
    use crate::setting::parse::{options, refused};

    /// Advises by simulated runs of these options, as the command does, and counts the rounds of the first.
    fn simulated(line: &[&str]) -> (Advice, usize) {
        let args: AdviseArgs = options(line).unwrap();
        let strategy = strategies(&args.arms.strategy).unwrap();
        let (model, traces) = (named_model(&args.host.behind.backend).unwrap().unwrap(), traces(&args).unwrap());
        let mut records: Vec<Record> = Vec::new();
        for run in runs(&args, true, &traces).unwrap().0 {
            let plan = plan(&args, &strategy, run, None, &sim::chosen(&model, ""), None).unwrap();
            let document = simulate(&plan, model.clone(), &AtomicBool::new(false)).unwrap();
            assert_eq!(document.status, Status::Complete, "{:?}", document.warnings);
            assert!(document.warnings.iter().all(|warning| warning.code != "played"), "{:?}", document.warnings);
            records.push(record(&document).unwrap());
        }
        let advice = advise(&records.iter().collect::<Vec<_>>(), Vec::new(), false).unwrap();
        let rounds = advice.results[0].regrets.iter().map(|one| one.ratio.rounds).max().unwrap_or(0);
        (advice, rounds)
    }

    #[test]
    fn every_seed_has_the_first_and_last_of_five_hundred_rounds() {
        let on = |host: &str, rounds: &[&str], seed: &str| {
            let line = ["--backend", host, "--workload", "sampling10", "--seed", seed, "--samples", "5"];
            simulated(&[&line[..], &["--strategy", "reuse-lazy,gate,virtual"], rounds].concat())
        };
        let order = |advice: &Advice| {
            let [one] = &advice.results[..] else { panic!("one run") };
            (advice.choice.clone(), one.regrets[0].arm.clone(), one.regrets.last().unwrap().arm.clone())
        };
        for host in ["sim:development-host", "sim:clx-ap-watchdog-on"] {
            let (long, rounds) = on(host, &["--rounds", "500"], "99");
            assert_eq!(rounds, 500);
            for seed in (1..=10).filter(|seed| (seed % 2 == 0) == (host == "sim:development-host")) {
                let (found, rounds) = on(host, &[], &seed.to_string());
                assert_eq!(order(&found), order(&long), "seed {seed} on {host}");
                assert!(found.is_sure && rounds < 240, "seed {seed} on {host}: {rounds} rounds, {:?}", found.said);
            }
        }
    }

    /// Returns a trace of the corpus.
    fn trace(name: &str) -> String {
        format!("{}/../../results/traces/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn the_choice_on_real_guests_traces_is_never_far_behind() {
        let traces = ["record10-clx-6.1", "switching-clx-6.1", "idle-genoa-6.12"].map(trace);
        let strategies = "recreate,reuse-lazy,pool,gate,gate-pool,virtual";
        let mut line = vec!["--backend", "sim:clx-ap-watchdog-on", "--strategy", strategies];
        // No bound makes a part of a trace the whole.
        line.extend(["--duration", "1s", "--trace"]);
        line.extend(traces.iter().map(String::as_str));
        let (advice, rounds) = simulated(&line);
        assert_eq!((advice.results.len(), rounds), (3, 40));
        let chosen = advice.strategies.iter().find(|one| one.arm == advice.choice).unwrap();
        assert!(chosen.worst_regret <= 1.10, "{chosen:?}");
        let worst = advice.strategies.iter().find(|one| one.arm == "recreate").unwrap();
        assert!(worst.worst_regret > 2.0, "{worst:?}");
        assert!(chosen.worst_interval.low > 0.5 && chosen.worst_interval.high < 1.5, "{chosen:?}");
    }

    #[test]
    fn a_trace_that_tells_nothing_is_left_out_and_a_bad_one_refused() {
        let on = ["--backend", "sim:development-host", "--strategy", "gate,reuse", "--trace"];
        let given = |traces: &[String]| {
            let line = [&on[..], &traces.iter().map(String::as_str).collect::<Vec<_>>()].concat();
            let args: AdviseArgs = options(&line).map_err(|error| refused(&error))?;
            runs(&args, true, &super::traces(&args)?).map(|(runs, left_out)| (runs.len(), lines(&left_out)))
        };
        let [idle, top, stat] = ["idle-clx-6.1", "top-clx-6.1", "stat-clx-6.1"].map(trace);
        let (runs, left_out) = given(&[top.clone(), idle.clone(), stat.clone()]).unwrap();
        assert_eq!((runs, left_out), (2, vec!["left out: trace idle-clx-6.1: it has 1 PMI".to_owned()]));
        let here = Parts::of(&Trace::open(stat.as_ref()).unwrap(), PARTS).unwrap();
        assert!(here.tells_nothing(true).is_some_and(|why| why.contains("on this host")));
        for (traces, needle) in [
            (&[idle][..], "no trace tells anything: left out: trace idle-clx-6.1: it has 1 PMI"),
            (&[top, trace("none")], "cannot read the trace"),
            (&[], "--trace"),
        ] {
            let error = given(traces).unwrap_err();
            assert!(error.exit == Exit::Usage && error.to_string().contains(needle), "{error} lacks {needle}");
        }
        assert!(
            options::<AdviseArgs>(&["--trace", "x", "--workload", "single"]).is_err()
                && options::<AdviseArgs>(&["--trace", "x", "--vcpus", "2"]).is_err()
        );
    }
}
