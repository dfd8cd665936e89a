//! `vpmu guest-stat`.

use clap::Args;
use results::error::{Error, Exit};

use super::measure::{Invocation, MakePlan, Wanted, measure_all};
use super::options::GuestResultOptions;
use crate::arms::linux::job::{Kind, LinuxJob};
use crate::arms::linux::spec::LinuxGuestOptions;
use crate::arms::rounds::options::HostOptions;
use crate::experiment::guest_stat::spec::{self, Enable, GuestStatSpec, LINUX, MAX, MAX_LINUX, PAYLOAD};
use crate::setting::backend::Chosen;

/// Options of `vpmu guest-stat`.
#[derive(Clone, Debug, Args)]
pub struct GuestStatArgs {
    /// Arms, guest, rounds and events.
    #[command(flatten)]
    pub spec: GuestStatSpec,
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

pub(super) fn run(args: &GuestStatArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let GuestStatArgs { spec, host, .. } = args;
    let linux = LinuxJob::new(&args.linux, Kind::SetUp)?;
    if linux.is_some() && spec.enable == Some(Enable::Each) {
        return Err(Error::usage(
            "--enable each is not for a Linux guest",
            "its perf stat enables all events at once",
            "leave it out",
        ));
    }
    let (most, usual) = if linux.is_some() { (MAX_LINUX, &LINUX) } else { (MAX, &PAYLOAD) };
    if let Some(events) = spec.events.iter().find(|&&events| events > most) {
        return Err(Error::usage(format!("{events} events"), "", format!("give 1 to {most}")));
    }
    let linux = linux.as_ref();
    let plan = |events: u64, chosen: &Chosen, usable: Option<&[u32]>| {
        // The payload's boot page has room for MAX events; Linux's list is set below.
        let mut plan = spec.plan((usual, events.min(MAX)), host, chosen, usable)?;
        if let Some(job) = linux {
            plan.parameters.events = spec::events(events, host.cpu.vendor());
            plan.parameters.workload = spec::workload(events);
            job.adapt(&mut plan, spec::WORKLOAD)?;
        }
        Ok(plan)
    };
    let plans =
        spec.events.iter().map(|&events| move |chosen: &Chosen, usable: Option<&[u32]>| plan(events, chosen, usable));
    let plans: Vec<_> = plans.collect();
    let wanted = Wanted { backend: &host.behind.backend, model: None, is_bare: false, linux, out: &args.out };
    measure_all(&wanted, &plans.iter().map(|plan| plan as MakePlan<'_>).collect::<Vec<_>>(), invocation)
}
