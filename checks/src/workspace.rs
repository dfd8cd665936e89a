//! The crates of the workspace and what they depend on, by `cargo metadata`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::docs::crate_tables::Allowed;

/// What dependencies may be; cargo-deny reads it, too.
const DENY: &str = include_str!("../../deny.toml");

/// Licences that a dependency may have, by SPDX name.
fn licences() -> impl Iterator<Item = &'static str> {
    let list = DENY.lines().skip_while(|line| *line != "allow = [").skip(1).take_while(|line| *line != "]");
    list.map(|line| line.trim_matches([' ', ',', '"']))
}

/// What `cargo metadata` says.
#[derive(Debug)]
pub struct Workspace {
    metadata: Value,
}

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

impl Workspace {
    /// Reads the workspace at `root`; needs no network once its dependencies are there.
    pub fn read(root: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
            .arg(root.join("Cargo.toml"))
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { metadata: serde_json::from_slice(&output.stdout)? })
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    /// The crates of the workspace.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.packages()
            .filter(|package| package["source"].is_null())
            .map(|package| Member {
                name: text(&package["name"]),
                folder: PathBuf::from(text(&package["manifest_path"]))
                    .parent()
                    .map_or_else(PathBuf::new, Path::to_owned),
                dependencies: package["dependencies"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|dependency| dependency["kind"] != "dev")
                    .map(|dependency| text(&dependency["name"]))
                    .collect(),
            })
            .collect()
    }

    /// Dependencies that ask for a newer compiler than the crates of the workspace do.
    #[must_use]
    pub fn too_new(&self) -> Vec<String> {
        let ours = self.packages().filter(|package| package["source"].is_null());
        let ours = ours.map(|package| version(&package["rust_version"])).min().unwrap_or_default();
        let newer = self.packages().filter(|package| version(&package["rust_version"]) > ours);
        newer
            .map(|package| format!("{} needs Rust {}", text(&package["name"]), text(&package["rust_version"])))
            .collect()
    }

    /// Dependencies whose licence is not among those allowed.
    #[must_use]
    pub fn licences(&self) -> Vec<String> {
        let outside = self.packages().filter(|package| !package["source"].is_null());
        let found = outside.filter_map(|package| {
            let licence = text(&package["license"]);
            (!is_allowed(&licence))
                .then(|| format!("{} {}: licence {licence:?}", text(&package["name"]), text(&package["version"])))
        });
        found.collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A compiler's version by its numbers; empty if none is asked for.
fn version(value: &Value) -> Vec<u64> {
    let mut numbers: Vec<u64> = text(value).split('.').filter_map(|part| part.parse().ok()).collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}

fn is_allowed(licence: &str) -> bool {
    let Ok(expression) = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) else { return false };
    expression.evaluate(|requirement| licences().any(|allowed| allowed == requirement.to_string()))
}

/// Where the crates depend on others than the table of crates says, and where it says so upwards.
#[must_use]
pub fn arrows(members: &[Member], allowed: &[Allowed]) -> Vec<String> {
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    let mut findings = Vec::new();
    for member in members {
        let name = &member.name;
        let Some(at) = allowed.iter().position(|(listed, _)| listed == name) else {
            findings.push(format!("crate {name} has no place in the table of crates in docs/contributing.md"));
            continue;
        };
        let may = &allowed[at].1;
        let has: BTreeSet<&String> = member.dependencies.iter().filter(|below| is_member(below)).collect();
        let up = has.iter().filter(|below| !may.contains(below));
        findings.extend(up.map(|below| format!("crate {name} must not depend on {below}")));
        let idle = may.iter().filter(|below| !has.contains(below));
        findings
            .extend(idle.map(|below| format!("crate {name} does not depend on {below}, as the table of crates says")));
        let above = may.iter().filter(|below| !allowed[at + 1..].iter().any(|(listed, _)| listed == *below));
        findings.extend(above.map(|below| format!("{below} is not below {name} in the table of crates")));
    }
    let gone = allowed.iter().filter(|(listed, _)| !is_member(listed));
    findings.extend(gone.map(|(listed, _)| format!("there is no crate {listed}, which the table of crates has")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, dependencies: &[&str]) -> Member {
        let dependencies = dependencies.iter().map(|&name| name.to_owned()).collect();
        Member { name: name.to_owned(), folder: PathBuf::new(), dependencies }
    }

    fn plan(rows: &[(&str, &[&str])]) -> Vec<Allowed> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        rows.iter().map(|(name, below)| ((*name).to_owned(), names(below))).collect()
    }

    #[test]
    fn crates_are_as_the_floor_plan_says() {
        let plan = plan(&[("bench", &["results"]), ("results", &[])]);
        let sound = [member("bench", &["results", "clap"]), member("results", &["serde"])];
        assert_eq!(arrows(&sound, &plan), [""; 0]);
        let planted = [member("bench", &["results"]), member("results", &["bench"])];
        assert_eq!(arrows(&planted, &plan), ["crate results must not depend on bench"]);
        let idle = [member("bench", &["clap"]), member("results", &[])];
        assert_eq!(arrows(&idle, &plan), ["crate bench does not depend on results, as the table of crates says"]);
        assert_eq!(arrows(&[sound.as_slice(), &[member("attic", &[])]].concat(), &plan).len(), 1);
        assert_eq!(arrows(&sound[1..], &plan), ["there is no crate bench, which the table of crates has"]);
    }

    #[test]
    fn a_floor_plan_with_an_arrow_up_is_refused() {
        let circle = [member("bench", &["results"]), member("results", &["bench"])];
        let plan = plan(&[("bench", &["results"]), ("results", &["bench"])]);
        assert_eq!(arrows(&circle, &plan), ["bench is not below results in the table of crates"]);
    }

    #[test]
    fn a_planted_dependency_for_a_newer_compiler_is_found() {
        let metadata = serde_json::json!({"packages": [
            {"name": "ours", "source": null, "rust_version": "1.88"},
            {"name": "old", "source": "registry", "rust_version": "1.88.0"},
            {"name": "silent", "source": "registry", "rust_version": null},
            {"name": "new", "source": "registry", "rust_version": "1.100.1"},
        ]});
        assert_eq!(Workspace { metadata }.too_new(), ["new needs Rust 1.100.1"]);
    }

    #[test]
    fn licences_are_read_as_expressions() {
        for fine in ["MIT", "MIT/Apache-2.0", "MIT OR LGPL-2.1-or-later", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(fine), "{fine}");
        }
        for refused in ["", "GPL-2.0-only", "MIT AND CDDL-1.0", "no licence at all"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }
}
