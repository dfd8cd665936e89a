//! Puts the git revision and the build profile into the binary, so that a result document can name them; builds a guest.

use std::path::Path;
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Addresses are settled before `main` and cannot be written afterwards: with `-z relro` this is full RELRO, which
/// .cargo/config.toml does not ask for.
fn settle_addresses() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,relro,-z,now");
    }
}

/// Leaves the names of functions out of a release build: a third of its file, which only a debugger reads. Profile
/// `profiling` has them. Here, since cargo's own `strip` does nothing for a crate with a profile of its own.
fn leave_symbols_out() {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    if of("PROFILE") == "release" && of("DEBUG") == "false" {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}

/// Builds the guest whose recordings are compressed: chains by frame pointers, and names for them.
fn build_image() -> Result<(), String> {
    println!("cargo::rerun-if-changed=../../guest/image");
    let what = "the image that is recorded";
    let program = freestanding::Program {
        what,
        sources: &["../../guest/image/matrix.c"],
        defines: &[],
        cflags: &[
            "-O2",
            "-mgeneral-regs-only",
            "-mno-red-zone",
            "-fcf-protection=none",
            "-fno-omit-frame-pointer",
            "-mno-omit-leaf-frame-pointer",
        ],
        optional_cflags: &[],
        ldflags: &["-Ttext-segment=0x200000"],
    };
    freestanding::build(&freestanding::out_folder(what)?, "matrix", &program)
}

fn main() -> std::process::ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    leave_symbols_out();
    settle_addresses();
    println!("cargo::rerun-if-changed=src");
    // The hash alone, whatever tags there are.
    let revision = git(&["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    println!("cargo::rustc-env=VPMU_GIT_REVISION={}", revision.as_deref().unwrap_or("unknown"));
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=VPMU_PROFILE={profile}");
    // Each move of HEAD is a line of its log. A log that is not there would count as changed at every build.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    freestanding::report(build_image())
}
