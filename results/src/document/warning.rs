//! A caveat.

use serde::{Deserialize, Serialize};

/// Code of the warning of arms that no counter overflowed in.
pub const NO_OVERFLOWS: &str = "no-overflows";
/// Code of the warning of an arm whose guest gets no period whole.
pub const LIVELOCK: &str = "livelock";

/// A caveat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Warning {
    /// A stable key, e.g. "lost-nmis".
    pub code: String,
    /// The arm it is about; `None`: the whole experiment.
    pub arm: Option<String>,
    /// Text of the warning, with its meaning.
    pub message: String,
    /// The command that mends it, for a setting of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Warning {
    /// Makes a warning about the whole experiment.
    pub fn of_all(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), arm: None, message: message.into(), remedy: None }
    }
}
