//! The guest that is recorded: products of matrices, or the payload where there is no compiler.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use results::error::Error;

const SOURCE: &str = concat!(include_str!("matrix.c"), include_str!("ring_3.c"));
/// Compiler options for a guest that needs no operating system.
const FREESTANDING: [&str; 13] = [
    "-O2",
    "-mgeneral-regs-only",
    "-ffreestanding",
    "-nostdlib",
    "-static",
    "-fno-pie",
    "-no-pie",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-mno-red-zone",
    "-fno-stack-protector",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
];
const LINKING: &str = "-Wl,-Ttext-segment=0x200000,--build-id=none,-z,noexecstack,-z,max-page-size=4096";
/// Samples of the payload for each product that was asked for.
const SAMPLES: u64 = 5;

/// Guest that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// The image in the folder that multiplies matrices.
    Matrices,
    /// The payload with so many samples, and why not the image.
    Payload(u64, String),
}

impl Guest {
    /// Builds the image in `folder`, with so many products below so many calls.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn build(folder: &Path, products: u64, depth: u64) -> Result<Self, Error> {
        let source = folder.join("matrix.c");
        fs::write(&source, SOURCE)
            .map_err(|error| Error::usage(format!("cannot write {}", source.display()), error.to_string(), ""))?;
        let mut cc = Command::new("cc");
        cc.current_dir(folder).args(FREESTANDING).arg(LINKING);
        cc.args([format!("-DPRODUCTS={products}"), format!("-DDEPTH={depth}")]);
        let built = cc.args(["-o", IMAGE, "matrix.c"]).stdin(Stdio::null()).output();
        let why = match built {
            Ok(output) if output.status.success() => return Ok(Self::Matrices),
            Ok(output) => String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("cc fails").to_owned(),
            Err(error) => format!("cc does not start: {error}"),
        };
        Ok(Self::Payload(products.saturating_mul(SAMPLES), why))
    }

    /// Returns the arguments with which `vpmu record` takes it.
    pub(super) fn recorded(&self) -> Vec<OsString> {
        match self {
            Self::Matrices => ["run", "--quiet", IMAGE].map(OsString::from).into(),
            Self::Payload(samples, _) => {
                ["payload".to_owned(), "--samples".to_owned(), samples.to_string()].map(OsString::from).into()
            }
        }
    }

    /// Returns the command of vpmu that runs it unrecorded, for stock perf. The payload has none.
    pub(super) fn alone(&self) -> Option<[&'static str; 3]> {
        matches!(self, Self::Matrices).then_some(["run", "--quiet", IMAGE])
    }
}

/// The image's name in its folder.
const IMAGE: &str = "matrix";
