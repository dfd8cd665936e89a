//! Cost of setting up many perf events on many CPUs, as `perf stat` does, by method.
//!
//! A [`list::EventList`] has perf's syntax. [`run::run`] opens, enables, reads, disables and closes its events by a
//! [`method::Method`] and returns the cost of each phase and the outcome of each event.

mod affinity;
pub mod bare;
pub mod limit;
pub mod list;
pub mod method;
pub mod model;
pub mod run;
mod sys;
pub mod unit;
pub mod verify;
