//! The guest that is recorded: an image that multiplies matrices, built by this host's compiler.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use results::error::Error;

/// The image's name in its folder.
pub(super) const IMAGE: &str = "matrix";

const SOURCE: &str = concat!(include_str!("matrix.c"), include_str!("ring_3.c"));
/// Compiler options for a guest that needs no operating system.
const FREESTANDING: &str = "-O2 -mgeneral-regs-only -ffreestanding -nostdlib -static -fno-pie -no-pie -fcf-protection=none \
    -fno-asynchronous-unwind-tables -mno-red-zone -fno-stack-protector -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer \
    -Wl,-Ttext-segment=0x200000,--build-id=none,-z,noexecstack,-z,max-page-size=4096";

/// Builds the image in `folder`, with so many products below so many calls.
///
/// # Errors
/// Exit 4 without a compiler that builds it; the folder cannot be written to.
pub(super) fn build(folder: &Path, products: u64, depth: u64) -> Result<(), Error> {
    let source = folder.join("matrix.c");
    fs::write(&source, SOURCE)
        .map_err(|error| Error::output(format!("cannot write {}", source.display()), &error, ""))?;
    let mut cc = Command::new("cc");
    cc.current_dir(folder).args(FREESTANDING.split_whitespace());
    cc.args([format!("-DPRODUCTS={products}"), format!("-DDEPTH={depth}")]);
    let built = cc.args(["-o", IMAGE, "matrix.c"]).stdin(Stdio::null()).output();
    let why = match built {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("cc fails").to_owned(),
        Err(error) => format!("cc does not start: {error}"),
    };
    Err(Error::host("there is no guest to record", why, "install a C compiler"))
}
