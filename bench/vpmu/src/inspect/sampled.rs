//! Parts that commands share which sample a guest: the guest, the events, the payload, the unwind tables of a Linux kernel, and the turns of vCPUs.

use std::sync::Arc;

use event_list::tracepoints::Tracepoints;
use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::{Attr, Event};
use results::error::{Error, Exit};
use results::host::{self, HostFs};
use vmm::kvm::Host;
use vmm::machine::CounterSource;
use vmm::machine::linux::Kernel;
use vmm::outcome::RunOutcome;
use vmm::sample::{self, MOST_EVENTS, Moment, Orc, OrcError, Sampling};

use crate::arms::arm::{launch, limits};
use crate::arms::linux_boot::spec::LinuxSpec;
use crate::arms::rounds::pin::usable_cpus;
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::inspect::run::spec::RunSpec;
use crate::setting::abilities::ThisHost;
use crate::setting::backend::{BackendChoice, choose};
use crate::setting::parse::most_like;
use crate::setting::strategy::{StrategyChoice, resolve_one};
use crate::sys;
use crate::terminal::console::complain;

// The guest of a command that samples.

/// The payload as a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct PayloadSpec {
    /// Its work, its vCPUs, its samples.
    pub experiment: NmiLatencySpec,
    /// The strategy behind its counters.
    pub strategy: StrategyChoice,
}

/// The guest that is sampled.
#[derive(Clone, Debug)]
pub enum GuestSpec {
    /// The project's own payload.
    Payload(Box<PayloadSpec>),
    /// A third-party image.
    Image(Box<RunSpec>),
    /// A distribution's kernel.
    Linux(Box<LinuxSpec>),
}

// The events that sample, and how often.

/// Shortest period of the kernel's clocks, ns.
const SHORTEST_NS: u64 = 10_000;
/// PERF_TYPE_RAW, of events that no perf has a type for. `perf script` shows no address of a dummy event.
const RAW: u32 = 4;

/// Checks that each event is there once, and that the kernel samples so often.
///
/// # Errors
/// Exit 2: it is not so.
pub fn check(events: &[sample::Event], rate: Rate) -> Result<(), Error> {
    if let Some((at, event)) = events.iter().enumerate().find(|(at, event)| events[..*at].contains(event)) {
        let first = events[..at].iter().position(|before| before == event).unwrap_or(0);
        return Err(Error::usage(
            format!("duplicate event {event}"),
            format!("it is number {} and {} of --event", first + 1, at + 1),
            "leave one out",
        ));
    }
    if events.len() > MOST_EVENTS {
        let what = format!("cannot sample by {} events at once", events.len());
        return Err(Error::usage(what, format!("a recording has {MOST_EVENTS} at the most"), "leave some out"));
    }
    match rate {
        Rate::Period(ns)
            if ns < SHORTEST_NS && events.iter().filter_map(sample::Event::host).any(SampledEvent::is_clock) =>
        {
            Err(Error::usage(
                format!("cannot sample a clock each {ns} ns"),
                format!("the kernel's clocks sample each {SHORTEST_NS} ns at the most"),
                "give a longer --count",
            ))
        }
        _ => Ok(()),
    }
}

/// The events as a recording has them; `user_only`: all samples are those of a user task, and perf misses no kernel.
///
/// # Errors
/// Exit 4: this host does not have one.
pub fn described(sampling: &Sampling, user_only: bool) -> Result<Vec<Event>, Error> {
    let event = |(at, event): (usize, &sample::Event)| {
        let host = event.host();
        let (type_, config) = match host {
            Some(host) => {
                let encoding = host.encoding();
                encoding.map_err(|why| Error::host(format!("cannot sample by {event}"), why, remedy(host)))?
            }
            None => (RAW, 0),
        };
        // perf refuses a file with a tracepoint and without its format. Its name is in the file, whatever its type.
        let type_ = if host.is_some_and(SampledEvent::is_tracepoint) { RAW } else { type_ };
        let (period, by_frequency) = event.rate(sampling.rate);
        let exclude_host = host.is_some_and(SampledEvent::is_hardware);
        let attr =
            Attr { type_, config, period, by_frequency, exclude_host, exclude_kernel: user_only, ..Attr::default() };
        Ok(Event { attr, name: event.to_string(), ids: vec![at as u64 + 1] })
    };
    sampling.events.iter().enumerate().map(event).collect()
}

/// Tells how to get an event that this host does not have.
fn remedy(event: &SampledEvent) -> String {
    let (found, name) = (Tracepoints::of_this_host(), event.to_string());
    // One that is there has another fault.
    let like = most_like(&name, found.names.iter().map(String::as_str)).filter(|like| *like != name);
    match like.filter(|_| event.is_tracepoint()) {
        Some(like) => format!("did you mean {like}?"),
        None => "give another --event; `vpmu list` has them".to_owned(),
    }
}

// A Linux guest that is sampled.

/// Refuses a guest whose registers are those of another guest at times.
///
/// # Errors
/// Exit 2: it is one.
pub fn refuse_nested(linux: &LinuxSpec) -> Result<(), Error> {
    if linux.machine.nested {
        return Err(Error::usage(
            "cannot sample a guest with --nested",
            "while a guest of its own runs, the registers are that one's",
            "leave --nested out",
        ));
    }
    Ok(())
}

