//! The findings as text.

use std::fmt::Write;

use textwrap::{Options, WordSplitter};

use super::diagnosis::Diagnosis;
use results::error::{Exit, one_line};
use results::host::finding::{Finding, Status};
use results::table::layout;

/// Columns before the text of a finding: status and check.
const INDENT: usize = 30;

/// Fills `text` to `width` behind the indent; words are never cut.
fn wrap(out: &mut String, text: &str, width: usize) {
    let indent = " ".repeat(INDENT);
    // A path to copy is not split at its hyphens.
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let options = options.initial_indent(&indent).subsequent_indent(&indent).break_words(false);
    out.push_str(textwrap::fill(text, options).trim_start());
    out.push('\n');
}

fn show(out: &mut String, finding: &Finding, width: usize) {
    // An unknown setting is neither fine nor a fault.
    let unknown = finding.status == Status::Ok && finding.found.starts_with("unknown");
    let status = match finding.status {
        Status::Ok if unknown => "?",
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Missing => "MISSING",
    };
    let _ = write!(out, "{status:<8}{:<22}", finding.check);
    wrap(out, &one_line(&finding.found), width);
    if unknown {
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &format!("why: this host does not tell; {}", finding.why), width);
    }
    if finding.status != Status::Ok {
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &format!("why: {}", finding.why), width);
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &format!("do:  {}", finding.remedy), width);
    }
}

/// The findings for a terminal or a pipe; a check without a finding takes one line.
#[must_use]
pub fn text(diagnosis: &Diagnosis) -> String {
    let width = layout::columns().max(INDENT + 20);
    let mut out = format!("host class: {}\n\n", diagnosis.host_class);
    for finding in &diagnosis.findings {
        show(&mut out, finding, width);
    }
    let simulation = "a simulation, so that nothing is measured";
    let auto = diagnosis.auto_backend.as_deref().filter(|_| diagnosis.exit() == Exit::Done).unwrap_or(simulation);
    let _ = write!(out, "\n{:<INDENT$}", "--backend auto uses");
    wrap(&mut out, &format!("{auto}: {}", one_line(&diagnosis.auto_why)), width);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_does_not_tell_is_not_ok() {
        let shown = |found: &str| {
            let mut out = String::new();
            show(&mut out, &Finding::new("governor", Status::Ok, found, "it matters", ""), 80);
            out
        };
        assert!(shown("unknown").starts_with("?  ") && shown("unknown").contains("does not tell; it matters"));
        assert!(shown("performance").starts_with("ok  ") && !shown("performance").contains("why"));
    }

    #[test]
    fn long_text_is_wrapped_at_words_and_none_is_lost() {
        let text = "a sentence of several words that does not fit into one line of that width";
        let mut out = String::new();
        wrap(&mut out, text, 60);
        assert!(out.lines().count() > 1);
        assert!(out.lines().skip(1).all(|line| line.chars().count() <= 60));
        assert_eq!(one_line(&out), text);
    }
}
