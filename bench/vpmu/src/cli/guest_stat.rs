//! `vpmu guest-stat`.

use clap::Args;
use results::error::{Error, Exit};

use super::measure::measure_all;
use super::options::GuestResultOptions;
use super::prepare::{Fallback, MakePlan, On, named_model};
use crate::arms::rounds::options::HostOptions;
use crate::experiment::guest_stat::GuestStatSpec;
use crate::setting::backend::Chosen;

/// Options of `vpmu guest-stat`.
#[derive(Clone, Debug, Args)]
pub struct GuestStatArgs {
    /// Arms, guest, rounds and events.
    #[command(flatten)]
    pub spec: GuestStatSpec,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Place and form of the result.
    #[command(flatten)]
    pub out: GuestResultOptions,
}

pub(super) fn run(args: &GuestStatArgs, command_line: &[String]) -> Result<Exit, Error> {
    let GuestStatArgs { spec, host, out } = args;
    let plan = |events: u64| move |chosen: &Chosen, usable: Option<&[u32]>| spec.plan(events, host, chosen, usable);
    let plans: Vec<_> = spec.events.iter().map(|&events| plan(events)).collect();
    let model = named_model(&host.behind.backend)?;
    let on = On { backend: &host.behind.backend, linux: None, model: model.as_ref(), fallback: Fallback::Never };
    measure_all(on, out, &plans.iter().map(|plan| plan as MakePlan<'_>).collect::<Vec<_>>(), command_line)
}
