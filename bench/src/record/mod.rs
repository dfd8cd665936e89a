//! `vpmu record`: samples of a guest as a perf.data file.
//!
//! [`spec`] says what is recorded, [`guests`] runs the guest, [`layout`] says what stock perf takes the guest for, [`recorder`] is the
//! thread that takes samples out and writes them, [`summary`] what is said at the end.
//! [`profile`] reads a recording back, [`flame`] makes a page of it.

pub mod flame;
pub mod guests;
pub mod layout;
pub mod profile;
pub mod recorder;
pub mod spec;
pub mod summary;
