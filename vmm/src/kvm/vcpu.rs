//! A vCPU and everything that its thread touches.
//!
//! The order of one entry is that of KVM's `vcpu_enter_guest`: overflows signalled by the kick, the vPMU's deferred work,
//! the PMI, then the guest. Between the return of KVM_RUN and the next one nothing allocates, locks, logs or formats.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use arch_pmu::pmi::Delivery;
use arch_pmu::spec::MAX_COUNTERS;
use arch_pmu::{PmuMsr, Vpmu};
use host_pmu::kick;
use host_pmu::side::HostPmu;
use host_pmu::trace::{Kind, Row, Tracer};
use kvm_bindings::KVM_EXIT_INTR;
use kvm_ioctls::{SyncReg, VcpuFd, VmFd};
use vm_memory::GuestMemoryMmap;

use super::deferred::{self, Deferred};
use super::exit::Exit;
use super::handle::KvmVcpu;
use super::handle::{self, Action, Answer};
use super::lapic::local::{LocalApic, X2ApicMsrs};
use super::lapic::tick::Tick;
use super::lapic::{self, Delivered, Mode, PmiPort as _};
use super::nested::{Nested, Seen};
use super::other_msrs::{EFER_SVME, OneMsr, OtherMsrs};
use super::stats::LoopStats;
use crate::devices::bus::Bus;
use crate::outcome::{Account, End};
use crate::sample::VcpuSampler;
use crate::sys::{self, KickGuard};

/// Returns an MSR exit as a trace has it; `None`: it is no access to the PMU.
fn traced(exit: Exit, is_rdpmc: bool) -> Option<Row> {
    let (kind, register, value) = match exit {
        Exit::Wrmsr { index, value } => (Kind::Write, index, value),
        Exit::Rdmsr(index) if is_rdpmc => (Kind::Rdpmc, index, 0),
        Exit::Rdmsr(index) => (Kind::Read, index, 0),
        _ => return None,
    };
    (is_rdpmc || PmuMsr::decode(register).is_some()).then_some(Row { kind, register, value, ..Row::default() })
}

/// Returns the end of a vCPU whose transitions cannot be seen.
#[cold]
fn transitions(error: &io::Error) -> End {
    End::Host(format!("entries to the guest's guests: {error}"))
}

/// The LAPIC of a vCPU: borrows some of its fields and leaves the others.
macro_rules! local_apic {
    ($vcpu:expr) => {
        LocalApic {
            fd: &mut $vcpu.parts.fd,
            vm: $vcpu.parts.vm,
            apic_id: $vcpu.parts.apic_id,
            msrs: $vcpu.x2apic_msrs.as_mut(),
            returned_at: [$vcpu.returned_at, $vcpu.ran_until],
            clock: $vcpu.stats.clock,
        }
    };
}

/// The parts of a vCPU.
pub(crate) struct Parts<'a, H, B> {
    pub(crate) vm: &'a VmFd,
    pub(crate) fd: VcpuFd,
    pub(crate) memory: &'a GuestMemoryMmap,
    pub(crate) apic_id: u32,
    pub(crate) pmu: Vpmu<H>,
    pub(crate) bus: B,
    /// MSR exits beside the PMU's registers.
    pub(crate) other_msrs: Option<OtherMsrs>,
    /// True if others write to this vCPU's LAPIC.
    pub(crate) contended: bool,
    /// The vCPU stops when this is set and it is kicked.
    pub(crate) stop: &'a AtomicBool,
    /// Its transitions between the guest and the guest's guests, if there may be such.
    pub(crate) nested: Option<Nested>,
    /// Samples of this vCPU, if it is recorded.
    pub(crate) sampler: Option<VcpuSampler<'a>>,
    /// Its trace, if it is traced.
    pub(crate) tracer: Option<Tracer>,
}

/// A vCPU between two of its exits.
pub(crate) struct Vcpu<'a, H, B> {
    pub(super) parts: Parts<'a, H, B>,
    /// Something is due at each entry: transitions may have to be watched, or a trace notes them.
    always_due: bool,
    /// The last KVM_RUN was interrupted in the guest.
    ran: bool,
    one_msr: OneMsr,
    x2apic_msrs: Option<X2ApicMsrs>,
    deferred: Deferred<kick::ThreadTimer>,
    stats: LoopStats,
    /// Host TSC at the last return of KVM_RUN: an overflow found before the next entry was seen then.
    returned_at: u64,
    /// Host TSC at the last return of KVM_RUN, not counting returns before it looked at the LAPIC's timer.
    ran_until: u64,
    /// Host TSC at the last return of KVM_RUN, if that was an MSR exit.
    msr_exit_at: Option<u64>,
}

