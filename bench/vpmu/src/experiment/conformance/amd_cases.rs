//! The cases of an AMD's PMU, by the number the payload gives them less that of the first.

use super::cases::{Case, case};

/// Every case, in the payload's order. Sources are sections of the APM, volume 2, an instruction's page in volume 3, registers of the PPR
/// of family 19h, or kernel commits.
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
        AMD_CASES_FROM, CASE_AMD_NOT_FROZEN, CASE_AMD_NOT_MASKED, CASE_AMD_OWN_ENABLE, CASE_AMD_RESET,
        CASE_AMD_WITHOUT_INT,
    };

    use super::*;

    /// The table is in the payload's order: its landmarks are where the payload has them.
    #[test]
    fn the_table_follows_the_payload() {
        for (number, key) in [
            (CASE_AMD_RESET, "amd-reset"),
            (CASE_AMD_OWN_ENABLE, "amd-own-enable"),
            (CASE_AMD_WITHOUT_INT, "amd-overflow-without-int"),
            (CASE_AMD_NOT_MASKED, "amd-not-masked"),
            (CASE_AMD_NOT_FROZEN, "amd-not-frozen"),
        ] {
            assert_eq!(AMD_CASES[number - AMD_CASES_FROM].key, key);
        }
    }
}
