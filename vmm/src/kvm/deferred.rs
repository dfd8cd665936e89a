//! A PMI that met LVTPC masked by an earlier delivery: deferred, and delivered later or dropped (see [`Mask`]).
//!
//! The guest's unmask is no exit, so LVTPC is looked at before entries while a PMI is deferred, and a timer makes sure
//! that there is an exit. Neither is done while the guest has all counters off: it is in its handler or in its driver,
//! and its next write of the global enables is an exit. A handler that unmasks LVTPC before it starts the counters
//! costs nothing by this. The exit by which the guest turns them off is the exception: a driver that stops the PMU after
//! the unmask sets the next period, and a handler that runs later finds an overflow that it takes for none.

use arch_pmu::pmi::{Delivery, Lvtpc, Mask, Met};
use counts::Counts;
use host_pmu::kick::ThreadTimer;

use super::lapic::page::lvtpc;
use super::lapic::{Delivered, Mode, PmiPort, deliver};

/// Time to the first look without an exit of the guest's own, and the longest between two.
const FIRST_NS: u64 = 50_000;
const MOST_NS: u64 = 12_800_000;

/// LVTPC after a reset or an INIT (SDM vol. 3, 12.4.7.1).
const LVTPC_AT_RESET: Lvtpc = Lvtpc::new().with_masked(true);

/// A kick of the vCPU thread, later.
pub(crate) trait Alarm {
    /// Sets one kick after `ns`, in the place of one that is due; 0 for none.
    fn set(&mut self, ns: u64);
}

impl Alarm for ThreadTimer {
    fn set(&mut self, ns: u64) {
        self.arm(ns, 0);
    }
}

/// The PMU, as far as a deferred PMI depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pmu {
    /// STATUS has an overflow that asked for a PMI.
    pub(crate) unacknowledged: bool,
    /// The guest has all counters off, and turns them on by an exit.
    pub(crate) all_off: bool,
    /// Own enables that the guest turned on.
    pub(crate) turned_on: u64,
}

/// Outcome of a look at a deferred PMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferredDelivery {
    pub(crate) delivered: Delivered,
    /// Host TSC at which the overflow was seen.
    pub(crate) seen_at: u64,
}

/// The deferred PMI of one vCPU, if there is one.
#[derive(Debug)]
pub(crate) struct Deferred<A> {
    mask: Mask,
    /// The delivery that masked LVTPC last.
    by: Delivery,
    alarm: A,
    /// True if a kick of the alarm may be due.
    set: bool,
    /// The guest had all counters off when it was seen last.
    all_off: bool,
    /// Time to the next one.
    wait_ns: u64,
    seen_at: u64,
}

impl<A: Alarm> Deferred<A> {
    pub(crate) const fn new(alarm: A) -> Self {
        Self {
            mask: Mask::new(),
            by: Delivery::Masked,
            alarm,
            set: false,
            all_off: false,
            wait_ns: FIRST_NS,
            seen_at: 0,
        }
    }

    /// Returns whether a PMI is deferred.
    #[inline]
    pub(crate) const fn has_deferred(&self) -> bool {
        self.mask.has_deferred()
    }

    /// Notes that a delivery masked LVTPC.
    #[inline]
    pub(crate) fn delivered(&mut self, by: Delivery, pmu: Pmu, counts: &mut Counts) {
        self.by = by;
        if self.mask.by_delivery(pmu.turned_on) {
            self.drop_deferred(counts);
        }
    }

    /// Notes that a PMI, seen at host TSC `seen_at`, met a masked LVTPC, or a LAPIC that is `off`.
    pub(crate) fn met_mask(&mut self, off: bool, pmu: Pmu, seen_at: u64, counts: &mut Counts) {
        if off && self.mask.forget() {
            self.drop_deferred(counts);
        }
        match self.mask.met(pmu.turned_on) {
            Met::Deferred => {
                counts.deferred += 1;
                self.all_off = pmu.all_off;
                (self.seen_at, self.wait_ns) = (seen_at, FIRST_NS);
            }
            Met::Joined => {}
            Met::Guests => counts.masked += 1,
        }
    }

