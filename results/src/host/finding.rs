//! The findings of a look at the host.

use serde::Serialize;

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Fine.
    Ok,
    /// It works, but the figures or the choice suffer.
    Warn,
    /// Something does not work at all.
    Missing,
}

impl Status {
    /// Creates a warning unless `ok`.
    #[must_use]
    pub const fn warn_unless(ok: bool) -> Self {
        if ok { Self::Ok } else { Self::Warn }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject of the check.
    pub check: &'static str,
    /// Outcome of the check.
    pub status: Status,
    /// Fact that was found.
    pub found: String,
    /// Reason why it matters.
    pub why: &'static str,
    /// Remedy; empty if nothing needs doing.
    pub remedy: String,
    /// True if nothing can be measured without it.
    pub vital: bool,
}

impl Finding {
    /// Creates a finding that is not vital. The remedy is dropped where all is fine.
    pub fn new(
        check: &'static str,
        status: Status,
        found: impl Into<String>,
        why: &'static str,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            status,
            found: found.into(),
            why,
            remedy: if status == Status::Ok { String::new() } else { remedy.into() },
            vital: false,
        }
    }
}
