//! Cost of setting up many perf events on many CPUs, as `perf stat` does, by method.
//!
//! A [`list::EventList`] has perf's syntax. [`run::run`] opens, enables, reads, disables and closes its events by a
//! [`method::Method`] and returns the cost of each phase and the outcome of each event.

mod affinity;
mod alone;
pub mod bare;
pub mod choose;
pub mod costs;
mod crew;
pub mod job;
pub mod last_close;
pub mod limit;
pub mod list;
pub mod method;
pub mod model;
pub mod monitor;
pub mod outcome;
pub mod phase;
pub mod run;
mod sys;
mod threads;
mod unit;
pub mod verify;
