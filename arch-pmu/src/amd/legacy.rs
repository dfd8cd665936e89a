//! PerfEvtSelx and PerfCtrx, the first four counters under their old indices (APM vol. 2, 13.2.1).

use super::caps::AmdCaps;
use super::perf_ctl::PerfCtl;
use super::perf_ctr::PerfCtr;
use super::registers::{Amd, State};
use crate::host::HostCounters;
use crate::register::{GeneralProtection, Register};

/// PerfEvtSelx, the alias of PERF_CTLx.
#[derive(Debug)]
pub(super) struct PerfEvtSel;

/// PerfCtrx, the alias of PERF_CTRx.
#[derive(Debug)]
pub(super) struct LegacyCtr;

impl Register<Amd> for PerfEvtSel {
    fn exists(caps: AmdCaps, n: usize) -> bool {
        PerfCtl::exists(caps, n)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        PerfCtl::read(state, n)
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        PerfCtl::write(state, n, value)
    }
}

impl Register<Amd> for LegacyCtr {
    fn exists(caps: AmdCaps, n: usize) -> bool {
        PerfCtr::exists(caps, n)
    }

    fn read<H: HostCounters>(state: &mut State<'_, H>, n: usize) -> u64 {
        PerfCtr::read(state, n)
    }

    fn write<H: HostCounters>(state: &mut State<'_, H>, n: usize, value: u64) -> Result<(), GeneralProtection> {
        PerfCtr::write(state, n, value)
    }
}
