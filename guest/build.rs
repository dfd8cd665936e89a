//! Compiles and links the freestanding payload, with a C header generated from the ABI.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[path = "src/abi.rs"]
#[expect(unreachable_pub, reason = "the same file is the library's public module")]
mod abi;

/// General registers only, no red zone under interrupts, no runtime, no calls to `memcpy` made up from loops.
const CFLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-builtin",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-fno-pic",
    "-fno-pie",
    "-mcmodel=small",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-jump-tables",
    "-fomit-frame-pointer",
];

/// Flags that not every compiler knows. Constants that are kept out of the loops cost the PMI handler a push and a move each.
const OPTIONAL_CFLAGS: &[&str] =
    &["-fno-tree-loop-distribute-patterns", "-fno-move-loop-invariants", "-fno-tree-loop-im"];

const SOURCES: &[&str] = &[
    "payload/entry.S",
    "payload/fault.c",
    "payload/main.c",
    "payload/pmu.c",
    "payload/amd.c",
    "payload/amd_nmi.c",
    "payload/sched.c",
    "payload/nmi.c",
    "payload/loop.c",
    "payload/tick.c",
    "payload/stat.c",
    "payload/workload.c",
];

const CONFORMANCE_SOURCES: &[&str] = &[
    "payload/entry.S",
    "payload/conformance_entry.S",
    "payload/fault.c",
    "payload/check.c",
    "payload/conformance.c",
    "payload/conformance_registers.c",
    "payload/conformance_counting.c",
    "payload/conformance_overflow.c",
    "payload/conformance_delivery.c",
    "payload/workload.c",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=payload");
    println!("cargo::rerun-if-changed=linux");
    println!("cargo::rerun-if-changed=src/abi.rs");
    println!("cargo::rerun-if-changed=src/abi/conformance.rs");
    println!("cargo::rerun-if-env-changed=LD");

    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return Err("the payload is x86-64 code: build for an x86-64 target".to_owned());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: build with cargo")?);
    let header = out.join("abi.h");
    fs::write(&header, abi_header()).map_err(|e| format!("cannot write {}: {e}", header.display()))?;

    payload(&out, "payload", SOURCES, &[])?;
    payload(&out, "conformance", CONFORMANCE_SOURCES, &["CONFORMANCE"])?;
    build_elf(&out, "ftest", &["linux/ftest.c"], &[], None)
}

/// Compiles `sources` with `defines` and links them to a payload, `NAME.elf`.
fn payload(out: &Path, name: &str, sources: &[&str], defines: &[&str]) -> Result<(), String> {
    build_elf(out, name, sources, defines, Some(Path::new("payload/guest.ld")))
}

/// Compiles `sources` with `defines` and links them to `NAME.elf`, by the linker's own script if there is no other.
fn build_elf(out: &Path, name: &str, sources: &[&str], defines: &[&str], script: Option<&Path>) -> Result<(), String> {
    let mut cc = cc::Build::new();
    // Both payloads hold entry.S: each has its own folder of objects.
    cc.no_default_flags(true).warnings(false).cargo_warnings(true).include(out).out_dir(out.join(name)).files(sources);
    for define in defines {
        cc.define(define, None);
    }
    for flag in CFLAGS {
        cc.flag(flag);
    }
    for flag in OPTIONAL_CFLAGS {
        cc.flag_if_supported(flag);
    }
    let compiler = cc.try_get_compiler().map_err(|e| format!("no C compiler: {e} (Debian package: gcc)"))?;
    present(compiler.path(), "C compiler", "gcc")?;
    let objects = cc.try_compile_intermediates().map_err(|e| format!("the payload does not compile: {e}"))?;
    link(&objects, script, &out.join(format!("{name}.elf")))
}

/// Fails with one line that names the Debian package if `tool` cannot be started.
fn present(tool: &Path, what: &str, package: &str) -> Result<(), String> {
    let status = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!(
            "the {what} `{}`, which builds the guest payload, is not installed (Debian package: {package})",
            tool.display()
        )),
        Err(e) => Err(format!("the {what} `{}` cannot be run: {e} (Debian package: {package})", tool.display())),
    }
}

fn link(objects: &[PathBuf], script: Option<&Path>, elf: &Path) -> Result<(), String> {
    let ld = PathBuf::from(env::var_os("LD").unwrap_or_else(|| "ld".into()));
    present(&ld, "linker", "binutils")?;
    let output = Command::new(&ld)
        .args(["-nostdlib", "-static", "--build-id=none", "--fatal-warnings"])
        .args(["-z", "noexecstack", "-z", "max-page-size=4096"])
        .args(script.into_iter().flat_map(|script| [Path::new("-T"), script]))
        .args(objects)
        .arg("-o")
        .arg(elf)
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", ld.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("the payload does not link ({}): {said}", output.status))
}

/// The ABI as a header for C and, without the structures, for assembly.
fn abi_header() -> String {
    let mut h = String::from("/* Generated from guest/src/abi.rs. */\n#pragma once\n");
    for (name, value) in abi::CONSTANTS.iter().chain(abi::conformance::CONSTANTS) {
        let _ = writeln!(h, "#define {name} {value:#x}");
    }
    h.push_str("#ifndef __ASSEMBLER__\n#include <stddef.h>\n#include <stdint.h>\ntypedef uint64_t u64;\n");
    let mut asserts = String::new();
    let mut define = |name: &str, c: &str, size: usize, offsets: &[(&str, usize)]| {
        // A field of a structure type is named in C as it is in Rust: give each structure that name.
        let _ = write!(h, "typedef {}", c.trim_end().trim_end_matches(';'));
        let _ = writeln!(h, " {name};");
        let _ = writeln!(asserts, "_Static_assert(sizeof({name}) == {size}, \"{name}\");");
        for (field, offset) in offsets {
            let _ = writeln!(asserts, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    };
    macro_rules! define {
        ($($name:ident),+) => {
            $( define(stringify!($name), abi::$name::C_DEFINITION, size_of::<abi::$name>(), abi::$name::OFFSETS); )+
        };
    }
    define!(EventSpec, BootPage, UserPage, Report, LogEntry, ConformanceResult, ConformanceReport);
    h + &asserts + "#endif\n"
}
