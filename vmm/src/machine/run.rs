//! One run of a guest on this host's KVM.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arch_pmu::Vpmu;
use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use host_pmu::kernel::Module;
use host_pmu::kick;
use host_pmu::open::WithHost;
use host_pmu::side::HostPmu;
use host_pmu::trace::Tracer;
use kvm_bindings::{KVM_MP_STATE_RUNNABLE, kvm_mp_state};
use kvm_ioctls::{VcpuFd, VmFd};
use vm_memory::GuestMemoryMmap;

use super::crew::{Crew, Limits};
use super::error::MachineError;
use super::guest::{Guest, RunFacts};
use super::plan;
use super::plan::{CounterSource, Plan};
use crate::kvm::nested::Nested;
use crate::kvm::vcpu::{Parts, Vcpu};
use crate::kvm::{GuestPmu, Host, ioctl_failed, run_loop};
use crate::outcome::{End, Steps, VcpuOutcome};
use crate::sample::VcpuSampler;
use crate::seccomp::confine_vcpu;
use crate::sys;

/// One run of a guest.
#[derive(Debug)]
pub(super) struct Run<L> {
    /// Why it ended, over all vCPUs.
    pub(super) end: End,
    /// One per vCPU.
    pub(super) vcpus: Vec<VcpuOutcome<L>>,
    /// From creating the VM to the last vCPU's end.
    pub(super) wall: Duration,
    /// When the run began.
    pub(super) began: Instant,
    /// Guest memory at the end.
    pub(super) memory: GuestMemoryMmap,
}

/// Runs `guest` by `plan` until it ends or fails, `interrupted` is set, or the time limit passes.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub(super) fn run<G: Guest>(
    host: &Host,
    guest: &mut G,
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<Run<G::Left>, MachineError> {
    let began = Instant::now();
    host.check_vcpus(plan.vcpus, G::MAX_VCPUS)?;
    let pmu = plan::guest_pmu(plan, host)?;
    sys::install_kick_handler(kick::signal()).map_err(|error| MachineError::Host(format!("sigaction: {error}")))?;
    let facts = RunFacts { userspace_pmu: pmu != GuestPmu::Kvm, emulated_host: sys::emulated_host() };
    let (memory, in_kernel) = guest.load(facts)?;
    let vm = host.create_vm(&memory, pmu, in_kernel.also, in_kernel.pit)?;
    guest.attach(&vm, &memory)?;
    let mut vcpus = Vec::with_capacity(plan.vcpus);
    for cpu in 0..plan.vcpus {
        let fd = host.create_vcpu(&vm, (cpu, plan.vcpus), pmu, plan.cpu, in_kernel.without_misemulated)?;
        let tsc_khz = start(&fd, cpu, guest, &memory)?;
        vcpus.push((fd, tsc_khz));
    }
    let crew = Crew::default();
    let shared = Shared { vm: &vm, plan, guest, memory: &memory, crew: &crew };
    let limits = Limits { interrupted, began, time_limit: plan.time_limit, on_stop: &|| shared.guest.stop_resting() };
    let vcpus = shared.run_all(vcpus, &limits)?;
    let end = overall(&vcpus.iter().map(|vcpu| &vcpu.end).collect::<Vec<_>>());
    Ok(Run { end, vcpus, wall: began.elapsed(), began, memory })
}

/// Returns the first reason that is neither "done" nor "stopped", else "stopped" if any.
fn overall(ends: &[&End]) -> End {
    let failure = ends.iter().find(|end| !matches!(end, End::Done | End::Stopped));
    let stop = || ends.iter().find(|end| **end != &End::Done);
    failure.or_else(stop).map_or(End::Done, |end| (**end).clone())
}

/// Gives a vCPU its first registers. Returns its TSC's frequency.
fn start<G: Guest>(fd: &VcpuFd, cpu: usize, guest: &G, memory: &GuestMemoryMmap) -> Result<u64, MachineError> {
    let tsc_khz = u64::from(fd.get_tsc_khz().map_err(ioctl_failed("KVM_GET_TSC_KHZ"))?);
    let mut sregs = fd.get_sregs().map_err(ioctl_failed("KVM_GET_SREGS"))?;
    if let Some(regs) = guest.start(cpu, tsc_khz, &mut sregs, memory)? {
        fd.set_sregs(&sregs).map_err(ioctl_failed("KVM_SET_SREGS"))?;
        fd.set_regs(&regs).map_err(ioctl_failed("KVM_SET_REGS"))?;
        // With an in-kernel APIC every vCPU but the first waits for a start-up IPI.
        let runnable = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
        fd.set_mp_state(runnable).map_err(ioctl_failed("KVM_SET_MP_STATE"))?;
    }
    Ok(tsc_khz)
}

/// Data that the vCPU threads share.
struct Shared<'a, G> {
    vm: &'a VmFd,
    plan: &'a Plan,
    guest: &'a G,
    memory: &'a GuestMemoryMmap,
    crew: &'a Crew,
}

