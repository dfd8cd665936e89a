//! The registers: one file each, and a table of all (`table.rs`).
//!
//! A register's file holds its layout, its value at RESET, its rule of existence, its read and its write. A new register is
//! one such file and one row of the table.

mod a_pmc;
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
mod register;
mod table;

pub use debugctl::DebugCtl;
pub use fixed_ctr_ctrl::FixedControl;
pub use perfevtsel::PerfEvtSel;
pub use register::{GeneralProtection, canonical};
pub use table::*;

pub(crate) use debugctl::{freeze_on_pmi, freezes_on_pmi};
pub(crate) use table::{filter_changed, read, reset, write};
