//! `vpmu __turns`: one side of `vpmu ab`, driven by its parent.

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};

use super::measure::{Claiming, Ready, named_model, ready};
use super::nmi_latency::{SamplingOptions, with_samples};
use super::options::{ArmsOptions, HostOptions};
use crate::experiment::ab::child::{Streams, serve};
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::setting::backend::Chosen;
use crate::sys;
use crate::terminal::console::internal;

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
    let spec: NmiLatencySpec = with_samples(args.arms.spec(Some(&args.host)), &args.sampling);
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut streams = Streams { input: std::io::stdin().lock(), output: std::io::stdout().lock() };
    let named = named_model(&spec.common.backend)?;
    let fs = HostFs::default();
    let host = HostFacts::read(&fs);
    let plan = |chosen: &Chosen, usable: Option<&[u32]>| {
        let mut spec = spec.clone();
        spec.common.rounds_per_guest = Some(if chosen.shares_first { 1 } else { ENDLESS });
        spec.plan(chosen, usable)
    };
    let Ready { plan, mut runner, host, .. } =
        ready((&spec.common.backend, None), named, &plan, (host, fs), Claiming::Ignore)?;
    serve(&plan, runner.as_mut(), &host.class, sys::interrupted(), &mut streams)
}
