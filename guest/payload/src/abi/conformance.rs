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

    /// Expected in [`ConformanceReport::magic`]: "vPMUtap1".
    CONFORMANCE_MAGIC: u64 = 0x7650_4d55_7461_7031;
    /// [`ConformanceResult::outcome`]: the case holds. 0 is a case that never ran.
    CONFORMANCE_PASS: u64 = 1;
    /// [`ConformanceResult::outcome`]: it does not.
    CONFORMANCE_FAIL: u64 = 2;
    /// [`ConformanceResult::outcome`]: it cannot be decided here; `got` is one of `SKIP_*`.
    CONFORMANCE_SKIP: u64 = 3;
    /// Skipped: the event is a stand-in.
    SKIP_STAND_IN: u64 = 1;
    /// Skipped: only counts that are exact to the instruction can show it.
    SKIP_NEEDS_STEP: u64 = 2;
    /// Skipped: single-stepping knows no cycles.
    SKIP_STEP_CYCLES: u64 = 3;
    /// Skipped: only a version 4 PMU has it.
    SKIP_NEEDS_V4: u64 = 5;
    /// Skipped: only versions below 4 have it.
    SKIP_NEEDS_V2: u64 = 6;
    /// Skipped: only PerfMonV2 has it.
    SKIP_NEEDS_PERFMON_V2: u64 = 7;
    /// Skipped: PerfMonV2 has it.
    SKIP_NEEDS_CORE: u64 = 8;
    /// NOPs in the row in which each PMI is located.
    CONFORMANCE_NOPS: usize = 50;

    /// Conformance case: see the table of the tool.
    CASE_RESET: usize = 0;
    /// Conformance case: see the table of the tool.
    CASE_CPUID: usize = 1;
    /// Conformance case: see the table of the tool.
    CASE_PERF_CAPABILITIES: usize = 2;
    /// Conformance case: see the table of the tool.
    CASE_ABSENT_COUNTERS: usize = 3;
    /// Conformance case: see the table of the tool.
    CASE_ABSENT_DEBUG_STORE: usize = 4;
    /// Conformance case: see the table of the tool.
    CASE_SELECTOR_BITS: usize = 5;
    /// Conformance case: see the table of the tool.
    CASE_SELECTOR_ANY: usize = 6;
    /// Conformance case: see the table of the tool.
    CASE_SELECTOR_RESERVED: usize = 7;
    /// Conformance case: see the table of the tool.
    CASE_SELECTOR_TRANSACTIONS: usize = 8;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_CTRL_BITS: usize = 9;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_CTRL_ANY: usize = 10;
    /// Conformance case: see the table of the tool.
    CASE_GLOBAL_CTRL_BITS: usize = 11;
    /// Conformance case: see the table of the tool.
    CASE_STATUS_READ_ONLY: usize = 12;
    /// Conformance case: see the table of the tool.
    CASE_OVF_CTRL: usize = 13;
    /// Conformance case: see the table of the tool.
    CASE_V4_REGISTERS_ABSENT: usize = 14;
    /// Conformance case: see the table of the tool.
    CASE_V4_STATUS_SET: usize = 15;
    /// Conformance case: see the table of the tool.
    CASE_V4_INUSE: usize = 16;
    /// Conformance case: see the table of the tool.
    CASE_COUNTER_SIGN_EXTENSION: usize = 17;
    /// Conformance case: see the table of the tool.
    CASE_COUNTER_UPPER_HALF: usize = 18;
    /// Conformance case: see the table of the tool.
    CASE_FULL_WIDTH: usize = 19;
    /// Conformance case: see the table of the tool.
    CASE_FULL_WIDTH_RESERVED: usize = 20;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_WIDTH: usize = 21;
    /// Conformance case: see the table of the tool.
    CASE_DEBUGCTL: usize = 22;
    /// Conformance case: see the table of the tool.
    CASE_RDPMC: usize = 23;
    /// Conformance case: see the table of the tool.
    CASE_OWN_ENABLE: usize = 24;
    /// Conformance case: see the table of the tool.
    CASE_GLOBAL_ENABLE: usize = 25;
    /// Conformance case: see the table of the tool.
    CASE_GROWTH: usize = 26;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_INSTRUCTIONS: usize = 27;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_CYCLES: usize = 28;
    /// Conformance case: see the table of the tool.
    CASE_PAUSE_BY_OWN_ENABLE: usize = 29;
    /// Conformance case: see the table of the tool.
    CASE_PAUSE_BY_GLOBAL: usize = 30;
    /// Conformance case: see the table of the tool.
    CASE_PAUSE_FIXED: usize = 31;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_NIBBLES: usize = 32;
    /// Conformance case: see the table of the tool.
    CASE_UNCHANGED_WRITES: usize = 33;
    /// Conformance case: see the table of the tool.
    CASE_WRITE_WHILE_OFF: usize = 34;
    /// Conformance case: see the table of the tool.
    CASE_WRITE_WHILE_RUNNING: usize = 35;
    /// Conformance case: see the table of the tool.
    CASE_SELECTOR_CHANGE: usize = 36;
    /// Conformance case: see the table of the tool.
    CASE_ALIASES: usize = 37;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_INSTRUCTIONS: usize = 38;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_FIXED: usize = 39;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_BRANCHES: usize = 40;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_TAKEN_BRANCHES: usize = 41;
    /// Conformance case: see the table of the tool.
    CASE_COUNTERS_AGREE: usize = 42;
    /// Conformance case: see the table of the tool.
    CASE_WINDOWS_ADD_UP: usize = 43;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_RINGS: usize = 44;
    /// Conformance case: see the table of the tool.
    CASE_COUNT_FIXED_RINGS: usize = 45;
    /// Conformance case: see the table of the tool.
    CASE_OVERFLOW_WITHOUT_INT: usize = 46;
    /// Conformance case: see the table of the tool.
    CASE_OVERFLOW_WITH_INT: usize = 47;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_WITHOUT_PMI: usize = 48;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_WITH_PMI: usize = 49;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_CYCLES_PMI: usize = 50;
    /// Conformance case: see the table of the tool.
    CASE_ZERO_HAS_ITS_WIDTH: usize = 51;
    /// Conformance case: see the table of the tool.
    CASE_LEGACY_PRESET: usize = 52;
    /// Conformance case: see the table of the tool.
    CASE_OVF_CTRL_CLEARS: usize = 53;
    /// Conformance case: see the table of the tool.
    CASE_STATUS_IS_STICKY: usize = 54;
    /// Conformance case: see the table of the tool.
    CASE_WRITE_MOVES_NEAR: usize = 55;
    /// Conformance case: see the table of the tool.
    CASE_WRITE_MOVES_AWAY: usize = 56;
    /// Conformance case: see the table of the tool.
    CASE_GATING_DELAYS: usize = 57;
    /// Conformance case: see the table of the tool.
    CASE_ONE_OVERFLOW_ONE_PMI: usize = 58;
    /// Conformance case: see the table of the tool.
    CASE_SAMPLING: usize = 59;
    /// Conformance case: see the table of the tool.
    CASE_TOGETHER: usize = 60;
    /// Conformance case: see the table of the tool.
    CASE_CLEARED_SELECTOR: usize = 61;
    /// Conformance case: see the table of the tool.
    CASE_PRESET_IS_EXACT: usize = 62;
    /// Conformance case: see the table of the tool.
    CASE_PRESET_ONE_LESS: usize = 63;
    /// Conformance case: see the table of the tool.
    CASE_PMI_IS_EXACT: usize = 64;
    /// Conformance case: see the table of the tool.
    CASE_BRANCH_OVERFLOW_IS_EXACT: usize = 65;
    /// Conformance case: see the table of the tool.
    CASE_MASKED_ON_DELIVERY: usize = 66;
    /// Conformance case: see the table of the tool.
    CASE_MASKED_STATUS_ALONE: usize = 67;
    /// Conformance case: see the table of the tool.
    CASE_UNMASKED_AGAIN: usize = 68;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_VECTOR: usize = 69;
    /// Conformance case: see the table of the tool.
    CASE_FIXED_VECTOR_WAITS: usize = 70;
    /// Conformance case: see the table of the tool.
    CASE_PENDING_WAKES_HLT: usize = 71;
    /// Conformance case: see the table of the tool.
    CASE_HLT_IS_WOKEN: usize = 72;
    /// Conformance case: see the table of the tool.
    CASE_INTERRUPTS_RING3: usize = 73;
    /// Conformance case: see the table of the tool.
    CASE_NO_FREEZE_UNASKED: usize = 74;
    /// Conformance case: see the table of the tool.
    CASE_V2_FREEZE: usize = 75;
    /// Conformance case: see the table of the tool.
    CASE_V4_FREEZE: usize = 76;
    /// Conformance case: see the table of the tool.
    CASE_V4_FREEZE_LBRS: usize = 77;
    /// Conformance case: see the table of the tool.
    CASE_V4_FROZEN_BY_SOFTWARE: usize = 78;
    /// Conformance case: see the table of the tool.
    CASE_NO_PMI_NO_FREEZE: usize = 79;
    /// Conformance case: see the table of the tool.
    CASE_MISC_ENABLE: usize = 80;
    /// Conformance case: see the table of the tool.
    CASE_APIC_OFF: usize = 81;
    /// Conformance case: see the table of the tool.
    CASE_LATE_UNMASK: usize = 82;
    /// Conformance case: see the table of the tool.
    CASE_LATE_UNMASK_ACKNOWLEDGED: usize = 83;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_RESET: usize = 84;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_CPUID: usize = 85;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_ABSENT_COUNTERS: usize = 86;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_SELECTOR_BITS: usize = 87;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_COUNTER_WIDTH: usize = 88;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_ALIASES: usize = 89;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_GLOBAL_ABSENT: usize = 90;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_GLOBAL_CTL_BITS: usize = 91;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_STATUS_READ_ONLY: usize = 92;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_STATUS_SET_CLR: usize = 93;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_RDPMC: usize = 94;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_OWN_ENABLE: usize = 95;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_GLOBAL_ENABLE: usize = 96;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_GROWTH: usize = 97;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_PAUSE: usize = 98;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_WRITE_WHILE_RUNNING: usize = 99;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_SELECT_12_BITS: usize = 100;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_GUEST_HOST_ONLY: usize = 101;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_COUNT_INSTRUCTIONS: usize = 102;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_COUNT_BRANCHES: usize = 103;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_COUNT_RINGS: usize = 104;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_WITHOUT_INT: usize = 105;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_WITH_INT: usize = 106;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_ZERO_HAS_ITS_WIDTH: usize = 107;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_WRITE_MOVES: usize = 108;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_STATUS_IS_STICKY: usize = 109;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_SAMPLING: usize = 110;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_TOGETHER: usize = 111;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_PRESET_IS_EXACT: usize = 112;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_PMI_IS_EXACT: usize = 113;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_NOT_MASKED: usize = 114;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_NEXT_WITHOUT_UNMASK: usize = 115;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_MASKED: usize = 116;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_FIXED_VECTOR: usize = 117;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_HLT_IS_WOKEN: usize = 118;
    /// Conformance case of an AMD: see the table of the tool.
    CASE_AMD_NOT_FROZEN: usize = 119;
    /// Number of conformance cases; their numbers are dense.
    CONFORMANCE_CASES: usize = 120;
    /// Number of the first case of an AMD's PMU; those below are of an Intel's.
    AMD_CASES_FROM: usize = 84;
}

shared_struct! {
    /// Result of one conformance case.
    ConformanceResult {
        /// `CONFORMANCE_*`; 0 = it never ran.
        outcome: u64,
        /// Line of the payload's source that differed.
        line: u64,
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
        /// 1 once every case had its turn.
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
