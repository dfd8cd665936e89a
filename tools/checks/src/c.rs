//! Arrows between C files. A header belongs to the source file of its name. A source file takes what it includes, and what it
//! names of another source file's functions and objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::graph::Graph;

/// The arrows between the C files of `folder`, named by their stems.
pub fn arrows(folder: &Path) -> Result<Graph> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut sources = BTreeMap::new();
    for path in files(folder)? {
        let (Some(stem), Some(ending)) = (path.file_stem(), path.extension()) else { continue };
        let (stem, text) = (stem.to_string_lossy().into_owned(), std::fs::read_to_string(&path)?);
        if ending == "c" {
            sources.insert(stem.clone(), bare(&text));
        }
        *texts.entry(stem).or_default() += &text;
    }
    let defined: BTreeMap<&str, &str> = sources
        .iter()
        .flat_map(|(stem, text)| definitions(text).into_iter().map(move |name| (name, stem.as_str())))
        .collect();
    let mut graph = Graph::default();
    for (stem, text) in &texts {
        for header in text.lines().filter_map(included) {
            if texts.contains_key(header) {
                graph.add(stem, header, "#include");
            }
        }
    }
    for (stem, text) in &sources {
        let own = variables(text);
        for word in words(text).difference(&own) {
            if let Some(owner) = defined.get(*word) {
                graph.add(stem, owner, word);
            }
        }
    }
    Ok(graph)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "c" || ending == "h") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The stem of the header that a line includes by `"…"`.
fn included(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix("#include")?.trim().strip_prefix('"')?;
    let name = name.split('"').next()?.rsplit('/').next()?;
    name.strip_suffix(".h")
}

/// The text without comments, literals and preprocessor lines.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("//") || (first == '#' && (out.is_empty() || out.ends_with('\n'))) {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            1 + end_of_literal(&rest[1..], first)
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        rest = &rest[skipped..];
    }
    out
}

fn end_of_literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect()
}

/// Names declared as variables or parameters: right after a type's last word, and no function.
fn variables(text: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    let mut before = "";
    let mut rest = text;
    while let Some(begin) = rest.find(is_word) {
        let gap = &rest[..begin];
        let tail = &rest[begin..];
        let end = tail.find(|c| !is_word(c)).unwrap_or(tail.len());
        let after = tail[end..].trim_start();
        let typed = gap.trim_matches(|c: char| c.is_whitespace() || c == '*').is_empty() && !gap.is_empty();
        if typed && !["", "return", "else", "case", "goto", "extern"].contains(&before) && !after.starts_with('(') {
            found.insert(&tail[..end]);
        }
        before = &tail[..end];
        rest = &tail[end..];
    }
    found
}

/// Functions and objects defined at file scope that other files can name.
fn definitions(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | ';' if depth == 0 => {
                let head = &text[begin..at];
                let foreign =
                    words(head).contains("extern") || words(head).contains("static") || words(head).contains("typedef");
                let defines = c == '{' || head.contains('=');
                if defines && !foreign {
                    names.extend(declared(head));
                }
                begin = at + 1;
                depth += i32::from(c == '{');
            }
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                begin = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// The name in `type name(…)`, `type name[…] =` or `type name =`.
fn declared(head: &str) -> Option<&str> {
    let end = head.find(['(', '[', '=']).unwrap_or(0);
    let before = head[..end].trim_end();
    let begin = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    (begin > 0 && begin < before.len()).then(|| &before[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_functions_and_objects_but_no_declarations() {
        let text = bare(
            "#include \"x.h\"\n/* int no(void) { } */\nstatic int hidden(void) { return 1; }\nint shown(int a) { if (a) { } return 0; }\n\
             extern int elsewhere;\nconst struct s table[] = { { 1 } };\nint declared(void);\nint value = 3;\nstruct plain { int x; };",
        );
        assert_eq!(definitions(&text), ["shown", "table", "value"]);
    }

    #[test]
    fn a_parameter_hides_the_function_of_its_name() {
        let text = "void f(u64 tick, struct x *y)\n{\n\treturn other(tick);\n}\n";
        assert_eq!(variables(text).into_iter().collect::<Vec<_>>(), ["tick", "x", "y"]);
    }

    #[test]
    fn a_planted_circle_through_a_header_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.c", "#include \"base.h\"\nint cases(void) { return check(); }\n");
        write("base.h", "int check(void);\n");
        write("base.c", "#include \"base.h\"\nint check(void) { return 0; }\n");
        assert!(arrows(dir.path()).unwrap().circles().is_empty());
        write("base.c", "#include \"base.h\"\nint cases(void);\nint check(void) { return cases(); }\n");
        let circles = arrows(dir.path()).unwrap().circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].arrows, ["a -> base: #include, check", "base -> a: cases"]);
    }
}
