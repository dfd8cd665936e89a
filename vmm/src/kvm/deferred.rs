//! A PMI that met LVTPC masked by an earlier delivery: deferred, and delivered later or dropped (see [`Mask`]).
//!
//! The guest's unmask is no exit, so LVTPC is looked at before entries while a PMI is deferred, and a timer makes sure that there is an exit.
//! Neither is done while the guest has all counters off: it is in its handler or in its driver, and its next write of the global
//! enables is an exit. A handler that unmasks LVTPC before it starts the counters costs nothing by this.

use arch_pmu::pmi::{Delivery, Lvtpc, Mask, Met};
use counts::Counts;
use host_pmu::kick;

use super::lapic::{Delivered, Mode, PmiPort, deliver, lvtpc};

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

impl Alarm for kick::Timer {
    fn set(&mut self, ns: u64) {
        Self::set(self, ns);
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
    /// Time to the next one.
    wait_ns: u64,
    seen_at: u64,
}

impl<A: Alarm> Deferred<A> {
    pub(crate) const fn new(alarm: A) -> Self {
        Self { mask: Mask::new(), by: Delivery::Masked, alarm, set: false, wait_ns: FIRST_NS, seen_at: 0 }
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
        if pmu.all_off {
            return Ok(None);
        }
        match deliver_deferred(port, self.by, contended)? {
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

/// Delivers a deferred PMI if LVTPC is unmasked. A handler may unmask it first of all and acknowledge the overflow then: an interrupt at
/// that time would find nothing to handle.
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

/// Returns whether LVTPC is that of the delivery `by`, masked or not. An INIT of the CPU or another kernel (kexec) gives it its reset value
/// or a value of its own, and that kernel's handler knows nothing of the PMI.
fn is_still(entry: Lvtpc, by: Delivery) -> bool {
    entry != LVTPC_AT_RESET && entry.with_masked(false).delivery() == by
}

#[cfg(test)]
mod tests;