    /// Looks before an entry with a deferred PMI whether it is delivered now. `kicked`: the alarm may have rung.
    #[cold]
    pub(crate) fn look<P: PmiPort>(
        &mut self,
        port: &mut P,
        contended: bool,
        pmu: Pmu,
        kicked: bool,
        counts: &mut Counts,
    ) -> Result<Option<DeferredDelivery>, P::Error> {
        if !pmu.unacknowledged {
            self.mask.release();
            self.drop_deferred(counts);
            return Ok(None);
        }
        if std::mem::take(&mut self.set) && !kicked {
            self.set = true;
        }
        if std::mem::replace(&mut self.all_off, pmu.all_off) && pmu.all_off {
            return Ok(None);
        }
        match deliver_deferred(port, self.by, contended)? {
            Fate::Waits if pmu.all_off => {}
            Fate::Waits => self.wait(),
            Fate::Dropped => {
                self.mask.forget();
                self.drop_deferred(counts);
            }
            Fate::Undeliverable => {
                self.mask.forget();
                counts.undeliverable += 1;
                self.silence();
            }
            Fate::Delivered(delivered) => {
                self.mask.by_delivery(pmu.turned_on);
                self.silence();
                counts.deferred_delivered += 1;
                return Ok(Some(DeferredDelivery { delivered, seen_at: self.seen_at }));
            }
        }
        Ok(None)
    }

    fn wait(&mut self) {
        if !self.set {
            self.set = true;
            self.alarm.set(self.wait_ns);
            self.wait_ns = (2 * self.wait_ns).min(MOST_NS);
        }
    }

    fn drop_deferred(&mut self, counts: &mut Counts) {
        counts.deferred_dropped += 1;
        self.silence();
    }

    fn silence(&mut self) {
        if std::mem::take(&mut self.set) {
            self.alarm.set(0);
        }
    }
}

/// Fate of a deferred PMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// LVTPC is still masked, or a handler runs that may acknowledge it.
    Waits,
    /// The LAPIC is off, or LVTPC is no longer that of the delivery that masked it.
    Dropped,
    /// LVTPC is unmasked with a delivery mode that the VMM does not know.
    Undeliverable,
    /// It is delivered.
    Delivered(Delivered),
}

/// Delivers a deferred PMI if LVTPC is unmasked. A handler may unmask it first of all and acknowledge the overflow
/// then: an interrupt at that time would find nothing to handle.
fn deliver_deferred<P: PmiPort>(port: &mut P, by: Delivery, contended: bool) -> Result<Fate, P::Error> {
    let by_msr = match port.mode() {
        Mode::Off => return Ok(Fate::Dropped),
        Mode::XApic => None,
        Mode::X2Apic => port.lvtpc_msr()?,
    };
    let entry = match by_msr {
        Some(entry) => entry,
        None => lvtpc(&port.lapic()?),
    };
    let delivery = entry.delivery();
    if matches!(delivery, Delivery::Unsupported(_)) {
        return Ok(Fate::Undeliverable);
    }
    if !is_still(entry, by) {
        return Ok(Fate::Dropped);
    }
    if delivery == Delivery::Masked || port.in_handler(delivery)? {
        return Ok(Fate::Waits);
    }
    // Only where a delivery masks LVTPC is a PMI deferred.
    deliver(port, contended, true).map(Fate::Delivered)
}

/// Returns whether LVTPC is that of the delivery `by`, masked or not. An INIT of the CPU or another kernel (kexec)
/// gives it its reset value or a value of its own, and that kernel's handler knows nothing of the PMI.
fn is_still(entry: Lvtpc, by: Delivery) -> bool {
    entry != LVTPC_AT_RESET && entry.with_masked(false).delivery() == by
}

#[cfg(test)]
mod tests {
    use arch_pmu::pmi::Lvtpc;
    use proptest::prelude::*;

    use super::super::lapic::tests::FakeLapic;
    use super::*;

    const OPEN: Lvtpc = Lvtpc::from_bits(0x400);

    fn lapic(entry: u32) -> FakeLapic {
        FakeLapic { is_x2apic: true, ..FakeLapic::with(entry) }
    }

    fn masked() -> FakeLapic {
        lapic(0x1_0400)
    }

    /// The times that were set.
    #[derive(Debug, Default)]
    struct Alarms(Vec<u64>);

    impl Alarm for Alarms {
        fn set(&mut self, ns: u64) {
            self.0.push(ns);
        }
    }

    const BUSY: Pmu = Pmu { unacknowledged: true, all_off: false, turned_on: 0 };

