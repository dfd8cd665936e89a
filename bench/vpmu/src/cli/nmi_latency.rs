//! `vpmu nmi-latency`, the main job, and `vpmu sim`, the same on a simulated host.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::measure::measure_all;
use super::options::GuestResultOptions;
use super::prepare::{Fallback, MakePlan, On, named_model};
use crate::arms::arm::replay::{PARTS, Parts};
use crate::arms::linux::spec::{LinuxGuestOptions, adapt};
use crate::arms::rounds::options::HostOptions;
use crate::experiment::nmi_latency::simulated::SimSpec;
use crate::experiment::nmi_latency::spec::{LINUX, NmiLatencySpec, PAYLOAD};
use crate::setting::backend::{BackendChoice, Chosen};
use crate::setting::workload::{EventSet, GuestWork, Workload};
use crate::terminal::console::complain;
use results::error::{Error, Exit};
use trace::read::Trace;

/// Workloads of the main job: the published one, on which strategies differ most, and one event.
const WORKLOADS: [EventSet; 2] = [EventSet::SAMPLING10, EventSet::SINGLE];

/// Bound on each of its workloads.
const LONGEST: Duration = Duration::from_secs(24);

/// Options of `vpmu nmi-latency`.
#[derive(Clone, Debug, Args)]
pub struct NmiLatencyArgs {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub spec: NmiLatencySpec,
    /// Play a trace back in place of a workload, register by register, in guests with its PMU (vpmu trace record)
    ///
    /// The accesses of its vCPU with the most PMIs, each after the guest's own time; where no counter counts, after 1 ms at most. A
    /// turn goes on where the arm's last one ended.
    #[arg(long, value_name = "DIR", help_heading = "Guest",
          conflicts_with_all = ["workload", "period", "freq", "cpu", "guest"])]
    pub trace: Option<PathBuf>,
    /// The kind of guest.
    #[command(flatten)]
    pub linux: LinuxGuestOptions,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Place and form of the result.
    #[command(flatten)]
    pub out: GuestResultOptions,
}

/// Options of `vpmu sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// The simulated experiment.
    #[command(flatten)]
    pub sim: SimSpec,
    /// Place and form of the result.
    #[command(flatten)]
    pub out: GuestResultOptions,
}

pub(super) fn run(args: &NmiLatencyArgs, command_line: &[String]) -> Result<Exit, Error> {
    let linux = args.linux.chosen()?;
    let (spec, usual) = (&args.spec, if linux.is_some() { &LINUX } else { &PAYLOAD });
    let trace = args.trace.as_deref().map(Trace::open).transpose()?;
    let backend = &args.host.behind.backend;
    let model = named_model(backend)?;
    let plan = |chosen: &Chosen, usable: Option<&[u32]>| {
        let mut plan = spec.plan(usual, &args.host, chosen, usable)?;
        if linux.is_some() {
            adapt(&mut plan, spec.workload.unwrap_or(usual.workload))?;
        }
        if let Some(trace) = &trace {
            if chosen.simulated {
                let what = "only guests of this host's KVM play a trace back";
                return Err(Error::usage(what, "this run simulates", "vpmu sim --trace replays it on a model"));
            }
            plan.play(trace)?;
        }
        Ok(plan)
    };
    // The main job: a document of each workload, and one answer.
    let plans = WORKLOADS.map(|events| {
        move |chosen: &Chosen, usable: Option<&[u32]>| {
            let mut spec = spec.clone();
            spec.workload = Some(Workload { events, work: GuestWork::FTEST });
            let (length, duration) = (&spec.length, &mut spec.arms.duration.duration);
            let is_bounded = spec.arms.rounds.is_some() || length.quick || length.until_ci.is_some();
            *duration = match duration {
                Some(both) => Some(*both / 2),
                None => (!is_bounded && !chosen.simulated).then_some(LONGEST),
            };
            spec.plan(&PAYLOAD, &args.host, chosen, usable)
        }
    });
    let main = plans.each_ref().map(|plan| plan as MakePlan<'_>);
    // A newcomer, who calls the tool without a word, or with -q or -v in any cluster, sees something even where nothing can be measured.
    // Whoever asks for something, as scripts do, is not served by a simulation, which would pass for that.
    let asks = |word: &String| !matches!(word.trim_end_matches(['q', 'v']), "-" | "--quiet" | "--verbose");
    let fallback = if command_line.iter().skip(1).any(asks) { Fallback::Never } else { Fallback::WithNotice };
    let on = On { backend, linux, model: model.as_ref(), fallback };
    let one: [MakePlan<'_>; 1] = [&plan];
    // Neither a command nor a workload was named.
    let is_bare = command_line.get(1).is_none_or(|word| word != "nmi-latency");
    let is_main = is_bare && linux.is_none() && spec.workload.is_none() && trace.is_none();
    measure_all(on, &args.out, if is_main { &main } else { &one }, command_line)
}

pub(super) fn run_simulated(args: &SimArgs, command_line: &[String]) -> Result<Exit, Error> {
    let sim = &args.sim;
    let rounds = sim.spec.arms.rounds.unwrap_or(PARTS);
    let parts = sim.trace.as_deref().map(|folder| Parts::of(&Trace::open(folder)?, rounds)).transpose()?;
    if let Some(lost) = parts.as_ref().map(|parts| parts.trace.meta.lost).filter(|lost| *lost > 0) {
        complain(&format!("warning: rows missing in the trace: {lost}; what follows from them differs"));
    }
    let backend = &BackendChoice::Sim(sim.model.clone());
    let model = sim.model()?;
    let plan = |_: &Chosen, _: Option<&[u32]>| {
        let mut plan = sim.plan(&model)?;
        if let Some(parts) = &parts {
            plan.replay(parts);
        }
        Ok(plan)
    };
    let on = On { backend, linux: None, model: Some(&model), fallback: Fallback::Never };
    measure_all(on, &args.out, &[&plan], command_line)
}
