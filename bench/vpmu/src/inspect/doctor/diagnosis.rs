//! The findings of `doctor` with what they were found on.

use results::error::Exit;
use results::host::HostFacts;
use results::host::finding::{Finding, Status};
use serde::Serialize;

use crate::setting::process;

/// The report of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// See [`results::host::host_class`].
    pub host_class: String,
    /// The backend of `auto`; `None` if none works.
    pub auto_backend: Option<String>,
    /// It is a stand-in for hardware events.
    pub stand_in: bool,
    /// The reason for that one.
    pub auto_why: String,
    /// The checks.
    pub findings: Vec<Finding>,
    /// All facts.
    pub host: HostFacts,
}

impl Diagnosis {
    /// [`Exit::Done`], or [`Exit::Host`] if this host cannot measure.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.findings.iter().any(|f| f.vital && f.status == Status::Missing) { Exit::Host } else { Exit::Done }
    }
}

/// Limits of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// RLIMIT_NOFILE; `None` = unlimited.
    pub open_files: Option<u64>,
    /// RLIMIT_SIGPENDING; `None` = unlimited.
    pub pending_signals: Option<u64>,
    /// Signals of its user that are queued now, of those that the limit allows.
    pub queued_signals: u64,
    /// It may open any perf event, by root's capabilities or CAP_PERFMON.
    pub perfmon: bool,
}

impl Limits {
    /// Reads the limits of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            open_files: process::soft_limit(process::Limit::OpenFiles),
            pending_signals: process::soft_limit(process::Limit::PendingSignals),
            queued_signals: process::queued_signals(),
            perfmon: process::has_perfmon(),
        }
    }
}
