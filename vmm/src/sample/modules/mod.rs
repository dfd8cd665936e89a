//! The unwind tables of a Linux kernel's modules. Each module brings its own, and the kernel sorts it as it loads the module; it lies in guest
//! memory from then on.
//!
//! [`place`] is where modules lie, by the guest's word, [`read`] reads their tables from its memory, [`set`] finds the one of an address.
//! Nothing that a guest says or has in memory is believed further than bounds go: a table ends at the first entry that makes no sense.

mod place;
mod read;
mod set;
#[cfg(test)]
mod tests;

pub use place::{ModulePlace, Refusal};
pub use set::TablesRead;
pub(super) use set::{MOST_ENTRIES, ModuleTables};
