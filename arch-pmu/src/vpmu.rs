//! The PMU of one vCPU.
//!
//! The order of one guest entry is KVM's: counters that must be reprogrammed ([`Vpmu::enter`]), then the PMI
//! ([`Vpmu::take_pmi`]).

use counts::Counts;

use crate::amd::Svm;
use crate::caps::PmuCaps;
use crate::counters::Counters;
use crate::host::HostCounters;
use crate::journal::Note;
use crate::register::GeneralProtection;
use crate::register_file::RegisterFile;

/// The PMU of one vCPU, with `H` behind its counters.
#[derive(Debug)]
pub struct Vpmu<H> {
    counters: Counters<H>,
    registers: RegisterFile,
}

impl<H: HostCounters> Vpmu<H> {
    /// Creates a PMU at RESET.
    pub fn new(caps: impl Into<PmuCaps>, host: H) -> Self {
        let mut registers = RegisterFile::new(caps.into());
        let caps = registers.caps();
        let mut counters = Counters::new(host, caps.counters(), caps.counter_mask());
        registers.reset(&mut counters);
        Self { counters, registers }
    }

    /// Handles RESET: stops every counter and sets the registers to their reset values. No PMI from before outlives it.
    pub fn reset(&mut self) {
        self.counters.reset();
        self.registers.reset(&mut self.counters);
    }

    /// Returns the guest's PMU.
    pub fn caps(&self) -> PmuCaps {
        self.registers.caps()
    }

    /// Returns the host side of the counters.
    pub fn host(&mut self) -> &mut H {
        &mut self.counters.host
    }

    /// Returns whether an overflow awaits its PMI.
    pub fn pmi_requested(&self) -> bool {
        self.counters.pmi_pending
    }

    /// Returns the counts of its overflows, which the caller may take.
    pub const fn counts(&mut self) -> &mut Counts {
        &mut self.counters.counts
    }

    /// Notes from now on what the host side tells the counters.
    pub fn keep_journal(&mut self) {
        self.counters.journal.begin();
    }

    /// Takes the notes since the last call.
    pub fn take_notes(&mut self) -> impl Iterator<Item = Note> + '_ {
        self.counters.journal.take()
    }

    /// Handles the guest's read of MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register.
    pub fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
        self.registers.read(&mut self.counters, index)
    }

    /// Handles the guest's write of MSR `index`.
    ///
    /// # Errors
    /// #GP if the guest has no such register, or it does not take `value`.
    pub fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
        self.registers.write(&mut self.counters, index, value)
    }

    /// Handles RDPMC with `ecx`: returns the counter's value in its full width.
    ///
    /// # Errors
    /// #GP for a counter or counter type that this PMU does not have. Privilege (CPL, CR4.PCE) is the caller's matter.
    pub fn rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        let counter = self.registers.rdpmc(ecx).filter(|&counter| self.counters.existing.contains(counter));
        Ok(self.counters.read(counter.ok_or(GeneralProtection)?))
    }

    /// Notes the guest's write of EFER.SVME.
    pub fn set_svme(&mut self, on: bool) {
        if on != (self.registers.svm() != Svm::Off) {
            self.registers.set_svm(&mut self.counters, if on { Svm::Host } else { Svm::Off });
        }
    }

    /// Notes whether the vCPU runs a guest of the guest, which it does with SVM alone. What is counted so far was counted in the
    /// mode before.
    pub fn set_guest_mode(&mut self, guest: bool) {
        if self.registers.svm() != Svm::Off {
            self.registers.set_svm(&mut self.counters, if guest { Svm::Guest } else { Svm::Host });
        }
    }

    /// Returns whether SVM is on, and a counter counts in one of its modes and not in the other.
    pub fn depends_on_svm(&self) -> bool {
        self.registers.depends_on_svm()
    }

    /// Looks, after a signal that a host event overflowed, at the counters behind it, and returns how many overflowed.
    pub fn kick(&mut self) -> u32 {
        self.counters.kick()
    }

    /// Does everything due before the guest is entered: failed starts, counters to reprogram, release by the strategy.
    pub fn enter(&mut self) {
        self.counters.enter();
    }

    /// Returns whether [`enter`](Self::enter) and [`take_pmi`](Self::take_pmi) have nothing to do beyond the host
    /// side's own work at each entry.
    #[inline]
    pub const fn is_quiet(&self) -> bool {
        self.counters.is_quiet()
    }

    /// Returns whether a PMI is due; the caller delivers it. With freeze-on-PMI the counters stop here.
    pub fn take_pmi(&mut self) -> bool {
        let due = self.counters.take_pmi();
        if due {
            self.registers.freeze_on_pmi(&mut self.counters);
        }
        due
    }

    /// Returns whether STATUS has an overflow that asked for a PMI: a handler that starts now finds it.
    pub fn pmi_unacknowledged(&self) -> bool {
        self.counters.pmi_unacknowledged()
    }

    /// Returns how often the guest turned a counter's own enable on. A PMI's handler does not.
    pub fn turned_on(&self) -> u64 {
        self.counters.turned_on
    }

    /// Returns whether the guest has all counters off by their global enables, and turns them on again by a write of
    /// them. A PMI that freezes the counters may have turned them off instead.
    pub fn guest_has_all_off(&self) -> bool {
        self.counters.global().is_empty() && !self.registers.freezes_on_pmi()
    }
}

