//! A simulated experiment: what `vpmu sim` takes, a point of a grid has, and the recipe of a published figure says.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use guest::abi::{EventSpec, MAX_EVENTS};
use host_pmu::stats::ns;
use results::document::Document;
use results::error::Error;
use results::host::HostFs;
use results::table::layout::{plural, time};
use sim::guest::Timer;
use sim::model::{Costs, Model};

use super::spec::{NmiLatencySpec, PAYLOAD};
use crate::arms::arm::sim::{DEFAULT_MODEL, chosen, facts, model};
use crate::arms::rounds::options::HostOptions;
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::run::run;
use crate::engine::Context;
use crate::setting::backend::BackendChoice;
use crate::setting::options::{BehindOptions, MOST_VCPUS};
use crate::setting::parse::{defaults, duration_in, number_in, one_of, suggestion};
use crate::terminal::progress::Silent;

/// Options of a simulated experiment, apart from where the result goes.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct SimSpec {
    /// A model of `vpmu show models` or a .toml file
    #[arg(value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub model: String,
    /// Host CPUs that the vCPUs share in turns [default: one for each vCPU]
    #[arg(long, value_name = "N", value_parser = number_in(1..=MOST_VCPUS), help_heading = "Guest")]
    pub cpus: Option<u64>,
    /// Replay a trace under the strategies instead: the host's work from PMI to PMI, and guest reads that would have differed
    #[arg(long, value_name = "DIR", help_heading = "Guest",
          conflicts_with_all = ["slice", "timer", "baseline", "tail", "events", "hard_limit", "LengthOptions", "workload",
                                "period", "freq", "vcpus", "cpus", "mux_interval", "warmup", "samples", "time_limit",
                                "duration"])]
    pub trace: Option<PathBuf>,
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub spec: NmiLatencySpec,
    // What of the host and its guests is not as the model and the payload have it: keys of grids and recipes.
    /// Multiply a cost of the model by a factor
    #[arg(long, hide = true, value_name = "COST=FACTOR", value_parser = cost)]
    pub cost: Vec<(String, f64)>,
    /// Time slice of a vCPU on a shared CPU
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration_in(Duration::from_micros(1)..=Duration::from_secs(1000)))]
    pub slice: Option<Duration>,
    /// The guest's timer: periodic as the payload's, or forwarded after its work as Linux's
    #[arg(long, hide = true, value_name = "KIND", default_value = "periodic", value_parser = one_of(&TIMERS, Timer::name, |_| ""))]
    pub timer: Timer,
    /// Time without counters before the measured phase
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration_in(Duration::ZERO..=HOUR))]
    pub baseline: Option<Duration>,
    /// Idle time after the measured phase, which shows events left open
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration_in(Duration::ZERO..=HOUR))]
    pub tail: Option<Duration>,
    /// The events of the workload's set that the guest programs, from 1, such as 2-7
    #[arg(long, hide = true, value_name = "FIRST-LAST", value_parser = events)]
    pub events: Option<RangeInclusive<u64>>,
    /// Virtual time after which a guest is ended that does not end by itself
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration_in(Duration::from_millis(1)..=10 * HOUR))]
    pub hard_limit: Option<Duration>,
}

const HOUR: Duration = Duration::from_secs(3600);
const TIMERS: [Timer; 2] = [Timer::Periodic, Timer::Forwarded];

fn cost(text: &str) -> Result<(String, f64), String> {
    let (cost, factor) = text.split_once('=').ok_or("give COST=FACTOR, e.g. open=10")?;
    if !Costs::SCALABLE.contains(&cost) {
        return Err(format!("there is no cost '{cost}'; {}", suggestion(cost, Costs::SCALABLE, "")));
    }
    let factor = factor.parse().ok().filter(|factor| (0.0..=1e6).contains(factor));
    Ok((cost.to_owned(), factor.ok_or_else(|| format!("cost.{cost} is no factor; give 0 to 1000000"))?))
}

