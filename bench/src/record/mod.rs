//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`spec`] says what is recorded, [`guests`] runs the guest, [`layout`] says what stock perf takes the guest for, [`recorder`] is the
//! thread that takes samples out and writes them, [`summary`] what is said at the end.

pub mod guests;
pub mod layout;
pub mod recorder;
pub mod spec;
pub mod summary;