#[cfg(test)]
mod tests {
    //! The registers by their manuals, Intel's and then AMD's, against a host side that counts as scripted.

    use super::*;
    use crate::amd::{AmdCaps, PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CTL0, PERF_CTR0};
    use crate::intel::{
        IA32_A_PMC0, IA32_DEBUGCTL, IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_PERF_CAPABILITIES,
        IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PERFEVTSEL0, IA32_PMC0,
        IntelCaps,
    };
    use crate::spec::CounterId;
    use crate::tests::Fake;

    const CTR_FRZ: u64 = 1 << 59;
    const LBR_FRZ: u64 = 1 << 58;
    const EN_INT_USR: u64 = 1 << 22 | 1 << 20 | 1 << 16;
    const CYCLES: u64 = EN_INT_USR | 0x76;
    const NEAR: u64 = (1 << 48) - 10;
    const GLOBAL: u32 = IA32_PERF_GLOBAL_CTRL;
    const STATUS: u32 = IA32_PERF_GLOBAL_STATUS;
    const CLEAR: u32 = IA32_PERF_GLOBAL_OVF_CTRL;

    fn pmc(n: usize) -> CounterId {
        CounterId::gp(n).unwrap()
    }

    fn vpmu() -> Vpmu<Fake> {
        Vpmu::new(PmuCaps::default(), Fake::default())
    }

    /// Lets PMC0 count with INT from `value`.
    fn sampling(value: u64) -> Vpmu<Fake> {
        let mut vpmu = vpmu();
        vpmu.wrmsr(IA32_A_PMC0, value).unwrap();
        vpmu.wrmsr(IA32_PERFEVTSEL0, EN_INT_USR | 0x3c).unwrap();
        vpmu
    }

    #[test]
    fn pitfall_02_legacy_counter_writes_extend_bit_31_and_are_masked_to_the_width() {
        let mut vpmu = vpmu();
        vpmu.wrmsr(IA32_PMC0, 0xffff_ffff_8000_0001).unwrap();
        assert_eq!(vpmu.rdmsr(IA32_PMC0), Ok(0xffff_8000_0001));
        vpmu.wrmsr(IA32_PMC0, 0x1_7fff_ffff).unwrap();
        assert_eq!(vpmu.rdmsr(IA32_PMC0), Ok(0x7fff_ffff));
    }

