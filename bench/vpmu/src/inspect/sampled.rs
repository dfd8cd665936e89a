//! Commands that sample a guest share: the guest, the events, the payload, and the turns of vCPUs.

use std::time::Duration;

use clap::{Args, Subcommand};
use host_pmu::backend::BackendKey;
use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::{Attr, Event};
use results::error::{Error, Exit};
use results::host::{self, HostFs};
use vmm::kvm::Host;
use vmm::machine::{CounterSource, Cpu};
use vmm::outcome::RunOutcome;
use vmm::sample::{MOST_EVENTS, Sampling};

use crate::arms::arm::real;
use crate::arms::rounds::options::{ArmsOptions, HostOptions, LengthOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::inspect::run::spec::RunSpec;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::{CountersOptions, Watch};
use crate::setting::backend::{BackendChoice, Chosen, ThisHost, choose, open_kvm};
use crate::setting::options::{BehindOptions, TimeLimitOption};
use crate::setting::parse::{defaults, number_in, suggestion};
use crate::setting::pin::PinChoice;
use crate::setting::pin::usable;
use crate::setting::strategy::resolve_one;
use crate::setting::workload::Workload;
use crate::sys;
use crate::terminal::console::complain;

// The guest of a command that samples.

/// The guest that is sampled.
#[derive(Clone, Debug, Subcommand)]
pub enum GuestSpec {
    /// The project's own payload, which takes PMIs
    Payload(Box<PayloadSpec>),
    /// A third-party image, as `vpmu run`
    Run(Box<RunSpec>),
    /// A distribution's kernel, as `vpmu linux`
    Linux(Box<LinuxSpec>),
}

/// Time of the payload, unless another is given.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Options of the payload as a guest.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct PayloadSpec {
    /// Workload of the guest: EVENTS[/WORK] or WORK, as of `vpmu nmi-latency`
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// NMIs per vCPU; the guest ends then
    #[arg(long, value_name = "N", default_value = "1000", value_parser = number_in(1..=1_000_000))]
    pub samples: u64,

    /// Bound on the guest's run, even with fewer NMIs.
    #[command(flatten)]
    pub limit: TimeLimitOption,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,
}

impl PayloadSpec {
    /// Returns the plan of its one guest on this backend. `usable` are the CPUs that this process may use, if known.
    ///
    /// # Errors
    /// Exit 2 for options that contradict each other or the host.
    pub fn plan(&self, chosen: &Chosen, usable: Option<&[u32]>) -> Result<Plan, Error> {
        let CountersOptions { behind, strategy, guest } = self.counters.clone();
        let pin = behind.pin.or(Some(PinChoice::Nowhere));
        let spec: NmiLatencySpec = defaults();
        let arms = ArmsOptions {
            strategy: vec![strategy],
            samples: self.samples,
            time_limit: self.limit.time_limit.unwrap_or(TIME_LIMIT),
            guest,
            ..spec.arms
        };
        let length = LengthOptions { guest_rounds: Some(1), ..spec.length };
        let spec = NmiLatencySpec { arms, length, workload: self.workload, ..spec };
        let host = HostOptions { behind: BehindOptions { pin, ..behind }, ..defaults() };
        spec.plan(&host, chosen, usable)
    }
}

// The events that sample, and how often.

/// Shortest period of the kernel's clocks, ns.
const SHORTEST_NS: u64 = 10_000;
/// PERF_TYPE_RAW, of tracepoints: perf refuses a file that has one without its format.
const RAW: u32 = 4;

/// Event and rate by which a guest is sampled.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SamplingOptions {
    /// Events to sample by: cpu-clock, cycles, rHEX, kvm:kvm_exit ... (`vpmu show events`)
    ///
    /// cpu-clock and task-clock need no PMU. cycles, instructions, branches, branch-misses, cache-references, cache-misses and rHEX count
    /// in guest mode only, on a host with a PMU. GROUP:NAME is a tracepoint of the host that happens on the vCPU's thread.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "cpu-clock", value_parser = event)]
    pub event: Vec<SampledEvent>,

    /// Samples a second of each vCPU that runs [default: 999]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = number_in(1..=100_000))]
    pub freq: Option<u64>,

    /// One sample in N counts, in place of --freq; of a clock they are ns, 10000 and more
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = number_in(1..=1 << 47))]
    pub count: Option<u64>,
}

impl SamplingOptions {
    /// Returns the rate of samples.
    pub fn rate(&self) -> Rate {
        self.count.map_or(Rate::Hertz(self.freq.unwrap_or(USUAL)), Rate::Period)
    }

    /// Returns samples of so many vCPUs, still none.
    pub fn sampling(&self, chains: bool, vcpus: u64) -> Sampling {
        Sampling::new(self.event.clone(), self.rate(), chains, vcpus as usize)
    }

