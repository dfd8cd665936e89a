//! `vpmu __turns`: one side of `vpmu ab`, driven by its parent.

use clap::Args;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};

use super::measure::{Claiming, Ready, named_model, ready};
use crate::arms::rounds::options::HostOptions;
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
    pub spec: NmiLatencySpec,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
}

pub(super) fn run(args: &TurnsArgs) -> Result<Exit, Error> {
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let mut streams = Streams { input: std::io::stdin().lock(), output: std::io::stdout().lock() };
    let named = named_model(&args.host.backend)?;
    let fs = HostFs::default();
    let host = HostFacts::read(&fs);
    let plan = |chosen: &Chosen, usable: Option<&[u32]>| {
        let mut spec = args.spec.clone();
        spec.length.guest_rounds = Some(if chosen.shares_first { 1 } else { ENDLESS });
        spec.plan(&args.host, chosen, usable)
    };
    let Ready { plan, mut runner, host, .. } =
        ready((&args.host.backend, None), named, &plan, (host, fs), Claiming::Ignore)?;
    serve(&plan, runner.as_mut(), &host.class, sys::interrupted(), &mut streams)
}
