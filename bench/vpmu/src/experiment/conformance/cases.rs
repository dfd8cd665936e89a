//! The cases, by the number the payload gives them.

/// A case of the conformance payload.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its stable name.
    pub key: &'static str,
    /// Statement that holds if the case passes.
    pub claim: &'static str,
    /// Source of the rule: a section of the SDM by its heading (editions renumber them; "Version N" is that of
    /// architectural performance monitoring), an instruction's page in volume 2, or a kernel commit.
    pub source: &'static str,
    /// Numbers in `docs/pitfalls.md` of the bugs it would show.
    pub pitfalls: &'static [u8],
}

pub(super) const fn case(
    key: &'static str,
    claim: &'static str,
    source: &'static str,
    pitfalls: &'static [u8],
) -> Case {
    Case { key, claim, source, pitfalls }
}

/// Every case of an Intel's PMU, in the payload's order.
pub const CASES: [Case; guest::abi::AMD_CASES_FROM] = [
    // Registers.
    case("reset", "GLOBAL_CTRL has the PMC bits at RESET, everything else is 0", "Processor State After RESET", &[15]),
    case(
        "cpuid",
        "CPUID.0AH tells version, 4 PMCs and 3 fixed counters of 48 bits, 7 events",
        "Architectural Performance Monitoring",
        &[],
    ),
    case(
        "perf-capabilities",
        "PERF_CAPABILITIES announces full-width writes and is read-only",
        "Full-Width Writes",
        &[2],
    ),
    case("absent-counters", "registers of counters the guest lacks fault", "Version 1", &[]),
    case("absent-debug-store", "DS_AREA and PEBS_ENABLE fault without CPUID.1:EDX[21]", "BTS and DS Save Area", &[]),
    case("selector-bits", "every defined bit of PERFEVTSELx reads back, per counter", "Version 1", &[]),
    case("selector-any", "AnyThread faults and changes nothing", "Version 3", &[17]),
    case("selector-reserved", "reserved bits of PERFEVTSELx fault and change nothing", "Version 1", &[]),
    case("selector-transactions", "IN_TX and IN_TXCP fault without RTM and HLE", "Intel TSX", &[18]),
    case(
        "fixed-ctrl-bits",
        "enable and PMI of each nibble of FIXED_CTR_CTRL read back, other bits fault",
        "Version 2",
        &[],
    ),
    case("fixed-ctrl-any", "AnyThread of a fixed counter faults", "Version 3", &[17]),
    case("global-ctrl-bits", "GLOBAL_CTRL has one bit per counter, other bits fault", "Version 2", &[]),
    case("status-read-only", "a write to GLOBAL_STATUS faults", "Version 2", &[16]),
    case("ovf-ctrl", "OVF_CTRL takes the bits of its version, faults on others, reads 0", "Version 2", &[16]),
    case("v2-lacks-v4", "STATUS_SET and INUSE fault on version 2", "Version 4", &[]),
    case("v4-status-set", "STATUS_SET sets bits of STATUS, STATUS_RESET clears them, without a PMI", "Version 4", &[]),
    case("v4-inuse", "INUSE tells counters in use and is read-only", "Version 4", &[]),
    case("sign-extension", "a write to PMCx extends bit 31 to the counter's width", "Full-Width Writes", &[2]),
    case("upper-half", "a write to PMCx ignores bits 63:32 and overflows nothing", "Full-Width Writes", &[1, 2]),
    case("full-width", "a write to A_PMCx takes all 48 bits; both names read the same", "Full-Width Writes", &[2]),
    case(
        "full-width-reserved",
        "a write to A_PMCx above the width faults and changes nothing",
        "Full-Width Writes",
        &[1, 2],
    ),
    case("fixed-width", "a fixed counter takes 48 bits, drops the rest, overflows nothing", "b29a2acd36dd", &[1, 3]),
    case("debugctl", "DEBUGCTL keeps the freeze bits, reserved bits fault", "IA32_DEBUGCTL", &[]),
    case("rdpmc", "RDPMC of an index that is no counter faults", "RDPMC", &[20]),
    // Counting.
    case("own-enable", "no counter moves with its own enable off", "Version 1", &[]),
    case("global-enable", "no counter moves with its bit of GLOBAL_CTRL clear", "Version 2", &[]),
    case("growth", "a counter grows while both enables are on, never back, and alone", "Version 2", &[]),
    case("fixed-instructions", "fixed counter 0 grows, and alone", "Version 2", &[]),
    case("fixed-cycles", "fixed counters 1 and 2 grow, each alone", "Version 2", &[19]),
    case("pause-own", "a pause by the own enable keeps the value; it goes on from there", "Version 1", &[]),
    case("pause-global", "a pause by GLOBAL_CTRL keeps the value; it goes on from there", "Version 2", &[]),
    case("pause-fixed", "a pause by FIXED_CTR_CTRL keeps the value; it goes on from there", "Version 2", &[]),
    case("fixed-nibbles", "a nibble of FIXED_CTR_CTRL concerns its counter alone", "Version 2", &[]),
    case("unchanged-writes", "writing what is there already changes no count", "Version 1", &[]),
    case("write-while-off", "a value written to a stopped counter stays and is counted on from", "Version 1", &[]),
    case("write-while-running", "a value written to a running counter is counted on from", "168d918f2643", &[5]),
    case("selector-change", "another event on a running counter keeps the value", "Version 1", &[]),
    case("aliases", "PMCx and A_PMCx are one running counter", "Full-Width Writes", &[]),
    case("count-instructions", "a loop counts its instructions", "Pre-defined Architectural Events", &[]),
    case("count-fixed", "the same on fixed counter 0", "Version 2", &[]),
    case("count-branches", "a loop counts its branches, taken or not", "Pre-defined Architectural Events", &[]),
    case("count-taken", "a loop counts its taken branches", "Pre-defined Architectural Events", &[]),
    case("counters-agree", "counters of one event agree with each other", "Version 2", &[]),
    case("windows-add-up", "counts of several windows add up, nothing between them counts", "Version 2", &[]),
    case("rings", "USR and OS select the rings that count, neither counts nothing", "Version 1", &[]),
    case("fixed-rings", "the same for a fixed counter", "Version 2", &[]),
    // Overflow.
    case("overflow-status", "an overflow without INT sets its STATUS bit and raises no PMI", "Version 2", &[]),
    case("overflow-pmi", "an overflow with INT sets its STATUS bit and raises one NMI", "Version 2", &[8]),
    case("fixed-overflow-status", "fixed counter 0 without PMI: STATUS[32], no PMI", "Version 2", &[]),
    case("fixed-overflow-pmi", "fixed counter 0 with PMI: STATUS[32], one NMI", "Version 2", &[]),
    case("fixed-cycles-pmi", "fixed counters 1 and 2 overflow likewise", "Version 2", &[19]),
    case("zero", "a counter that starts at 0 has its whole width before it", "168d918f2643", &[4]),
    case("legacy-preset", "-N written to PMCx overflows after N", "Full-Width Writes", &[2]),
    case("ovf-ctrl-clears", "OVF_CTRL clears what is written 1 and nothing else", "Version 2", &[16]),
    case(
        "status-sticky",
        "a STATUS bit stays, whatever becomes of its counter, and asks for no late PMI",
        "Version 2",
        &[],
    ),
    case("write-moves-near", "a write to a running counter can bring its overflow near", "75189d1de1b3", &[5]),
    case("write-moves-away", "a write to a running counter can take its overflow away", "75189d1de1b3", &[5]),
    case("gating", "a counter at -1 waits for GLOBAL_CTRL", "Version 2", &[6]),
    case("one-pmi", "one overflow is one PMI, though nothing masks a second", "73554b29bd70", &[8]),
    case("sampling", "each re-armed overflow brings its PMI: eight of eight", "Version 2", &[8, 9]),
    case("together", "counters that overflow together lose no STATUS bit", "Version 2", &[24]),
    case("cleared-selector", "a cleared selector raises nothing later", "Version 1", &[]),
    case("preset-exact", "-N overflows at exactly the Nth instruction", "Version 2", &[6]),
    case("preset-one-less", "1-N overflows and ends at 1", "Version 2", &[]),
    case("pmi-exact", "the PMI interrupts right after the instruction that overflowed", "Version 2", &[6, 8]),
    case("branch-overflow-exact", "-N on branches overflows at exactly the Nth branch", "Version 2", &[]),
    // Delivery.
    case("lvtpc-masked", "delivery sets the mask bit of LVTPC", "Local Vector Table; a16eb25b09c0", &[9]),
    case(
        "lvtpc-mask",
        "a masked LVTPC leaves the STATUS bit alone, and unmasking brings nothing",
        "Local Vector Table",
        &[],
    ),
    case("lvtpc-unmask", "no PMI until LVTPC is unmasked, then one again", "Local Vector Table", &[9]),
    case("fixed-vector", "in fixed mode the PMI comes at LVTPC's vector and masks it", "Local Vector Table", &[]),
    case("fixed-vector-waits", "in fixed mode the PMI waits for IF", "Local Vector Table", &[]),
    case("pending-wakes-hlt", "a pending PMI in fixed mode ends HLT", "HLT", &[23]),
    case("pmi-wakes-hlt", "a PMI reaches a vCPU that halts", "HLT", &[23]),
    case("interrupts-ring3", "a USR counter's PMI interrupts ring 3", "Version 1", &[]),
    case("no-freeze", "without DEBUGCTL[12] the counters run on after a PMI", "Freezing on PMI", &[]),
    case("v2-freeze", "version 2 freezes by clearing GLOBAL_CTRL", "Freezing on PMI", &[]),
    case("v4-freeze", "version 4 freezes by STATUS.CTR_Frz, GLOBAL_CTRL stays", "Freezing on PMI", &[]),
    case("v4-freeze-lbrs", "DEBUGCTL[11] sets STATUS.LBR_Frz and lets the counters run", "Freezing on PMI", &[]),
    case("v4-frozen-by-software", "STATUS_SET of CTR_Frz freezes, its reset lets run", "Version 4", &[]),
    case("no-pmi-no-freeze", "an overflow without INT freezes nothing", "Freezing on PMI", &[]),
    // Cases beside the PMU.
    case("misc-enable", "MISC_ENABLE[7] says that there is a PMU, and stays set", "IA32_MISC_ENABLE", &[]),
    case("apic-off", "a local APIC that is off delivers no PMI, and one again when it is on", "Local APIC State", &[]),
    // A handler that restarts its counters before it unmasks LVTPC.
    case("late-unmask", "an overflow before the handler unmasks LVTPC is one NMI after it", "Linux: late_ack", &[30]),
    case("late-unmask-acknowledged", "acknowledged before the unmask it is none", "Linux: late_ack", &[30]),
];

