//! Documents in Markdown: links, anchors and paths that lead somewhere; the commands they show.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::structure::sources;

// A Markdown file as lines of prose and lines of code.

/// A line of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    /// Outside code blocks.
    Prose(&'a str),
    /// Within a fenced block, by its language; an indented block has none.
    Code(&'a str, &'a str),
}

/// Returns every line, with its number from 1. Fences are left out.
fn lines(text: &str) -> Vec<(usize, Line<'_>)> {
    let mut fence: Option<&str> = None;
    let mut found = Vec::new();
    let (mut blank_before, mut indented) = (true, false);
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim()) };
            continue;
        }
        // An indented block begins after a blank line.
        indented = fence.is_none() && line.starts_with("    ") && (blank_before || indented);
        blank_before = line.trim().is_empty();
        found.push((
            number + 1,
            match fence {
                Some(language) => Line::Code(language, line),
                None if indented => Line::Code("", line),
                None => Line::Prose(line),
            },
        ));
    }
    found
}

/// Returns the parts of a line between pairs of backticks, and the rest.
fn split_code(line: &str) -> (Vec<&str>, String) {
    let mut parts = line.split('`');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    let mut code = Vec::new();
    while let (Some(inside), Some(outside)) = (parts.next(), parts.next()) {
        code.push(inside);
        rest.push_str("``");
        rest.push_str(outside);
    }
    (code, rest)
}

// Links, anchors, and paths in backticks.

/// README.md, CHANGELOG.md and everything in docs.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = sources(&root.join("docs"), "md")?;
    found.extend(["README.md", "CHANGELOG.md"].map(|name| root.join(name)).into_iter().filter(|path| path.is_file()));
    Ok(found)
}

/// Links that lead nowhere and paths that do not exist, in all documents below `root`.
pub fn dead(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for document in documents(root)? {
        let text = std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let name = document.strip_prefix(root).unwrap_or(&document).display().to_string();
        let folder = document.parent().unwrap_or(root);
        for (number, line) in lines(&text) {
            let Line::Prose(line) = line else { continue };
            let (code, prose) = split_code(line);
            for target in targets(&prose) {
                if let Some(why) = leads_nowhere(&document, folder, target)? {
                    findings.push(format!("{name}:{number}: {target}: {why}"));
                }
            }
            // A log of changes names what is gone, too.
            if name != "CHANGELOG.md" {
                let missing =
                    code.into_iter().filter(|word| is_path(root, word)).filter(|word| !exists(root, folder, word));
                findings.extend(missing.map(|word| format!("{name}:{number}: `{word}` does not exist")));
            }
        }
    }
    Ok(findings)
}

/// Returns the targets of `[text](target)` and `[text]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> = line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target.trim());
    }
    found.into_iter().map(|target| target.split(' ').next().unwrap_or(target)).collect()
}

fn leads_nowhere(document: &Path, folder: &Path, target: &str) -> Result<Option<&'static str>> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { document.to_owned() } else { folder.join(path) };
    if !file.exists() {
        return Ok(Some("no such file"));
    }
    match anchor {
        Some(anchor) if !anchors(&std::fs::read_to_string(&file)?).iter().any(|known| known == anchor) => {
            Ok(Some("no heading of that name"))
        }
        _ => Ok(None),
    }
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in lines(text) {
        let Line::Prose(line) = line else { continue };
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let slug: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let same = found.iter().filter(|known| **known == slug).count();
        found.push(if same == 0 { slug } else { format!("{slug}-{same}") });
    }
    found
}

/// Returns whether a word in backticks is a path of this tree: its first part is a folder at the top, and nothing is left open.
fn is_path(root: &Path, word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'));
    let Some((first, rest)) = word.split_once('/') else { return false };
    plain
        && !first.is_empty()
        && first != ".."
        && first != "target"
        && !rest.contains("...")
        && root.join(first).is_dir()
}

fn exists(root: &Path, folder: &Path, word: &str) -> bool {
    root.join(word).exists() || folder.join(word).exists()
}

// The `vpmu` commands that a document shows.

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

/// Returns the commands in the code blocks of a document, without pipes, redirections and comments. A synopsis, with
/// `[…]` or `A|B`, is none.
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

/// Returns the commands of a line. A description in its own column is cut off.
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
    // A command that was cut within its quotes goes up to there.
    let split = ["", "'", "\""].iter().find_map(|quote| shlex::split(&format!("{rest}{quote}")))?;
    let mut words = vec!["vpmu".to_owned()];
    words.extend(split.into_iter().take_while(|word| word != "|"));
    let open = |word: &String| word.starts_with('[') || word == "..." || word.ends_with('…');
    let choice = |word: &String| word.contains('|') && word.chars().all(|c| c.is_ascii_uppercase() || c == '|');
    (!words.iter().any(|word| open(word) || choice(word))).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_and_indented_code_is_distinguished_from_prose() {
        let text = "prose\n```sh\nvpmu\n```\n    continued prose\n\n    vpmu doctor\n    vpmu show\nprose";
        let found: Vec<_> =
            lines(text).into_iter().map(|(_, line)| line).filter(|line| *line != Line::Prose("")).collect();
        assert_eq!(
            found,
            [
                Line::Prose("prose"),
                Line::Code("sh", "vpmu"),
                Line::Prose("    continued prose"),
                Line::Code("", "    vpmu doctor"),
                Line::Code("", "    vpmu show"),
                Line::Prose("prose"),
            ]
        );
    }

    #[test]
    fn planted_dead_links_anchors_and_paths_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("docs/other.md", "# The `one` heading, and more\n# Twice\n## Twice\n");
        write("src/lib.rs", "");
        write(
            "README.md",
            "[a](docs/other.md) [b](docs/other.md#the-one-heading-and-more) [c](#here) `src/lib.rs` [d](docs/other.md#twice-1)\n\
     # Here\n\
     ```\n[fine](in/code)\n```\n\
     [web](https://example.org/x)\n",
        );
        assert_eq!(dead(dir.path()).unwrap(), [""; 0]);
        write("README.md", "[a](docs/none.md)\n[b](docs/other.md#two) `src/none.rs`, `usr/x`\n\n[ref]: nowhere.md\n");
        let found = dead(dir.path()).unwrap();
        assert_eq!(
            found,
            [
                "README.md:1: docs/none.md: no such file",
                "README.md:2: docs/other.md#two: no heading of that name",
                "README.md:2: `src/none.rs` does not exist",
                "README.md:4: nowhere.md: no such file",
            ]
        );
    }

    fn all(text: &str) -> Vec<String> {
        shown(text).into_iter().map(|shown| shown.words.join("␣")).collect()
    }

    #[test]
    fn commands_are_found_with_their_quotes_and_without_the_rest() {
        let text = "`vpmu not` this\n```sh\nvpmu --json | jq '.x'   # words\ncargo run --release -- doctor > file\ncargo build && vpmu report\n\
                vpmu export FILE|DIR [-o FILE]\nvpmu-other\n```\n```toml\nvpmu = 1\n```\n\n    vpmu show 'a b' \"\"      lists one thing\n";
        assert_eq!(all(text), ["vpmu␣--json", "vpmu␣doctor", "vpmu␣report", "vpmu␣show␣a b␣"]);
    }
}
