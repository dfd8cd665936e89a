//! `vpmu top`: a live view of a guest.
//!
//! [`spec`] says what is shown, [`guests`] runs the guest, [`watch`] is the thread that takes samples out and shows
//! them. [`model`] sums them up, and finds and cleans the names of functions. [`text`] makes tables, [`view`] pictures,
//! [`screen`] is the terminal.

pub mod guests;
pub mod model;
pub mod screen;
pub mod spec;
pub mod text;
pub mod view;
pub mod watch;
