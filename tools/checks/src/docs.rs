//! Documents in Markdown: links, anchors and paths that lead somewhere; the commands they show.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::structure::sources;

/// Returns the lines of a document with their numbers from 1: within a fenced block with its language, else with none. Fences are left
/// out.
fn lines(text: &str) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let mut fence = None;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim()) };
            return None;
        }
        Some((number, fence, line))
    })
}

fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text).filter(|(_, fence, _)| fence.is_none()).map(|(number, _, line)| (number, line))
}

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
        for (number, line) in prose(&text) {
            // What stands between backticks is at odd places.
            let parts: Vec<&str> = line.split('`').collect();
            for target in targets(&parts.iter().copied().step_by(2).collect::<Vec<_>>().join("``")) {
                if let Some(why) = leads_nowhere(&document, folder, target)? {
                    findings.push(format!("{name}:{number}: {target}: {why}"));
                }
            }
            // A log of changes names what is gone, too.
            let code = parts.iter().skip(1).step_by(2).filter(|word| name != "CHANGELOG.md" && is_path(root, word));
            let missing = code.filter(|word| ![root, folder].iter().any(|base| base.join(word).exists()));
            findings.extend(missing.map(|word| format!("{name}:{number}: `{word}` does not exist")));
        }
    }
    Ok(findings)
}

/// Returns the targets of `[text](target)` and `[text]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let reference = line.split_once("]: ").filter(|_| line.starts_with('[')).map(|(_, target)| target.trim());
    inline.chain(reference).map(|target| target.split(' ').next().unwrap_or(target)).collect()
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
    let Some(anchor) = anchor else { return Ok(None) };
    let is_known = anchors(&std::fs::read_to_string(&file)?).iter().any(|known| known == anchor);
    Ok((!is_known).then_some("no heading of that name"))
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let slug: String = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
        let same = found.iter().filter(|known| **known == slug).count();
        found.push(if same == 0 { slug } else { format!("{slug}-{same}") });
    }
    found
}

/// Returns whether a word in backticks is a path of this tree: its first part is a folder at the top, and nothing is left open.
fn is_path(root: &Path, word: &str) -> bool {
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'));
    word.split_once('/').is_some_and(|(first, rest)| {
        is_plain && !["", "..", "target"].contains(&first) && !rest.contains("...") && root.join(first).is_dir()
    })
}

/// Ways to call the tool; what follows are its words.
const CALLS: [&str; 4] = ["vpmu", "target/release/vpmu", "cargo run --release --", "cargo run --release"];

/// Returns the commands of the tool in the code blocks of a document, each with its line and its words, `vpmu` first, without pipes,
/// redirections and comments. A synopsis, with `[…]` or `A|B`, is none.
pub fn shown(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    // A command that goes on in the next line, and its first line.
    let mut begun: Option<(usize, String)> = None;
    for (number, fence, line) in lines(text) {
        if !fence.is_some_and(|language| ["", "sh", "console", "bash"].contains(&language)) {
            continue;
        }
        let (number, line) =
            begun.take().map_or((number, line.to_owned()), |(first, before)| (first, before + line.trim_start()));
        if let Some(part) = line.strip_suffix('\\') {
            begun = Some((number, part.to_owned()));
            continue;
        }
        // A description in its own column is cut off.
        let line = line.trim().trim_start_matches("$ ");
        let line = [" #", "   "].into_iter().fold(line, |line, end| line.split(end).next().unwrap_or_default());
        let parts = line.split("&&").map(|part| part.split([';', '>']).next().unwrap_or_default().trim());
        found.extend(parts.filter_map(words).map(|words| (number, words)));
    }
    found
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
