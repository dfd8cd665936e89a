//! Intel's architectural PMU: its registers, one file each, and a table of all (`table.rs`).
//!
//! A register's file holds its layout, its value at RESET, its rule of existence, its read and its write. A new register is
//! one such file and one row of the table.

mod a_pmc;
mod caps;
mod debugctl;
mod ds_area;
mod fixed_ctr;
mod fixed_ctr_ctrl;
mod global_bits;
mod global_ctrl;
mod global_inuse;
mod global_ovf_ctrl;
mod global_status;
mod global_status_set;
mod misc_enable;
mod pebs_enable;
mod perf_capabilities;
mod perfevtsel;
mod pmc;
pub(crate) mod rdpmc;
mod registers;
mod table;

pub use caps::IntelCaps;
pub use debugctl::DebugCtl;
pub use fixed_ctr_ctrl::FixedControl;
pub use perfevtsel::PerfEvtSel;
pub use table::{
    IA32_A_PMC0, IA32_DEBUGCTL, IA32_DS_AREA, IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_MISC_ENABLE, IA32_PEBS_ENABLE,
    IA32_PERF_CAPABILITIES, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_INUSE, IA32_PERF_GLOBAL_OVF_CTRL,
    IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_SET, IA32_PERFEVTSEL0, IA32_PMC0, TABLE,
};

pub(crate) use debugctl::{freeze_on_pmi, freezes_on_pmi};
pub(crate) use registers::{Intel, Registers};
pub(crate) use table::{TABLE_ROWS, decode, read, reset, write};