    #[test]
    fn pitfall_02_full_width_writes_fault_above_the_width_and_exist_only_when_announced() {
        let mut vpmu = vpmu();
        vpmu.wrmsr(IA32_A_PMC0, 0xffff_ffff_ffff).unwrap();
        assert_eq!(vpmu.rdmsr(IA32_A_PMC0), Ok(0xffff_ffff_ffff));
        assert_eq!(vpmu.wrmsr(IA32_A_PMC0, 1 << 48), Err(GeneralProtection));
        let caps = IntelCaps { full_width_writes: false, ..IntelCaps::default() };
        let mut legacy = Vpmu::new(caps, Fake::default());
        assert_eq!((legacy.rdmsr(IA32_A_PMC0), legacy.rdmsr(IA32_PERF_CAPABILITIES)), (Err(GeneralProtection), Ok(0)));
    }

    #[test]
    fn pitfall_01_03_counter_writes_are_masked_so_nothing_overflows_by_them() {
        let mut vpmu = vpmu();
        vpmu.wrmsr(IA32_FIXED_CTR0, u64::MAX).unwrap();
        assert_eq!(vpmu.rdmsr(IA32_FIXED_CTR0), Ok(0xffff_ffff_ffff));
        vpmu.wrmsr(IA32_FIXED_CTR_CTRL, 0xb).unwrap();
        vpmu.wrmsr(GLOBAL, 1 << 32).unwrap();
        assert_eq!((vpmu.kick(), vpmu.rdmsr(STATUS)), (0, Ok(0)));
    }

    #[test]
    fn pitfall_04_a_counter_at_zero_has_its_whole_width_before_it() {
        assert_eq!(sampling(0).host().period[0], Some(1 << 48));
    }

    #[test]
    fn pitfall_05_writing_a_running_counter_moves_its_overflow() {
        let mut vpmu = sampling(0);
        vpmu.host().pending[0] = 77;
        vpmu.wrmsr(IA32_PMC0, (-1000i64).cast_unsigned()).unwrap();
        assert_eq!((vpmu.host().period[0], vpmu.host().starts), (Some(1000), 1), "moved, not re-created");
        vpmu.host().pending[0] = 3;
        assert_eq!(vpmu.rdmsr(IA32_PMC0), Ok((1 << 48) - 997));
    }

    #[test]
    fn pitfall_08_one_overflow_is_one_pmi() {
        let mut vpmu = sampling((1 << 48) - 10);
        vpmu.host().pending[0] = 12;
        assert_eq!(vpmu.kick(), 1);
        assert!(vpmu.take_pmi());
        assert!(!vpmu.take_pmi());
        assert_eq!((vpmu.kick(), vpmu.take_pmi()), (0, false));
        assert_eq!((vpmu.rdmsr(IA32_PMC0), vpmu.rdmsr(STATUS)), (Ok(2), Ok(1)));
    }

    #[test]
    fn overflows_that_share_a_status_bit_are_counted_apart() {
        let mut vpmu = sampling((1 << 48) - 10);
        let mut overflow = || {
            vpmu.host().pending[0] = 10;
            assert_eq!(vpmu.kick(), 1);
            vpmu.wrmsr(IA32_PMC0, (-10i64).cast_unsigned()).unwrap();
            vpmu.counts().status_shared
        };
        assert_eq!([overflow(), overflow(), overflow()], [0, 1, 2]);
        vpmu.wrmsr(CLEAR, 1).unwrap();
        vpmu.host().pending[0] = 10;
        assert_eq!(
            (vpmu.kick(), vpmu.counts().status_shared, vpmu.counts().pmi_requests),
            (1, 2, 4),
            "acknowledged between"
        );
    }

    #[test]
    fn pitfall_10_an_overflow_before_a_write_is_not_lost_by_it() {
        let mut vpmu = sampling((1 << 48) - 10);
        vpmu.host().pending[0] = 10;
        vpmu.wrmsr(IA32_PMC0, 5).unwrap();
        assert_eq!((vpmu.rdmsr(IA32_PMC0), vpmu.rdmsr(STATUS), vpmu.take_pmi()), (Ok(5), Ok(1), true));
    }

