//! Compiles and links the init, with a C header generated from the protocol.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[path = "src/protocol.rs"]
mod protocol;

/// No C library, and nothing that needs one.
const CFLAGS: &[&str] = &[
    "-std=gnu11",
    "-Os",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-pic",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing",
];

/// Flags that not every compiler knows: no calls to `memcpy` made up from its own loops.
const OPTIONAL_CFLAGS: &[&str] = &["-fno-tree-loop-distribute-patterns"];

const SOURCES: &[&str] =
    &["init/main.c", "init/boot.c", "init/agent.c", "init/run.c", "init/files.c", "init/frame.c", "init/text.c"];

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
    println!("cargo::rerun-if-changed=init");
    println!("cargo::rerun-if-changed=src/protocol.rs");
    println!("cargo::rerun-if-env-changed=LD");

    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return Err("the init of a guest is x86-64 code: build for an x86-64 target".to_owned());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: build with cargo")?);
    let header = out.join("protocol.h");
    fs::write(&header, header_text()).map_err(|e| format!("cannot write {}: {e}", header.display()))?;

    let mut cc = cc::Build::new();
    cc.no_default_flags(true)
        .warnings(false)
        .cargo_warnings(true)
        .include(&out)
        .out_dir(out.join("init"))
        .files(SOURCES);
    for flag in CFLAGS {
        cc.flag(flag);
    }
    for flag in OPTIONAL_CFLAGS {
        cc.flag_if_supported(flag);
    }
    cc.try_get_compiler().map_err(|e| format!("no C compiler: {e} (Debian package: gcc)"))?;
    let objects = cc.try_compile_intermediates().map_err(|e| format!("the init does not compile: {e}"))?;
    link(&objects, &out.join("init.elf"))
}

fn link(objects: &[PathBuf], elf: &Path) -> Result<(), String> {
    let ld = PathBuf::from(env::var_os("LD").unwrap_or_else(|| "ld".into()));
    let output = Command::new(&ld)
        .args(["-nostdlib", "-static", "--build-id=none", "--fatal-warnings", "--strip-all", "--gc-sections"])
        .args(["-z", "noexecstack", "-z", "max-page-size=4096", "-e", "_start"])
        .args(objects)
        .arg("-o")
        .arg(elf)
        .output()
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                format!("the linker `{}` is not installed (Debian package: binutils)", ld.display())
            }
            _ => format!("the linker `{}` cannot be run: {e}", ld.display()),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("the init does not link ({}): {said}", output.status))
}

fn header_text() -> String {
    let mut text = String::from("/* Generated from src/protocol.rs. */\n#pragma once\n");
    for (name, value) in protocol::CONSTANTS {
        let _ = writeln!(text, "#define {name} {value}");
    }
    text
}
