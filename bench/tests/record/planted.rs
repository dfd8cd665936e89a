//! Builds the planted guest.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Its functions, and the way into ring 3 and out of the guest.
const SOURCE: &str =
    concat!(include_str!("planted.c"), include_str!("../../src/experiment/reproduce/compression/ring_3.c"));

/// Compiles it with so many rounds of 100 units of work, some 0.1 ms each; `exits`: with ten exits a round, too.
pub(crate) fn build(to: &Path, rounds: u32, exits: bool) -> Result<()> {
    let source = to.with_extension("c");
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-O2", "-mgeneral-regs-only", "-ffreestanding", "-nostdlib", "-static", "-fno-pie", "-no-pie"])
        .args(["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-asynchronous-unwind-tables"])
        .args(["-fcf-protection=none", "-mno-red-zone", "-fno-stack-protector"])
        .arg("-Wl,-Ttext-segment=0x200000,--build-id=none,-z,noexecstack,-z,max-page-size=4096")
        // A loop across two cache lines runs slower than the others, where the processor's other thread is busy: shares would differ.
        .args(["-falign-functions=64", "-falign-loops=64"])
        .arg(format!("-DROUNDS={rounds}"))
        .args(exits.then_some("-DEXITS"))
        .arg("-o")
        .arg(to)
        .arg(&source)
        .output()?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
