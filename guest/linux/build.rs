//! Compiles and links the init, with a C header generated from the protocol.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use freestanding::Program;

#[path = "src/protocol.rs"]
mod protocol;

const CFLAGS: &[&str] = &["-Os", "-fno-strict-aliasing"];

const LDFLAGS: &[&str] = &["--strip-all", "--gc-sections", "-e", "_start"];

const SOURCES: &[&str] =
    &["init/main.c", "init/boot.c", "init/agent.c", "init/run.c", "init/files.c", "init/frame.c", "init/text.c"];

fn main() -> ExitCode {
    freestanding::report(build())
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=init");
    println!("cargo::rerun-if-changed=src/protocol.rs");

    let what = "the init of a guest";
    let out = freestanding::out_folder(what)?;
    let header = out.join("protocol.h");
    fs::write(&header, header_text()).map_err(|e| format!("cannot write {}: {e}", header.display()))?;
    let program =
        Program { what, sources: SOURCES, defines: &[], cflags: CFLAGS, optional_cflags: &[], ldflags: LDFLAGS };
    freestanding::build(&out, "init", &program)
}

fn header_text() -> String {
    let mut text = String::from("/* Generated from src/protocol.rs. */\n#pragma once\n");
    for (name, value) in protocol::CONSTANTS {
        let _ = writeln!(text, "#define {name} {value}");
    }
    text
}
