//! One arm against another: the ratio of their latencies, and how sure it is.
//!
//! A round has a turn of every arm, one right after the other, so what slows the host for longer than a round slows all of
//! them, and their ratio stays. [`ratio`] takes the logarithm of the ratio of each round, and its centre over the rounds
//! ([`stats::trimmed`](crate::stats::trimmed)). The interval treats rounds of one guest as related: see [`groups`](mod@groups).
//!
//! | question | function |
//! |---|---|
//! | how much slower is one arm than another in this run? | [`ratio`] |
//! | and in other runs of the host? | [`over_runs`] |
//! | how long does an arm take? | [`level`] |
//! | how wide is an interval? | [`Estimate::interval`](crate::stats::jackknife::Estimate::interval), of a p50 [`median_interval`] |
//! | when may a run end for being sure? | [`Looks`] |
//! | which arms are compared? | [`in_plan_order`] |
//! | which rounds count? | [`counting()`] |
//! | which rounds belong together? | [`groups`](mod@groups) |

pub mod groups;
mod level;
pub mod looks;
mod ratio;
mod rounds;

pub use level::{Level, heading, level, median_interval, p50};
pub use looks::{Looks, MIN_LOOKED_AT};
pub(crate) use ratio::log;
pub use ratio::{BETWEEN_RUNS, MIN_ROUNDS, Ratio, centre, log_ratio, narrowest, of_turns, over_runs, ratio};
pub use rounds::{Pair, are_few, counting, in_plan_order, pairs, short};
