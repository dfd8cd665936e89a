//! The table of AMD's registers. Decoding, dispatch, names, the numbers for statistics and the VMM's MSR filter come from it.

use super::global::{GlobalCtl, GlobalStatus, GlobalStatusClr, GlobalStatusSet};
use super::legacy::{LegacyCtr, PerfEvtSel};
use super::perf_ctl::PerfCtl;
use super::perf_ctr::PerfCtr;
use super::registers::{Amd, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register, Row, read_nth, registers, write_nth};

registers! {
    Amd:
    PERF_CNTR_GLOBAL_STATUS     = 0xc000_0300..=0xc000_0300,        GlobalStatus,    "13.2.3";
    PERF_CNTR_GLOBAL_CTL        = 0xc000_0301..=0xc000_0301,        GlobalCtl,       "13.2.3";
    PERF_CNTR_GLOBAL_STATUS_CLR = 0xc000_0302..=0xc000_0302,        GlobalStatusClr, "13.2.3";
    PERF_CNTR_GLOBAL_STATUS_SET = 0xc000_0303..=0xc000_0303,        GlobalStatusSet, "13.2.3";
    PERF_LEGACY_CTL0            = 0xc001_0000..=0xc001_0003,        PerfEvtSel,      "13.2.1";
    PERF_LEGACY_CTR0            = 0xc001_0004..=0xc001_0007,        LegacyCtr,       "13.2.1";
    PERF_CTL0                   = 0xc001_0200..=0xc001_020a step 2, PerfCtl,         "13.2.1";
    PERF_CTR0                   = 0xc001_0201..=0xc001_020b step 2, PerfCtr,         "13.2.1";
}
