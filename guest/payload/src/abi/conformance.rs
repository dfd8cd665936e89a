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

    /// Number of conformance cases, which are numbered in the payload's order.
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
