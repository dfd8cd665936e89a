//! Tables that are rendered as text, doubled blank lines, and sentences that begin behind a code block in lower case.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::links::documents;
use super::text::{Line, lines};

/// What is laid out wrongly in all documents below `root`.
pub fn wrong(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for document in documents(root)? {
        let text = std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let name = document.strip_prefix(root).unwrap_or(&document).display();
        findings.extend(found(&text).into_iter().map(|(number, what)| format!("{name}:{number}: {what}")));
    }
    Ok(findings)
}

/// Lines, from 1, and what is wrong there.
fn found(text: &str) -> Vec<(usize, &'static str)> {
    let lines = lines(text);
    let prose = |at: Option<usize>| match at.and_then(|at| lines.get(at)) {
        Some((_, Line::Prose(line))) => Some(*line),
        _ => None,
    };
    let mut found = Vec::new();
    let mut behind_code = false;
    for (at, (number, line)) in lines.iter().enumerate() {
        let Line::Prose(line) = line else {
            behind_code = true;
            continue;
        };
        // The numbers of lines go on, but for fences.
        let before = at.checked_sub(1).filter(|before| lines[*before].0 + 1 == *number);
        let (before, after) = (prose(before), prose(Some(at + 1)));
        if line.trim().is_empty() {
            if before.is_some_and(|before| before.trim().is_empty()) {
                found.push((*number, "a second blank line"));
            }
            continue;
        }
        if is_row(line) && !before.is_some_and(is_row) {
            if !after.is_some_and(is_rule) {
                found.push((*number, "a row of no table"));
            } else if before.is_some_and(|before| !before.trim().is_empty()) {
                found.push((*number, "a table needs a blank line before it"));
            }
        }
        if behind_code && line.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push((*number, "a sentence that begins behind a code block, in lower case"));
        }
        behind_code = false;
    }
    found
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Whether a line is that between a table's head and its rows.
fn is_rule(line: &str) -> bool {
    is_row(line) && line.contains("--") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| a | b |\n|---|:-:|\n| 1 | 2 |\n";

    fn numbers(text: &str) -> Vec<usize> {
        found(text).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_table_with_a_head_is_fine_and_a_row_in_code_is_none() {
        assert_eq!(found(&format!("Text.\n\n{HEAD}\n- item:\n\n  | a |\n  |---|\n  | 1 |\n")), []);
        assert_eq!(found(&format!("```text\n| a |\n```\n\n    | b |\n\n{HEAD}")), []);
        assert_eq!(found(&format!("```text\n| a |\n```\n{HEAD}")), []);
    }

    #[test]
    fn a_row_behind_a_blank_line_and_a_table_within_a_paragraph_are_found() {
        assert_eq!(numbers(&format!("{HEAD}\n| 3 | 4 |\n")), [5]);
        assert_eq!(numbers(&format!("Text\n{HEAD}")), [2]);
    }

    #[test]
    fn doubled_blank_lines_and_lower_case_behind_code_are_found() {
        assert_eq!(numbers("a\n\n\nb\n"), [3]);
        assert_eq!(found("a\n\n```\nx\n\n\ny\n```\n\nThis runs it.\nand more\n"), []);
        assert_eq!(numbers("a\n\n    vpmu\n\nruns it.\n"), [5]);
        assert_eq!(numbers("```\nvpmu\n```\nruns it.\n"), [4]);
    }
}
