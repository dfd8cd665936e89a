//! Samples of a guest: where each vCPU was when a host event overflowed, and by which calls it came there.
//!
//! The kernel gives a VMM no samples of a guest whose PMU it emulates, and call chains of no guest at all. This VMM has
//! the guest's registers and memory: the event's signal ends KVM_RUN, and the vCPU's thread reads both before it enters
//! again.
//!
//! The thread writes to its own [`queue`] and never waits: samples that find no room are counted. A thread of the
//! caller's takes samples out.

mod chain;
mod orc;
pub mod queue;
mod take;

pub use orc::{CallerRule, Orc, OrcError};
pub use queue::{MOST_EVENTS, Queue, Sample};
pub use take::{Channel, Sampling};

pub(crate) use take::{Past, VcpuSampler};
