//! Event lists in perf's syntax: parsed ([`parse`]), generated ([`generate`]), looked up on the host ([`resolve`]).

mod event;
pub mod generate;
pub mod names;
pub mod parse;
pub mod resolve;
pub mod sysfs;

pub use event::{Class, Event, EventList, Group, Openable};
