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

const SOURCES: &[&str] = &[
    "c/entry.S",
    "c/fault.c",
    "c/main.c",
    "c/pmu.c",
    "c/amd.c",
    "c/amd_nmi.c",
    "c/sched.c",
    "c/nmi.c",
    "c/loop.c",
    "c/tick.c",
    "c/timer.c",
    "c/stat.c",
    "c/replay.c",
    "c/workload.c",
];

const CONFORMANCE_SOURCES: &[&str] = &[
    "c/entry.S",
    "c/conformance_entry.S",
    "c/fault.c",
    "c/check.c",
    "c/conformance.c",
    "c/conformance_registers.c",
    "c/conformance_counting.c",
    "c/conformance_overflow.c",
    "c/conformance_delivery.c",
    "c/conformance_amd.c",
    "c/conformance_amd_overflow.c",
    "c/workload.c",
];

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

    let program = |sources, defines, ldflags| Program {
        what,
        sources,
        defines,
        cflags: CFLAGS,
        optional_cflags: OPTIONAL_CFLAGS,
        ldflags,
    };
    println!("cargo::rustc-env=PAYLOAD_COMPILER={}", freestanding::compiler()?);
    freestanding::build(&out, "payload", &program(SOURCES, &[], LDFLAGS))?;
    freestanding::build(&out, "conformance", &program(CONFORMANCE_SOURCES, &["CONFORMANCE"], LDFLAGS))?;
    // The linker's own script is used: it is a program of a Linux guest.
    freestanding::build(&out, "ftest", &program(&["c/ftest.c"], &[], &[]))
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
    define!(EventSpec, BootPage, Step, UserPage, Report, LogEntry, ConformanceResult, ConformanceReport);
    h + &asserts + "#endif\n"
}