impl<'a, H: HostPmu, B: Bus> Vcpu<'a, H, B> {
    /// Puts it together. `alarm` kicks its thread, and the time of so many `deliveries` is kept.
    pub(crate) fn new(mut parts: Parts<'a, H, B>, alarm: kick::ThreadTimer, tsc_khz: u64, deliveries: usize) -> Self {
        if parts.tracer.is_some() {
            // RIP comes with the exit, without a call of its own.
            parts.fd.set_sync_valid_reg(SyncReg::Register);
            parts.pmu.keep_journal();
        }
        if parts.nested.is_some() {
            parts.fd.set_sync_valid_reg(SyncReg::SystemRegister);
        }
        Self {
            always_due: parts.nested.is_some() || parts.tracer.is_some(),
            ran: false,
            one_msr: OneMsr::new(),
            x2apic_msrs: X2ApicMsrs::new(parts.apic_id),
            deferred: Deferred::new(alarm),
            stats: LoopStats::new(tsc_khz, deliveries),
            returned_at: sys::rdtsc(),
            ran_until: sys::rdtsc(),
            msr_exit_at: None,
            parts,
        }
    }

    /// Does everything due before an entry. Returns the end if the vCPU is to stop or a PMI cannot be delivered.
    #[inline]
    pub(super) fn prepare(&mut self) -> Option<End> {
        let kicked = sys::take_kick(&mut self.parts.fd);
        // Nothing is due at most entries. Whatever is not run then is not fetched either: the guest left little of the
        // VMM's code and data in the caches.
        let may_be_quiet = !kicked && !self.deferred.has_deferred() && !self.always_due;
        let is_quiet = may_be_quiet && self.parts.pmu.is_quiet() && self.parts.pmu.host().passes_entry();
        if !is_quiet && let Err(end) = self.prepare_what_is_due(kicked) {
            return Some(end);
        }
        if let Some(at) = self.msr_exit_at.take() {
            self.stats.exit_path_ns.saturating_record(self.stats.clock.ns(sys::rdtsc() - at));
        }
        None
    }

    #[inline(never)]
    fn prepare_what_is_due(&mut self, kicked: bool) -> Result<(), End> {
        if let Some(tracer) = &mut self.parts.tracer
            && let Some((switched, slept)) = self.parts.pmu.host().slices()
        {
            tracer.switches(self.returned_at, switched, slept);
        }
        if kicked {
            self.look_at_kick()?;
        }
        if let Some(nested) = &mut self.parts.nested
            && let Some(guest) =
                nested.watch(&self.parts.fd, self.parts.pmu.depends_on_svm()).map_err(|error| transitions(&error))?
        {
            self.parts.pmu.set_guest_mode(guest);
        }
        self.parts.pmu.enter();
        self.trace_notes();
        // A delivery that freezes or reprograms counters may find the next overflow, which no exit would report.
        for _ in 0..MAX_COUNTERS {
            if !self.parts.pmu.take_pmi() {
                break;
            }
            self.deliver_pmi()?;
        }
        if self.deferred.has_deferred() {
            self.look_at_deferred(kicked)?;
        }
        if let Some(tracer) = &mut self.parts.tracer {
            tracer.entry(sys::rdtsc());
        }
        Ok(())
    }

    /// Looks for overflows after a signal since the last entry.
    fn look_at_kick(&mut self) -> Result<(), End> {
        if self.parts.stop.load(Ordering::Relaxed) {
            return Err(End::Stopped);
        }
        let sampled = self.parts.sampler.as_mut().map_or(0, |sampler| sampler.take(&self.parts.fd, self.ran));
        let seen = match &mut self.parts.nested {
            Some(nested) => {
                nested.take(&self.parts.fd, self.parts.pmu.depends_on_svm()).map_err(|error| transitions(&error))?
            }
            None => Seen::default(),
        };
        self.stats.counts.throttled += seen.throttled;
        // A kick of the recording's own events, or of a transition, says nothing of the counters, unless one of theirs came with it.
        if sampled + seen.transitions == 0 || !self.parts.pmu.host().nothing_overflowed() {
            let empty = self.parts.pmu.kick() == 0;
            self.trace_notes();
            self.stats.counts.empty_kicks += u64::from(empty);
            let since_return = self.stats.clock.ns(sys::rdtsc().saturating_sub(self.returned_at));
            self.parts.pmu.host().saw_signals(since_return);
        }
        if let Some(guest) = seen.guest {
            self.parts.pmu.set_guest_mode(guest);
        }
        Ok(())
    }

