//! The exact `perf_event_attr` of each backend.
//!
//! Hardware events are created as KVM creates them (`pmc_reprogram_counter`, arch/x86/kvm/pmu.c): pinned, not while
//! idle, only in guest mode, by privilege as the selector says. Stand-ins count the whole vCPU thread: they know no guest
//! mode, and an excluded privilege level only suppresses their overflows. Whatever the counter, a fixed one or one that counts by
//! transactions, a stand-in counts its own clock or tracepoint.

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_REF_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK,
    PERF_COUNT_SW_DUMMY, PERF_FORMAT_GROUP, PERF_FORMAT_ID, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_READ, PERF_SAMPLE_TIME,
    PERF_TYPE_HARDWARE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use arch_pmu::spec::{Source, Spec};

/// The kind of event a backend opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The event the guest selected, in guest mode only.
    Hardware,
    /// `PERF_COUNT_SW_CPU_CLOCK`.
    CpuClock,
    /// A tracepoint by its id.
    Tracepoint(u64),
}

/// Returns the attribute of an event of `kind` for `spec`; `period` is in host counts.
pub fn event_attr(kind: EventKind, spec: Spec, period: u64) -> perf_event_attr {
    let generic = |event| (PERF_TYPE_HARDWARE, u64::from(event));
    let (type_, config) = match (kind, spec.0) {
        (EventKind::CpuClock, _) => (PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
        (EventKind::Tracepoint(id), _) => (PERF_TYPE_TRACEPOINT, id),
        (EventKind::Hardware, Source::Selector(_)) => (PERF_TYPE_RAW, spec.raw_config().unwrap_or(0)),
        (EventKind::Hardware, Source::Fixed { index: 0, .. }) => generic(PERF_COUNT_HW_INSTRUCTIONS),
        (EventKind::Hardware, Source::Fixed { index: 1, .. }) => generic(PERF_COUNT_HW_CPU_CYCLES),
        (EventKind::Hardware, Source::Fixed { index: 2, .. }) => generic(PERF_COUNT_HW_REF_CPU_CYCLES),
        // Event 0, umask 4: the kernel's encoding of TOPDOWN.SLOTS, which only fixed counter 3 counts (SDM vol. 3, 21.3.9.3).
        (EventKind::Hardware, Source::Fixed { .. }) => (PERF_TYPE_RAW, 0x0400),
    };
    let mut attr = base(type_, config);
    if spec.samples() {
        attr.__bindgen_anon_1.sample_period = period;
    }
    // Each record in the monitor's ring carries the event's id, the time and the event's count.
    attr.sample_type = u64::from(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME | PERF_SAMPLE_READ);
    attr.__bindgen_anon_2.wakeup_events = 1;
    if kind == EventKind::Hardware {
        attr.set_pinned(1);
        attr.set_exclude_idle(1);
        attr.set_exclude_host(1);
        attr.set_exclude_user(u64::from(!spec.user()));
        attr.set_exclude_kernel(u64::from(!spec.kernel()));
    }
    attr
}

/// Returns the attribute of an event that counts nothing. Its ring takes the records of others or, with `switches`, has one of each
/// time that the thread is switched out or in.
pub fn monitor_attr(switches: bool) -> perf_event_attr {
    let mut attr = base(PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_DUMMY));
    attr.sample_type = u64::from(PERF_SAMPLE_IDENTIFIER);
    attr.set_context_switch(u64::from(switches));
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// Returns the attribute of a gate: it counts nothing and leads a group of events of `kind`, which stop and start with it.
pub fn gate_attr(kind: EventKind) -> perf_event_attr {
    let mut attr = monitor_attr(false);
    attr.sample_type = 0;
    attr.read_format = u64::from(PERF_FORMAT_GROUP | PERF_FORMAT_ID);
    attr.set_disabled(1);
    // Only a leader can be pinned, and its group with it.
    attr.set_pinned(u64::from(kind == EventKind::Hardware));
    attr
}

/// Returns the attribute of a CPU clock that leads a group which is never stopped as a whole: one read has all
/// counts. Under a leader of another PMU, as a gate's is, an event that is enabled starts at the thread's next slice
/// only (seen on Linux 6.18).
pub fn leader_attr() -> perf_event_attr {
    let mut attr = base(PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK));
    attr.read_format = u64::from(PERF_FORMAT_GROUP | PERF_FORMAT_ID);
    attr
}

/// Returns the attribute that all events of this crate begin with. Their records have the time of CLOCK_MONOTONIC: the kernel may read
/// it in an NMI, and this crate needs no system call for it. Events that share a ring must have one clock (`perf_event_set_output`).
pub(crate) fn base(type_: u32, config: u64) -> perf_event_attr {
    let size = size_of::<perf_event_attr>() as u32;
    let mut attr =
        perf_event_attr { type_, size, config, clockid: libc::CLOCK_MONOTONIC, ..perf_event_attr::default() };
    attr.set_use_clockid(1);
    attr
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    #[test]
    fn a_hardware_event_is_the_one_kvm_would_create() {
        let selector = |bits| PerfEvtSel::from_bits(bits).spec();
        let fixed = |index| Spec(Source::Fixed { index, control: 0xb });
        let hardware = |config| (PERF_TYPE_HARDWARE, u64::from(config));
        for (spec, event, period, excluded) in [
            // EN, INT and privilege are not part of the event.
            (selector(0x51_00c5), (PERF_TYPE_RAW, 0xc5), 1000, (0, 1)),
            (fixed(0), hardware(PERF_COUNT_HW_INSTRUCTIONS), 1000, (0, 0)),
            (fixed(1), hardware(PERF_COUNT_HW_CPU_CYCLES), 1000, (0, 0)),
            (fixed(2), hardware(PERF_COUNT_HW_REF_CPU_CYCLES), 1000, (0, 0)),
            (fixed(3), (PERF_TYPE_RAW, 0x0400), 1000, (0, 0)),
            // Edge, invert, mask and transactions are; with IN_TXCP it does not sample (pmc_reprogram_counter).
            (selector(0x1_01ff_ffff), (PERF_TYPE_RAW, 0x1_0184_ffff), 1000, (0, 0)),
            (selector(1 << 33 | 0x3c), (PERF_TYPE_RAW, 1 << 33 | 0x3c), 0, (1, 1)),
        ] {
            let attr = event_attr(EventKind::Hardware, spec, 1000);
            assert_eq!(
                ((attr.type_, attr.config), crate::sys::tests::sample_period(&attr)),
                (event, period),
                "{spec:?}"
            );
            assert_eq!((attr.exclude_user(), attr.exclude_kernel(), attr.exclude_hv()), (excluded.0, excluded.1, 0));
            let flags = (attr.pinned(), attr.exclude_idle(), attr.exclude_host(), attr.exclude_guest());
            assert_eq!((flags, attr.disabled(), attr.inherit()), ((1, 1, 1, 0), 0, 0), "{spec:?}");
            assert_eq!(attr.size as usize, size_of::<perf_event_attr>());
        }
    }
}