    /// A PMI is deferred behind a delivery whose handler has ended.
    fn with_deferred() -> (Deferred<Alarms>, Counts) {
        let (mut deferred, mut stats) = (Deferred::new(Alarms::default()), Counts::default());
        deferred.delivered(Delivery::Nmi, BUSY, &mut stats);
        deferred.met_mask(false, BUSY, 7, &mut stats);
        assert_eq!((deferred.has_deferred(), stats.deferred, stats.masked), (true, 1, 0));
        (deferred, stats)
    }

    #[test]
    fn it_is_delivered_once_or_dropped() {
        let acknowledged = Pmu { unacknowledged: false, ..BUSY };
        // The PMU at the look, whether the LAPIC is off by then; what was delivered.
        for (pmu, off, delivered) in [(BUSY, false, Some(7)), (acknowledged, false, None), (BUSY, true, None)] {
            let (mut deferred, mut stats) = with_deferred();
            let mut port = FakeLapic { off, ..lapic(0x400) };
            let found = deferred.look(&mut port, false, pmu, false, &mut stats).unwrap();
            assert_eq!((found.map(|found| found.seen_at), deferred.has_deferred()), (delivered, false));
            let all = u64::from(delivered.is_some());
            let counted = (u64::from(port.sent), stats.deferred_delivered, stats.deferred_dropped);
            assert_eq!(counted, (all, all, 1 - all));
        }
        for off in [false, true] {
            let (mut deferred, mut stats) = with_deferred();
            deferred.met_mask(off, BUSY, 9, &mut stats);
            if !off {
                deferred.delivered(Delivery::Nmi, BUSY, &mut stats);
            }
            let counted = (stats.deferred, stats.masked, stats.deferred_dropped);
            assert_eq!((deferred.has_deferred(), counted), (false, (1, off.into(), 1)), "another's handler finds both");
        }
    }

    #[test]
    fn another_kernels_lvtpc_drops_it() {
        let entries = [(0x1_0000, 1), (0x31, 1), (0x1_0031, 1), (0x1_0200, 1), (0x1_0400, 0)];
        for (entry, dropped) in entries {
            for is_x2apic in [false, true] {
                let mut port = FakeLapic { is_x2apic, ..lapic(entry) };
                let (mut deferred, mut stats) = with_deferred();
                assert_eq!(deferred.look(&mut port, false, BUSY, false, &mut stats), Ok(None));
                port.set(OPEN);
                if deferred.has_deferred() {
                    deferred.look(&mut port, false, BUSY, true, &mut stats).unwrap();
                }
                let counted = (stats.deferred_dropped, stats.deferred_delivered, port.sent);
                assert_eq!(counted, (dropped, 1 - dropped, 1 - dropped as u32), "{entry:#x}");
            }
        }
        let fixed = Delivery::Fixed(0x31);
        for (entry, same) in [(0x31, true), (0x1_0031, true), (0x32, false), (0x400, false), (0x1_0000, false)] {
            assert_eq!(is_still(Lvtpc::from_bits(entry), fixed), same, "{entry:#x}");
        }
        assert!(!is_still(LVTPC_AT_RESET, Delivery::Fixed(0)), "a reset, whatever was delivered");
    }

    #[test]
    fn the_alarm_rings_less_and_less_often_and_not_while_all_counters_are_off() {
        let (mut deferred, mut stats) = with_deferred();
        let mut port = masked();
        let off = Pmu { all_off: true, ..BUSY };
        deferred.look(&mut port, false, off, false, &mut stats).unwrap();
        assert_eq!(deferred.alarm.0, [0; 0]);
        deferred.look(&mut port, false, BUSY, false, &mut stats).unwrap();
        deferred.look(&mut port, false, BUSY, false, &mut stats).unwrap();
        assert_eq!(deferred.alarm.0, [FIRST_NS], "an exit of the guest's own leaves it as it is");
        for _ in 0..20 {
            deferred.look(&mut port, false, BUSY, true, &mut stats).unwrap();
        }
        assert_eq!((deferred.alarm.0[1], deferred.alarm.0.last()), (2 * FIRST_NS, Some(&MOST_NS)));
        deferred.look(&mut port, false, off, true, &mut stats).unwrap();
        let rang = deferred.alarm.0.len();
        deferred.look(&mut port, false, BUSY, false, &mut stats).unwrap();
        assert_eq!(deferred.alarm.0.len(), rang + 1, "it rang while they were off");
        port.set(OPEN);
        assert!(deferred.look(&mut port, false, BUSY, true, &mut stats).unwrap().is_some());
        assert_eq!(deferred.alarm.0.len(), rang + 1, "nothing to silence after its ring");
    }

