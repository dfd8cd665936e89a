//! Prints what breaks a rule of the tree's structure, and the sizes of its crates; exits 1 if anything does.

use std::path::Path;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let root = std::env::args_os().nth(1);
    let root = root
        .as_deref()
        .map_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), |root| Path::new(root).to_owned())
        .canonicalize()?;
    let report = checks::structure::check(&root)?;
    for finding in &report.findings {
        println!("{finding}");
    }
    let total: usize = report.sizes.iter().map(|(_, lines)| lines).sum();
    for (name, lines) in &report.sizes {
        println!("{lines:7} lines, {:4.1} %: {name}", *lines as f64 * 100.0 / total as f64);
    }
    println!("{} findings", report.findings.len());
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
