//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`guests`] runs the guest and says what came of it, [`layout`] says what stock perf takes the guest for,
//! [`recorder`] takes samples out and writes them, [`tables`] is what is printed meanwhile, [`spec`] has the options.
//! [`beside`] names what lies beside a recording, and keeps the earlier one.

pub mod beside;
pub mod guests;
pub mod layout;
pub mod recorder;
pub mod spec;
pub mod tables;
