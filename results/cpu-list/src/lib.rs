//! Lists of CPUs as Linux writes them, e.g. `0,2,4-7`.

mod list;

pub use list::{CpuList, MAX_CPU};
