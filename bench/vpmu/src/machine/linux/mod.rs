//! A distribution's Linux as the guest: what is put into it, and the command that runs in it.
//!
//! [`userland`] makes the initial RAM disk, [`guest`] starts the machine and connects the agent of the guest's init, [`job`] is
//! `vpmu linux`.

mod bring;
#[cfg(test)]
#[path = "tests/fake.rs"]
pub(crate) mod fake;
pub mod guest;
pub mod job;
pub mod place;
pub mod spec;
pub mod userland;