    #[test]
    fn pitfall_10_an_overflow_found_by_switching_off_still_asks_for_its_pmi() {
        for (msr, value) in [(GLOBAL, 0), (IA32_PERFEVTSEL0, 0)] {
            let mut vpmu = sampling((1 << 48) - 10);
            vpmu.host().pending[0] = 10;
            vpmu.wrmsr(msr, value).unwrap();
            assert_eq!((vpmu.rdmsr(STATUS), vpmu.take_pmi(), vpmu.host().period[0]), (Ok(1), true, None), "{msr:#x}");
        }
    }

    #[test]
    fn pitfall_11_a_deferred_change_is_kept_until_the_entry_that_makes_it() {
        let mut vpmu = Vpmu::new(PmuCaps::default(), Fake { deferred: true, ..Fake::default() });
        vpmu.wrmsr(IA32_PERFEVTSEL0, EN_INT_USR).unwrap();
        vpmu.wrmsr(IA32_PERFEVTSEL0 + 1, EN_INT_USR).unwrap();
        assert_eq!(vpmu.host().starts, 0);
        vpmu.enter();
        assert_eq!(vpmu.host().starts, 2);
        vpmu.wrmsr(GLOBAL, 0).unwrap();
        vpmu.wrmsr(GLOBAL, 0xf).unwrap();
        vpmu.enter();
        assert_eq!(vpmu.host().starts, 4);
        vpmu.enter();
        assert_eq!(vpmu.host().starts, 4, "nothing is left to do");
    }

    #[test]
    fn pitfall_15_21_reset_sets_global_ctrl_and_stops_everything() {
        let mut vpmu = sampling((1 << 48) - 10);
        vpmu.host().pending[0] = 10;
        vpmu.reset();
        assert_eq!((vpmu.rdmsr(GLOBAL), vpmu.rdmsr(STATUS), vpmu.rdmsr(IA32_PERFEVTSEL0)), (Ok(0xf), Ok(0), Ok(0)));
        vpmu.enter();
        assert_eq!((vpmu.host().period[0], vpmu.kick(), vpmu.take_pmi()), (None, 0, false));
    }

    #[test]
    fn pitfall_16_status_is_read_only_and_ovf_ctrl_reads_zero() {
        let mut vpmu = sampling((1 << 48) - 1);
        vpmu.host().pending[0] = 1;
        vpmu.kick();
        assert_eq!((vpmu.wrmsr(STATUS, 0), vpmu.rdmsr(CLEAR)), (Err(GeneralProtection), Ok(0)));
        vpmu.wrmsr(CLEAR, 2).unwrap();
        assert_eq!((vpmu.rdmsr(STATUS), vpmu.pmi_unacknowledged()), (Ok(1), true));
        vpmu.wrmsr(CLEAR, 1 | 3 << 62).unwrap();
        assert_eq!((vpmu.rdmsr(STATUS), vpmu.rdmsr(CLEAR), vpmu.pmi_unacknowledged()), (Ok(0), Ok(0), false));
        assert_eq!(vpmu.wrmsr(CLEAR, 1 << 58), Err(GeneralProtection));
    }

    #[test]
    fn pitfall_17_any_thread_and_reserved_bits_fault() {
        let mut vpmu = vpmu();
        for bit in [21, 32, 33, 34, 63] {
            assert_eq!(vpmu.wrmsr(IA32_PERFEVTSEL0, 1 << bit), Err(GeneralProtection), "selector bit {bit}");
        }
        for bit in [2, 6, 10, 12, 63] {
            assert_eq!(vpmu.wrmsr(IA32_FIXED_CTR_CTRL, 1 << bit), Err(GeneralProtection), "nibble bit {bit}");
        }
        for bit in [4, 31, 35, 48, 63] {
            assert_eq!(vpmu.wrmsr(GLOBAL, 1 << bit), Err(GeneralProtection), "GLOBAL_CTRL bit {bit}");
        }
        assert_eq!((vpmu.rdmsr(IA32_PERFEVTSEL0), vpmu.rdmsr(GLOBAL)), (Ok(0), Ok(0xf)), "a fault changes nothing");
    }

