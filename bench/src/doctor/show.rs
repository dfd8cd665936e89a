//! The findings as text.

use std::fmt::Write;

use super::Diagnosis;
use crate::error::one_line;
use crate::host::finding::{Finding, Status};
use crate::table::layout;

/// Columns before the text of a finding: status and check.
const INDENT: usize = 30;

/// Breaks `text` at white space so that it fits `width` behind the indent; words are never cut.
fn wrap(out: &mut String, text: &str, width: usize) {
    let mut column = INDENT;
    for (i, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > width {
            // Writing to a String cannot fail, here and below.
            let _ = write!(out, "\n{:INDENT$}{word}", "");
            column = INDENT + length;
        } else {
            let space = if i > 0 { " " } else { "" };
            let _ = write!(out, "{space}{word}");
            column += length + space.len();
        }
    }
    out.push('\n');
}

fn show(out: &mut String, finding: &Finding, width: usize) {
    let status = match finding.status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Missing => "MISSING",
    };
    let _ = write!(out, "{status:<8}{:<22}", finding.check);
    wrap(out, &one_line(&finding.found), width);
    if finding.status != Status::Ok {
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &format!("why: {}", finding.why), width);
        let _ = write!(out, "{:INDENT$}", "");
        wrap(out, &format!("do:  {}", finding.remedy), width);
    }
}

/// The findings for a terminal or a pipe; what is fine takes one line.
#[must_use]
pub fn text(diagnosis: &Diagnosis) -> String {
    let width = usize::from(layout::width().unwrap_or(110)).max(INDENT + 20);
    let mut out = format!("host class: {}\n\n", diagnosis.host_class);
    for finding in &diagnosis.findings {
        show(&mut out, finding, width);
    }
    let auto = diagnosis.auto_backend.as_deref().unwrap_or("nothing");
    let _ = write!(out, "\n{:<INDENT$}", "--backend auto uses");
    wrap(&mut out, &format!("{auto}: {}", one_line(&diagnosis.auto_why)), width);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
