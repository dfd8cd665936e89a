//! Commands that sample a guest share: the guest, the events, the payload, and the thread beside the guest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::Event;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::write::Target;
use vmm::machine::Cpu;
use vmm::machine::linux::Kernel;
use vmm::outcome::{Account, RunOutcome};
use vmm::sample::{MOST_EVENTS, Sampling};

use crate::arms::arm::real;
use crate::arms::rounds::options::{ArmsOptions, HostOptions};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::spec::{NmiLatencySpec, PAYLOAD};
use crate::inspect::run::{self, RunSpec};
use crate::machine::linux::guest::Sets;
use crate::machine::linux::job;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::userland;
use crate::machine::{self, CountersOptions};
use crate::setting::backend::{Chosen, choose, this_host};
use crate::setting::options::{BehindOptions, TimeLimitOption};
use crate::setting::parse::{defaults, number_in, suggestion};
use crate::setting::pin::{PinChoice, usable};
use crate::setting::workload::Workload;
use crate::terminal::console::{complain, internal};

// These options name the guest of a command that samples.

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
            samples: Some(self.samples),
            time_limit: self.limit.time_limit.or(Some(TIME_LIMIT)),
            guest,
            ..spec.arms
        };
        let spec = NmiLatencySpec { arms, workload: Some(self.workload), ..spec };
        let host = HostOptions { behind: BehindOptions { pin, ..behind }, ..defaults() };
        spec.plan(&PAYLOAD, &host, chosen, usable)
    }

    /// Returns the machine of that guest, with its counters.
    ///
    /// # Errors
    /// The strategy cannot be read.
    pub fn machine(&self, plan: &Plan, chosen: &Chosen) -> Result<vmm::machine::Plan, Error> {
        Ok(vmm::machine::Plan { behind: self.counters.source(&chosen.backend)?, ..plan.guest.machine.clone() })
    }

    /// Returns its name, with its workload.
    pub fn name(&self) -> String {
        format!("payload {}", self.workload)
    }
}

// These options name the events that sample, and how often.

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

    /// Checks that each event is there once and can be sampled so often.
    ///
    /// # Errors
    /// Exit 2: it is not so.
    pub fn check(&self) -> Result<(), Error> {
        let events = &self.event;
        let twice = events.iter().enumerate().find(|(at, event)| events[..*at].contains(event));
        let shortest = matches!(self.rate(), Rate::Period(..SHORTEST_NS)) && events.iter().any(SampledEvent::is_clock);
        let (why, remedy) = if let Some((_, event)) = twice {
            (format!("--event names {event} twice"), "leave one out")
        } else if events.len() > MOST_EVENTS {
            (format!("a recording has {MOST_EVENTS} events at the most"), "leave some out")
        } else if shortest {
            (format!("the kernel's clocks sample each {SHORTEST_NS} ns at the most"), "give a longer --count")
        } else {
            return Ok(());
        };
        Err(Error::usage("cannot sample so", why, remedy))
    }
}

/// Samples a second without `--freq`.
const USUAL: u64 = 999;

/// Reads the name of an event.
fn event(text: &str) -> Result<SampledEvent, String> {
    text.parse().map_err(|_: String| {
        let known: Vec<_> = SampledEvent::named().collect();
        suggestion(text, &known, ", rHEX, and tracepoints as kvm:kvm_exit; none has modifiers")
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
        let (exclude_host, name, id) = (event.is_hardware(), event.to_string(), at as u64 + 1);
        Ok(Event { type_, config, period, by_frequency, exclude_host, exclude_kernel: user_only, name, id })
    };
    sampling.events.iter().enumerate().map(event).collect()
}

// What follows makes the guest ready to run, with a thread beside it.

/// A guest that may begin.
#[derive(Debug)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its machine, to which samples and a trace are added.
    pub machine: vmm::machine::Plan,
    /// Its code; an image or a kernel is read once.
    pub code: Code,
    /// It says nothing on stderr but errors.
    quiet: bool,
}

/// The code of a guest.
#[derive(Debug)]
pub enum Code {
    /// The payload, and its plan.
    Payload(Box<Plan>),
    /// An image's file.
    Image(Box<RunSpec>, Vec<u8>),
    /// A Linux kernel.
    Linux(Box<LinuxSpec>, Box<Kernel>),
}