    #[test]
    fn pitfall_18_in_txcp_is_only_on_pmc2_of_a_transactional_guest() {
        let caps = IntelCaps { transactions: true, ..IntelCaps::default() };
        let mut vpmu = Vpmu::new(caps, Fake::default());
        assert_eq!(vpmu.wrmsr(IA32_PERFEVTSEL0, 1 << 33), Err(GeneralProtection));
        assert_eq!(vpmu.wrmsr(IA32_PERFEVTSEL0 + 2, 1 << 33), Ok(()));
    }

    #[test]
    fn unchanged_writes_are_elided_but_keep_the_counter_in_use() {
        let mut vpmu = sampling(0);
        let starts = vpmu.host().starts;
        vpmu.host().touched.clear();
        vpmu.wrmsr(IA32_PERFEVTSEL0, EN_INT_USR | 0x3c).unwrap();
        vpmu.wrmsr(GLOBAL, 0xf).unwrap();
        assert_eq!((vpmu.host().starts, &vpmu.host().touched[..]), (starts, &[pmc(0)][..]));
        vpmu.host().touched.clear();
        vpmu.wrmsr(IA32_FIXED_CTR_CTRL, 0x0b0).unwrap();
        assert_eq!(vpmu.host().touched, [CounterId::fixed(1).unwrap()], "only the nibble that changed");
    }

    #[test]
    fn version_2_freezes_by_clearing_the_enables() {
        let mut vpmu = sampling((1 << 48) - 1);
        vpmu.wrmsr(IA32_DEBUGCTL, 0x1801).unwrap();
        vpmu.host().pending[0] = 1;
        vpmu.kick();
        assert!(vpmu.take_pmi());
        assert_eq!((vpmu.rdmsr(GLOBAL), vpmu.rdmsr(IA32_DEBUGCTL), vpmu.host().period[0]), (Ok(0), Ok(0x1800), None));
    }

    #[test]
    fn version_4_freezes_by_status_and_unfreezes_by_its_reset() {
        let mut vpmu = Vpmu::new(IntelCaps { version: 4, ..IntelCaps::default() }, Fake::default());
        vpmu.wrmsr(IA32_PERFEVTSEL0, EN_INT_USR).unwrap();
        vpmu.wrmsr(IA32_DEBUGCTL, 0x1800).unwrap();
        vpmu.wrmsr(IA32_PMC0, (-1i64).cast_unsigned()).unwrap();
        vpmu.host().pending[0] = 1;
        vpmu.kick();
        assert!(vpmu.take_pmi());
        assert_eq!((vpmu.rdmsr(STATUS), vpmu.rdmsr(GLOBAL)), (Ok(CTR_FRZ | LBR_FRZ | 1), Ok(0xf)));
        assert_eq!(vpmu.host().period[0], None);
        vpmu.wrmsr(CLEAR, CTR_FRZ | LBR_FRZ | 1).unwrap();
        assert!(vpmu.host().period[0].is_some());
        assert_eq!(vpmu.rdmsr(STATUS), Ok(0));
    }

    #[test]
    fn pitfall_06_a_period_of_1_that_the_host_signals_late_keeps_what_it_counted() {
        let mut vpmu = sampling((1 << 48) - 1);
        assert_eq!(vpmu.host().period[0], Some(1), "the host side knows its own minimum");
        // perf's is 2.
        vpmu.host().pending[0] = 2;
        assert_eq!((vpmu.kick(), vpmu.take_pmi(), vpmu.rdmsr(IA32_PMC0)), (1, true, Ok(1)));
        vpmu.enter();
        assert_eq!(vpmu.host().period[0], Some((1 << 48) - 1));
    }

