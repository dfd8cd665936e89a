//! What a look at the host found.

use serde::Serialize;

/// How a check ended.
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
    /// A warning unless `ok`.
    #[must_use]
    pub const fn warn_unless(ok: bool) -> Self {
        if ok { Self::Ok } else { Self::Warn }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do; empty if nothing needs doing.
    pub remedy: String,
    /// Whether nothing can be measured without it.
    pub vital: bool,
}

impl Finding {
    /// A finding that is not vital. The remedy is dropped where all is fine.
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