/// Returns the reason why the payload skipped a case.
pub fn skip_reason(code: u64) -> &'static str {
    match code {
        guest::abi::SKIP_STAND_IN => "needs backend step or hardware: a stand-in counts something else",
        guest::abi::SKIP_NEEDS_STEP => "needs backend step: only it is exact to the instruction",
        guest::abi::SKIP_STEP_CYCLES => "backend step knows no cycles",
        guest::abi::SKIP_NEEDS_V4 => "needs a version 4 PMU",
        guest::abi::SKIP_NEEDS_V2 => "needs a PMU below version 4",
        guest::abi::SKIP_NEEDS_PERFMON_V2 => "needs PerfMonV2",
        guest::abi::SKIP_NEEDS_CORE => "needs a PMU without PerfMonV2",
        _ => "the guest gave no reason this tool knows",
    }
}

/// Every case, in the payload's order. Sources are sections of the APM, volume 2, an instruction's page in volume 3,
/// registers of the PPR of family 19h, or kernel commits.
pub const AMD_CASES: [Case; guest::abi::CONFORMANCE_CASES - guest::abi::AMD_CASES_FROM] = [
    case(
        "amd-reset",
        "PerfCntrGlobalCtl has every counter's bit at RESET, everything else is 0",
        "PPR MSRC000_0301",
        &[15],
    ),
    case("amd-cpuid", "CPUID has family 19h, PERFCTR_CORE, and with PerfMonV2 the number of counters", "13.2.3", &[]),
    case("amd-absent-counters", "registers behind the sixth counter's fault", "13.2.1", &[]),
    case(
        "amd-selector-bits",
        "a selector keeps its defined bits, per counter; others are neither refused nor kept",
        "9b026073db2f",
        &[],
    ),
    case("amd-counter-width", "a write to PERF_CTRx takes 48 bits and extends no sign", "13.2.1", &[1]),
    case("amd-aliases", "the old indices are the first four counters", "13.2.1", &[]),
    case("amd-global-absent", "the global registers fault without PerfMonV2", "13.2.3", &[]),
    case("amd-global-ctl-bits", "PerfCntrGlobalCtl has one bit per counter, other bits are ignored", "13.2.3", &[]),
    case("amd-status-read-only", "a write to PerfCntrGlobalStatus is ignored", "13.2.3", &[16]),
    case(
        "amd-status-set-clr",
        "PerfCntrGlobalStatusSet sets bits, Clr clears them, without a PMI; both read 0",
        "13.2.3",
        &[],
    ),
    case("amd-rdpmc", "RDPMC of no counter faults", "RDPMC", &[20]),
    case("amd-own-enable", "a counter without EN does not count", "13.2.1", &[]),
    case("amd-global-enable", "a counter without its bit of PerfCntrGlobalCtl does not count", "13.2.3", &[]),
    case("amd-growth", "only the counter that runs moves, and never back", "13.2.1", &[7]),
    case("amd-pause", "a stopped counter keeps its value and goes on from it", "13.2.1", &[7]),
    case("amd-write-while-running", "a running counter takes a value and goes on from it", "13.2.1", &[5]),
    case(
        "amd-12-bit-select",
        "the event select has 12 bits: a running counter keeps them, and exact counts follow them",
        "13.2.2",
        &[],
    ),
    case(
        "amd-guest-host-only",
        "Guest-Only and Host-Only are kept, and count nothing without EFER.SVME",
        "PPR PERF_CTL",
        &[],
    ),
    case("amd-instructions", "a loop's retired instructions, on every counter", "13.2.2", &[7]),
    case("amd-branches", "a loop's branches, and its taken ones", "13.2.2", &[]),
    case("amd-rings", "OsUserMode selects the rings", "13.2.2", &[]),
    case("amd-overflow-without-int", "an overflow without INT sets its status bit alone", "13.2.2", &[]),
    case("amd-overflow-with-int", "each counter's overflow with INT is one NMI", "13.2.2", &[8]),
    case("amd-zero-has-its-width", "a counter at 0 has 2^48 events before it", "13.2.1", &[4]),
    case("amd-write-moves", "a write to a running counter moves its overflow", "13.2.1", &[5]),
    case("amd-status-is-sticky", "a status bit stays until it is cleared, and asks once", "13.2.3", &[8]),
    case(
        "amd-sampling",
        "a counter that its handler arms again overflows again, LVTPC untouched",
        "49ff3b4aec51",
        &[9],
    ),
    case("amd-together", "counters that overflow together all show it", "13.2.1", &[8]),
    case("amd-preset-exact", "a preset of -N overflows at the Nth instruction", "13.2.1", &[4]),
    case("amd-pmi-exact", "the NMI comes behind the instruction that overflowed", "13.2.2", &[]),
    case("amd-not-masked", "a delivery leaves LVTPC's mask bit clear", "49ff3b4aec51", &[9]),
    case("amd-next-without-unmask", "the next overflow's NMI needs no write to LVTPC", "49ff3b4aec51", &[9]),
    case("amd-masked", "the guest's own mask drops the PMI", "16.4.1", &[]),
    case("amd-fixed-vector", "LVTPC in fixed mode delivers its vector and stays unmasked", "16.4.1", &[]),
    case("amd-wakes-hlt", "a PMI wakes a halted vCPU", "16.4.1", &[23]),
    case("amd-not-frozen", "a PMI freezes nothing", "13.2.1", &[]),
];

