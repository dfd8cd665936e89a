//! The contract between the payload and the VMM.
//!
//! `build.rs` compiles this same file and writes `abi.h` from it, so the C side cannot drift. Every
//! field is a `u64` (or an array of them) in the guest's own byte order, so there is no padding and
//! each structure is plain old data on both sides.
//!
//! The VMM fills one [`BootPage`] per vCPU before the first instruction; the payload fills one
//! [`Report`] and a log of [`LogEntry`]. Whatever the guest writes is data to be distrusted.

/// A value that is nothing but `u64`s, one after the other.
#[allow(dead_code, reason = "the build script compiles this file for its definitions alone")]
pub trait Words: Sized {
    /// Number of its words.
    const COUNT: usize;

    /// Takes [`COUNT`](Self::COUNT) words from `next`.
    fn from_words(next: &mut impl FnMut() -> u64) -> Self;

    /// Hands out its words in order.
    fn for_each_word(&self, visit: &mut impl FnMut(u64));
}

impl Words for u64 {
    const COUNT: usize = 1;

    fn from_words(next: &mut impl FnMut() -> u64) -> Self {
        next()
    }

    fn for_each_word(&self, visit: &mut impl FnMut(u64)) {
        visit(*self);
    }
}

impl<T: Words, const N: usize> Words for [T; N] {
    const COUNT: usize = N * T::COUNT;

    fn from_words(next: &mut impl FnMut() -> u64) -> Self {
        core::array::from_fn(|_| T::from_words(next))
    }

    fn for_each_word(&self, visit: &mut impl FnMut(u64)) {
        for item in self {
            item.for_each_word(visit);
        }
    }
}

/// Defines a `repr(C)` structure of `u64`s and the same structure in C.
/// A field is `name: Type` or `name: Type x COUNT`.
macro_rules! shared_struct {
    (@rust $ty:ident) => { $ty };
    (@rust $ty:ident $n:ident) => { [$ty; $n] };
    ($(#[$meta:meta])* $name:ident { $( $(#[$fmeta:meta])* $field:ident : $ty:ident $(x $n:ident)? ),+ $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$fmeta])* pub $field: shared_struct!(@rust $ty $($n)?), )+ }

        // Arrays of more than 32 items have no `Default` to derive from.
        impl Default for $name {
            fn default() -> Self {
                Self::from_words(&mut || 0)
            }
        }

        impl Words for $name {
            const COUNT: usize = 0 $( + <shared_struct!(@rust $ty $($n)?)>::COUNT )+;

            fn from_words(next: &mut impl FnMut() -> u64) -> Self {
                Self { $( $field: Words::from_words(next), )+ }
            }

            fn for_each_word(&self, visit: &mut impl FnMut(u64)) {
                $( self.$field.for_each_word(visit); )+
            }
        }

        impl $name {
            /// Definition of the structure as C source.
            pub const C_DEFINITION: &'static str = concat!(
                "struct ", stringify!($name), " {\n",
                $( "    ", stringify!($ty), " ", stringify!($field), $( "[", stringify!($n), "]", )? ";\n", )+
                "};\n",
            );
            /// Name and offset of every field, in order, for the C side's assertions.
            pub const OFFSETS: &'static [(&'static str, usize)] =
                &[ $( (stringify!($field), core::mem::offset_of!($name, $field)), )+ ];
        }
    };
}

