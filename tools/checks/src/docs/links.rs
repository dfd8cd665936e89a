//! Links, anchors, and paths in backticks.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::text::{Line, lines, split_code};
use crate::structure::sources;

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

/// The targets of `[text](target)` and `[text]: target`.
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

/// The anchors of a document's headings, as GitHub makes them.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
