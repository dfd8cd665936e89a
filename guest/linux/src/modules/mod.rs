//! The kernel modules that a guest needs, from a distribution's folder of them.
//!
//! The folder is that of a package (`lib/modules/RELEASE`), installed or unpacked: nothing that depmod(8) writes is used.

mod error;
mod folder;
mod info;
mod needed;
mod unpack;

pub use error::ModuleError;
pub use folder::find;
pub use needed::{Module, needed};