    /// Checks that each event is there once and can be sampled so often.
    ///
    /// # Errors
    /// Exit 2: it is not so.
    pub fn check(&self) -> Result<(), Error> {
        let events = &self.event;
        if let Some(event) =
            events.iter().enumerate().find_map(|(at, event)| events[..at].contains(event).then_some(event))
        {
            return Err(Error::usage(format!("duplicate event {event}"), "--event names it twice", "leave one out"));
        }
        if events.len() > MOST_EVENTS {
            let what = format!("cannot sample by {} events at once", events.len());
            return Err(Error::usage(what, format!("a recording has {MOST_EVENTS} at the most"), "leave some out"));
        }
        match self.rate() {
            Rate::Period(ns) if ns < SHORTEST_NS && events.iter().any(SampledEvent::is_clock) => Err(Error::usage(
                format!("cannot sample a clock each {ns} ns"),
                format!("the kernel's clocks sample each {SHORTEST_NS} ns at the most"),
                "give a longer --count",
            )),
            _ => Ok(()),
        }
    }
}

/// Samples a second without `--freq`.
const USUAL: u64 = 999;

/// Reads the name of an event.
fn event(text: &str) -> Result<SampledEvent, String> {
    text.parse().map_err(|_: String| {
        let known: Vec<_> = SampledEvent::named().collect();
        match text.split_once('/').or_else(|| text.split_once(':')) {
            Some((name, _)) if known.contains(&name) => {
                format!("events have no modifiers here: those of a PMU count in guest mode, clocks all the thread's time; give {name}")
            }
            Some((group, name)) if text.contains('/') && !group.is_empty() && !name.is_empty() => {
                format!("a tracepoint has a colon in place of the slash: {group}:{}", name.trim_end_matches('/'))
            }
            _ => suggestion(text, &known, ", rHEX, and tracepoints as kvm:kvm_exit"),
        }
    })
}

/// The events as a recording has them; `user_only`: all samples are those of a user task, and perf misses no kernel.
///
/// # Errors
/// Exit 4: this host does not have one.
pub fn described(sampling: &Sampling, user_only: bool) -> Result<Vec<Event>, Error> {
    let event = |(at, event): (usize, &SampledEvent)| {
        let cannot = |why| {
            Error::host(format!("cannot sample by {event}"), why, "give another --event; `vpmu show events` has them")
        };
        let (type_, config) = event.encoding().map_err(cannot)?;
        // perf refuses a file with a tracepoint and without its format. Its name is in the file, whatever its type.
        let type_ = if event.is_tracepoint() { RAW } else { type_ };
        let (period, by_frequency) = sampling.rate.of(event);
        let exclude_host = event.is_hardware();
        let attr =
            Attr { type_, config, period, by_frequency, exclude_host, exclude_kernel: user_only, ..Attr::default() };
        Ok(Event { attr, name: event.to_string(), ids: vec![at as u64 + 1] })
    };
    sampling.events.iter().enumerate().map(event).collect()
}

// A Linux guest that is sampled.

/// Refuses a guest whose registers are those of another guest at times.
///
/// # Errors
/// Exit 2: it is one.
pub fn refuse_nested(linux: &LinuxSpec) -> Result<(), Error> {
    if linux.nested {
        return Err(Error::usage(
            "cannot sample a guest with --nested",
            "while a guest of its own runs, the registers are that one's",
            "leave --nested out",
        ));
    }
    Ok(())
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
    /// Looks for all that it needs.
    ///
    /// # Errors
    /// A missing prerequisite.
    pub fn new(payload: &PayloadSpec) -> Result<Self, Error> {
        if let BackendChoice::Sim(_) = payload.counters.behind.backend {
            return Err(Error::usage("cannot sample a simulated guest", "it runs no code", "give another --backend"));
        }
        let chosen = choose(&payload.counters.behind.backend, &ThisHost)?;
        let usable = usable(&host::HostFacts::read(&HostFs::default()));
        let plan = payload.plan(&chosen, usable.as_deref())?;
        let behind = if chosen.backend == BackendKey::None {
            CounterSource::Floor
        } else {
            CounterSource::Events {
                backend: chosen.backend.clone(),
                strategy: resolve_one(&payload.counters.strategy)?,
            }
        };
        let host = open_kvm()?;
        real::ensure(payload.counters.guest.vcpus)?;
        sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
        Ok(Self { host, plan, behind, vcpus: payload.counters.guest.vcpus })
    }

    /// Returns what counts behind its counters.
    pub fn backend(&self) -> &BackendKey {
        match &self.behind {
            CounterSource::Events { backend, .. } => backend,
            _ => &BackendKey::None,
        }
    }

    /// Returns its processor.
    pub fn cpu(&self) -> Cpu {
        self.plan.guest.machine.cpu
    }

    /// Runs it, and says on stderr what it did unless `quiet`. Returns the exit code that it stands for, and its outcome.
    ///
    /// # Errors
    /// It could not begin.
    pub fn run(self, watch: Watch, quiet: bool) -> Result<(Exit, RunOutcome), Error> {
        let samples = self.plan.parameters.samples;
        let outcome = real::watched(&self.host, &self.plan.guest, self.behind, samples, watch)?;
        let nmis: u64 = outcome.vcpus.iter().map(|vcpu| vcpu.account.counts.nmis_injected).sum();
        if !quiet {
            complain(&format!(
                "the payload ended ({}) after {:.1} s and {nmis} NMIs",
                outcome.end,
                outcome.wall.as_secs_f64()
            ));
        }
        Ok((if outcome.end.is_complete() { Exit::Done } else { Exit::Inconclusive }, outcome))
    }
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
