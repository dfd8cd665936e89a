//! The reasons for which a request failed.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// A request to the agent failed.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The guest refused, or the request cannot be sent: it is over, the next one may succeed.
    #[error("{0}")]
    Refused(String),
    /// The guest closed the connection: it ended, or its agent did.
    #[error("the guest's agent is gone ({0})")]
    Gone(String),
    /// Nothing was heard for too long.
    #[error("the guest's agent has been silent for {} s while {during}", .after.as_secs())]
    Silent {
        /// The time without a frame.
        after: Duration,
        /// The request.
        during: &'static str,
    },
    /// The agent broke the protocol.
    #[error("the guest's agent broke the protocol: {0}")]
    Protocol(&'static str),
    /// The guest sent more than was allowed for.
    #[error("the guest's {path} is too much: more than {most} bytes, or too many files")]
    Flood {
        /// The path asked for.
        path: String,
        /// The limit.
        most: u64,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A file of the host, or a stream that a program's output goes to.
    #[error("{what}: {error}")]
    Host {
        /// Its path or name.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}
