//! The archive that a kernel unpacks as its first file system.
//!
//! Equal contents give equal bytes: entries are sorted, times and owners are 0.

mod archive;
mod builder;
mod error;
mod program;

pub use builder::Initramfs;
pub use error::InitramfsError;
