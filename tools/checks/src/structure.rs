//! The rules of the tree's structure over a whole workspace.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::graph::{Circle, Graph, circles_in_folders};
use crate::rust;
use crate::workspace::{self, Member};

/// Checks the workspace at `root`; returns one text per breach, of several lines where a circle is drawn.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let members = workspace::members(root)?;
    let mut findings = workspace::arrows(root, &members);
    for member in &members {
        findings.extend(circles(member)?);
        findings.extend(opens(root, member)?);
    }
    Ok(findings)
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
fn circles(member: &Member) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"].map(|root| member.folder.join(root)) {
        if root.is_file() {
            findings.extend(draw(&format!("{}/src", member.name), &rust::arrows(&root)?));
        }
    }
    Ok(findings)
}

/// The files that open others by path: the opener and the writer of all, and those of files that no stranger makes.
const ALLOWED: &[&str] = &[
    "results/src/open.rs",
    "results/src/write/mod.rs",
    // Files of the kernel's.
    "host-pmu/src/backend/encoding.rs",
    "host-pmu/src/backend/perf.rs",
    "host-pmu/src/kernel.rs",
    "results/src/host/fs.rs",
    "vmm/src/kvm/host.rs",
    "bench/vpmu/src/experiment/reproduce/watchdog.rs",
    "bench/vpmu/src/inspect/doctor.rs",
    "bench/vpmu/src/setting/process.rs",
    "bench/stat-setup/src/list/sysfs.rs",
    "bench/stat-setup/src/monitor.rs",
    "bench/stat-setup/src/run.rs",
    "bench/triage/src/counting.rs",
    "bench/triage/src/symbols.rs",
    // These make files in a campaign's own folder or in a temporary one.
    "bench/vpmu/src/campaign/attempt.rs",
    "bench/vpmu/src/experiment/reproduce/recording/guest.rs",
    "bench/fleet/src/campaign/folder.rs",
];

/// Calls that open a file by its path, or make one or a folder.
const CALLS: &str = "File::open File::create File::create_new File::options OpenOptions::new DirBuilder::new fs::read \
     fs::read_to_string fs::write fs::copy fs::create_dir fs::create_dir_all";

/// Places that open files by path, where `results::open` and `results::write` would look at what they open.
fn opens(root: &Path, member: &Member) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    if member.folder.starts_with(root.join("tools")) {
        return Ok(findings);
    }
    for path in sources(&member.folder.join("src"), "rs")?.iter().filter(|path| !path.ends_with("tests.rs")) {
        let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = std::fs::read_to_string(path)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let call = CALLS.split_whitespace().find(|call| code.contains(&format!("{call}(")));
        if let Some(call) = call.filter(|_| !ALLOWED.contains(&file.as_str())) {
            findings.push(format!("{file} opens a file by {call}: a FIFO or a device holds it, and a link leads it elsewhere; take results::open or results::write"));
        }
    }
    Ok(findings)
}

fn draw(place: &str, graph: &Graph) -> Vec<String> {
    let text = |(folder, circle): (String, Circle)| {
        let (members, arrows) = (circle.members.join(", "), circle.arrows.join("\n    "));
        format!("an arrow runs back up among the files and folders of {place}/{folder}: {members}\n    {arrows}")
    };
    circles_in_folders(graph).into_iter().map(text).collect()
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
        circles(&member).unwrap()
    }

    const SOUND: [(&str, &str); 4] = [
        ("src/lib.rs", "pub mod high; pub mod low;"),
        ("src/high/mod.rs", "pub mod a; pub struct Above;"),
        ("src/high/a.rs", "use crate::low::Below; pub fn a(_: Below) {}"),
        ("src/low.rs", "pub struct Below;"),
    ];

    #[test]
    fn a_file_that_is_opened_by_its_path_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/lib.rs"), "fn a() { std::fs::read(\"x\"); }").unwrap();
        let member = Member { name: "planted".to_owned(), folder: dir.path().to_owned(), dependencies: Vec::new() };
        assert!(opens(dir.path(), &member).unwrap()[0].starts_with("src/lib.rs opens a file by fs::read:"));
    }

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
        assert_eq!(found.len(), 1, "{found:#?}");
        for arrow in ["a.rs -> mod.rs: Above", "mod.rs -> a.rs: b"] {
            assert!(found[0].contains("back up") && found[0].contains(arrow), "{}", found[0]);
        }
    }
}
