//! One run of a guest: memory, VM, a thread per vCPU, and what they leave.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use guest::abi::{BootPage, ConformanceReport};
use host_pmu::backend::perf::PerfBackend;
use host_pmu::backend::step::StepBackend;
use host_pmu::backend::{Backend, BackendKey};
use host_pmu::bank::Bank;
use host_pmu::counters::HostCounters;
use host_pmu::floor::Floor;
use host_pmu::kick;
use host_pmu::strategy::Strategy;
use kvm_ioctls::{VcpuFd, VmFd};
use thiserror::Error;
use vm_memory::GuestMemoryMmap;

use crate::boot::layout::Layout;
use crate::boot::payload::{self, Payload, PayloadError};
use crate::kvm::vcpu::{LoopOutcome, Vcpu};
use crate::kvm::{GuestPmu, Host, KvmError, tsc};
use crate::outcome::{End, HostSide, RunOutcome, TscMap, VcpuOutcome};
use crate::sys;
use crate::vpmu::Vpmu;
use crate::vpmu::caps::PmuCaps;

/// How often the run looks at its time limit and at the user's interruption.
const POLL: Duration = Duration::from_millis(20);

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
    let allowed = host.max_vcpus().min(crate::boot::layout::MAX_VCPUS);
    if plan.vcpus == 0 || plan.vcpus > allowed {
        return Err(KvmError::TooManyVcpus { asked: plan.vcpus, allowed }.into());
    }
    let pmu = match plan.behind {
        Behind::Kvm => {
            host.kvm_pmu().map_err(KvmError::NoKvmPmu)?;
            GuestPmu::Kvm
        }
        Behind::Floor | Behind::PacedFloor { .. } | Behind::Events { .. } => GuestPmu::Userspace(plan.pmu.bounded()),
    };
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
    let shared = Shared { vm: &vm, plan, layout: &layout, memory: &memory, stop: AtomicBool::new(false) };
    let vcpus = shared.run_all(vcpus, interrupted, began)?;
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
    stop: AtomicBool,
}

type Finished = (Option<Instant>, VcpuOutcome);

