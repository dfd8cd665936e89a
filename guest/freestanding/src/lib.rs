//! Compiles freestanding C and links it to a static ELF file: for the build scripts of the guests.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Flags of every freestanding program: no C library, nothing that needs one, fixed addresses.
const CFLAGS: &[&str] = &[
    "-std=gnu11",
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
];

/// Flags that not every compiler knows: no calls to `memcpy` made up from loops.
const OPTIONAL_CFLAGS: &[&str] = &["-fno-tree-loop-distribute-patterns"];

/// A program: its name in words, its sources and flags.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// As an error names it.
    pub what: &'a str,
    /// C and assembly files.
    pub sources: &'a [&'a str],
    /// Names that are defined for the preprocessor.
    pub defines: &'a [&'a str],
    /// Flags of the compiler beside those of every freestanding program.
    pub cflags: &'a [&'a str],
    /// Flags that not every compiler knows.
    pub optional_cflags: &'a [&'a str],
    /// Flags of the linker.
    pub ldflags: &'a [&'a str],
}

/// Runs a build script, and reports why it failed.
pub fn report(built: Result<(), String>) -> ExitCode {
    match built {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder for what is built. Guests are x86-64 code.
pub fn out_folder(what: &str) -> Result<PathBuf, String> {
    println!("cargo::rerun-if-env-changed=LD");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return Err(format!("{what} is x86-64 code: build for an x86-64 target"));
    }
    env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| "OUT_DIR is not set: build with cargo".to_owned())
}

/// Builds `out/NAME.elf`; headers are looked for in `out`.
pub fn build(out: &Path, name: &str, program: &Program<'_>) -> Result<(), String> {
    let what = program.what;
    let mut cc = cc::Build::new();
    // Programs may share a source: each has its own folder of objects.
    cc.no_default_flags(true).warnings(false).cargo_warnings(true).include(out).out_dir(out.join(name));
    cc.files(program.sources);
    for define in program.defines {
        cc.define(define, None);
    }
    for flag in CFLAGS.iter().chain(program.cflags) {
        cc.flag(flag);
    }
    for flag in OPTIONAL_CFLAGS.iter().chain(program.optional_cflags) {
        cc.flag_if_supported(flag);
    }
    let compiler = cc.try_get_compiler().map_err(|e| format!("no C compiler: {e} (Debian package: gcc)"))?;
    present(compiler.path(), "C compiler", what, "gcc")?;
    let objects = cc.try_compile_intermediates().map_err(|e| format!("{what} does not compile: {e}"))?;
    link(&objects, &out.join(format!("{name}.elf")), program)
}

/// Fails with one line that names the Debian package if `tool` cannot be started.
fn present(tool: &Path, kind: &str, what: &str, package: &str) -> Result<(), String> {
    let status = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!(
            "the {kind} `{}`, which builds {what}, is not installed (Debian package: {package})",
            tool.display()
        )),
        Err(e) => Err(format!("the {kind} `{}` cannot be run: {e} (Debian package: {package})", tool.display())),
    }
}

fn link(objects: &[PathBuf], elf: &Path, program: &Program<'_>) -> Result<(), String> {
    let ld = PathBuf::from(env::var_os("LD").unwrap_or_else(|| "ld".into()));
    present(&ld, "linker", program.what, "binutils")?;
    let output = Command::new(&ld)
        .args(["-nostdlib", "-static", "--build-id=none", "--fatal-warnings"])
        .args(["-z", "noexecstack", "-z", "max-page-size=4096"])
        .args(program.ldflags)
        .args(objects)
        .arg("-o")
        .arg(elf)
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", ld.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("{} does not link ({}): {said}", program.what, output.status))
}
