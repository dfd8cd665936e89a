//! Setting up many perf events on many CPUs, as `perf stat` must, and what each way of doing it costs.
//!
//! A [`list::EventList`] is written as perf writes it. [`run::run`] opens, enables, reads, disables and closes it by a
//! [`method::Method`] and says what each phase cost and what became of each event.

mod affinity;
pub mod choose;
pub mod costs;
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
