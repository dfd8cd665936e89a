//! The `vpmu` commands that a document shows.

use super::text::{Line, lines};

/// Ways to call the tool; what follows are its words.
const CALLS: [&str; 4] = ["vpmu", "target/release/vpmu", "cargo run --release --", "cargo run --release"];

/// A command as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its line, from 1.
    pub line: usize,
    /// Its words, `vpmu` first.
    pub words: Vec<String>,
}

/// The commands in the code blocks of a document, without pipes, redirections and comments. A synopsis, with `[…]` or `A|B`,
/// is none.
#[must_use]
pub fn shown(text: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    // A command that goes on in the next line, and its first line.
    let mut begun: Option<(usize, String)> = None;
    for (number, line) in lines(text) {
        let Line::Code(language, line) = line else { continue };
        if !["", "sh", "console", "bash"].contains(&language) {
            continue;
        }
        let (number, line) = match begun.take() {
            Some((first, before)) => (first, before + line.trim_start()),
            None => (number, line.to_owned()),
        };
        if let Some(part) = line.strip_suffix('\\') {
            begun = Some((number, part.to_owned()));
            continue;
        }
        for part in commands(&line) {
            if let Some(words) = words(part) {
                found.push(Shown { line: number, words });
            }
        }
    }
    found
}

/// The commands of a line. A description in its own column is cut off.
fn commands(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.split("   ").next().unwrap_or_default();
    line.split("&&").map(|part| part.split([';', '>']).next().unwrap_or_default().trim())
}

fn words(command: &str) -> Option<Vec<String>> {
    let rest = CALLS.iter().find_map(|call| {
        let rest = command.strip_prefix(call)?;
        (rest.is_empty() || rest.starts_with(' ')).then_some(rest)
    })?;
    let mut words = vec!["vpmu".to_owned()];
    let mut word = String::new();
    let mut quote = None;
    let mut open = false;
    for c in rest.chars().chain([' ']) {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, ' ') => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (_, c) => word.push(c),
        }
    }
    if let Some(pipe) = words.iter().position(|word| word == "|") {
        words.truncate(pipe);
    }
    let open = |word: &String| word.starts_with('[') || word == "..." || word.ends_with('…');
    let choice = |word: &String| word.contains('|') && word.chars().all(|c| c.is_ascii_uppercase() || c == '|');
    (!words.iter().any(|word| open(word) || choice(word))).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        shown(text).into_iter().map(|shown| shown.words.join("␣")).collect()
    }

    #[test]
    fn commands_are_found_with_their_quotes_and_without_the_rest() {
        let text = "`vpmu not` this\n```sh\nvpmu --json | jq '.x'   # words\ncargo run --release -- doctor > file\ncargo build && vpmu report\n\
                    vpmu export FILE|DIR [-o FILE]\nvpmu-other\n```\n\n    vpmu show 'a b' \"\"      lists one thing\n";
        assert_eq!(all(text), ["vpmu␣--json", "vpmu␣doctor", "vpmu␣report", "vpmu␣show␣a b␣"]);
    }

    #[test]
    fn output_and_other_languages_are_no_commands() {
        assert_eq!(all("```toml\nvpmu = 1\n```\n```text\nvpmu doctor\n```\n"), [""; 0]);
    }
}
