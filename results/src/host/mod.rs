//! Collects the facts of the host, for the result document and for `doctor`.

mod facts;
mod fs;
pub mod noise;
mod quota;
mod read;
mod tuning;

pub use facts::{HostFacts, host_class};
pub use fs::HostFs;
pub use quota::Quota;
pub use read::mediated;
pub use tuning::{CpuTime, IdleState, Tuning};
