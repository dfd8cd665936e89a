//! A vCPU between guest and vPMU: the counterpart of the VMM's vCPU loop.
//!
//! An entry has the same order: overflows signalled by kicks, deferred work of the vPMU, the PMI, then the guest.

use std::rc::Rc;

use arch_pmu::Vpmu;
use arch_pmu::msr::MsrStats;
use arch_pmu::pmi::{Delivery, Lvtpc, Mask, Met};
use counts::Counts;
use guest::phases::Phases;
use host_pmu::stats::{HostSide, Recorder};
use host_pmu::trace::{Kind, Row, Tracer};

use crate::clock::Clock;
use crate::model::{Cost, Costs, Model};
use crate::side::{SimHost, VcpuSide};
use crate::stream::Purpose;

/// Maximum number of kicks per entry. KVM_RUN returns at once with a pending signal; a clock with a tiny period must not block
/// the entry forever.
const MOST_KICKS: u32 = 64;
/// The mask bit of an LVT entry.
const LVT_MASKED: u32 = 1 << 16;

/// A vCPU and its vPMU.
#[derive(Debug)]
pub(crate) struct Vcpu<H> {
    model: Rc<Model>,
    instruction_ps: u64,
    /// A delivery masks LVTPC.
    masks: bool,
    pmu: Vpmu<H>,
    lvtpc: u32,
    mask: Mask,
    /// A pending NMI: time at which its overflow was noticed.
    nmi: Option<u64>,
    /// Time at which the oldest overflow without a PMI was noticed.
    seen_at: Option<u64>,
    counts: Counts,
    msrs: MsrStats,
    phases: Phases,
    /// RDMSR and WRMSR exits that are not yet their phase's.
    exits: [u64; 2],
    exit_path_ns: Recorder,
    /// Time of an overflow in ring 3 of which the VMM has not taken the signal.
    overflowed_at: Option<u64>,
    /// Time from such an overflow to the VMM seeing it.
    signal_ns: Recorder,
    /// True if the guest is in its tick and not in an NMI handler.
    in_tick: bool,
    traced: Option<Box<Traced>>,
}

/// The trace of a vCPU.
#[derive(Debug)]
struct Traced {
    tracer: Tracer,
    /// Time off the CPU, and halts, at the last entry with work.
    away: u64,
    halts: u64,
    halts_seen: u64,
}

impl<H: SimHost> Vcpu<H> {
    /// Creates a vCPU at RESET.
    pub(crate) fn new(model: Rc<Model>, pmu: Vpmu<H>) -> Self {
        Self {
            instruction_ps: model.costs.instruction_ps,
            model,
            masks: pmu.caps().delivery_masks_lvtpc(),
            pmu,
            lvtpc: LVT_MASKED,
            mask: Mask::new(),
            nmi: None,
            seen_at: None,
            counts: Counts::default(),
            msrs: MsrStats::default(),
            phases: Phases::default(),
            exits: [0; 2],
            exit_path_ns: Recorder::default(),
            overflowed_at: None,
            signal_ns: Recorder::default(),
            in_tick: false,
            traced: None,
        }
    }

    /// Traces the vCPU from here on.
    pub(crate) fn traced(mut self, tracer: Option<Tracer>) -> Self {
        if let Some(tracer) = tracer {
            self.pmu.keep_journal();
            let times = self.settled().times();
            let away = times.now - times.thread;
            self.traced = Some(Box::new(Traced { tracer, away, halts: 0, halts_seen: 0 }));
        }
        self
    }

    /// Returns the thread's clock with the guest's instructions so far.
    #[inline]
    fn settled(&mut self) -> &mut Clock {
        let clock = self.pmu.host().clock();
        clock.settle();
        clock
    }

    /// Returns the TSC at a time since the start of the simulation, ns.
    #[inline]
    pub(crate) fn tsc_at(&self, now: u64) -> u64 {
        let (ms, ns) = (now / 1_000_000, now % 1_000_000);
        // The frequency has far fewer than 44 bits, so the products cannot overflow.
        ms * self.model.tsc_khz + ns * self.model.tsc_khz / 1_000_000
    }

    #[inline]
    fn spend(&mut self, purpose: Purpose, cost: impl FnOnce(&Costs) -> &Cost) {
        self.pmu.host().clock().spend(cost(&self.model.costs), purpose);
    }