    /// Time at which a driver unmasks LVTPC (Linux: early_ack, mid_ack, late_ack).
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Ack {
        Early,
        Mid,
        Late,
    }

    /// Next access of a handler.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum At {
        Guest,
        UnmaskFirst,
        Off,
        Status,
        On,
        UnmaskLast,
        Iret,
    }

    /// A guest with Linux's handler and two counters, and the VMM around it.
    struct Machine {
        ack: Ack,
        deferred: Deferred<Alarms>,
        stats: Counts,
        port: FakeLapic,
        at: At,
        on: bool,
        /// The driver has not stopped the PMU (Linux: `cpuc->enabled`).
        enabled: bool,
        status: u32,
        seen: Seen,
    }

    /// What the guest's handlers have seen.
    #[derive(Default)]
    struct Seen {
        handled: u32,
        overflows: u32,
        samples: u32,
        /// Overflows after which the driver set the next period, as it does at a stop and a start: their handler takes no sample.
        passed_over: u32,
        /// A handler in this row of NMIs handled more than one overflow: Linux swallows those of the row that find nothing.
        swallow: bool,
        unknown: u32,
    }

    impl Machine {
        fn new(ack: Ack, is_x2apic: bool) -> Self {
            let port = FakeLapic { is_x2apic, ..lapic(0x400) };
            let (deferred, stats) = (Deferred::new(Alarms::default()), Counts::default());
            let (on, enabled, seen) = (true, true, Seen::default());
            Self { ack, deferred, stats, port, at: At::Guest, on, enabled, status: 0, seen }
        }

        fn pmu(&self) -> Pmu {
            Pmu { unacknowledged: self.status != 0, all_off: !self.on, turned_on: 0 }
        }

        /// Does the work before an entry. `pmi`: an overflow was found.
        fn entry(&mut self, pmi: bool, kicked: bool) {
            let pmu = self.pmu();
            if pmi {
                match deliver(&mut self.port, false, true).unwrap().delivery {
                    Delivery::Masked => self.deferred.met_mask(false, pmu, 0, &mut self.stats),
                    by => self.deferred.delivered(by, pmu, &mut self.stats),
                }
            }
            if self.deferred.has_deferred() {
                let deferred = self.deferred.look(&mut self.port, false, pmu, kicked, &mut self.stats).unwrap();
                assert!(deferred.is_none() || self.status != 0, "an NMI without a STATUS bit");
                assert!(
                    deferred.is_none() || !self.port.in_nmi,
                    "an NMI behind a handler that may acknowledge its overflow"
                );
            }
            self.take_nmi(false);
        }

        fn take_nmi(&mut self, behind_another: bool) {
            if self.port.pending > 0 && !self.port.in_nmi {
                self.port.pending -= 1;
                self.port.in_nmi = true;
                self.seen.handled = 0;
                self.seen.swallow &= behind_another;
                self.at = if self.ack == Ack::Early { At::UnmaskFirst } else { At::Off };
            }
        }

        /// Notes those of `bits` that are overflows of armed counters, and returns whether there are any.
        fn find(&mut self, bits: u32) -> bool {
            let new = if self.on { bits & 3 & !self.status } else { 0 };
            self.status |= new;
            self.seen.overflows += new.count_ones();
            new != 0
        }

        /// A counter that was armed overflows.
        fn overflow(&mut self, counter: u32) {
            if self.find(1 << counter) {
                self.entry(true, true);
            }
        }

        /// The driver stops the PMU, where `overflows` are found, sets the period of what has overflowed, and starts it again.
        fn stop_and_start(&mut self, overflows: u32) {
            if self.at != At::Guest {
                return;
            }
            let found = self.find(overflows);
            (self.enabled, self.on) = (false, false);
            self.entry(found, false);
            while self.at != At::Guest {
                self.step(0);
            }
            self.seen.passed_over = self.status;
            (self.enabled, self.on) = (true, true);
            self.entry(false, false);
        }

        /// The handler's next step. `overflows`: found when the counters are switched off.
        fn step(&mut self, overflows: u32) {
            match self.at {
                At::Guest => {}
                At::UnmaskFirst => {
                    self.port.set(OPEN);
                    self.at = At::Off;
                }
                At::Off => {
                    let found = self.find(overflows);
                    self.on = false;
                    self.at = At::Status;
                    self.entry(found, false);
                }
                At::Status if self.status == 0 => {
                    self.seen.unknown += u32::from(self.seen.handled == 0 && !self.seen.swallow);
                    self.at = if self.ack == Ack::Mid { At::UnmaskLast } else { At::On };
                    self.entry(false, false);
                }
                At::Status => {
                    self.seen.handled += self.status.count_ones();
                    self.seen.samples += (self.status & !self.seen.passed_over).count_ones();
                    (self.status, self.seen.passed_over) = (0, 0);
                    self.entry(false, false);
                }
                At::On => {
                    self.on = self.enabled;
                    self.at = if self.ack == Ack::Late { At::UnmaskLast } else { At::Iret };
                    self.entry(false, false);
                }
                At::UnmaskLast => {
                    self.port.set(OPEN);
                    self.at = if self.ack == Ack::Mid { At::On } else { At::Iret };
                }
                At::Iret => {
                    self.seen.swallow |= self.seen.handled > 1;
                    self.port.in_nmi = false;
                    self.at = At::Guest;
                    self.take_nmi(true);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_counter_goes_silent_and_no_nmi_comes_for_nothing(
            ack in prop_oneof![Just(Ack::Early), Just(Ack::Mid), Just(Ack::Late)],
            is_x2apic: bool,
            steps in prop::collection::vec((0..7_u8, 0..4_u32), 0..200),
        ) {
            let mut machine = Machine::new(ack, is_x2apic);
            for (what, bits) in steps {
                match what {
                    0 => machine.overflow(bits & 1),
                    1 => machine.entry(false, true),
                    2 => machine.stop_and_start(bits),
                    _ => machine.step(bits),
                }
            }
            // The guest goes on without overflows; the alarm rings when it was set.
            for _ in 0..40 {
                machine.step(0);
                if machine.at == At::Guest && machine.deferred.set {
                    machine.entry(false, true);
                }
            }
            prop_assert_eq!((machine.at, machine.port.lvtpc().masked(), machine.deferred.has_deferred()), (At::Guest, false, false));
            prop_assert_eq!(machine.status, 0, "an overflow without its NMI");
            prop_assert_eq!(machine.seen.samples, machine.seen.overflows, "an NMI without its sample");
            prop_assert_eq!(machine.seen.unknown, 0, "an NMI for nothing");
            prop_assert_eq!(machine.stats.deferred, machine.stats.deferred_delivered + machine.stats.deferred_dropped);
            prop_assert_eq!(machine.stats.undeliverable, 0);
        }

        #[test]
        fn each_deferred_pmi_is_counted_once_whatever_the_guest_does(
            steps in prop::collection::vec((0..6_u8, prop::sample::select(vec![0x400, 0x1_0400, 0x1_0000, 0x200, 0x1_0200])), 0..60),
        ) {
            let (mut deferred, mut stats) = (Deferred::new(Alarms::default()), Counts::default());
            let (mut port, mut pmu) = (lapic(0x400), BUSY);
            for (what, entry) in steps {
                match what {
                    0 => port.set(Lvtpc::from_bits(entry)),
                    1 => port.off = !port.off,
                    2 => pmu.unacknowledged = !pmu.unacknowledged,
                    3 => (port.pending, port.in_nmi) = (0, false),
                    4 => match deliver(&mut port, false, true).unwrap().delivery {
                        Delivery::Masked => deferred.met_mask(port.off, pmu, 0, &mut stats),
                        Delivery::Unsupported(_) => {}
                        by => deferred.delivered(by, pmu, &mut stats),
                    },
                    _ if deferred.has_deferred() => {
                        deferred.look(&mut port, false, pmu, true, &mut stats).unwrap();
                    }
                    _ => {}
                }
                let ended = stats.deferred_delivered + stats.deferred_dropped + stats.undeliverable;
                prop_assert_eq!(stats.deferred, ended + u64::from(deferred.has_deferred()));
                prop_assert!(deferred.has_deferred() || !deferred.set, "an alarm for nothing");
            }
        }
    }
}
