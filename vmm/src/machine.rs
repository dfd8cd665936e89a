//! One run of a guest: memory, VM, a thread per vCPU, and what they leave.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use guest::abi::{BootPage, ConformanceReport};
use host_pmu::backend::BackendKey;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::backend::step::StepBackend;
use host_pmu::bank::Bank;
use host_pmu::floor::Floor;
use host_pmu::kick;
use host_pmu::side::HostPmu;
use host_pmu::strategy::Strategy;
use kvm_ioctls::{VcpuFd, VmFd};
use thiserror::Error;
use vm_memory::GuestMemoryMmap;

use crate::boot::layout::{Layout, MAX_VCPUS};
use crate::boot::payload::{self, Payload, PayloadError};
use crate::crew::{Crew, Left, Limits};
use crate::devices::doorbell::Doorbell;
use crate::kvm::vcpu::{LoopOutcome, Parts, Vcpu};
use crate::kvm::{GuestPmu, Host, KvmError, tsc};
use crate::outcome::{End, HostSide, RunOutcome, TscMap, VcpuOutcome};
use crate::seccomp::{Jail, SeccompError};
use crate::sys;
use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;

/// What stands behind the guest's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: a timer raises the PMIs, and a counter advances by one per TSC tick.
    Floor,
    /// The same where a counter advances by so many counts a millisecond.
    PacedFloor {
        /// Counts per millisecond.
        counts_per_ms: u64,
    },
    /// Host events, kept by a strategy.
    Events {
        /// Where they come from.
        backend: BackendKey,
        /// How they are kept.
        strategy: Strategy,
    },
    /// KVM's own vPMU.
    Kvm,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What stands behind the counters.
    pub behind: Behind,
    /// The guest's PMU.
    pub pmu: PmuCaps,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// CPUs to bind vCPU threads to, in turn; empty = not bound.
    pub pin: Vec<usize>,
    /// Log entries per vCPU.
    pub log_entries: u64,
    /// What the boot page tells the payload; the machine fills in addresses, frequencies and counts.
    pub boot: BootPage,
    /// When the run is ended from outside.
    pub time_limit: Duration,
    /// Whether vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

/// Work that is the same whatever stands behind the counters.
pub(crate) trait OnHost {
    type Out;

    /// Does the work with `host`, on the thread that made it.
    fn run<H: HostPmu + Tell>(self, host: H) -> Self::Out;
}

impl Behind {
    /// Whose PMU the guest sees.
    pub(crate) fn pmu(&self, host: &Host, caps: PmuCaps) -> Result<GuestPmu, KvmError> {
        if *self == Self::Kvm {
            host.kvm_pmu().map_err(KvmError::NoKvmPmu)?;
            return Ok(GuestPmu::Kvm);
        }
        Ok(GuestPmu::Userspace(caps.bounded()))
    }

    /// Makes what stands behind the counters and does `work` with it. Host events belong to the thread that opens them,
    /// so this is called on the vCPU's.
    pub(crate) fn open<W: OnHost>(&self, tsc_khz: u64, work: W) -> Result<W::Out, MachineError> {
        match self {
            Self::Floor | Self::Kvm => Ok(work.run(Floor::new(tsc_khz).map_err(no_timer)?)),
            Self::PacedFloor { counts_per_ms } => {
                Ok(work.run(Floor::counting_per_ms(tsc_khz, *counts_per_ms).map_err(no_timer)?))
            }
            Self::Events { backend: BackendKey::Step, strategy } => {
                Ok(work.run(Bank::new(StepBackend::new(), strategy.clone())))
            }
            Self::Events { backend, strategy } => {
                let backend = PerfBackend::with(backend, tsc_khz, strategy)
                    .map_err(|error| MachineError::Host(error.to_string()))?;
                Ok(work.run(Bank::new(backend, strategy.clone())))
            }
        }
    }
}

