//! The crates of the workspace and what they depend on, by `cargo metadata`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A crate of the workspace, by its folder, and the folders of those it depends on, tests aside; all below the workspace's root.
pub type Member = (PathBuf, Vec<PathBuf>);

/// Reads the crates of the workspace at `root`.
pub fn members(root: &Path) -> Result<Vec<Member>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let below = |path: &Value| Path::new(path.as_str()?).strip_prefix(root).ok().map(Path::to_owned);
    let member = |package: &Value| {
        let used = list(&package["dependencies"]).into_iter().filter(|dependency| dependency["kind"] != "dev");
        let folder = below(&package["manifest_path"])?.parent()?.to_owned();
        Some((folder, used.filter_map(|dependency| below(&dependency["path"])).collect()))
    };
    Ok(list(&metadata["packages"]).iter().filter_map(member).collect())
}

/// The folders at the top: each may use those of the rows below its own. Tools serve tests alone, which are not looked at.
const FLOORS: [&[&str]; 6] =
    [&["tools"], &["bench"], &["vmm", "sim"], &["host-pmu", "guest"], &["arch-pmu"], &["results"]];

/// Returns dependencies that lead from a folder to one that is not below it.
pub fn arrows(members: &[Member]) -> Vec<String> {
    let top = |folder: &Path| folder.iter().next().unwrap_or_default().to_string_lossy().into_owned();
    let floor = |top: &str| FLOORS.iter().position(|floor| floor.contains(&top));
    let mut findings = Vec::new();
    for (folder, dependencies) in members {
        let (name, from) = (folder.display(), top(folder));
        if floor(&from).is_none() {
            findings.push(format!("crate {name} is in none of the folders that docs/design.md lists"));
        }
        let up = dependencies.iter().filter(|to| top(to) != from && floor(&top(to)) <= floor(&from));
        findings.extend(
            up.map(|to| format!("crate {name} must not depend on {}, whose folder is not below its own", to.display())),
        );
    }
    findings
}