    #[expect(clippy::inline_always, reason = "whether it reads or writes is known where it is called")]
    #[inline(always)]
    fn access(&mut self, msr: u32, written: Option<u64>, act: impl FnOnce(&mut Vpmu<H>) -> Option<u64>) -> Option<u64> {
        if !self.pmu.host().intercepts(msr) {
            return self.access_in_guest(act);
        }
        self.spend(Purpose::Exit, |costs| &costs.exit);
        if self.in_tick {
            self.spend(Purpose::TickExit, |costs| &costs.tick_exit);
        }
        self.exit();
        let exited = self.pmu.host().clock().now();
        self.spend(Purpose::Vmm, |costs| &costs.vmm);
        let value = act(&mut self.pmu);
        self.msrs.count(msr, written.is_some(), value.is_none());
        self.exits[usize::from(written.is_some())] += 1;
        if self.traced.is_some() {
            self.trace_access(exited, msr, written, value);
            self.enter_traced(Some(exited));
        } else if !self.passes_entry() {
            self.enter_with_work(Some(exited));
        }
        let ns = self.pmu.host().clock().now() - exited;
        self.exit_path_ns.record(ns);
        value
    }

    /// Executes an access to a register that the guest owns. An overflow before it interrupts the guest before it.
    fn access_in_guest<T>(&mut self, act: impl FnOnce(&mut Vpmu<H>) -> Option<T>) -> Option<T> {
        self.settled();
        self.pmu.host().access_register();
        self.interrupt_if_due();
        let value = act(&mut self.pmu);
        self.settle();
        if self.pmu.pmi_requested() {
            self.interrupt_by_pmu();
        }
        value
    }

    /// Lets the host take what became due while a guest that owns its registers ran in ring 0.
    fn interrupt_if_due(&mut self) {
        let host = self.pmu.host();
        if host.overflow_due() {
            self.interrupt_by_pmu();
        } else if host.clock().slice_is_over() {
            host.leaves();
            self.enter();
        }
    }

    /// Ends guest mode for the interrupt of a PMU that the guest owns: the host hands it on.
    fn interrupt_by_pmu(&mut self) {
        if self.overflowed_at.is_none() {
            self.spend(Purpose::Signal, |costs| &costs.signal);
        }
        self.pmu.host().leaves();
        self.enter();
    }

    /// Exits to userspace.
    fn exit(&mut self) {
        self.settled().exit();
        self.pmu.host().leaves();
    }

    /// Executes a write to the local APIC, which the kernel handles.
    pub(crate) fn write_apic(&mut self) {
        self.spend(Purpose::Apic, |costs| &costs.apic);
        let host = self.pmu.host();
        host.leaves();
        host.returns();
    }

    /// Counts the exits so far for the phase that ends.
    fn count_exits(&mut self) {
        let [reads, writes] = std::mem::take(&mut self.exits);
        self.phases.exits(reads, writes);
    }

    /// Executes a port write, which exits.
    pub(crate) fn write_port(&mut self) {
        self.spend(Purpose::Io, |costs| &costs.io);
        self.exit();
        self.enter();
    }

    /// Does the work due before a guest entry.
    #[expect(clippy::inline_always, reason = "most entries take no longer than the call")]
    #[inline(always)]
    fn enter(&mut self) {
        if self.traced.is_some() {
            self.enter_traced(None);
        } else if !self.passes_entry() {
            self.enter_with_work(None);
        }
    }

    /// Returns whether an entry has no work, and counts it: most have none, and finding that out step by step takes longer than
    /// the access.
    #[inline]
    fn passes_entry(&mut self) -> bool {
        if !self.pmu.is_quiet() || self.mask.has_deferred() {
            return false;
        }
        let host = self.pmu.host();
        host.is_quiet() && host.passes_entry()
    }

    #[cold]
    fn enter_traced(&mut self, accessed: Option<u64>) {
        self.trace_switches();
        if !self.passes_entry() {
            self.enter_with_work(accessed);
        }
        self.trace_entry();
    }

    #[cold]
    fn trace_access(&mut self, at: u64, msr: u32, written: Option<u64>, answer: Option<u64>) {
        if let Some(traced) = &mut self.traced {
            let kind = if written.is_some() { Kind::Write } else { Kind::Read };
            let access = Row { at, kind, register: msr, value: written.unwrap_or(0), ..Row::default() };
            traced.tracer.access(access, answer, &mut self.pmu);
        }
    }

    #[cold]
    fn trace_entry(&mut self) {
        let now = self.pmu.host().clock().now();
        if let Some(traced) = &mut self.traced {
            traced.tracer.entry(now);
        }
    }

    /// Traces what the host side told the counters, if the vCPU is traced.
    fn trace_notes(&mut self) {
        if let Some(traced) = &mut self.traced {
            let now = self.pmu.host().clock().now();
            traced.tracer.notes(now, &mut self.pmu, None);
        }
    }

