//! Collects the facts of the host, for the result document and for `doctor`.

mod class;
mod facts;
pub mod finding;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod fs;
pub mod noise;
mod quota;
mod read;
mod tuning;

pub use class::host_class;
pub use facts::{CpuTime, HostFacts};
pub use fs::HostFs;
pub use quota::{Quota, Throttling};
pub use read::{KVM_ARMS, REGISTER_COST_WORD, kvm_arm};
pub use tuning::{IdleState, Tuning};
