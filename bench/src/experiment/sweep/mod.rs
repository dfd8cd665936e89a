//! A grid of simulated experiments on all cores, which a killed run goes on with.
//!
//! A [`grid::Grid`] becomes a list of [`point::Point`]s. Each one that is not yet in the [`store::Store`] is simulated and
//! appended to it as one line; at the end the lines are put into the grid's order, so the file's bytes depend on neither
//! the number of threads nor on how often the sweep was killed. [`pareto`] then says which strategies no other beats.

mod axes;
mod axis;
pub mod grid;
pub mod pareto;
pub mod point;
pub mod run;
pub mod show;
pub mod simulate;
pub mod store;
