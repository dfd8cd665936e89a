//! The engine of every experiment: arms that take turns.
//!
//! An [`Arm`] is one of the things that an experiment compares: a strategy behind a guest's counters, an order in which events
//! are set up, a command. `run` gives each of them one turn a round, in an order drawn from the seed, so that a drift of the
//! host meets all alike. A round counts once all of its turns are over: one that is cut short leaves nothing in any arm.
//! [`plain`] has arms that are no more than a measurement, with all that an experiment of them needs.

mod arm;
pub mod plain;
mod run;

pub use arm::{Arm, Turn};
pub(crate) use run::{About, Context, State, measure, run};
pub use run::{Measured, Rounds};