    /// Traces what the host side told the counters, if this vCPU is traced.
    #[inline]
    fn trace_notes(&mut self) {
        if let Some(tracer) = &mut self.parts.tracer {
            tracer.notes(self.returned_at, &mut self.parts.pmu, None);
        }
    }

    /// Traces a PMI that met LVTPC, and what came of it.
    fn trace_pmi(&mut self, kind: Kind, Delivered { delivery, merged, .. }: Delivered) {
        if let Some(tracer) = &mut self.parts.tracer {
            tracer.pmi(self.returned_at, kind, delivery, merged);
            tracer.notes(self.returned_at, &mut self.parts.pmu, None);
        }
    }

    /// Enters the guest by KVM_RUN, and returns its exit.
    #[inline]
    pub(super) fn enter(&mut self) -> Exit {
        let (exit, at) = Exit::next(&mut self.parts.fd);
        self.returned_at = at;
        let interrupted = exit == Exit::Interrupted;
        let has_run = !interrupted || self.has_run();
        self.ran = interrupted && has_run;
        if has_run {
            self.ran_until = at;
        }
        exit
    }

    /// Returns whether an interrupted KVM_RUN was in the guest: a kick before it ends it at once.
    #[cold]
    fn has_run(&mut self) -> bool {
        // KVM_RUN that ends by `immediate_exit` leaves the reason as it is.
        std::mem::replace(&mut self.parts.fd.get_kvm_run().exit_reason, u32::MAX) == KVM_EXIT_INTR
    }

    /// Handles an exit. Returns the end if the vCPU is done or cannot go on.
    #[inline]
    pub(super) fn dispatch(&mut self, exit: Exit) -> Option<End> {
        if self.parts.other_msrs.is_none()
            && self.parts.sampler.is_none()
            && self.parts.tracer.is_none()
            && let Some(Answer(value)) = handle::access(exit, &mut self.parts.pmu, &mut self.stats)
        {
            self.answer(value);
            return None;
        }
        self.dispatch_other(exit)
    }

    /// Gives an MSR access its answer.
    #[inline]
    fn answer(&mut self, value: Option<u64>) {
        sys::answer_msr(&mut self.parts.fd, value);
        self.msr_exit_at = Some(self.returned_at);
    }

    #[inline(never)]
    fn dispatch_other(&mut self, exit: Exit) -> Option<End> {
        if let Some(sampler) = &mut self.parts.sampler {
            match exit.past() {
                Some(past) => sampler.exited(past),
                None => sampler.interrupted(self.ran),
            }
        }
        // An INIT clears EFER, and ends a guest's guest, without an exit or a tracepoint of its own.
        if self.parts.nested.is_some() && self.parts.fd.sync_regs().sregs.efer & EFER_SVME == 0 {
            self.parts.pmu.set_svme(false);
        }
        let rdpmcs = self.parts.other_msrs.as_ref().map_or(0, OtherMsrs::rdpmcs);
        let mut context = handle::Context {
            pmu: &mut self.parts.pmu,
            bus: &mut self.parts.bus,
            other_msrs: self.parts.other_msrs.as_mut(),
            stats: &mut self.stats,
        };
        let mut vcpu = KvmVcpu { fd: &mut self.parts.fd, one: &mut self.one_msr };
        match handle::handle(exit, self.returned_at, &mut context, &mut vcpu) {
            Action::Resume => None,
            Action::AnswerMsr(value) => {
                let is_rdpmc = self.parts.other_msrs.as_ref().map_or(0, OtherMsrs::rdpmcs) > rdpmcs;
                if let Some(tracer) = &mut self.parts.tracer
                    && let Some(access) = traced(exit, is_rdpmc)
                {
                    let access = Row { at: self.returned_at, rip: self.parts.fd.sync_regs().regs.rip, ..access };
                    tracer.access(access, value, &mut self.parts.pmu);
                }
                self.answer(value);
                None
            }
            Action::End(end) => Some(end),
        }
    }

