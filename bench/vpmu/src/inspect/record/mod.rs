//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`spec`] says what is recorded, [`guests`] runs the guest, [`layout`] says what stock perf takes the guest for,
//! [`recorder`] takes samples out and writes them, [`tables`] is what is printed meanwhile, [`summary`] what is said at the end.
//! [`beside`] names what lies beside a recording, and keeps the earlier one.

pub mod beside;
pub mod guests;
pub mod layout;
pub mod recorder;
pub mod spec;
pub mod summary;
pub mod tables;
