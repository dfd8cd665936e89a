//! A Linux guest that is sampled.

use results::error::Error;
use vmm::machine::linux::Kernel;
use vmm::sample::{Orc, OrcError};

use crate::arms::linux_boot::spec::LinuxSpec;
use crate::terminal::console::complain;

/// Refuses a guest whose registers are those of another guest at times.
///
/// # Errors
/// Exit 2: it is one.
pub fn refuse_nested(linux: &LinuxSpec) -> Result<(), Error> {
    if linux.nested {
        return Err(Error::usage(
            "cannot sample a guest with --nested",
            "while a guest of its own runs, the registers are that one's",
            "leave --nested out",
        ));
    }
    Ok(())
}

/// The unwind tables of a kernel, with a warning if it has none.
#[must_use]
pub fn unwind_tables(kernel: &Kernel) -> Option<Orc> {
    match Orc::of_kernel(kernel.image(), kernel.release()) {
        Ok(orc) => Some(orc),
        Err(why @ (OrcError::Absent | OrcError::Damaged(_))) => {
            complain(&format!("warning: {why}: chains of the kernel follow frame pointers, which it may not have"));
            None
        }
    }
}
