//! Sizes of files and crates, and unsafe code.

use std::path::{Path, PathBuf};

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};

/// Most lines of a file.
pub const MOST_LINES: usize = 500;

/// The source files below `folder` by these endings, sorted.
pub fn sources(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                found.extend(sources(&path, endings)?);
            } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Lines of a file, blank ones and comments included.
pub fn count(path: &Path) -> Result<usize> {
    Ok(std::fs::read_to_string(path)?.lines().count())
}

/// Whether a Rust file has unsafe code. Comments, literals and lint names are not code.
pub fn is_unsafe(text: &str) -> Result<bool> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("cannot read the tokens: {error}"))?;
    Ok(has_unsafe(tokens))
}

/// String literals of one line with a run of blanks between words: continuation lines that were joined. Tests aside.
pub fn runs_of_blanks(text: &str) -> Result<Vec<String>> {
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("cannot read the tokens: {error}"))?;
    let mut found = Vec::new();
    collect_runs(tokens, &mut found);
    Ok(found)
}

fn collect_runs(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if is_doc(&group.stream()) => {}
            TokenTree::Group(group) => collect_runs(group.stream(), found),
            TokenTree::Literal(literal) => {
                let source = literal.to_string();
                let text = source.strip_prefix('"').filter(|text| !text.contains('\n')).unwrap_or_default();
                let has_run = |line: &str| line.trim_start().trim_end_matches(['"', ' ']).contains("   ");
                if text.split("\\n").any(has_run) {
                    found.push(source);
                }
            }
            _ => {}
        }
    }
}

/// Whether an attribute's tokens are those of a documentation comment.
fn is_doc(tokens: &TokenStream) -> bool {
    matches!(tokens.clone().into_iter().next(), Some(TokenTree::Ident(ident)) if ident == "doc")
}

fn has_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "unsafe",
        TokenTree::Group(group) => has_unsafe(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_blanks_are_found_within_a_line_of_a_message() {
        assert_eq!(runs_of_blanks("f(\"is set already          before\");").unwrap().len(), 1);
        let fine = "f(\"  two\\n      lines   \"); g(\"a \\\n         b\"); h(\"a\n     b     c\");\n/// a     b\nfn i() {}\n#[cfg(test)]\nmod tests { i(\"a    b\"); }";
        assert!(runs_of_blanks(fine).unwrap().is_empty());
    }

    #[test]
    fn unsafe_code_is_distinguished_from_words_about_it() {
        assert!(!is_unsafe("#![deny(unsafe_code)] // unsafe\nfn f() -> &'static str { \"unsafe\" }").unwrap());
        assert!(is_unsafe("fn f() { g(unsafe { h() }) }").unwrap());
        assert!(is_unsafe("unsafe impl Send for S {}").unwrap());
    }
}
