//! Puts the git revision and the build profile into the binary, so that a result document can name them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Re-runs this script when the revision moves: HEAD, the branch it names, or the packed refs.
/// Only files that exist are named, since cargo takes a missing one for changed at every build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let revision = git(&["rev-parse", "HEAD"]).map_or_else(
        || "unknown".to_owned(),
        |head| {
            let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
            if dirty { format!("{head}-dirty") } else { head }
        },
    );
    println!("cargo::rustc-env=VPMU_GIT_REVISION={revision}");
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=VPMU_PROFILE={profile}");

    if let (Some(dir), Some(common)) = (
        git(&["rev-parse", "--absolute-git-dir"]).map(PathBuf::from),
        git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map(PathBuf::from),
    ) {
        watch(&dir.join("HEAD"));
        watch(&common.join("packed-refs"));
        if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]) {
            watch(&common.join(branch));
        }
    }
}
