//! The crates of the workspace and what they depend on, by `cargo metadata`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Names of crates it depends on, tests aside.
    pub dependencies: Vec<String>,
}

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
    let member = |package: &Value| {
        let used = list(&package["dependencies"]).into_iter().filter(|dependency| dependency["kind"] != "dev");
        Member {
            name: text(&package["name"]),
            folder: PathBuf::from(text(&package["manifest_path"])).parent().map_or_else(PathBuf::new, Path::to_owned),
            dependencies: used.map(|dependency| text(&dependency["name"])).collect(),
        }
    };
    Ok(list(&metadata["packages"]).iter().map(member).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The folders at the top, from those that may use all others to those that use none. Tools serve tests alone, which are not looked at.
const FLOORS: &[&[&str]] =
    &[&["tools"], &["bench"], &["vmm", "sim"], &["host-pmu", "guest"], &["arch-pmu"], &["results"]];

fn floor(root: &Path, member: &Member) -> Option<usize> {
    let top = top(root, member)?.to_str()?;
    FLOORS.iter().position(|floor| floor.contains(&top))
}

/// Dependencies that lead from a folder to one that is not below it.
pub fn arrows(root: &Path, members: &[Member]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in members {
        let name = &member.name;
        let Some(from) = floor(root, member) else {
            findings.push(format!("crate {name} is in none of the folders that docs/design.md lists"));
            continue;
        };
        for below in members.iter().filter(|other| member.dependencies.contains(&other.name)) {
            let same = top(root, member) == top(root, below);
            if !same && floor(root, below).is_none_or(|to| to <= from) {
                findings
                    .push(format!("crate {name} must not depend on {}, whose folder is not below its own", below.name));
            }
        }
    }
    findings
}

fn top<'a>(root: &Path, member: &'a Member) -> Option<&'a std::ffi::OsStr> {
    member.folder.strip_prefix(root).ok()?.iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(folder: &str, dependencies: &[&str]) -> Member {
        let dependencies = dependencies.iter().map(|&name| name.to_owned()).collect();
        let name = folder.rsplit('/').next().unwrap_or_default().to_owned();
        Member { name, folder: Path::new("/tree").join(folder), dependencies }
    }

    #[test]
    fn a_dependency_leads_to_a_folder_below_or_stays_in_its_own() {
        let found = |members: &[Member]| arrows(Path::new("/tree"), members);
        let sound = [
            member("bench/vpmu", &["fleet", "results", "clap"]),
            member("bench/fleet", &["results"]),
            member("results", &["serde"]),
        ];
        assert_eq!(found(&sound), [""; 0]);
        let up = [member("bench/fleet", &[]), member("results", &["fleet"])];
        assert_eq!(found(&up), ["crate results must not depend on fleet, whose folder is not below its own"]);
        let beside = [member("vmm", &["sim"]), member("sim", &[])];
        assert_eq!(found(&beside), ["crate vmm must not depend on sim, whose folder is not below its own"]);
        assert_eq!(found(&[member("attic", &[])]).len(), 1);
    }
}
