//! Memory that the conformance payload shares with the VMM, beyond what every payload does.

use super::Words;

shared_constants! {
    /// Flag in [`BootPage::flags`](super::BootPage::flags), for the conformance payload: the PMU is version 4, else 2.
    FLAG_PMU_V4: u64 = 4;
    /// Flag in [`BootPage::flags`](super::BootPage::flags): the backend counts instructions and branches exactly.
    FLAG_COUNTS_EXACT: u64 = 8;
    /// Flag in [`BootPage::flags`](super::BootPage::flags): the event is the one that the guest asked for, with a few
    /// counts of slack at the exits.
    FLAG_COUNTS_EVENTS: u64 = 16;

    /// Flag in [`BootPage::flags`](super::BootPage::flags), for the conformance payload: the PMU is an AMD's.
    FLAG_PMU_AMD: u64 = 1024;
    /// Flag in [`BootPage::flags`](super::BootPage::flags): it has PerfMonV2.
    FLAG_PERFMON_V2: u64 = 2048;

    /// Expected in [`ConformanceReport::magic`]: "vPMUtap1".
    CONFORMANCE_MAGIC: u64 = 0x7650_4d55_7461_7031;
    /// [`ConformanceResult::outcome`]: the case holds. 0 is a case that never ran.
    CONFORMANCE_PASS: u64 = 1;
    /// [`ConformanceResult::outcome`]: it does not.
    CONFORMANCE_FAIL: u64 = 2;
    /// [`ConformanceResult::outcome`]: it cannot be decided here; `got` is the number of the reason in [`NEEDS`](crate::cases::NEEDS).
    CONFORMANCE_SKIP: u64 = 3;
    /// NOPs in the row in which each PMI is located.
    CONFORMANCE_NOPS: usize = 50;

    /// Room for results.
    CONFORMANCE_CASES: usize = 120;

    /// [`Step::what`](super::Step::what) has an operation, a comparison, a place (an MSR, or a word of [`CaseState`]) and flags.
    PLAY_OPERATION: u64 = 0xff << 32;
    /// Case `place` begins, with outcome `value`, and `think` why it is skipped.
    PLAY_CASE: u64 = 1 << 32;
    /// The place, without the bits of `think`, is compared with `value`.
    PLAY_READ: u64 = 2 << 32;
    /// The same, and [`CaseState::kept`] is what was read.
    PLAY_KEEP: u64 = 3 << 32;
    /// Reads as [`PLAY_READ`] does, until it holds or the time is over.
    PLAY_WAIT: u64 = 4 << 32;
    /// Waits likewise; [`CaseState::came`] says whether it holds.
    PLAY_TRY: u64 = 5 << 32;
    /// `value` is written to the place.
    PLAY_WRITE: u64 = 6 << 32;
    /// RDPMC of `place`.
    PLAY_RDPMC: u64 = 7 << 32;
    /// CPUID of leaf `place`, to [`CaseState::eax`] and the next ones.
    PLAY_CPUID: u64 = 8 << 32;
    /// The counted loop of `think` turns, between writes of `value` and 0 to the place.
    PLAY_LOOP: u64 = 9 << 32;
    /// The row of NOPs, likewise.
    PLAY_NOPS: u64 = 10 << 32;
    /// Halts until the PMI that the write of `value` to the place leads to.
    PLAY_HALT: u64 = 11 << 32;
    /// The next `think` steps are played at each of the next `place` PMIs, by their handler.
    PLAY_PMI: u64 = 12 << 32;
    /// Time for several overflows.
    PLAY_SPEND: u64 = 13 << 32;
    /// [`CaseState`] is 0, and the PMI handler has no orders.
    PLAY_FRESH: u64 = 14 << 32;
    /// Interrupts on.
    PLAY_STI: u64 = 15 << 32;
    /// Interrupts off.
    PLAY_CLI: u64 = 16 << 32;
    /// Interrupts on, and HLT.
    PLAY_HLT: u64 = 17 << 32;
    /// Counter 0 is started far from its overflow, and written 0 in time.
    PLAY_AWAY: u64 = 18 << 32;
    /// Counter 0 runs in ring 3 until its PMI.
    PLAY_RING3: u64 = 19 << 32;

    /// The comparison; without one everything holds.
    PLAY_COMPARISON: u64 = 7 << 40;
    /// Equal.
    PLAY_EQUAL: u64 = 1 << 40;
    /// Below `value`.
    PLAY_BELOW: u64 = 2 << 40;
    /// Above `value`.
    PLAY_ABOVE: u64 = 3 << 40;
    /// At most `value`.
    PLAY_AT_MOST: u64 = 4 << 40;
    /// At least `value`.
    PLAY_AT_LEAST: u64 = 5 << 40;
    /// Every bit of `value` is set.
    PLAY_HAS: u64 = 6 << 40;

    /// `think` periods that are soon over are added to `value`, which is a counter's.
    PLAY_NEAR: u64 = 1 << 43;
    /// `value` differs from [`CaseState::kept`] by these bits.
    PLAY_KEPT: u64 = 1 << 44;
    /// The access faults.
    PLAY_FAULTS: u64 = 1 << 45;
    /// The access does not fault.
    PLAY_TAKEN: u64 = 1 << 46;
    /// Bits from this one on say where the step begins in `cases.txt`, in bytes.
    PLAY_TEXT_SHIFT: u64 = 48;
    /// Places from here on are words of [`CaseState`].
    PLAY_STATE: u64 = 0xffff_0000;
}

shared_struct! {
    /// Words that the steps of a case can read and write beside MSRs.
    CaseState {
        /// PMIs that were handled.
        pmis: u64,
        /// Vector of the last one.
        pmi_vector: u64,
        /// NOPs of the row that were over.
        pmi_nops: u64,
        /// CS of what it interrupted.
        pmi_cs: u64,
        /// The status as the handler found it.
        pmi_status: u64,
        /// LVTPC as the handler found it.
        pmi_lvtpc: u64,
        /// GLOBAL_CTRL as the handler found it.
        pmi_ctrl: u64,
        /// Value that [`PLAY_KEEP`] read last.
        kept: u64,
        /// 1: what [`PLAY_TRY`] waited for came.
        came: u64,
        /// EAX of the last CPUID.
        eax: u64,
        /// EBX of the last CPUID.
        ebx: u64,
        /// ECX of the last CPUID.
        ecx: u64,
        /// EDX of the last CPUID.
        edx: u64,
    }
}

shared_struct! {
    /// Result of one conformance case.
    ConformanceResult {
        /// `CONFORMANCE_*`; 0 = it never ran.
        outcome: u64,
        /// Where the step that differed begins in `cases.txt`, in bytes.
        step: u64,
        /// Value that the architecture asks for.
        expected: u64,
        /// Value that was found; for a skipped case, the reason.
        got: u64,
    }
}

shared_struct! {
    /// The conformance payload's report, in the place of [`Report`](super::Report).
    ConformanceReport {
        /// [`CONFORMANCE_MAGIC`] once the payload has run.
        magic: u64,
        /// 1 once every step had its turn.
        complete: u64,
        /// The case that runs, + 1.
        running: u64,
        /// Vector of an unexpected exception + 1; 0 = none.
        fault_vector: u64,
        /// Its error code.
        fault_error: u64,
        /// Its RIP.
        fault_rip: u64,
        /// CR2 at that time.
        fault_cr2: u64,
        /// Results, by case number.
        results: ConformanceResult x CONFORMANCE_CASES,
    }
}
