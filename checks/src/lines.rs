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
    fn unsafe_code_is_told_from_words_about_it() {
        assert!(!is_unsafe("#![deny(unsafe_code)] // unsafe\nfn f() -> &'static str { \"unsafe\" }").unwrap());
        assert!(is_unsafe("fn f() { g(unsafe { h() }) }").unwrap());
        assert!(is_unsafe("unsafe impl Send for S {}").unwrap());
    }
}