#[cfg(test)]
mod tests {
    use guest::abi::{
        AMD_CASES_FROM, CASE_AMD_NOT_FROZEN, CASE_AMD_RESET, CASE_GROWTH, CASE_NO_PMI_NO_FREEZE, CASE_PMI_IS_EXACT,
        CASE_RDPMC, CASE_RESET, CASE_SAMPLING,
    };

    use super::*;

    /// The table is in the payload's order: its landmarks stand where the payload has them.
    #[test]
    fn the_table_follows_the_payload() {
        for (number, key) in [
            (CASE_RESET, "reset"),
            (CASE_RDPMC, "rdpmc"),
            (CASE_GROWTH, "growth"),
            (guest::abi::CASE_ALIASES, "aliases"),
            (guest::abi::CASE_COUNT_FIXED_RINGS, "fixed-rings"),
            (CASE_SAMPLING, "sampling"),
            (CASE_PMI_IS_EXACT, "pmi-exact"),
            (guest::abi::CASE_HLT_IS_WOKEN, "pmi-wakes-hlt"),
            (CASE_NO_PMI_NO_FREEZE, "no-pmi-no-freeze"),
        ] {
            assert_eq!(CASES[number].key, key);
        }
        for (number, key) in [(CASE_AMD_RESET, "amd-reset"), (CASE_AMD_NOT_FROZEN, "amd-not-frozen")] {
            assert_eq!(AMD_CASES[number - AMD_CASES_FROM].key, key);
        }
    }

    #[test]
    fn keys_are_unique_and_lines_need_no_escaping() {
        let all: Vec<_> = CASES.iter().chain(&AMD_CASES).collect();
        for (number, case) in all.iter().enumerate() {
            assert!(all[..number].iter().all(|other| other.key != case.key), "{}", case.key);
            for text in [case.key, case.claim, case.source] {
                assert!(!text.is_empty() && !text.contains(['#', '\\', '\n']), "{text}");
            }
            assert!(case.pitfalls.iter().all(|n| (1..=30).contains(n)), "{}", case.key);
        }
    }

    #[test]
    fn every_reason_the_payload_gives_is_known() {
        let codes = guest::abi::conformance::CONSTANTS.iter().filter(|(name, _)| name.starts_with("SKIP_"));
        for (name, code) in codes {
            assert!(!skip_reason(*code).contains("no reason"), "{name}");
        }
    }
}