impl Guest {
    /// Reads a guest that is to be watched.
    ///
    /// # Errors
    /// A missing prerequisite, and exit 2 for a guest whose registers are those of another guest at times.
    pub fn watched(guest: GuestSpec, quiet: bool) -> Result<Self, Error> {
        match guest {
            GuestSpec::Linux(linux) if linux.nested => Err(Error::usage(
                "cannot sample a guest with --nested",
                "while a guest of its own runs, the registers are that one's",
                "leave --nested out",
            )),
            guest => Self::new(guest, quiet),
        }
    }

    /// Reads the guest, and looks for what counts behind its counters.
    fn new(guest: GuestSpec, quiet: bool) -> Result<Self, Error> {
        let chosen = |counters: &CountersOptions| choose(&counters.behind.backend, &this_host);
        match guest {
            GuestSpec::Payload(payload) => {
                let chosen = chosen(&payload.counters)?;
                let plan = payload.plan(&chosen, usable(&HostFacts::read(&HostFs::default())).as_deref())?;
                let machine = payload.machine(&plan, &chosen)?;
                Ok(Self { name: payload.name(), machine, code: Code::Payload(Box::new(plan)), quiet })
            }
            GuestSpec::Run(image) => {
                let bytes = machine::read(&image.image, "the image")?;
                let backend = chosen(&image.counters)?.backend;
                let machine = image.counters.plan(Cpu::default(), &backend, image.limit)?;
                let (name, quiet) = (image.image.display().to_string(), quiet || image.quiet.quiet);
                Ok(Self { name, machine, code: Code::Image(image, bytes), quiet })
            }
            GuestSpec::Linux(linux) => {
                let backend = chosen(&linux.counters)?.backend;
                let kernel = Box::new(userland::kernel(&linux.kernel)?);
                let (name, quiet) = (linux.kernel.display().to_string(), quiet || linux.quiet.quiet);
                Ok(Self { name, machine: linux.plan(&backend)?, code: Code::Linux(linux, kernel), quiet })
            }
        }
    }

    /// Runs it, and returns what its vCPUs did; the list of a Linux guest's symbols is put into `kallsyms`.
    ///
    /// # Errors
    /// It could not begin.
    pub fn run(self, kallsyms: Option<&Target>) -> Result<(Exit, Vec<Account>), Error> {
        match self.code {
            Code::Payload(plan) => {
                let RunOutcome { end, vcpus, wall, .. } =
                    real::alone(&plan.guest, self.machine, plan.parameters.samples)?;
                let nmis: u64 = vcpus.iter().map(|vcpu| vcpu.account.counts.nmis_injected).sum();
                if !self.quiet {
                    complain(&format!("the payload ended ({end}) after {:.1} s and {nmis} NMIs", wall.as_secs_f64()));
                }
                let exit = if end.is_complete() { Exit::Done } else { Exit::Inconclusive };
                Ok((exit, vcpus.into_iter().map(|vcpu| vcpu.account).collect()))
            }
            Code::Image(image, bytes) => run::run(&image, &bytes, self.machine, self.quiet),
            Code::Linux(linux, kernel) => job::run(&linux, *kernel, self.machine, kallsyms, self.quiet),
        }
    }
}

/// Runs a guest that nobody watches: `vpmu run` and `vpmu linux`.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn alone(guest: GuestSpec) -> Result<Exit, Error> {
    Guest::new(guest, false)?.run(None).map(|(exit, _)| exit)
}

/// Runs `guest` beside a thread that takes out what its vCPUs leave, until the guest has ended; returns what is left of `state` and the
/// guest's end. `look` is called with whether it has ended, and returns how long to wait for the next look, if there is no more.
///
/// # Errors
/// The host gives no thread; exit 70 for a panic of the thread.
pub fn beside<T: Send, R>(
    mut state: T,
    mut look: impl FnMut(&mut T, bool) -> Option<Duration> + Send,
    guest: impl FnOnce() -> R,
) -> Result<(T, R), Error> {
    let done = AtomicBool::new(false);
    let is_over = &done;
    let drain = move || loop {
        // Looked at before the queues, which grow no more then: what is in them at the end is taken out.
        let last = is_over.load(Ordering::Acquire);
        match look(&mut state, last) {
            Some(_) if last => return state,
            Some(pause) if !is_over.load(Ordering::Relaxed) => std::thread::park_timeout(pause),
            _ => {}
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let cannot = |error: std::io::Error| Error::host("cannot start the recorder", error.to_string(), "");
        let thread = thread.spawn_scoped(scope, drain).map_err(cannot)?;
        let told = Sets(&done);
        let ended = guest();
        drop(told);
        thread.thread().unpark();
        let drained = thread.join().map_err(|_| internal("the recorder panicked", "see above"))?;
        Ok((drained, ended))
    })
}

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
