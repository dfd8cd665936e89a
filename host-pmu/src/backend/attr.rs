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

/// umask << 8 | event code of TOPDOWN.SLOTS, a pseudo-encoding as the kernel has one for each fixed counter.
const SLOTS: u64 = 0x0400;

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
    let (type_, config) = match kind {
        EventKind::Hardware => hardware_config(spec),
        EventKind::CpuClock => (PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
        EventKind::Tracepoint(id) => (PERF_TYPE_TRACEPOINT, id),
    };
    let mut attr = base(type_, config);
    if spec.samples() {
        attr.__bindgen_anon_1.sample_period = period;
    }
    // Each record in the monitor's ring carries the event's id, the time and the event's count.
    attr.sample_type = u64::from(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME | PERF_SAMPLE_READ);
    use_monotonic(&mut attr);
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

/// Returns the attribute of an event that counts nothing and writes a record whenever the thread is switched out or in.
pub fn switches_attr() -> perf_event_attr {
    let mut attr = monitor_attr();
    attr.set_context_switch(1);
    attr
}

/// Returns the attribute of an event that counts nothing; its ring takes the records of others.
pub fn monitor_attr() -> perf_event_attr {
    let mut attr = base(PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_DUMMY));
    attr.sample_type = u64::from(PERF_SAMPLE_IDENTIFIER);
    // Events that share a ring share a clock (`perf_event_set_output`).
    use_monotonic(&mut attr);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// Returns the attribute of an event that samples a thread, disabled at first. Fields of its records and its period are
/// the caller's.
pub fn sampling_attr(type_: u32, config: u64) -> perf_event_attr {
    let mut attr = base(type_, config);
    use_monotonic(&mut attr);
    attr.__bindgen_anon_2.wakeup_events = 1;
    attr.set_disabled(1);
    attr
}

/// Returns the attribute of a gate: it counts nothing and leads a group of events of `kind`, which stop and start with it.
pub fn gate_attr(kind: EventKind) -> perf_event_attr {
    let mut attr = monitor_attr();
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
    use_monotonic(&mut attr);
    attr
}

/// Makes the times of records CLOCK_MONOTONIC, which both sides read without a system call; the kernel's read of it is
/// safe in an NMI.
fn use_monotonic(attr: &mut perf_event_attr) {
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
}

fn base(type_: u32, config: u64) -> perf_event_attr {
    perf_event_attr { type_, size: size_of::<perf_event_attr>() as u32, config, ..perf_event_attr::default() }
}

fn hardware_config(spec: Spec) -> (u32, u64) {
    match spec.0 {
        Source::Fixed { index: 0, .. } => (PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_INSTRUCTIONS)),
        Source::Fixed { index: 1, .. } => (PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_CPU_CYCLES)),
        Source::Fixed { index: 2, .. } => (PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_REF_CPU_CYCLES)),
        // Event 0, umask 4: the kernel's encoding of TOPDOWN.SLOTS, which only fixed counter 3 counts (SDM vol. 3, 21.3.9.3).
        Source::Fixed { .. } => (PERF_TYPE_RAW, SLOTS),
        Source::Selector(_) => (PERF_TYPE_RAW, spec.raw_config().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    const BRANCH_MISSES_USER: Spec = PerfEvtSel::from_bits(0x51_00c5).spec(); // EN | INT | USR
    const CYCLES_FIXED: Spec = Spec(Source::Fixed { index: 1, control: 0xb }); // PMI | USR | OS

    fn period(attr: &perf_event_attr) -> u64 {
        crate::sys::sample_period(attr)
    }

    #[test]
    fn a_hardware_event_is_the_one_kvm_would_create() {
        let attr = event_attr(EventKind::Hardware, BRANCH_MISSES_USER, 1_000);
        assert_eq!((attr.type_, attr.config), (PERF_TYPE_RAW, 0xc5), "EN, INT and privilege are not part of the event");
        assert_eq!(period(&attr), 1_000);
        assert_eq!(attr.size as usize, size_of::<perf_event_attr>());
        let flags = (attr.pinned(), attr.exclude_idle(), attr.exclude_host(), attr.exclude_guest(), attr.disabled());
        assert_eq!(flags, (1, 1, 1, 0, 0));
        assert_eq!((attr.exclude_user(), attr.exclude_kernel(), attr.exclude_hv(), attr.inherit()), (0, 1, 0, 0));
    }

    #[test]
    fn fixed_counters_ask_for_the_kernels_generic_events() {
        let configs: Vec<_> = (0..4)
            .map(|index| {
                let attr = event_attr(EventKind::Hardware, Spec(Source::Fixed { index, control: 1 }), 5);
                (attr.type_, attr.config)
            })
            .collect();
        let hardware = |config| (PERF_TYPE_HARDWARE, u64::from(config));
        assert_eq!(
            configs,
            [
                hardware(PERF_COUNT_HW_INSTRUCTIONS),
                hardware(PERF_COUNT_HW_CPU_CYCLES),
                hardware(PERF_COUNT_HW_REF_CPU_CYCLES),
                (PERF_TYPE_RAW, 0x0400),
            ]
        );
        let both_rings = event_attr(EventKind::Hardware, CYCLES_FIXED, 5);
        assert_eq!((both_rings.exclude_user(), both_rings.exclude_kernel()), (0, 0));
    }

    #[test]
    fn the_raw_event_keeps_edge_invert_mask_and_transactions() {
        let selector = 0x3_01ff_ffff;
        let attr = event_attr(EventKind::Hardware, PerfEvtSel::from_bits(selector).spec(), 5);
        assert_eq!(attr.config, 0x3_0184_ffff);
    }

    #[test]
    fn an_in_txcp_event_does_not_sample() {
        let attr = event_attr(EventKind::Hardware, PerfEvtSel::from_bits(1 << 33 | 0x3c).spec(), 1_000);
        assert_eq!((period(&attr), attr.config), (0, 1 << 33 | 0x3c), "as KVM opens it (pmc_reprogram_counter)");
    }
}