/// The unwind tables of a kernel, with a warning if it has none.
#[must_use]
pub fn unwind_tables(kernel: &Kernel) -> Option<Orc> {
    match Orc::of_kernel(kernel.image(), kernel.release()) {
        Ok(orc) => Some(orc),
        Err(why @ (OrcError::Absent | OrcError::Damaged(_))) => {
            complain(&format!("warning: {why}: chains of the kernel follow frame pointers, which it may not have"));
            None
        }
    }
}

// The payload as a guest that is sampled.

/// A payload that may begin.
#[derive(Debug)]
pub struct ReadyPayload {
    host: Host,
    plan: Plan,
    behind: CounterSource,
    /// Its vCPUs.
    pub vcpus: u64,
}

impl ReadyPayload {
    /// Looks for all that it needs; `chains`: its samples are to have call chains.
    ///
    /// # Errors
    /// A missing prerequisite.
    pub fn new(payload: &PayloadSpec, chains: bool) -> Result<Self, Error> {
        if chains {
            complain(
                "warning: the payload is built without frame pointers: its chains end after one function, or are wrong",
            );
        }
        let common = &payload.experiment.common;
        if let BackendChoice::Sim(_) = common.backend {
            return Err(Error::usage("cannot sample a simulated guest", "it runs no code", "give another --backend"));
        }
        let chosen = choose(&common.backend, &ThisHost)?;
        let fs_of_host = HostFs::default();
        let usable = usable_cpus(&host::HostFacts::read(&fs_of_host), fs_of_host.text("proc/self/status").as_deref());
        let plan = payload.experiment.plan(&chosen, usable.as_deref())?;
        let behind = if chosen.backend == host_pmu::backend::BackendKey::None {
            CounterSource::Floor
        } else {
            CounterSource::Events { backend: chosen.backend.clone(), strategy: resolve_one(&payload.strategy)? }
        };
        let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
        limits::ensure(common.vcpus)?;
        sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
        Ok(Self { host, plan, behind, vcpus: common.vcpus })
    }

    /// Runs it, and says on stderr what it did unless `quiet`.
    ///
    /// # Errors
    /// It could not begin.
    pub fn run(self, sampling: Arc<Sampling>, quiet: bool) -> Result<Ran, Error> {
        let first = Moment::now();
        let outcome = launch::recorded(&self.host, &self.plan.guest, self.behind, self.plan.samples, sampling)?;
        let last = Moment::now();
        let nmis: u64 = outcome.vcpus.iter().map(|vcpu| vcpu.pmi.nmis).sum();
        if !quiet {
            complain(&format!(
                "the payload ended ({}) after {:.1} s and {nmis} NMIs",
                outcome.end,
                outcome.wall.as_secs_f64()
            ));
        }
        let exit = if outcome.end.is_complete() { Exit::Done } else { Exit::Inconclusive };
        Ok(Ran { exit, outcome, first, last })
    }
}

/// A payload that ran.
#[derive(Debug)]
pub struct Ran {
    /// The exit code that it stands for.
    pub exit: Exit,
    /// Outcome of its run.
    pub outcome: RunOutcome,
    /// Before it began.
    pub first: Moment,
    /// When it had ended.
    pub last: Moment,
}

// Turns of vCPUs at the one thread that takes samples out of all queues.

/// Most samples of one vCPU that are taken out before the others have their turn: the guest decides how many it makes.
const MOST_AT_ONCE: usize = 2048;

/// Takes no more of a queue than a turn has; returns whether there may be more.
pub fn take_turn<T>(mut next: impl FnMut() -> Option<T>, mut take: impl FnMut(T)) -> bool {
    for _ in 0..MOST_AT_ONCE {
        let Some(one) = next() else { return false };
        take(one);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_sampled_once() {
        let of = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        let refused = |names: &[&str]| check(&of(names), Rate::Hertz(1)).map_err(|error| error.to_string());
        assert_eq!(refused(&["pmi", "exit", "exit:io", "cpu-clock", "task-clock"]), Ok(()));
        for (names, needle) in [
            (&["pmi", "pmi"][..], "duplicate event pmi"),
            (&["exit", "cpu-clock", "cpu-clock"], "number 2 and 3"),
            (&["kvm:kvm_exit", "kvm:kvm_exit"], "kvm:kvm_exit"),
        ] {
            let why = refused(names).unwrap_err();
            assert!(why.contains(needle) && why.lines().count() == 1, "{why}");
        }
    }

    #[test]
    fn a_clock_has_a_shortest_period() {
        let clock = ["cpu-clock".parse().unwrap()];
        assert!(
            check(&clock, Rate::Period(SHORTEST_NS - 1)).is_err() && check(&clock, Rate::Period(SHORTEST_NS)).is_ok()
        );
        assert!(check(&["pmi".parse().unwrap()], Rate::Period(1)).is_ok());
    }

    #[test]
    fn a_vcpu_that_never_stops_leaves_the_others_their_turn() {
        let mut taken = 0;
        assert!(take_turn(|| Some(()), |()| taken += 1));
        assert_eq!(taken, MOST_AT_ONCE);
        let mut three = 0..3;
        let mut found = Vec::new();
        assert!(!take_turn(|| three.next(), |one| found.push(one)));
        assert_eq!(found, [0, 1, 2]);
    }
}