/// Why a run could not begin.
#[derive(Debug, Error)]
pub enum MachineError {
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The payload.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// Guest memory.
    #[error("guest memory: {0}")]
    Memory(#[from] vm_memory::mmap::FromRangesError),
    /// A vCPU thread cannot be confined.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    /// The host.
    #[error("{0}")]
    Host(String),
}

/// Runs `image`, one of the project's payloads, by `plan` until it is done, fails, `interrupted` is set, or its time is up.
pub fn run(host: &Host, image: &[u8], plan: &Plan, interrupted: &AtomicBool) -> Result<RunOutcome, MachineError> {
    run_keeping(host, image, plan, interrupted).map(|(outcome, _)| outcome)
}

/// One run of the conformance payload.
#[derive(Clone, Debug)]
pub struct ConformanceOutcome {
    /// Why it ended.
    pub end: End,
    /// What the guest tells; `None` if it never began. Like everything a guest writes, to be distrusted.
    pub report: Option<Box<ConformanceReport>>,
}

/// Runs the conformance payload on one vCPU.
pub fn run_conformance(host: &Host, plan: &Plan, interrupted: &AtomicBool) -> Result<ConformanceOutcome, MachineError> {
    let plan = Plan { vcpus: 1, log_entries: 1, ..plan.clone() };
    let (outcome, memory) = run_keeping(host, guest::CONFORMANCE_PAYLOAD, &plan, interrupted)?;
    let report = payload::harvest_conformance(&memory, 0)?;
    let end = match (outcome.end, &report) {
        (End::GuestFault { .. }, Some(report)) => End::GuestFault {
            vector: report.fault_vector.saturating_sub(1),
            error: report.fault_error,
            rip: report.fault_rip,
            cr2: report.fault_cr2,
        },
        (end, _) => end,
    };
    Ok(ConformanceOutcome { end, report })
}

/// One run, and the guest's memory as it left it.
fn run_keeping(
    host: &Host,
    image: &[u8],
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<(RunOutcome, GuestMemoryMmap), MachineError> {
    let began = Instant::now();
    host.check_vcpus(plan.vcpus, MAX_VCPUS)?;
    let pmu = plan.behind.pmu(host, plan.pmu)?;
    sys::install_kick_handler(kick::signal()).map_err(|error| MachineError::Host(format!("sigaction: {error}")))?;
    let layout = Layout::new(plan.vcpus, plan.log_entries);
    let memory = payload::allocate(&layout)?;
    let vm = host.create_vm(&memory, pmu)?;
    let loaded = Payload::load(image, &layout, &memory)?;
    let mut vcpus = Vec::with_capacity(plan.vcpus);
    for cpu in 0..plan.vcpus {
        let vcpu = host.create_vcpu(&vm, cpu, plan.vcpus, pmu)?;
        let tsc_khz = u64::from(vcpu.get_tsc_khz().map_err(|error| KvmError::Call { call: "KVM_GET_TSC_KHZ", error })?);
        let boot = boot_page(plan, tsc_khz);
        loaded.start(&vcpu, cpu, &boot, &layout, &memory).map_err(|error| MachineError::Host(error.to_string()))?;
        vcpus.push((vcpu, tsc_khz));
    }
    let jail = if plan.seccomp { Some(Jail::new()?) } else { None };
    let crew = Crew::default();
    let shared = Shared { vm: &vm, plan, layout: &layout, memory: &memory, crew: &crew, jail };
    let vcpus = shared.run_all(vcpus, &Limits { interrupted, began, time_limit: plan.time_limit })?;
    let start = vcpus.iter().filter_map(|(booted, _)| *booted).min().map_or(Duration::ZERO, |at| at - began);
    let vcpus: Vec<_> = vcpus.into_iter().map(|(_, outcome)| outcome).collect();
    let outcome = RunOutcome { end: overall(&vcpus), vcpus, wall: began.elapsed(), start };
    Ok((outcome, memory))
}

fn boot_page(plan: &Plan, tsc_khz: u64) -> BootPage {
    let pmu = plan.pmu.bounded();
    BootPage {
        gp_counters: u64::from(pmu.gp),
        fixed_counters: u64::from(pmu.fixed),
        tsc_hz: tsc_khz * 1000,
        ..plan.boot
    }
}

/// The first reason that is neither "done" nor "stopped", else "stopped" if any.
fn overall(vcpus: &[VcpuOutcome]) -> End {
    let telling = vcpus.iter().map(|vcpu| &vcpu.end).find(|end| !matches!(end, End::Done | End::Stopped));
    let stopped = vcpus.iter().map(|vcpu| &vcpu.end).find(|end| !end.is_complete());
    telling.or(stopped).cloned().unwrap_or(End::Done)
}

/// What the vCPU threads share.
struct Shared<'a> {
    vm: &'a VmFd,
    plan: &'a Plan,
    layout: &'a Layout,
    memory: &'a GuestMemoryMmap,
    crew: &'a Crew,
    jail: Option<Jail>,
}

type Finished = (Option<Instant>, VcpuOutcome);

impl Shared<'_> {
    fn run_all(&self, vcpus: Vec<(VcpuFd, u64)>, limits: &Limits<'_>) -> Result<Vec<Finished>, MachineError> {
        let (left, timed_out) = self.crew.run(vcpus, limits, |cpu, (fd, tsc_khz)| {
            let outcome = self.run_one(cpu, fd, tsc_khz);
            Left { others_go_on: outcome.as_ref().is_ok_and(|(_, vcpu)| vcpu.end.is_complete()), outcome }
        });
        left.into_iter()
            .map(|outcome| {
                let (booted, mut vcpu) =
                    outcome.ok_or_else(|| MachineError::Host("a vCPU thread panicked".to_owned()))??;
                if timed_out && vcpu.end == End::Stopped {
                    vcpu.end = End::TimedOut;
                }
                Ok((booted, vcpu))
            })
            .collect()
    }

