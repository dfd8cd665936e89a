//! The rules of the tree's structure over a whole workspace.

use std::path::{Path, PathBuf};

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};

use crate::graph::{Circle, Graph, circles_in_folders};
use crate::rust;
use crate::workspace::{self, Member, Workspace};

/// Largest share of a crate, percent: a larger one is several subjects.
pub const MOST_PERCENT: usize = 30;

/// Findings against the rules, and the sizes.
#[derive(Debug, Default)]
pub struct Report {
    /// One text per breach, of several lines where a circle is drawn.
    pub findings: Vec<String>,
    /// Lines of Rust in `src` by crate, largest first, unit tests included.
    pub sizes: Vec<(String, usize)>,
}

/// Checks the workspace at `root`.
pub fn check(root: &Path) -> Result<Report> {
    let members = Workspace::read(root)?.members();
    let mut report = Report { findings: workspace::arrows(root, &members), sizes: Vec::new() };
    for member in &members {
        circles(member, &mut report.findings)?;
        files(member, &mut report)?;
    }
    report.sizes.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    let total: usize = report.sizes.iter().map(|(_, lines)| lines).sum();
    for (name, lines) in &report.sizes {
        if lines * 100 > total * MOST_PERCENT {
            report.findings.push(format!("crate {name} has {lines} of {total} lines, more than {MOST_PERCENT} %"));
        }
    }
    Ok(report)
}

/// Returns the files below `folder` with this ending, sorted.
pub(crate) fn sources(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                found.extend(sources(&path, ending)?);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Circles among the files and the folders of a crate.
fn circles(member: &Member, findings: &mut Vec<String>) -> Result<()> {
    for root in ["src/lib.rs", "src/main.rs"].map(|root| member.folder.join(root)) {
        if root.is_file() {
            findings.extend(draw(&format!("{}/src", member.name), &rust::arrows(&root)?));
        }
    }
    Ok(())
}

fn draw(place: &str, graph: &Graph) -> Vec<String> {
    let text = |what: &str, circle: &Circle| {
        format!("{place}: {what}: {}\n    {}", circle.members.join(", "), circle.arrows.join("\n    "))
    };
    let mut found: Vec<String> =
        graph.circles().iter().map(|circle| text("files import each other in a circle", circle)).collect();
    found.extend(circles_in_folders(graph).iter().map(|(folder, circle)| {
        text(&format!("an arrow runs back up among the files and folders of {place}/{folder}"), circle)
    }));
    found
}

/// Returns whether unsafe code may be in this file of a crate: `src/sys.rs`, or `tests/NAME/sys.rs`.
fn is_sys(inner: &Path) -> bool {
    let parts: Vec<_> = inner.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], ["src", "sys.rs"] | ["tests", _, "sys.rs"])
}

/// Returns whether a Rust file has unsafe code. Comments, literals and lint names are not code.
fn is_unsafe(text: &str) -> Result<bool> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("cannot read the tokens: {error}"))?;
    Ok(has_unsafe(tokens))
}

fn has_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has_unsafe(group.stream()),
        TokenTree::Ident(ident) => ident == "unsafe",
        _ => false,
    })
}

/// Unsafe code in the wrong place, and the crate's lines.
fn files(member: &Member, report: &mut Report) -> Result<()> {
    let mut lines = 0;
    for path in sources(&member.folder, "rs")? {
        let inner = path.strip_prefix(&member.folder).unwrap_or(&path);
        let text = std::fs::read_to_string(&path)?;
        if inner.starts_with("src") {
            lines += text.lines().count();
        }
        if !is_sys(inner) && is_unsafe(&text)? {
            let name = format!("{}/{}", member.name, inner.display());
            report
                .findings
                .push(format!("{name} has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs"));
        }
    }
    report.sizes.push((member.name.clone(), lines));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings about a crate made of `files`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let member = Member { name: "planted".to_owned(), folder: dir.path().to_owned(), dependencies: Vec::new() };
        let mut report = Report::default();
        circles(&member, &mut report.findings).unwrap();
        super::files(&member, &mut report).unwrap();
        report.findings
    }

    const SOUND: [(&str, &str); 4] = [
        ("src/lib.rs", "pub mod high; pub mod low;"),
        ("src/high/mod.rs", "pub mod a; pub struct Above;"),
        ("src/high/a.rs", "use crate::low::Below; pub fn a(_: Below) {}"),
        ("src/low.rs", "pub struct Below;"),
    ];

    #[test]
    fn a_sound_crate_has_no_finding() {
        assert_eq!(found(&SOUND), [""; 0]);
    }

    #[test]
    fn a_planted_circle_is_drawn_with_its_names() {
        let mut files = SOUND;
        files[1].1 = "pub mod a; pub use a::b; pub struct Above;";
        files[2].1 = "use super::Above; pub fn b(_: Above) {}";
        let found = found(&files);
        assert_eq!(found.len(), 2, "as files and as folders: {found:#?}");
        assert!(found[0].contains("high/a.rs -> high/mod.rs: Above\n    high/mod.rs -> high/a.rs: b"), "{}", found[0]);
    }

    #[test]
    fn a_planted_upward_arrow_is_drawn_although_no_files_are_in_a_circle() {
        let mut files = SOUND;
        files[3].1 = "pub struct Below; pub fn up(_: crate::high::Above) {}";
        let found = found(&files);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("runs back up") && found[0].contains("low.rs -> high/mod.rs"), "{}", found[0]);
    }

    #[test]
    fn unsafe_code_outside_sys_is_found() {
        let found = found(&[
            ("src/lib.rs", "pub mod sys; pub fn f() { unsafe { } }"),
            ("src/sys.rs", "pub fn g() { unsafe { } }"),
            ("src/deep/sys.rs", "pub fn g() { unsafe { } }"),
            ("tests/kvm/sys.rs", "pub fn g() { unsafe { } }"),
            ("src/words.rs", "//! unsafe\n#![deny(unsafe_code)] pub const S: &str = \"unsafe {\";"),
        ]);
        assert_eq!(
            found,
            [
                "planted/src/deep/sys.rs has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs",
                "planted/src/lib.rs has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs",
            ]
        );
    }
}
