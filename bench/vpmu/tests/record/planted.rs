//! Builds the planted guest.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Its functions, and the way into ring 3 and out of the guest.
const SOURCE: &str =
    concat!(include_str!("planted.c"), include_str!("../../src/experiment/reproduce/compression/ring_3.c"));

/// A guest that stores to a place without memory, so many times: the store is alone in its symbol.
const STORES: &str = r#"
__attribute__((used)) void guest_main(void);
__asm__(".text\n.globl guest_main\nguest_main:\n"
	"	mov $0x3f000000, %ebx\n"
	"	mov $ROUNDS_, %ecx\n"
	"	.type store, @function\n"
	"store:	mov %eax, (%rbx)\n"
	"	.size store, . - store\n"
	"	.type rest, @function\n"
	"rest:	sub $1, %ecx\n"
	"	jnz store\n"
	"	ret\n"
	"	.size rest, . - rest\n");
typedef unsigned long u64;
"#;

/// Compiles that.
pub(crate) fn build_stores(to: &Path, rounds: u32) -> Result<()> {
    let begin = include_str!("../../src/experiment/reproduce/compression/ring_3.c");
    compile(to, &(STORES.replace("ROUNDS_", &rounds.to_string()) + begin), rounds, false)
}

/// Compiles the planted guest with so many rounds of 100 units of work, some 0.1 ms each; `exits`: with ten exits a round, too.
pub(crate) fn build(to: &Path, rounds: u32, exits: bool) -> Result<()> {
    compile(to, SOURCE, rounds, exits)
}

fn compile(to: &Path, text: &str, rounds: u32, exits: bool) -> Result<()> {
    let source = to.with_extension("c");
    std::fs::write(&source, text)?;
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
