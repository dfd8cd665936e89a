//! The table of Intel's registers. Decoding, dispatch, names, the numbers for statistics and the VMM's MSR filter come from it.

use super::a_pmc::APmc;
use super::debugctl::DebugCtl;
use super::ds_area::DsArea;
use super::fixed_ctr::FixedCtr;
use super::fixed_ctr_ctrl::FixedCtrCtrl;
use super::global_ctrl::GlobalCtrl;
use super::global_inuse::GlobalInUse;
use super::global_ovf_ctrl::GlobalOvfCtrl;
use super::global_status::GlobalStatus;
use super::global_status_set::GlobalStatusSet;
use super::misc_enable::MiscEnable;
use super::pebs_enable::PebsEnable;
use super::perf_capabilities::PerfCapabilities;
use super::perfevtsel::PerfEvtSel;
use super::pmc::Pmc;
use super::registers::{Intel, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, Row, read_nth, registers, write_nth};
use crate::spec::{MAX_FIXED, MAX_GP};

registers! {
    Intel:
    IA32_PMC0                   = 0x0c1..=0x0c8, Pmc,              "21.2.5";
    IA32_PERFEVTSEL0            = 0x186..=0x18d, PerfEvtSel,       "21.2.1.1";
    IA32_MISC_ENABLE            = 0x1a0..=0x1a0, MiscEnable,       "21.2";
    IA32_DEBUGCTL               = 0x1d9..=0x1d9, DebugCtl,         "18.4.1";
    IA32_FIXED_CTR0             = 0x309..=0x30c, FixedCtr,         "21.2.2";
    IA32_PERF_CAPABILITIES      = 0x345..=0x345, PerfCapabilities, "21.2.8";
    IA32_FIXED_CTR_CTRL         = 0x38d..=0x38d, FixedCtrCtrl,     "21.2.2";
    IA32_PERF_GLOBAL_STATUS     = 0x38e..=0x38e, GlobalStatus,     "21.2.2";
    IA32_PERF_GLOBAL_CTRL       = 0x38f..=0x38f, GlobalCtrl,       "21.2.2";
    IA32_PERF_GLOBAL_OVF_CTRL   = 0x390..=0x390, GlobalOvfCtrl,    "21.2.2";
    IA32_PERF_GLOBAL_STATUS_SET = 0x391..=0x391, GlobalStatusSet,  "21.2.4";
    IA32_PERF_GLOBAL_INUSE      = 0x392..=0x392, GlobalInUse,      "21.2.4";
    IA32_PEBS_ENABLE            = 0x3f1..=0x3f1, PebsEnable,       "21.8.4";
    IA32_A_PMC0                 = 0x4c1..=0x4c8, APmc,             "21.2.8";
    IA32_DS_AREA                = 0x600..=0x600, DsArea,           "18.4.9.4";
}

const _: () = assert!(
    TABLE_ROWS[Kind::Pmc as usize].count as usize == MAX_GP
        && TABLE_ROWS[Kind::FixedCtr as usize].count as usize == MAX_FIXED
);