    /// Delivers a PMI through LVTPC, which on Intel's processors a delivery masks.
    fn deliver_pmi(&mut self) -> Result<(), End> {
        let (pmu, seen_at) = (self.pmi_state(), self.returned_at);
        let mut port = local_apic!(self);
        let masks = self.parts.pmu.caps().delivery_masks_lvtpc();
        let delivered = lapic::deliver(&mut port, self.parts.contended, masks)?;
        let off = delivered.delivery == Delivery::Masked && port.mode() == Mode::Off;
        match delivered.delivery {
            Delivery::Masked => self.deferred.met_mask(off, pmu, seen_at, &mut self.stats.counts),
            by @ (Delivery::Nmi | Delivery::Fixed(_)) if masks => {
                self.deferred.delivered(by, pmu, &mut self.stats.counts);
            }
            Delivery::Nmi | Delivery::Fixed(_) | Delivery::Unsupported(_) => {}
        }
        self.trace_pmi(Kind::Pmi, delivered);
        self.count_delivery(delivered, seen_at);
        Ok(())
    }

    /// Delivers a deferred PMI if its time has come.
    #[cold]
    fn look_at_deferred(&mut self, kicked: bool) -> Result<(), End> {
        let pmu = self.pmi_state();
        let mut port = local_apic!(self);
        if let Some(found) = self.deferred.look(&mut port, self.parts.contended, pmu, kicked, &mut self.stats.counts)? {
            self.trace_pmi(Kind::LatePmi, found.delivered);
            self.count_delivery(found.delivered, found.seen_at);
        }
        Ok(())
    }

    fn pmi_state(&self) -> deferred::Pmu {
        deferred::Pmu {
            unacknowledged: self.parts.pmu.pmi_unacknowledged(),
            all_off: self.parts.pmu.guest_has_all_off(),
            turned_on: self.parts.pmu.turned_on(),
        }
    }

    fn count_delivery(&mut self, Delivered { delivery, tick, merged }: Delivered, seen_at: u64) {
        let counts = &mut self.stats.counts;
        counts.ticks_uncertain += u64::from(tick == Tick::Uncertain);
        match delivery {
            // It was counted where it met the mask.
            Delivery::Masked => {}
            Delivery::Unsupported(_) => counts.undeliverable += 1,
            Delivery::Fixed(_) => counts.pmis += 1,
            Delivery::Nmi if merged => counts.merged += 1,
            Delivery::Nmi => {
                counts.pmis += 1;
                counts.nmis_injected += 1;
                if self.stats.deliveries.len() < self.stats.deliveries.capacity() {
                    self.stats.deliveries.push(seen_at);
                }
            }
        }
    }

    /// Lets kicks reach this vCPU as long as it lives. The vCPU stays where it is meanwhile.
    pub(crate) fn guard(&mut self) -> KickGuard {
        KickGuard::new(&mut self.parts.fd)
    }

    /// Returns its devices.
    pub(crate) fn bus(&mut self) -> &mut B {
        &mut self.parts.bus
    }

    /// Returns its host side.
    pub(crate) fn host(&mut self) -> &mut H {
        self.parts.pmu.host()
    }

    /// Takes the samples of overflows that no kick has shown: the vCPU does not enter again.
    pub(crate) fn take_last_samples(&mut self) {
        if let Some(sampler) = &mut self.parts.sampler {
            sampler.take(&self.parts.fd, self.ran);
        }
    }

    /// Takes the account since the vCPU began, or since [`begin_account`](Self::begin_account).
    pub(crate) fn take_account(&mut self) -> Account {
        let mut account = self.stats.take(&mut self.parts.pmu);
        let sampled = self.parts.sampler.as_mut().map_or(0, VcpuSampler::take_signals)
            + self.parts.nested.as_mut().map_or(0, Nested::take_signals);
        account.counts.signals += sys::take_kicks().saturating_sub(sampled);
        account.counts.rdpmcs += self.parts.other_msrs.as_ref().map_or(0, OtherMsrs::rdpmcs);
        account.counts.rdpmcs_elsewhere += self.parts.other_msrs.as_ref().map_or(0, OtherMsrs::elsewhere);
        account
    }

    /// Begins a new account after a rest, which is not part of it.
    pub(crate) fn begin_account(&mut self) {
        sys::take_kicks();
        self.parts.pmu.host().restart_account();
        // An overflow that is found at the first entry was not seen before the rest.
        self.returned_at = sys::rdtsc();
    }
}
