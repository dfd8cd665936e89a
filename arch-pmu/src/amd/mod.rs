//! AMD's core PMU: its registers, those of one kind in one file, and the table of them (`table.rs`).

mod caps;
mod global;
mod legacy;
mod perf_ctl;
mod perf_ctr;
mod registers;
mod table;

pub use caps::AmdCaps;
pub use perf_ctl::PerfCtl;
pub use registers::Svm;
pub use table::{
    PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CNTR_GLOBAL_STATUS_CLR, PERF_CNTR_GLOBAL_STATUS_SET, PERF_CTL0,
    PERF_CTR0, PERF_LEGACY_CTL0, PERF_LEGACY_CTR0, TABLE,
};

pub(crate) use perf_ctl::{depends_on_svm, set_svm};
pub(crate) use registers::{Amd, Registers};
pub(crate) use table::{TABLE_ROWS, decode, read, reset, write};
