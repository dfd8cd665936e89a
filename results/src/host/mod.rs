//! Collects the facts of the host, for the result document and for `doctor`.

mod facts;
mod fs;
pub mod noise;
mod quota;
mod read;
mod tuning;

pub use facts::{CpuTime, HostFacts, host_class};
pub use fs::HostFs;
pub use quota::{Quota, Throttling};
pub use read::mediated;
pub use tuning::{IdleState, Tuning};
