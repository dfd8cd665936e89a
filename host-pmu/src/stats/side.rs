//! The account of one vCPU's host side.

use super::ops::OpStats;
use super::recorder::Recorder;

/// Operations of the host side of a vCPU, and its last failure. Its other counts are [`Counts`](counts::Counts).
#[derive(Clone, Debug, Default)]
pub struct HostSide {
    /// Operations by kind.
    pub ops: OpStats,
    /// Time from the host's record of an overflow (without a host event, the time its timer was due) to the VMM seeing it, ns.
    pub signal_ns: Recorder,
    /// Last error text of a failed host operation.
    pub last_error: Option<String>,
}
