//! The reasons for which a request failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// A request to the agent failed.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The guest refused: the request is over, the next one may succeed.
    #[error("in the guest: {operation} {path}: {}", io::Error::from_raw_os_error(*.errno))]
    Guest {
        /// The operation that failed, such as "open".
        operation: String,
        /// The path it failed on.
        path: String,
        /// The guest's errno.
        errno: i32,
    },
    /// The guest closed the connection: it ended, or its agent did.
    #[error("the guest's agent is gone ({0})")]
    Gone(String),
    /// Nothing was heard for too long.
    #[error("the guest's agent has been silent for {} s while {during}", .after.as_secs())]
    Silent {
        /// The time without a byte.
        after: Duration,
        /// The request.
        during: &'static str,
    },
    /// The agent is of another version.
    #[error("the guest's agent speaks version {0} of the protocol, this program version {expected}; make the initramfs anew", expected = crate::protocol::VERSION)]
    Version(u32),
    /// The agent broke the protocol.
    #[error("the guest's agent broke the protocol: {0}")]
    Protocol(&'static str),
    /// The request is too large for the protocol.
    #[error("{what} has {length} bytes; at most {most} are possible")]
    TooLarge {
        /// A name for it.
        what: &'static str,
        /// Its bytes.
        length: usize,
        /// The limit.
        most: usize,
    },
    /// The request has a zero byte in a string.
    #[error("{0:?} has a zero byte")]
    ZeroByte(String),
    /// The guest sent more than was allowed for.
    #[error("the guest's {path} is too much: more than {most} bytes, or too many files")]
    Flood {
        /// The path asked for.
        path: String,
        /// The limit.
        most: u64,
    },
    /// The guest named a path that is not below the folder asked for.
    #[error("the guest's agent sent the path {0:?}, which is not below the folder asked for")]
    Path(String),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A file of the host.
    #[error("{}: {error}", .path.display())]
    Host {
        /// Its path.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// The output of a program or a file cannot be written on the host, or an input cannot be read.
    #[error("{what}: {error}")]
    Stream {
        /// The stream.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

impl AgentError {
    /// Returns whether the guest refused this one request, and the connection is as good as before.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Guest { .. } | Self::TooLarge { .. } | Self::ZeroByte(_))
    }
}
