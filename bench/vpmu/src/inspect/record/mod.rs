//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`spec`] says what is recorded, [`guests`] runs the guest, [`layout`] says what stock perf takes the guest for,
//! [`code`] where its kernel's code is, [`recorder`] is the thread that takes samples out and writes them, [`summary`]
//! what is said at the end. [`beside`] names what lies beside a recording, the payload's own log among it, and keeps
//! the earlier one. [`profile`] reads a recording back, with the names of its time, [`flame`] makes a page of it,
//! [`firefox`] a profile for the Firefox profiler.

pub mod beside;
pub mod code;
pub mod firefox;
pub mod flame;
pub mod guests;
pub mod layout;
pub mod profile;
pub mod recorder;
pub mod spec;
pub mod summary;
