//! The rules of the tree's structure over a whole workspace.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::graph::circles_in_folders;
use crate::rust;
use crate::workspace;

/// Checks the workspace at `root`; returns one text per breach, of several lines where a circle is drawn.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let members = workspace::members(root)?;
    let mut findings = workspace::arrows(&members);
    for (folder, _) in &members {
        findings.extend(circles(root, folder)?);
        findings.extend(opens(root, folder)?);
    }
    let gone = ALLOWED.iter().filter(|file| !root.join(file).is_file());
    findings.extend(gone.map(|file| format!("{file} may open files by path, and is not there: take it off the list")));
    Ok(findings)
}

/// Returns the files below `folder` with this ending, sorted.
pub fn sources(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
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
fn circles(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in ["src/lib.rs", "src/main.rs"].map(|file| root.join(folder).join(file)) {
        if file.is_file() {
            for (place, arrows) in circles_in_folders(&rust::arrows(&file)?) {
                let (folder, arrows) = (folder.display(), arrows.join("\n    "));
                findings.push(format!(
                    "an arrow runs back up among the files and folders of {folder}/src/{place}:\n    {arrows}"
                ));
            }
        }
    }
    Ok(findings)
}

/// The files that open others by path: the opener and the writer of all, and those of files that no stranger makes.
const ALLOWED: &[&str] = &[
    "results/src/open.rs",
    "results/src/write/mod.rs",
    // These read files of the kernel's.
    "host-pmu/src/backend/encoding.rs",
    "host-pmu/src/backend/perf.rs",
    "host-pmu/src/kernel.rs",
    "results/src/host/fs.rs",
    "vmm/src/kvm/host.rs",
    "bench/vpmu/src/inspect/doctor.rs",
    "bench/vpmu/src/setting/process.rs",
    "bench/stat-setup/src/list/sysfs.rs",
    "bench/stat-setup/src/limit.rs",
    "bench/triage/src/counting.rs",
    "bench/triage/src/symbols.rs",
    // These make files in a campaign's own folder or in a temporary one.
    "bench/vpmu/src/campaign/attempt.rs",
    "bench/fleet/src/campaign/folder.rs",
];

/// Calls that open a file by its path, or make one or a folder.
const CALLS: &str = "File::open File::create File::create_new File::options OpenOptions::new DirBuilder::new fs::read \
     fs::read_to_string fs::write fs::copy fs::create_dir fs::create_dir_all";

/// Places that open files by path, where `results::open` and `results::write` would look at what they open.
fn opens(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    if folder.starts_with("tools") {
        return Ok(findings);
    }
    for path in sources(&root.join(folder).join("src"), "rs")?.iter().filter(|path| !path.ends_with("tests.rs")) {
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
