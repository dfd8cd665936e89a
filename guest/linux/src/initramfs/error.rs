//! The reasons for which an initramfs cannot be made.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An initramfs cannot be made.
#[derive(Debug, Error)]
pub enum InitramfsError {
    /// A path in the guest is not absolute, or has `.`, `..` or an empty part.
    #[error("{0:?} is not a plain absolute path in the guest")]
    Path(String),
    /// Two different things are to be at one path.
    #[error("two different files are to be at {0} in the guest")]
    Twice(String),
    /// A file does not fit the format.
    #[error("{path} has {length} bytes; a file of an initramfs has at most {}", u32::MAX)]
    TooLarge {
        /// Its path in the guest.
        path: String,
        /// Its bytes.
        length: usize,
    },
    /// A file of the host cannot be read.
    #[error("{}: {error}", .path.display())]
    Host {
        /// Its path.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// A program is not for this processor.
    #[error("{}: not a 64-bit x86-64 ELF file ({what}); the guest is x86-64", .path.display())]
    Architecture {
        /// Its path on the host.
        path: PathBuf,
        /// Kind of the file that is there.
        what: String,
    },
    /// A file begins as an ELF file does, and is none.
    #[error("{}: a damaged ELF file: {what}", .path.display())]
    Damaged {
        /// Its path on the host.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// A shared library is not on the host.
    #[error("{} needs {library}, which is not on this host (searched: {searched}); install the package that has it", .program.display())]
    Library {
        /// The program or library that needs it.
        program: PathBuf,
        /// Its name.
        library: String,
        /// The folders, in order.
        searched: String,
    },
    /// The interpreter of a script, or of an ELF program, is not on the host.
    #[error("{} needs the interpreter {interpreter}, which is not on this host", .program.display())]
    Interpreter {
        /// The program.
        program: PathBuf,
        /// Its interpreter.
        interpreter: String,
    },
    /// The interpreter is no program itself.
    #[error("{} names the interpreter {interpreter}, which is no program for it", .program.display())]
    NotAnInterpreter {
        /// The program.
        program: PathBuf,
        /// Its interpreter.
        interpreter: String,
    },
    /// A program asks for a file that not everybody may read on this host.
    #[error("{} needs {}, which not everybody may read on this host; if the guest may have it, name it with a --with before", .program.display(), .path.display())]
    NotEveryones {
        /// The program.
        program: PathBuf,
        /// The file.
        path: PathBuf,
    },
    /// A program needs a file that needs a file, and so on.
    #[error("{}: files that need it, and those that need them, are more than {most}", .path.display())]
    TooDeep {
        /// The last one.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// A file is neither an ELF program nor a script.
    #[error("{}: neither an ELF program nor a script with #!", .0.display())]
    NotAProgram(PathBuf),
}
