//! A grid of simulated experiments on all cores; a killed sweep resumes.
//!
//! A grid expands to [`grid::Point`]s, which are `vpmu sim`'s options. A point that is missing in the [`store::Store`] is
//! simulated, and the figures of its document are appended as one line, in the order of the grid,
//! so that the bytes of the file depend neither on the number of threads nor on interruptions. [`pareto`] compares the strategies.

pub mod grid;
pub mod pareto;
pub mod store;