    #[test]
    fn pitfall_07_an_overflow_found_by_a_pause_is_neither_missed_nor_found_again() {
        let mut vpmu = sampling((1 << 48) - 10);
        vpmu.host().pending[0] = 12;
        vpmu.wrmsr(GLOBAL, 0).unwrap();
        assert_eq!((vpmu.counts().overflows, vpmu.take_pmi()), (1, true));
        // The signal of the same overflow comes after.
        assert_eq!((vpmu.kick(), vpmu.take_pmi(), vpmu.counts().overflows), (0, false, 1));
        vpmu.wrmsr(GLOBAL, 0xf).unwrap();
        assert_eq!((vpmu.rdmsr(IA32_PMC0), vpmu.host().period[0]), (Ok(2), Some((1 << 48) - 2)));
    }

    #[test]
    fn pitfall_14_the_counters_are_those_that_cpuid_announces() {
        for (gp, fixed) in [(1, 0), (2, 4), (4, 3), (8, 1)] {
            let vpmu_caps = IntelCaps { gp, fixed, ..IntelCaps::default() };
            let [eax, _, _, edx] = vpmu_caps.cpuid_0a();
            let mut vpmu = Vpmu::new(vpmu_caps, Fake::default());
            let mut exist = |base: u32| (base..base + 8).take_while(|&msr| vpmu.rdmsr(msr).is_ok()).count() as u32;
            let (counters, selectors) = (exist(IA32_PMC0), exist(IA32_PERFEVTSEL0));
            assert_eq!((counters, selectors), (eax >> 8 & 0xff, eax >> 8 & 0xff));
            assert_eq!(exist(IA32_FIXED_CTR0), edx & 0x1f);
            let bits = |n: u32| (1u64 << n) - 1;
            let all = bits(counters) | bits(edx & 0x1f) << 32;
            assert_eq!(
                (vpmu.wrmsr(GLOBAL, all), vpmu.wrmsr(GLOBAL, all + 1 + bits(counters))),
                (Ok(()), Err(GeneralProtection))
            );
        }
    }

    #[test]
    fn pitfall_20_fixed_is_a_type_value_and_bit_31_faults() {
        let mut pmu = vpmu();
        pmu.wrmsr(IA32_A_PMC0 + 3, 0xffff_8000_0003).unwrap();
        pmu.wrmsr(IA32_FIXED_CTR0 + 2, 0x1234).unwrap();
        assert_eq!(pmu.rdpmc(3), Ok(0xffff_8000_0003), "the whole width, not sign-extended");
        assert_eq!(pmu.rdpmc(0x4000_0002), Ok(0x1234));
        for bad in
            [4, 64, 0xffff, 0x4000_0003, 0x8000_0000, 0x8000_0003, 0xc000_0000, 0x2000_0000, 0x0001_0000, u32::MAX]
        {
            assert_eq!(pmu.rdpmc(bad), Err(GeneralProtection), "{bad:#x}");
        }
    }

    fn milan() -> Vpmu<Fake> {
        Vpmu::new(AmdCaps::default(), Fake::default())
    }

    fn genoa() -> Vpmu<Fake> {
        Vpmu::new(AmdCaps::GENOA, Fake::default())
    }

    fn both() -> [Vpmu<Fake>; 2] {
        [milan(), genoa()]
    }

    /// Returns a PMU whose counter 0 counts with INT from `value`.
    fn amd_sampling(mut vpmu: Vpmu<Fake>, value: u64) -> Vpmu<Fake> {
        vpmu.wrmsr(PERF_CTR0, value).unwrap();
        vpmu.wrmsr(PERF_CTL0, CYCLES).unwrap();
        vpmu
    }