impl<G: Guest> Shared<'_, G> {
    fn run_all(
        &self,
        vcpus: Vec<(VcpuFd, u64)>,
        limits: &Limits<'_>,
    ) -> Result<Vec<VcpuOutcome<G::Left>>, MachineError> {
        let (left, timed_out) = self.crew.run(vcpus, limits, |cpu, (fd, tsc_khz)| {
            let outcome = pin(&self.plan.pin, cpu)
                .and_then(|()| plan::open(&self.plan.behind, tsc_khz, VcpuThread { shared: self, cpu, fd, tsc_khz })?);
            (outcome.as_ref().is_ok_and(|vcpu| vcpu.end.is_complete()), outcome)
        });
        left.into_iter()
            .map(|outcome| {
                let mut vcpu = outcome??;
                if timed_out && vcpu.end == End::Stopped {
                    vcpu.end = End::TimedOut;
                }
                Ok(vcpu)
            })
            .collect()
    }
}

/// Binds the calling vCPU thread to its CPU of `list`, if there is one.
fn pin(list: &[u32], cpu: usize) -> Result<(), MachineError> {
    let Some(&on) = list.get(cpu % list.len().max(1)) else { return Ok(()) };
    sys::pin_this_thread(on as usize)
        .map_err(|error| MachineError::Host(format!("binding vCPU {cpu} to CPU {on}: {error}")))
}

/// One vCPU's thread.
struct VcpuThread<'a, G> {
    shared: &'a Shared<'a, G>,
    cpu: usize,
    fd: VcpuFd,
    tsc_khz: u64,
}

impl<G: Guest> WithHost for VcpuThread<'_, G> {
    type Out = Result<VcpuOutcome<G::Left>, MachineError>;

    fn run<H: HostPmu>(self, host: H) -> Self::Out {
        let Self { shared, cpu, fd, tsc_khz } = self;
        let alarm = kick::ThreadTimer::new()?;
        let nested = match (&shared.plan.behind, shared.plan.pmu) {
            (CounterSource::Kvm { .. }, _) => None,
            (_, PmuCaps::Amd(AmdCaps { svm: true, .. })) => Some(Nested::open()),
            _ => None,
        };
        // The module is opened on this thread, because KVM creates the vCPU's events on it.
        let mut module = match &shared.plan.behind {
            CounterSource::Kvm { module: Some(words) } => Some(Module::open(words).map_err(MachineError::Host)?),
            _ => None,
        };
        let sampler = match &shared.plan.sampling {
            Some(sampling) => {
                let opened = VcpuSampler::open(sampling, cpu, shared.memory);
                Some(opened.map_err(|why| MachineError::Host(format!("sampling: {why}")))?)
            }
            None => None,
        };
        let parts = Parts {
            vm: shared.vm,
            fd,
            memory: shared.memory,
            apic_id: cpu as u32,
            pmu: Vpmu::new(shared.plan.pmu, host),
            bus: shared.guest.bus(),
            other_msrs: shared.guest.other_msrs(),
            contended: G::SHARES_LAPIC,
            stop: &shared.crew.stop,
            nested,
            sampler,
            tracer: shared.plan.trace.as_ref().map(|trace| Tracer::new(trace, cpu as u16, tsc_khz, false)),
        };
        let mut vcpu = Vcpu::new(parts, alarm, tsc_khz, shared.guest.deliveries());
        let _owner = confine_vcpu()?;
        let (guard, mut stopped) = (vcpu.guard(), false);
        loop {
            let mut end = if stopped { End::Stopped } else { run_loop::run(&mut vcpu, &guard) };
            let turn_over = end == End::TurnOver;
            if turn_over {
                end = End::Done;
            } else {
                vcpu.take_last_samples();
            }
            let mut account = vcpu.take_account();
            if let Some(module) = &mut module {
                module.account(&mut account.counts, &mut account.host).map_err(MachineError::Host)?;
            }
            let left = shared.guest.harvest(cpu, tsc_khz, &mut end, vcpu.bus(), shared.memory)?;
            let bypassed =
                module.as_ref().filter(|_| end.is_complete()).and_then(|module| module.passed_by(G::counted(&left)));
            if let Some(why) = bypassed {
                end = End::Host(why.to_owned());
            }
            let steps = vcpu.host().stepper();
            let steps = steps.map(|c| Steps { instructions: c.host.retired, unsupported: c.host.unsupported });
            let run = VcpuOutcome { end, left, account, steps };
            if !turn_over {
                return Ok(run);
            }
            // Between two turns nothing is measured: here the thread may allocate, lock and wait.
            vcpu.host().rest();
            stopped = !shared.guest.rest(cpu, run, shared.memory)?;
            if !stopped {
                vcpu.begin_account();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_before_a_stop_and_a_stop_before_done() {
        for (ends, expected) in [
            (&[End::Done, End::Done][..], End::Done),
            (&[End::Done, End::Stopped, End::Done], End::Stopped),
            (&[End::Stopped, End::TripleFault, End::Reset], End::TripleFault),
            (&[End::TimedOut, End::Stopped], End::TimedOut),
        ] {
            assert_eq!(overall(&ends.iter().collect::<Vec<_>>()), expected);
        }
    }
}
