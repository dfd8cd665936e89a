//! The guest of a command that samples.

use crate::arms::linux_boot::spec::LinuxSpec;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::inspect::run::spec::RunSpec;
use crate::setting::strategy::StrategyChoice;

/// The payload as a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct PayloadSpec {
    /// Its work, its vCPUs, its samples.
    pub experiment: NmiLatencySpec,
    /// The strategy behind its counters.
    pub strategy: StrategyChoice,
}

/// The guest that is sampled.
#[derive(Clone, Debug)]
pub enum GuestSpec {
    /// The project's own payload.
    Payload(Box<PayloadSpec>),
    /// A third-party image.
    Image(Box<RunSpec>),
    /// A distribution's kernel.
    Linux(Box<LinuxSpec>),
}