impl Shared<'_> {
    fn run_all(
        &self,
        vcpus: Vec<(VcpuFd, u64)>,
        interrupted: &AtomicBool,
        began: Instant,
    ) -> Result<Vec<Finished>, MachineError> {
        let tids = Mutex::new(Vec::with_capacity(vcpus.len()));
        let (done, finished) = mpsc::channel();
        std::thread::scope(|scope| {
            let threads: Vec<_> = vcpus
                .into_iter()
                .enumerate()
                .map(|(cpu, (fd, tsc_khz))| {
                    let (tids, done) = (&tids, done.clone());
                    scope.spawn(move || {
                        lock(tids).push(sys::gettid());
                        let outcome = self.run_one(cpu, fd, tsc_khz);
                        let complete = outcome.as_ref().is_ok_and(|(_, vcpu)| vcpu.end.is_complete());
                        // The run below holds the receiver until every thread is joined.
                        let _ = done.send(complete);
                        outcome
                    })
                })
                .collect();
            let timed_out = self.watch(&finished, threads.len(), &tids, interrupted, began);
            threads
                .into_iter()
                .map(|thread| {
                    let joined = thread.join().map_err(|_| MachineError::Host("a vCPU thread panicked".to_owned()))?;
                    joined.map(|(booted, mut vcpu)| {
                        if timed_out && vcpu.end == End::Stopped {
                            vcpu.end = End::TimedOut;
                        }
                        (booted, vcpu)
                    })
                })
                .collect()
        })
    }

    /// Waits for every vCPU; stops all of them when one fails, at the time limit, and on interruption. Returns whether
    /// the time limit passed.
    fn watch(
        &self,
        finished: &mpsc::Receiver<bool>,
        mut running: usize,
        tids: &Mutex<Vec<libc::pid_t>>,
        interrupted: &AtomicBool,
        began: Instant,
    ) -> bool {
        let mut timed_out = false;
        while running > 0 {
            match finished.recv_timeout(POLL) {
                Ok(complete) => {
                    running -= 1;
                    if !complete {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(_) if interrupted.load(Ordering::Relaxed) => self.stop.store(true, Ordering::Relaxed),
                Err(_) if began.elapsed() > self.plan.time_limit => {
                    timed_out = true;
                    self.stop.store(true, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                // Again at every poll: a kick that hits a thread before its loop begins is without effect.
                for &tid in &*lock(tids) {
                    sys::signal_thread(tid, kick::signal());
                }
            }
        }
        timed_out
    }

    /// The body of a vCPU thread. Host events belong to the thread that opens them, so they are made here.
    fn run_one(&self, cpu: usize, fd: VcpuFd, tsc_khz: u64) -> Result<Finished, MachineError> {
        if let Some(&on) = self.plan.pin.get(cpu % self.plan.pin.len().max(1)) {
            sys::pin_this_thread(on)
                .map_err(|error| MachineError::Host(format!("binding vCPU {cpu} to CPU {on}: {error}")))?;
        }
        match &self.plan.behind {
            Behind::Floor | Behind::Kvm => self.run_with(cpu, fd, tsc_khz, Floor::new(tsc_khz).map_err(no_timer)?),
            Behind::PacedFloor { counts_per_ms } => {
                let floor = Floor::counting_per_ms(tsc_khz, *counts_per_ms).map_err(no_timer)?;
                self.run_with(cpu, fd, tsc_khz, floor)
            }
            Behind::Events { backend: BackendKey::Step, strategy } => {
                self.run_with(cpu, fd, tsc_khz, Bank::new(StepBackend::new(), strategy.clone()))
            }
            Behind::Events { backend, strategy } => {
                let backend =
                    PerfBackend::new(backend, tsc_khz).map_err(|error| MachineError::Host(error.to_string()))?;
                self.run_with(cpu, fd, tsc_khz, Bank::new(backend, strategy.clone()))
            }
        }
    }

    fn run_with<H: HostCounters + Tell>(
        &self,
        cpu: usize,
        fd: VcpuFd,
        tsc_khz: u64,
        host: H,
    ) -> Result<Finished, MachineError> {
        let pmu = Vpmu::new(self.plan.pmu, host);
        let log_entries = self.layout.log_entries() as usize;
        let mut vcpu = Vcpu::new(self.vm, fd, cpu as u32, pmu, tsc_khz, log_entries, &self.stop);
        vcpu.step_in(self.memory);
        let left = vcpu.run();
        let (report, log) = payload::harvest(self.memory, self.layout, cpu, left.end.is_complete())?;
        let tsc = tsc::map(tsc_khz, report.as_deref(), &left.syncs);
        Ok((left.booted, gather(left, report, log, tsc)))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn no_timer(error: std::io::Error) -> MachineError {
    MachineError::Host(format!("timer_create: {error}"))
}

fn gather<H: HostCounters + Tell>(
    mut left: LoopOutcome<H>,
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
        held_at_tail_tick: left.held_at_tail_tick,
    }
}

/// What a host side tells of itself when the run is over.
trait Tell {
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
        HostSide { throttled: records.throttled, ..side(self) }
    }
}

impl Tell for Bank<StepBackend> {
    fn tell(&mut self) -> HostSide {
        side(self)
    }
}

fn side<B: Backend>(bank: &Bank<B>) -> HostSide {
    let stats = bank.stats();
    HostSide {
        ops: stats.ops.clone(),
        held_max: stats.held_max,
        held_sum: stats.held_sum,
        entries: stats.entries,
        sched_ins: stats.sched_ins,
        reused: stats.reused,
        refused_periods: stats.refused_periods,
        failed_opens: stats.failed_opens,
        pinned_errors: stats.pinned_errors,
        last_error: stats.last_error.as_ref().map(ToString::to_string),
        ..HostSide::default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panicking holder leaves a list of thread ids, which is whole at any time.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
