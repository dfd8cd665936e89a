//! Compiles and links the freestanding payload, with a C header generated from the ABI.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use freestanding::Program;

#[path = "src/abi.rs"]
#[expect(unreachable_pub, reason = "the same file is the library's public module")]
mod abi;

/// General registers only, no red zone under interrupts, no runtime.
const CFLAGS: &[&str] = &[
    "-O2",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-mcmodel=small",
    "-fcf-protection=none",
    "-fno-jump-tables",
    "-fomit-frame-pointer",
    // A recording unwinds by them; they are not loaded.
    "-fasynchronous-unwind-tables",
];

/// Constants that are kept out of the loops cost the PMI handler a push and a move each.
const OPTIONAL_CFLAGS: &[&str] = &["-fno-move-loop-invariants", "-fno-tree-loop-im"];

/// A payload's own place in memory.
const LDFLAGS: &[&str] = &["-T", "c/guest.ld"];

/// Sources in `c/`, in the order in which they are linked.
const SOURCES: &str = "entry.S fault.c state.c main.c pmu.c amd.c amd_nmi.c sched.c nmi.c loop.c tick.c timer.c stat.c replay.c workload.c";

const CONFORMANCE_SOURCES: &str = "entry.S conformance_entry.S fault.c conformance.c workload.c";

fn main() -> ExitCode {
    freestanding::report(build())
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=src/abi.rs");
    println!("cargo::rerun-if-changed=src/abi/conformance.rs");
    let what = "the guest payload";
    let out = freestanding::out_folder(what)?;
    let header = out.join("abi.h");
    fs::write(&header, abi_header()).map_err(|e| format!("cannot write {}: {e}", header.display()))?;

    for (name, sources, defines, ldflags) in [
        ("payload", SOURCES, &[][..], LDFLAGS),
        ("conformance", CONFORMANCE_SOURCES, &["CONFORMANCE"], LDFLAGS),
        // The linker's own script is used: it is a program of a Linux guest.
        ("ftest", "ftest.c", &[], &[]),
    ] {
        let sources: Vec<_> = sources.split(' ').map(|source| format!("c/{source}")).collect();
        let sources: Vec<_> = sources.iter().map(String::as_str).collect();
        let (cflags, optional_cflags) = (CFLAGS, OPTIONAL_CFLAGS);
        let program = Program { what, sources: &sources, defines, cflags, optional_cflags, ldflags };
        freestanding::build(&out, name, &program)?;
    }
    Ok(())
}

/// Formats the ABI as a header for C and, without the structures, for assembly.
fn abi_header() -> String {
    let mut h = String::from("/* Generated from guest/payload/src/abi.rs. */\n#pragma once\n");
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
    define!(EventSpec, BootPage, Step, UserPage, Report, LogEntry, CaseState, ConformanceResult, ConformanceReport);
    h + &asserts + "#endif\n"
}