    /// Traces the switches of the thread since the last time, if the vCPU is traced.
    fn trace_switches(&mut self) {
        if let Some(traced) = &mut self.traced {
            let times = self.pmu.host().clock().times();
            let away = times.now - times.thread;
            let switched = std::mem::replace(&mut traced.away, away) != away;
            let slept = std::mem::replace(&mut traced.halts_seen, traced.halts) != traced.halts;
            traced.tracer.switches(times.now, switched || slept, slept);
        }
    }

    /// `accessed`: time of an access before it, which may have found an overflow.
    #[inline(never)]
    fn enter_with_work(&mut self, accessed: Option<u64>) {
        if let Some(at) = accessed.filter(|_| self.pmu.pmi_requested()) {
            self.seen_at.get_or_insert(at);
        }
        self.pmu.host().preempt_if_due();
        self.trace_switches();
        let mut signals = self.pmu.host().take_signals();
        for _ in 0..MOST_KICKS {
            if signals > 0 {
                let seen = self.pmu.host().clock().now();
                let overflows = self.pmu.kick();
                self.trace_notes();
                // The floor's timer also signals early.
                if let Some(at) = self.overflowed_at.take().filter(|_| overflows > 0) {
                    self.signal_ns.record(seen - at);
                }
                self.counts.signals += signals;
                self.counts.empty_kicks += u64::from(overflows == 0);
                if self.pmu.pmi_requested() {
                    self.seen_at.get_or_insert(seen);
                }
            }
            self.pmu.enter();
            self.trace_notes();
            if self.pmu.take_pmi() {
                self.deliver();
                self.trace_notes();
            }
            self.settle();
            let host = self.pmu.host();
            if host.is_quiet() {
                break;
            }
            host.preempt_if_due();
            signals = host.take_signals();
            if signals == 0 {
                break;
            }
            // What a replay meets as one entry is one.
            if self.traced.is_some() {
                self.trace_entry();
                self.trace_switches();
            }
        }
    }

    /// Drops a deferred PMI that the guest acknowledged; its handler acknowledges before it unmasks LVTPC, so the
    /// simulator never delivers one later.
    fn settle(&mut self) {
        if self.mask.has_deferred() && !self.pmu.pmi_unacknowledged() {
            self.counts.deferred_dropped += u64::from(self.mask.release());
        }
    }

    /// Delivers a PMI through LVTPC and masks it (SDM vol. 3, 12.5.1).
    fn deliver(&mut self) {
        let seen_at = self.seen_at.take();
        let delivery = Lvtpc::from_bits(self.lvtpc).delivery();
        let merged = delivery == Delivery::Nmi && !self.masks && self.nmi.is_some();
        if let Some(traced) = &mut self.traced {
            let now = self.pmu.host().clock().now();
            traced.tracer.pmi(now, Kind::Pmi, delivery, merged);
        }
        match delivery {
            Delivery::Masked => match self.mask.met(self.pmu.turned_on()) {
                Met::Deferred => self.counts.deferred += 1,
                Met::Joined => {}
                Met::Guests => self.counts.masked += 1,
            },
            // An AMD's processor keeps one; an Intel's LVTPC is masked then.
            Delivery::Nmi if merged => self.counts.merged += 1,
            Delivery::Nmi => {
                self.spend(Purpose::Inject, |costs| &costs.inject);
                self.counts.pmis += 1;
                self.counts.nmis_injected += 1;
                let now = self.now();
                // A further NMI merges with the pending one.
                self.nmi.get_or_insert(seen_at.unwrap_or(now));
                if self.masks {
                    self.lvtpc |= LVT_MASKED;
                    self.counts.deferred_dropped += u64::from(self.mask.by_delivery(self.pmu.turned_on()));
                }
            }
            Delivery::Fixed(_) | Delivery::Unsupported(_) => self.counts.undeliverable += 1,
        }
    }

    /// Returns whether whoever traces the guest has had enough.
    pub(crate) fn is_stopped(&self) -> bool {
        self.traced.as_ref().is_some_and(|traced| traced.tracer.is_stopped())
    }