fn events(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let both = first.parse().ok().zip(last.parse().ok());
    both.filter(|&(first, last)| (1..=last).contains(&first))
        .map(|(first, last)| first..=last)
        .ok_or_else(|| "events are numbered from 1: give e.g. 2-7".to_owned())
}

impl SimSpec {
    /// Reads the model, with what is altered; a cost's factor and that of a part of it multiply.
    ///
    /// # Errors
    /// Exit 2 for a bad model, and a cost that it does not have.
    pub fn model(&self) -> Result<Model, Error> {
        let mut model = model(&self.model)?;
        for (cost, factor) in &self.cost {
            model.scale(cost, *factor).map_err(|error| Error::usage("cannot scale a cost", error.to_string(), ""))?;
        }
        if let Some(slice) = self.slice.filter(|_| self.shares()) {
            model.host.slice = ns(slice);
        }
        Ok(model)
    }

    /// Returns whether vCPUs share CPUs.
    fn shares(&self) -> bool {
        self.cpus.is_some_and(|cpus| cpus < self.spec.arms.guest.vcpus)
    }

    /// Returns the plan on the altered model.
    ///
    /// # Errors
    /// Exit 2 for parameters that contradict each other.
    pub fn plan(&self, model: &Model) -> Result<Plan, Error> {
        let host = HostOptions { behind: BehindOptions::of(BackendChoice::Sim(self.model.clone())), ..defaults() };
        let mut plan = self.spec.plan(&PAYLOAD, &host, &chosen(model, "asked for"), None)?;
        plan.timer = self.timer;
        let (machine, boot, parameters) = (&mut plan.guest.machine, &mut plan.guest.boot, &mut plan.parameters);
        parameters.cpus = self.cpus.filter(|_| self.shares());
        let ticks = |time: Option<Duration>, usual: u64| {
            time.map_or(usual, |time| ns(time).div_ceil(parameters.mux_interval_ns.max(1)).max(1))
        };
        boot.baseline_ticks = ticks(self.baseline, boot.baseline_ticks);
        boot.tail_ticks = ticks(self.tail, boot.tail_ticks);
        (parameters.baseline_ticks, parameters.tail_ticks) = (boot.baseline_ticks, boot.tail_ticks);
        machine.time_limit = self.hard_limit.unwrap_or(machine.time_limit);
        if let Some(events) = &self.events {
            let (first, end) = (*events.start() as usize - 1, *events.end() as usize);
            if end > parameters.events.len() {
                let why = format!("the workload has {}", plural(parameters.events.len(), "event"));
                return Err(Error::usage(
                    format!("events {}-{end} are not all there", first + 1),
                    why,
                    "take some of those",
                ));
            }
            parameters.events = parameters.events[first..end].to_vec();
            boot.events.copy_within(first..end, 0);
            boot.events[end - first..MAX_EVENTS].fill(EventSpec::default());
            boot.event_count = (end - first) as u64;
        }
        let altered = self.cost.iter().map(|(cost, factor)| (format!("cost.{cost}"), factor.to_string()));
        let slice = self.slice.filter(|_| self.shares()).map(|slice| ("slice", time(ns(slice) as f64)));
        let timer = (self.timer != Timer::default()).then(|| ("timer", Timer::name(self.timer).to_owned()));
        let limit = self.hard_limit.map(|limit| ("hard-limit", time(ns(limit) as f64)));
        let others = [slice, timer, limit].into_iter().flatten().map(|(key, value)| (key.to_owned(), value));
        parameters.altered = altered.chain(others).collect();
        Ok(plan)
    }
}

/// Simulates a plan: an ordinary experiment, whose document nobody waits for.
///
/// # Errors
/// Errors of the simulation.
pub fn simulate(plan: &Plan, model: Model, stop: &AtomicBool) -> Result<Document, Error> {
    let mut plan = plan.clone();
    plan.simulate(&model.name);
    let context = Context {
        stop,
        fs: &HostFs::at("/nonexistent"),
        host: facts(&model),
        command_line: &[],
        progress: &mut Silent,
        save: &mut |_| Ok(()),
    };
    let (document, error) = run(&plan, &plan.on_model(model)?, context)?;
    error.map_or(Ok(document), Err)
}
