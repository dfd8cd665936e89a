//! The code of a running guest's kernel: its modules, where they lie, and build-ids, as its `/proc` and `/sys` say.
//!
//! Everything here is the guest's word. Names, addresses and sizes are checked for form; whether code lies there is for the reader of its
//! memory to find out.

mod code;
mod fetch;
mod list;
mod note;

pub use code::{Code, Module};
pub use fetch::fetch;
pub use list::MOST_MODULES;
