//! Puts the git revision and the build profile into the binary, so that a result document can name them; builds a guest.

use std::path::{Path, PathBuf};
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Re-runs this script when the revision moves: HEAD, the branch it names, or the packed refs.
/// Only files that exist are named, since cargo takes a missing one for changed at every build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Packs the 70 000 addresses of the tool that the loader moves at each start. Packed (DT_RELR) they take 2 % of the
/// room, and less time. Its loader must know that: glibc since 2.36.
fn pack_relocations() {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ENV") != "gnu" || of("TARGET") != of("HOST") {
        return;
    }
    let version = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let mut numbers = version.trim().trim_start_matches("glibc ").split('.').map_while(|number| number.parse().ok());
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (2, 36) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Addresses are settled before `main` and cannot be written afterwards: with `-z relro` this is full RELRO, which
/// .cargo/config.toml does not ask for.
fn settle_addresses() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,relro,-z,now");
    }
}

/// Links the unwinder out of the compiler's archive: one shared library less to find, map and relocate at each start.
fn link_unwinder() {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ENV") != "gnu" || of("TARGET") != of("HOST") {
        return;
    }
    let archive = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output().ok();
    let archive = archive.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // A compiler without the archive answers with the bare name; the shared library then does.
    let archive = Path::new(archive.trim());
    if let Some(folder) = archive.parent().filter(|_| archive.is_absolute() && archive.exists()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
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
    pack_relocations();
    settle_addresses();
    link_unwinder();
    println!("cargo::rerun-if-changed=src");
    let revision = git(&["rev-parse", "HEAD"]).map_or_else(
        || "unknown".to_owned(),
        |head| {
            let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
            if dirty { format!("{head}-dirty") } else { head }
        },
    );
    println!("cargo::rustc-env=VPMU_GIT_REVISION={revision}");
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=VPMU_PROFILE={profile}");

    if let (Some(dir), Some(common)) = (
        git(&["rev-parse", "--absolute-git-dir"]).map(PathBuf::from),
        git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map(PathBuf::from),
    ) {
        watch(&dir.join("HEAD"));
        watch(&common.join("packed-refs"));
        if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]) {
            watch(&common.join(branch));
        }
    }
    freestanding::report(build_image())
}