    /// Returns the ns since the start of the simulation.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        self.settled().now()
    }

    /// Executes `n` instructions in ring 0.
    #[inline]
    pub(crate) fn execute(&mut self, n: u64) {
        let ps = n * self.instruction_ps;
        self.pmu.host().clock().owe(ps);
    }

    /// Executes RDMSR of a PMU register.
    pub(crate) fn rdmsr(&mut self, msr: u32) -> u64 {
        self.access(msr, None, |pmu| pmu.rdmsr(msr).ok()).unwrap_or(0)
    }

    /// Executes WRMSR of a PMU register.
    pub(crate) fn wrmsr(&mut self, msr: u32, value: u64) {
        self.access(msr, Some(value), |pmu| pmu.wrmsr(msr, value).ok().map(|()| value));
    }

    /// Executes a write to LVTPC.
    pub(crate) fn write_lvtpc(&mut self, value: u32) {
        self.write_apic();
        self.lvtpc = value;
    }

    /// Rings a doorbell at the begin of a phase.
    pub(crate) fn begin_phase(&mut self, phase: u64) {
        self.write_port();
        self.count_exits();
        self.phases.begin(phase as usize, self.pmu.host().ops());
    }

    /// Enters an interrupt or NMI handler; `tick` if it is the tick's.
    pub(crate) fn interrupted(&mut self, tick: bool) {
        self.in_tick = tick;
        self.spend(Purpose::Interrupt, |costs| &costs.interrupt);
    }

    /// Returns from a handler; `to_tick` if into the tick.
    pub(crate) fn returns(&mut self, to_tick: bool) {
        self.in_tick = to_tick;
    }

    /// Returns whether the guest is in its tick.
    pub(crate) fn in_tick(&self) -> bool {
        self.in_tick
    }

    /// Returns the ns since the start of the simulation, right after an access: no instruction was executed since.
    #[inline]
    pub(crate) fn now_at_exit(&mut self) -> u64 {
        self.pmu.host().clock().now()
    }

    /// Returns whether an NMI is pending.
    #[inline]
    pub(crate) fn has_nmi(&self) -> bool {
        self.nmi.is_some()
    }

    /// Takes the pending NMI; returns when its overflow was noticed.
    #[inline]
    pub(crate) fn take_nmi(&mut self) -> Option<u64> {
        self.nmi.take()
    }

    /// Runs ring 3 until `until`, for at most `most` ns, or until an NMI is pending; returns the ns spent in ring 3.
    pub(crate) fn run_user(&mut self, until: u64, most: u64) -> u64 {
        let mut spent = 0;
        self.settled();
        while self.nmi.is_none() && spent < most {
            let host = self.pmu.host();
            let now = host.clock().now();
            if now >= until {
                break;
            }
            let to_signal = host.user_ns_to_signal();
            let clock = host.clock();
            let ns = to_signal.min(most - spent).min(until - now).min(clock.schedule.ends.saturating_sub(now));
            clock.user(ns);
            spent += ns;
            if ns == to_signal {
                self.overflowed_at = Some(now + ns);
                self.pmu.host().signals_in_ring_3();
                self.spend(Purpose::Signal, |costs| &costs.signal);
            }
            if now + ns < until && spent < most {
                self.pmu.host().leaves();
                self.enter();
            }
        }
        spent
    }

    /// Halts until `until`.
    pub(crate) fn halt_until(&mut self, until: u64) {
        self.settled();
        let host = self.pmu.host();
        host.leaves();
        host.sleep_until(until);
        if let Some(traced) = &mut self.traced {
            traced.halts += 1;
        }
        self.enter();
    }

    /// Waits outside of the guest until `at`, with its counters off.
    pub(crate) fn rest_until(&mut self, at: u64) {
        self.settled();
        let host = self.pmu.host();
        host.leaves();
        host.rest();
        host.sleep_until(at);
        self.pmu.host().restart_account();
        self.enter();
    }

    /// Returns the number of events held now.
    pub(crate) fn held(&mut self) -> u64 {
        self.pmu.host().held()
    }

    /// Takes the account since the vCPU's start, or since its last rest.
    pub(crate) fn take_side(&mut self) -> VcpuSide {
        self.settled();
        let mut counts = std::mem::take(&mut self.counts);
        counts.merge(&std::mem::take(self.pmu.counts()));
        self.count_exits();
        let host = self.pmu.host();
        let phases = std::mem::take(&mut self.phases).finish(host.ops());
        let host = HostSide { signal_ns: std::mem::take(&mut self.signal_ns), ..host.account(&mut counts) };
        VcpuSide {
            counts,
            msrs: std::mem::take(&mut self.msrs).exits(),
            phases,
            exit_path_ns: std::mem::take(&mut self.exit_path_ns),
            host,
        }
    }

    /// Executes RDTSC, with the ns since the start of the simulation.
    #[inline]
    pub(crate) fn rdtsc(&mut self) -> (u64, u64) {
        let now = self.now();
        (now, self.tsc_at(now))
    }
}
