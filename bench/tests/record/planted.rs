//! Builds the planted guest.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

const SOURCE: &str = include_str!("planted.c");

/// Compiles it with so many rounds of 100 units of work, some 0.1 ms each.
pub(crate) fn build(to: &Path, rounds: u32) -> Result<()> {
    let source = to.with_extension("c");
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-O2", "-mgeneral-regs-only", "-ffreestanding", "-nostdlib", "-static", "-fno-pie", "-no-pie"])
        .args(["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-asynchronous-unwind-tables"])
        .args(["-fcf-protection=none", "-mno-red-zone", "-fno-stack-protector"])
        .arg("-Wl,-Ttext-segment=0x200000,--build-id=none,-z,noexecstack,-z,max-page-size=4096")
        .arg(format!("-DROUNDS={rounds}"))
        .arg("-o")
        .arg(to)
        .arg(&source)
        .output()?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
