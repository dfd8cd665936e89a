//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`guests`] runs the guest and says what came of it, [`layout`] says what stock perf takes the guest for,
//! [`recorder`] has the options, takes samples out and writes them, [`tables`] is what is printed meanwhile.
//! [`beside`] names what lies beside a recording, and keeps the earlier one.

pub mod beside;
pub mod guests;
pub mod layout;
pub mod recorder;
pub mod tables;
