//! `vpmu guest-stat`.

use clap::Args;
use results::error::{Error, Exit};

use super::measure::{Invocation, MakePlan, Wanted, measure_all};
use super::options::GuestResultOptions;
use crate::arms::rounds::options::HostOptions;
use crate::experiment::guest_stat::GuestStatSpec;
use crate::setting::backend::Chosen;

pub(super) const EXAMPLES: &str = "\
Examples:
  # ten events, five strategies and the floor, half a minute
  vpmu guest-stat
  vpmu guest-stat --events 20 --vcpus 2 --pin 0,1
  # as perf stat COMMAND, not perf stat -a
  vpmu guest-stat --events 7 --enable once
  # a simulated host, a second
  vpmu guest-stat --backend sim:clx-ap-watchdog-off
  # where creating an event takes tens of ms
  vpmu guest-stat --events 1 --samples 5 --rounds 2 \\
    --backend tracepoint:kvm/kvm_userspace_exit

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
4 the host cannot do it, 70 a bug of vpmu.";

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

pub(super) fn run(args: &GuestStatArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let GuestStatArgs { spec, host, out } = args;
    let plan = |events: u64| move |chosen: &Chosen, usable: Option<&[u32]>| spec.plan(events, host, chosen, usable);
    let plans: Vec<_> = spec.events.iter().map(|&events| plan(events)).collect();
    let wanted = Wanted { backend: &host.behind.backend, model: None, is_bare: false, linux: None, out };
    measure_all(&wanted, &plans.iter().map(|plan| plan as MakePlan<'_>).collect::<Vec<_>>(), invocation)
}