    /// The body of a vCPU thread.
    fn run_one(&self, cpu: usize, fd: VcpuFd, tsc_khz: u64) -> Result<Finished, MachineError> {
        pin(&self.plan.pin, cpu)?;
        self.plan.behind.open(tsc_khz, Work { shared: self, cpu, fd, tsc_khz })?
    }
}

/// Binds the calling vCPU thread to its CPU of `list`, if there is one.
pub(crate) fn pin(list: &[usize], cpu: usize) -> Result<(), MachineError> {
    let Some(&on) = list.get(cpu % list.len().max(1)) else { return Ok(()) };
    sys::pin_this_thread(on).map_err(|error| MachineError::Host(format!("binding vCPU {cpu} to CPU {on}: {error}")))
}

/// One vCPU of a payload.
struct Work<'a> {
    shared: &'a Shared<'a>,
    cpu: usize,
    fd: VcpuFd,
    tsc_khz: u64,
}

impl OnHost for Work<'_> {
    type Out = Result<Finished, MachineError>;

    fn run<H: HostPmu + Tell>(self, host: H) -> Self::Out {
        let Self { shared, cpu, fd, tsc_khz } = self;
        let mut vcpu = Vcpu::new(Parts {
            vm: shared.vm,
            fd,
            apic_id: cpu as u32,
            pmu: Vpmu::new(shared.plan.pmu, host),
            bus: Doorbell::default(),
            foreign: None,
            tsc_khz,
            log_entries: shared.layout.log_entries() as usize,
            stop: &shared.crew.stop,
        });
        vcpu.step_in(shared.memory);
        if let Some(jail) = &shared.jail {
            jail.enter()?;
        }
        let left = vcpu.run();
        let (report, log) = payload::harvest(shared.memory, shared.layout, cpu, left.end.is_complete())?;
        let tsc = tsc::map(tsc_khz, report.as_deref(), &left.bus.syncs);
        Ok((left.bus.booted, gather(left, report, log, tsc)))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn no_timer(error: std::io::Error) -> MachineError {
    MachineError::Host(format!("timer_create: {error}"))
}

fn gather<H: HostPmu + Tell>(
    mut left: LoopOutcome<H, Doorbell>,
    report: Option<Box<guest::abi::Report>>,
    log: Vec<guest::abi::LogEntry>,
    tsc: TscMap,
) -> VcpuOutcome {
    let end = match (left.end, &report) {
        (End::GuestFault { .. }, Some(report)) => End::GuestFault {
            vector: report.fault_vector.saturating_sub(1),
            error: report.fault_error,
            rip: report.fault_rip,
            cr2: report.fault_cr2,
        },
        (end, _) => end,
    };
    VcpuOutcome {
        end,
        report,
        log,
        tsc,
        deliveries: left.deliveries,
        pmi: left.pmi,
        msr_exits: left.msr_exits,
        exit_path_ns: left.exit_path_ns,
        host: HostSide {
            signals: left.signals,
            empty_kicks: left.empty_kicks,
            held_at_end: left.host.held(),
            ..left.host.tell()
        },
        held_at_tail_tick: left.bus.held_at_tail_tick,
        phases: left.phases,
    }
}

/// What a host side tells of itself when the run is over.
pub(crate) trait Tell {
    fn tell(&mut self) -> HostSide;
}

impl Tell for Floor {
    fn tell(&mut self) -> HostSide {
        HostSide { entries: self.entries(), ..HostSide::default() }
    }
}

impl Tell for Bank<PerfBackend> {
    fn tell(&mut self) -> HostSide {
        let records = self.backend().monitor().records();
        HostSide { throttled: records.throttled, ..self.stats().into() }
    }
}

impl Tell for Bank<StepBackend> {
    fn tell(&mut self) -> HostSide {
        self.stats().into()
    }
}
