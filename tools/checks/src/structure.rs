//! Every rule of the tree's structure over a whole workspace.

use std::path::Path;

use anyhow::Result;

use crate::docs::crate_tables;
use crate::graph::{Circle, Graph};
use crate::lines::{MOST_LINES, count, is_unsafe, runs_of_blanks, sources};
use crate::workspace::{self, Member, Workspace};
use crate::{c, places, rust};

/// Largest share of a crate, percent.
pub const MOST_PERCENT: usize = 30;

/// Endings of what counts as a crate's lines, in its `src` and `payload`.
const COUNTED: &[&str] = &["rs", "c", "S", "h"];

/// What breaks a rule, and the sizes.
#[derive(Debug, Default)]
pub struct Report {
    /// One text per breach, of several lines where a circle is drawn.
    pub findings: Vec<String>,
    /// Lines by crate, largest first: *.rs, *.c, *.S and *.h of its `src` and `payload`, unit tests included.
    pub sizes: Vec<(String, usize)>,
}

/// Checks the workspace at `root`.
pub fn check(root: &Path) -> Result<Report> {
    let members = Workspace::read(root)?.members();
    let findings = workspace::arrows(&members, &crate_tables::allowed(root)?);
    let mut report = Report { findings, sizes: Vec::new() };
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

/// Circles among the files and the folders of a crate.
fn circles(member: &Member, findings: &mut Vec<String>) -> Result<()> {
    let mut graphs = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"].map(|root| member.folder.join(root)) {
        if root.is_file() {
            graphs.push(("src", rust::arrows(&root)?));
        }
    }
    let payload = member.folder.join("c");
    if payload.is_dir() {
        graphs.push(("c", c::arrows(&payload)?));
    }
    for (folder, graph) in graphs {
        findings.extend(draw(&format!("{}/{folder}", member.name), &graph));
    }
    Ok(())
}

fn draw(place: &str, graph: &Graph) -> Vec<String> {
    let text = |what: &str, circle: &Circle| {
        format!("{place}: {what}: {}\n    {}", circle.members.join(", "), circle.arrows.join("\n    "))
    };
    let mut found: Vec<String> =
        graph.circles().iter().map(|circle| text("files import each other in a circle", circle)).collect();
    found.extend(places::circles(graph).iter().map(|(folder, circle)| {
        text(&format!("an arrow runs back up among the files and folders of {place}/{folder}"), circle)
    }));
    found
}

/// Whether unsafe code may be in this file of a crate: `src/sys.rs`, or `tests/NAME/sys.rs`.
fn is_sys(inner: &Path) -> bool {
    let parts: Vec<_> = inner.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], ["src", "sys.rs"] | ["tests", _, "sys.rs"])
}

/// Whether a file has the tests of another one in the same folder: `foo_tests.rs` beside `foo.rs`.
fn is_beside(path: &Path) -> bool {
    let tested = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_suffix("_tests"));
    tested.is_some_and(|tested| path.with_file_name(format!("{tested}.rs")).is_file())
}

/// Long files, unsafe code in the wrong place, and the crate's lines.
fn files(member: &Member, report: &mut Report) -> Result<()> {
    let mut lines = 0;
    for path in sources(&member.folder, COUNTED)? {
        let inner = path.strip_prefix(&member.folder).unwrap_or(&path);
        let name = format!("{}/{}", member.name, inner.display());
        let length = count(&path)?;
        if inner.starts_with("src") || inner.starts_with("payload") {
            lines += length;
        }
        if length > MOST_LINES {
            report.findings.push(format!("{name} has {length} lines, more than {MOST_LINES}"));
        }
        let is_rust = path.extension().is_some_and(|ending| ending == "rs");
        let is_sys = is_sys(inner);
        if is_rust {
            let text = std::fs::read_to_string(&path)?;
            if !is_sys && is_unsafe(&text)? {
                report
                    .findings
                    .push(format!("{name} has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs"));
            }
            if is_beside(&path) {
                report.findings.push(format!("{name}: the tests of foo.rs are in foo/tests.rs"));
            }
            if inner.starts_with("src") && !name.ends_with("tests.rs") {
                let runs = runs_of_blanks(&text)?;
                report.findings.extend(runs.iter().map(|literal| format!("{name}: a run of blanks in {literal}")));
            }
        }
    }
    report.sizes.push((member.name.clone(), lines));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings about a crate made of `files`.
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
    fn tests_beside_their_file_are_found() {
        let files = [("src/lib.rs", "mod foo; mod both_tests;"), ("src/foo.rs", ""), ("src/both_tests.rs", "")];
        assert_eq!(found(&files), [""; 0]);
        let planted = found(&[("src/lib.rs", "mod foo;"), ("src/foo.rs", ""), ("src/foo_tests.rs", "")]);
        assert_eq!(planted, ["planted/src/foo_tests.rs: the tests of foo.rs are in foo/tests.rs"]);
    }

    #[test]
    fn long_files_and_unsafe_code_outside_sys_are_found() {
        let long = "//\n".repeat(MOST_LINES + 1);
        let found = found(&[
            ("src/lib.rs", "pub mod sys; pub fn f() { unsafe { } }"),
            ("src/sys.rs", "pub fn g() { unsafe { } }"),
            ("src/deep/sys.rs", "pub fn g() { unsafe { } }"),
            ("tests/kvm/sys.rs", "pub fn g() { unsafe { } }"),
            ("tests/long.rs", &long),
        ]);
        assert_eq!(
            found,
            [
                "planted/src/deep/sys.rs has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs",
                "planted/src/lib.rs has unsafe code, which belongs into src/sys.rs, or tests/NAME/sys.rs",
                "planted/tests/long.rs has 501 lines, more than 500"
            ]
        );
    }
}
