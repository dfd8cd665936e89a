//! Elements of a campaign, as its owner passes them in.

use serde::Serialize;

use results::table::layout::plural;

/// End of an element: as it was to be, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementEnd {
    /// It did.
    #[default]
    Ok,
    /// It failed.
    Failed,
    /// It has no outcome yet, or an inconclusive one.
    Open,
}

/// One element and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ElementLine {
    /// Experiment, variant, repetition.
    pub name: String,
    /// Host; empty where it never had one.
    pub host: String,
    /// The end of the element: done, failed or open.
    pub end: ElementEnd,
    /// State in a word.
    pub state: String,
    /// Exit code; `None` of one that did not end by itself.
    pub exit_code: Option<u8>,
    /// Job of the scheduler; empty without one.
    pub job: String,
    /// Why it failed; empty of one that did not.
    pub reason: String,
}

impl ElementLine {
    /// Those that failed, then those without a conclusive outcome.
    pub(super) fn with_a_problem(elements: &[Self]) -> Vec<&Self> {
        let of = |end: ElementEnd| elements.iter().filter(move |element| element.end == end);
        of(ElementEnd::Failed).chain(of(ElementEnd::Open)).collect()
    }

    /// The caption of a table of them.
    pub(super) fn caption(elements: &[Self]) -> String {
        let count = |end: ElementEnd| elements.iter().filter(|element| element.end == end).count();
        let (failed, open) = (count(ElementEnd::Failed), count(ElementEnd::Open));
        format!("Of {}: {failed} failed, {open} without a conclusive outcome", plural(elements.len(), "element"))
    }

    /// The cells of a table.
    pub(super) fn cells(&self) -> [String; 6] {
        let exit = self.exit_code.map_or_else(|| "–".to_owned(), |code| code.to_string());
        [&self.name, &self.host, &self.state, &exit, &self.job, &self.reason].map(Clone::clone)
    }
}

/// Heads of [`ElementLine::cells`].
pub(super) const HEAD: [&str; 6] = ["element", "host", "state", "exit", "job", "reason"];