/// Defines constants and the table from which `abi.h` gets them.
macro_rules! shared_constants {
    ($( $(#[$meta:meta])* $name:ident : $ty:ty = $value:expr ; )+) => {
        $( $(#[$meta])* pub const $name: $ty = $value; )+
        /// Name and value of every constant that the payload shares.
        pub const CONSTANTS: &[(&str, u64)] = &[ $( (stringify!($name), $name as u64), )+ ];
    };
}

// Named, here and below, because the build script compiles this file from elsewhere.
#[path = "abi/conformance.rs"]
pub mod conformance;
pub use conformance::*;

shared_constants! {
    /// Expected in [`BootPage::magic`] and [`Report::magic`]: "vPMUlab1".
    MAGIC: u64 = 0x7650_4d55_6c61_6231;
    /// Revision of this contract.
    VERSION: u64 = 1;

    /// Byte-wide debug console of the payload.
    PORT_CONSOLE: u16 = 0xe9;
    /// 32-bit doorbell; the value is one of the `DB_*` codes.
    PORT_DOORBELL: u16 = 0x5b0;
    /// Byte-wide port the `io` workload writes to; the VMM ignores the value.
    PORT_WORKLOAD: u16 = 0x5b8;

    /// Doorbell: the payload's first instruction.
    DB_BOOTED: u32 = 1;
    /// Doorbell: a TSC exchange (the VMM takes its own TSC; the guest took one before and takes one after).
    DB_SYNC: u32 = 2;
    /// Doorbell: the measured phase begins.
    DB_MEASURE_BEGIN: u32 = 3;
    /// Doorbell: the measured phase, or one turn of it, is over and every counter is off.
    DB_MEASURE_END: u32 = 4;
    /// Doorbell: one tick of the tail (counters off, vCPU halted between ticks).
    DB_TAIL_TICK: u32 = 5;
    /// Doorbell: this vCPU is done; its report and log are final.
    DB_DONE: u32 = 6;
    /// Doorbell: the payload met a fault it did not ask for; see [`Report::fault_vector`].
    DB_FAILED: u32 = 7;
    /// Doorbell, with [`FLAG_TURNS`]: this vCPU's turn is over, its report and log are final for it; counters and timer
    /// are off. The VMM answers when the next turn begins, with the report's figures at 0 and a new
    /// [`BootPage::sample_target`].
    DB_TURN_OVER: u32 = 8;
    /// Doorbell, plus one of `PHASE_*`: that phase of a set-up begins ([`PHASE_NONE`]: none is under way).
    DB_PHASE: u32 = 16;

    /// Workload: the branchy CPU-bound loop `ftest`, in ring 3.
    WORKLOAD_FTEST: u64 = 0;
    /// Workload: a byte written to [`PORT_WORKLOAD`] between short bursts of work, in ring 3.
    WORKLOAD_IO: u64 = 1;
    /// Workload: HLT in ring 0.
    WORKLOAD_IDLE: u64 = 2;

    /// Flag in [`BootPage::flags`]: stop and restart all events at each tick, as a task switch does to `perf record`'s events.
    FLAG_TASK_SWITCH: u64 = 1;

    /// Flag in [`BootPage::flags`]: the events are not left alone once they count, but set up and torn down again and
    /// again, as by one `perf stat` after the other. [`BootPage::sample_target`] then is in cycles.
    FLAG_STAT_SETUP: u64 = 32;
    /// Flag in [`BootPage::flags`]: a set-up enables all its events by one re-scheduling, as enable_on_exec does for
    /// `perf stat COMMAND`, in place of one each, as `perf stat -a` does.
    FLAG_ENABLE_ONCE: u64 = 64;

    /// Flag in [`BootPage::flags`]: each tick of the measured phase ends with a loop of [`LOOP_INSTRUCTIONS`]
    /// instructions in ring 0 that do not exit, and times it ([`Report::loop_ticks`]).
    FLAG_TIME_LOOP: u64 = 256;
    /// Instructions between the two TSC reads of that loop, the second one included.
    LOOP_INSTRUCTIONS: u64 = 260;

    /// Flag in [`BootPage::flags`]: the measured phase is a sequence of turns; each ends as the phase does
    /// ([`DB_TURN_OVER`]), and one of no length is before the first. The VMM clears it to end the phase. Not with
    /// [`FLAG_STAT_SETUP`].
    FLAG_TURNS: u64 = 128;

    /// Flag in [`BootPage::flags`]: the measured phase plays [`BootPage::steps`] back, round and round, in place of a driver of its
    /// own. With [`FLAG_TURNS`] a turn goes on where the last one ended.
    FLAG_REPLAY: u64 = 512;

    /// [`Step::what`]: WRMSR of the MSR in the low half; without it RDMSR.
    STEP_WRITE: u64 = 1 << 32;
    /// [`Step::what`]: a PMI is due; what follows, up to [`STEP_LAST`], is its handler's.
    STEP_PMI: u64 = 1 << 33;
    /// [`Step::what`]: the last step of a handler.
    STEP_LAST: u64 = 1 << 40;
    /// [`Step::what`]: a read of a counter, which is this run's own.
    STEP_COUNTER: u64 = 1 << 41;
    /// [`Step::what`]: a write by which counters may run, to be undone between two turns.
    STEP_ENABLE: u64 = 1 << 42;
    /// Registers with such writes, at most.
    MAX_ENABLES: usize = 16;
    /// Longest wait for a PMI beyond its time, µs.
    PMI_WAIT_US: u64 = 20_000;

    /// vCPUs the payload has room for; [`BootPage::cpu`] is below it.
    MAX_VCPUS: usize = 64;
    /// General-purpose counters the driver can use at most.
    MAX_GP_COUNTERS: u64 = 8;
    /// Fixed counters the driver can use at most.
    MAX_FIXED_COUNTERS: u64 = 4;
    /// Kinds of values that a replay reads: counters', others.
    READS: usize = 2;
    /// Capacity of [`BootPage::events`].
    MAX_EVENTS: usize = 64;
    /// Number of TSC exchanges at boot.
    SYNC_ROUNDS: usize = 16;

    /// [`LogEntry::kind`]: one run of the NMI handler.
    LOG_NMI: u64 = 1;
    /// [`LogEntry::kind`]: one rotation of multiplexed events, or one task switch.
    LOG_ROTATION: u64 = 2;
    /// [`LogEntry::kind`], plus one of `PHASE_*`: one call of that phase, the events in order. [`LogEntry::status`] then is
    /// cycle × [`CALLS`] + number of the call.
    LOG_PHASE: u64 = 16;
    /// See [`LOG_PHASE`]; more than a phase has calls.
    CALLS: u64 = 256;

    /// No phase of a set-up: the guest works, or its driver is idle.
    PHASE_NONE: u64 = 0;
    /// Each event gets a counter, if one is left, whose selector is written without EN and whose value is preset.
    PHASE_PROGRAM: u64 = 1;
    /// Each event is enabled: running ones are stopped and started again with it.
    PHASE_ENABLE: u64 = 2;
    /// Each event is read while it counts.
    PHASE_READ: u64 = 3;
    /// Each event is disabled.
    PHASE_DISABLE: u64 = 4;
    /// Rotation of multiplexed events while they count.
    PHASE_ROTATE: u64 = 5;
    /// Phases, [`PHASE_NONE`] included.
    PHASES: usize = 6;

    /// First vector of the payload's own interrupts: the LAPIC timer.
    VECTOR_TIMER: u64 = 32;
    /// Vector of a PMI in fixed delivery mode.
    VECTOR_PMI: u64 = 33;
    /// Spurious-interrupt vector.
    VECTOR_SPURIOUS: u64 = 47;
    /// Entries of the payload's symbol `isr_table`: handler addresses of vectors 0..ISR_COUNT.
    ISR_COUNT: usize = 48;
    /// Stands in [`Report::fault_vector`] (less 1) for a boot page the payload cannot work with.
    FAULT_BOOT_PAGE: u64 = 256;
}

shared_struct! {
    /// One event the guest's PMU driver counts or samples.
    EventSpec {
        /// IA32_PERFEVTSELx without EN: event, umask, USR, OS, INT … On a fixed counter only USR, OS and INT are used.
        selector: u64,
        /// 0: any general-purpose counter. n + 1: fixed counter n; where that one is taken or absent, a general-purpose counter if
        /// the selector's event field is not 0. (Linux's constraints: ref-cycles has no encoding but umask 3 with event 0.)
        fixed: u64,
        /// Events between two overflows (the first period, in frequency mode); 0: counting, with the longest period
        /// that can be written.
        period: u64,
    }
}

shared_struct! {
    /// Parameters that the VMM writes for each vCPU; GS base and RDI point to it at entry.
    BootPage {
        /// The address of this page, so that `mov %gs:0` yields it.
        self_addr: u64,
        /// Always [`MAGIC`].
        magic: u64,
        /// Always [`VERSION`].
        version: u64,
        /// Index of this vCPU.
        cpu: u64,
        /// Number of vCPUs.
        cpus: u64,
        /// Address of this vCPU's [`Report`].
        report_addr: u64,
        /// Address of this vCPU's log.
        log_addr: u64,
        /// Log entries that fit.
        log_capacity: u64,
        /// Address of this vCPU's [`UserPage`].
        user_addr: u64,
        /// Initial stack pointer of ring 3.
        user_stack: u64,
        /// One of `WORKLOAD_*`.
        workload: u64,
        /// `FLAG_*` bits.
        flags: u64,
        /// General-purpose counters to use.
        gp_counters: u64,
        /// Fixed counters to use.
        fixed_counters: u64,
        /// LAPIC timer count (divide by 1) of one tick: the multiplex interval.
        tick_count: u64,
        /// Ticks of workload without any counter, from the first tick to the measured phase.
        baseline_ticks: u64,
        /// The measured phase ends after this many ticks at the latest.
        max_ticks: u64,
        /// Ticks of halting with all counters off, after the measured phase.
        tail_ticks: u64,
        /// The measured phase ends after this many log entries (written or dropped) of the kind that is measured: NMIs when an
        /// event has a period, else rotations. 0: it ends by `max_ticks` only.
        sample_target: u64,
        /// Ticks from enabling events to reading them, with [`FLAG_STAT_SETUP`]; a rotation at each but the last.
        window_ticks: u64,
        /// Ticks from disabling them to the next set-up, with [`FLAG_STAT_SETUP`].
        gap_ticks: u64,
        /// Time limit of the measured phase, µs, with [`FLAG_STAT_SETUP`] in place of `max_ticks`: no set-up begins
        /// after it. It is also the time that the conformance payload waits for an overflow.
        limit_us: u64,
        /// Sampling frequency in Hz per event, 0 = fixed period.
        freq_hz: u64,
        /// The vCPU's TSC frequency.
        tsc_hz: u64,
        /// Address of the [`Step`]s, with [`FLAG_REPLAY`] or of the conformance payload.
        steps: u64,
        /// Number of them.
        step_count: u64,
        /// Used entries of `events`.
        event_count: u64,
        /// The events.
        events: EventSpec x MAX_EVENTS,
    }
}

shared_struct! {
    /// A step of a guest that is played back, with [`FLAG_REPLAY`]; or one of the conformance cases, which have no times.
    Step {
        /// `STEP_*` and an MSR; or `PLAY_*` and a place.
        what: u64,
        /// The value to write, or that was read; or what is written or compared.
        value: u64,
        /// TSC ticks from the step before it to this one; or, by the operation, why the case is skipped, the bits that are not
        /// compared, the turns of the loop, the number of the handler's steps, or the periods of `PLAY_NEAR`.
        think: u64,
    }
}

shared_struct! {
    /// The page ring 3 may write.
    UserPage {
        /// Units of work done (`idle`: wake-ups); only ever grows.
        units: u64,
        /// Keeps the compiler from dropping the work.
        checksum: u64,
    }
}

shared_struct! {
    /// The payload's report of its run.
    Report {
        /// [`MAGIC`] once the payload has run.
        magic: u64,
        /// NMI handler runs.
        nmis: u64,
        /// NMIs with GLOBAL_STATUS = 0 on the first read.
        nmis_without_status: u64,
        /// Entries written to the log.
        logged: u64,
        /// Entries that did not fit.
        dropped: u64,
        /// LAPIC timer ticks.
        ticks: u64,
        /// Rotations and task switches.
        rotations: u64,
        /// Finished cycles of set-up and tear-down.
        cycles: u64,
        /// TSC at the begin and at the end of the baseline.
        baseline_begin: u64,
        /// See `baseline_begin`.
        baseline_end: u64,
        /// Units of work done in the baseline.
        baseline_units: u64,
        /// TSC at the begin of the measured phase.
        measure_begin: u64,
        /// TSC at the end of the measured phase.
        measure_end: u64,
        /// Units of work done in the measured phase.
        measure_units: u64,
        /// Completed TSC exchanges.
        syncs: u64,
        /// TSC before each exchange.
        sync_before: u64 x SYNC_ROUNDS,
        /// TSC after each exchange.
        sync_after: u64 x SYNC_ROUNDS,
        /// Per event: overflows the driver saw.
        overflows: u64 x MAX_EVENTS,
        /// Per event: the sum of counts.
        counts: u64 x MAX_EVENTS,
        /// Per event: TSC ticks it was wanted; 0 if the vPMU has no counter that could count it.
        enabled: u64 x MAX_EVENTS,
        /// Per event: TSC ticks it was on a counter.
        running: u64 x MAX_EVENTS,
        /// Per event: the period last used (frequency mode moves it).
        periods: u64 x MAX_EVENTS,
        /// Vector of an unexpected exception + 1; 0 = none.
        fault_vector: u64,
        /// Its error code.
        fault_error: u64,
        /// Its RIP.
        fault_rip: u64,
        /// CR2 at that time.
        fault_cr2: u64,
        /// Timed loops that no NMI interrupted, with [`FLAG_TIME_LOOP`].
        loops: u64,
        /// Their TSC ticks.
        loop_ticks: u64,
        /// Accesses played back.
        played: u64,
        /// PMIs that did not come in time.
        absent: u64,
        /// Values read otherwise than the steps have them: of counters, of other registers.
        otherwise: u64 x READS,
    }
}

shared_struct! {
    /// One line of the log.
    LogEntry {
        /// `LOG_NMI`, `LOG_ROTATION`, or `LOG_PHASE` + `PHASE_*`.
        kind: u64,
        /// TSC at the handler's first instructions, or the call's.
        tsc_entry: u64,
        /// TSC when the handler's or the call's work was done, before this entry was written.
        tsc_exit: u64,
        /// GLOBAL_STATUS as first read; for calls see [`LOG_PHASE`].
        status: u64,
        /// The interrupted RIP.
        rip: u64,
        /// Bit i: counter i (32 + n: fixed n) was re-armed. 0 in an NMI that met the driver with its counters off: it only
        /// acknowledges, and the driver re-arms when it restarts the events.
        rearmed: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_structure_in_memory_order() {
        let mut next = 0;
        let page = BootPage::from_words(&mut || {
            next += 1;
            next
        });
        assert_eq!(next as usize, BootPage::COUNT);
        assert_eq!(BootPage::COUNT * 8, size_of::<BootPage>());
        assert_eq!((page.self_addr, page.magic, page.events[1].selector), (1, 2, page.event_count + 4));
        let mut last = 0;
        page.for_each_word(&mut |word| {
            last += 1;
            assert_eq!(word, last);
        });
        assert_eq!(last, next);
    }

    const PAGE: usize = 4096;

    #[test]
    fn each_structure_fits_its_page() {
        for size in [size_of::<BootPage>(), size_of::<UserPage>(), size_of::<Report>(), size_of::<ConformanceReport>()]
        {
            assert!(size <= PAGE, "{size}");
        }
    }

    #[test]
    fn structures_have_no_padding() {
        let last = |offsets: &[(&str, usize)]| offsets.last().map(|(_, offset)| *offset);
        assert_eq!(last(BootPage::OFFSETS), Some(size_of::<BootPage>() - MAX_EVENTS * size_of::<EventSpec>()));
        assert_eq!(last(Report::OFFSETS), Some(size_of::<Report>() - 8 * READS));
        assert_eq!(LogEntry::OFFSETS.len() * 8, size_of::<LogEntry>(), "one word per field");
    }

    #[test]
    fn doorbells_and_vectors_are_distinct() {
        for prefix in ["DB_", "VECTOR_", "WORKLOAD_", "FLAG_", "PORT_", "LOG_", "PHASE_", "STEP_", "PLAY_"] {
            let mut of_prefix =
                CONSTANTS.iter().chain(conformance::CONSTANTS).filter(|(name, _)| name.starts_with(prefix));
            while let Some((name, value)) = of_prefix.next() {
                assert!(of_prefix.clone().all(|(_, other)| other != value), "{name}");
            }
        }
        assert!(VECTOR_SPURIOUS < ISR_COUNT as u64);
    }

    /// A doorbell, a log line and a call's number say what they mean for every phase and every event.
    #[test]
    fn phases_have_doorbells_and_log_lines_of_their_own() {
        let phases = [PHASE_NONE, PHASE_PROGRAM, PHASE_ENABLE, PHASE_READ, PHASE_DISABLE, PHASE_ROTATE];
        assert_eq!(phases, core::array::from_fn::<u64, PHASES, _>(|n| n as u64), "dense");
        assert!(u64::from(DB_FAILED) < u64::from(DB_PHASE) && LOG_ROTATION < LOG_PHASE);
        assert!((MAX_EVENTS as u64) < CALLS);
        assert!(conformance::CONSTANTS.iter().all(|(name, _)| CONSTANTS.iter().all(|(other, _)| name != other)));
    }
}
