//! Elements of a campaign, as its owner passes them in.

use serde::Serialize;

/// One element and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ElementLine {
    /// Experiment, variant, repetition.
    pub name: String,
    /// Host; empty where it never had one.
    pub host: String,
    /// State in a word: done, failed, missing …
    pub state: String,
    /// Exit code; `None` of one that did not end by itself.
    pub exit_code: Option<u8>,
    /// Job of the scheduler; empty without one.
    pub job: String,
    /// Why it failed; empty of one that did not.
    pub reason: String,
}

impl ElementLine {
    /// Whether it did not do what it was to do.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.exit_code != Some(0)
    }

    /// The cells of a table.
    pub(super) fn cells(&self) -> [String; 6] {
        let exit = self.exit_code.map_or_else(|| "–".to_owned(), |code| code.to_string());
        [&self.name, &self.host, &self.state, &exit, &self.job, &self.reason].map(Clone::clone)
    }
}

/// Heads of [`ElementLine::cells`].
pub(super) const HEAD: [&str; 6] = ["element", "host", "state", "exit", "job", "reason"];