    #[test]
    fn the_four_selectors_count_in_their_modes_of_svm() {
        const SELECTORS: [u64; 4] = [CYCLES, CYCLES | 1 << 40, CYCLES | 1 << 41, CYCLES | 3 << 40];
        for mut vpmu in both() {
            for (n, selector) in SELECTORS.into_iter().enumerate() {
                vpmu.wrmsr(PERF_CTL0 + 2 * n as u32, selector).unwrap();
            }
            for (svme, guest, counts) in [
                (false, true, [1, 0, 0, 0]),
                (true, false, [1, 0, 1, 1]),
                (true, true, [1, 1, 0, 1]),
                (true, false, [1, 0, 1, 1]),
                (false, false, [1, 0, 0, 0]),
            ] {
                for expected in [2, 0] {
                    let starts = vpmu.host().starts;
                    vpmu.set_svme(svme);
                    vpmu.set_guest_mode(guest);
                    assert_eq!(
                        [0, 1, 2, 3].map(|n| u64::from(vpmu.host().period[n].is_some())),
                        counts,
                        "{svme} {guest}"
                    );
                    assert!(vpmu.host().starts - starts <= expected, "what goes on is left alone");
                    assert_eq!(vpmu.depends_on_svm(), svme);
                }
            }
            // Counts of a mode are of the counter that is on in it.
            vpmu.set_svme(true);
            vpmu.host().pending[..4].copy_from_slice(&[5, 0, 5, 5]);
            vpmu.set_guest_mode(true);
            vpmu.host().pending[1] = 1;
            vpmu.set_guest_mode(false);
            assert_eq!([0, 1, 2, 3].map(|n| vpmu.rdmsr(PERF_CTR0 + 2 * n)), [Ok(5), Ok(1), Ok(5), Ok(5)]);
            vpmu.reset();
            assert!(!vpmu.depends_on_svm());
            vpmu.wrmsr(PERF_CTL0, CYCLES | 3 << 40).unwrap();
            assert_eq!(vpmu.host().period[0], None, "SVME is 0 after RESET");
        }
    }

    #[test]
    fn a_counter_that_is_written_anew_has_no_overflow_left_where_there_is_no_status() {
        for (vpmu, status) in [(milan(), Err(GeneralProtection)), (genoa(), Ok(1))] {
            let mut vpmu = amd_sampling(vpmu, NEAR);
            for _ in 0..2 {
                vpmu.host().pending[0] = 12;
                assert_eq!(vpmu.kick(), 1);
                vpmu.wrmsr(PERF_CTR0, NEAR).unwrap();
            }
            assert_eq!(vpmu.counts().status_shared, 0, "the counter was written between");
            assert_eq!(vpmu.rdmsr(PERF_CNTR_GLOBAL_STATUS), status);
        }
    }

    #[test]
    fn the_global_control_gates_and_is_on_at_reset() {
        let mut vpmu = amd_sampling(genoa(), 0);
        assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.host().period[0]), (Ok(0x3f), Some(1 << 48)));
        vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, !1).unwrap();
        assert_eq!(
            (vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.host().period[0]),
            (Ok(0x3e), None),
            "reserved bits are ignored"
        );
        vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, 1).unwrap();
        assert_eq!(vpmu.host().period[0], Some(1 << 48));
        assert!(!vpmu.guest_has_all_off());
        vpmu.wrmsr(PERF_CNTR_GLOBAL_CTL, 0).unwrap();
        assert!(vpmu.guest_has_all_off());
        vpmu.reset();
        assert_eq!((vpmu.rdmsr(PERF_CNTR_GLOBAL_CTL), vpmu.rdmsr(PERF_CTL0)), (Ok(0x3f), Ok(0)));
    }

    #[test]
    fn rdpmc_has_the_six_counters_and_no_types() {
        for mut vpmu in both() {
            vpmu.wrmsr(PERF_CTR0 + 10, 0x1234_5678_9abc).unwrap();
            assert_eq!(vpmu.rdpmc(5), Ok(0x1234_5678_9abc));
            for bad in [6, 8, 10, 16, 0x4000_0000, 0x8000_0000, u32::MAX] {
                assert_eq!(vpmu.rdpmc(bad), Err(GeneralProtection), "{bad:#x}");
            }
        }
    }

    #[test]
    fn a_vendor_has_no_register_of_the_other() {
        for (mut vpmu, other) in
            [(genoa(), 0xc1..=0x600), (Vpmu::new(PmuCaps::default(), Fake::default()), 0xc000_0300..=0xc001_020b)]
        {
            assert!(other.into_iter().step_by(1).all(|msr| vpmu.rdmsr(msr).is_err() && vpmu.wrmsr(msr, 0).is_err()));
        }
    }
}
