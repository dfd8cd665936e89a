//! `vpmu __turns`: one side of `vpmu ab`, driven by its parent.

use clap::Args;
use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};

use super::measure::usable;
use super::nmi_latency::{SamplingOptions, with_samples};
use super::options::{ArmsOptions, HostOptions};
use crate::arm::real::RealRunner;
use crate::arm::sim::{self as simulated, SimRunner};
use crate::backend::{BackendChoice, choose};
use crate::console::internal;
use crate::experiment::ab::child::{Streams, serve};
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::probe::ThisHost;
use crate::sys;

/// Rounds of a session at most; the parent ends it.
const ENDLESS: u64 = u64::MAX;

/// Options of `vpmu __turns`: those of `vpmu nmi-latency` but for where the result goes.
#[derive(Clone, Debug, Args)]
#[command(args_override_self = true)]
pub struct TurnsArgs {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The guest's events and work.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
}

pub(super) fn run(args: &TurnsArgs) -> Result<Exit, Error> {
    let mut spec: NmiLatencySpec = with_samples(args.arms.spec(Some(&args.host)), &args.sampling);
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut streams = Streams { input: std::io::stdin().lock(), output: std::io::stdout().lock() };
    match &spec.common.backend {
        BackendChoice::Sim(name) => {
            let model = simulated::model(name)?;
            spec.common.rounds_per_guest = Some(ENDLESS);
            let mut plan = spec.plan(&simulated::chosen(&model, "asked for"), None)?;
            plan.simulate(&model.name);
            let host = simulated::facts(&model).class;
            let mut runner = SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed)?;
            serve(&plan, &mut runner, &host, sys::interrupted(), &mut streams)
        }
        BackendChoice::Key(BackendKey::Step) => Err(Error::usage(
            "backend step measures no latencies",
            "every instruction that counts would be an exit of its own",
            "use another --backend",
        )),
        BackendChoice::Auto | BackendChoice::Key(_) => {
            let chosen = choose(&spec.common.backend, &ThisHost)?;
            spec.common.rounds_per_guest = Some(if chosen.shares_first { 1 } else { ENDLESS });
            let host = HostFacts::read(&HostFs::default());
            let plan = spec.plan(&chosen, usable(&host).as_deref())?;
            let mut runner = RealRunner::new(&plan.guest, &plan.backend, plan.parameters.period)?;
            serve(&plan, &mut runner, &host.class, sys::interrupted(), &mut streams)
        }
    }
}
