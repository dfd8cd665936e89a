//! Every constant of a simulation, read from a TOML file.
//!
//! A constant is a table of its value, in the unit its key names, and its `source`. A cost is one number of nanoseconds or
//! equally spaced quantiles of its distribution, from the smallest value to the largest. What was fitted to a published
//! figure stands apart, in `fitted`; everything else is taken from its source.

mod cost;
mod costs;
mod file;
mod host;
mod rate;
mod read;

pub use cost::Cost;
pub use costs::Costs;
pub use file::{EMBEDDED, Fitted, Model, ModelError};
pub use host::{HostModel, Others};
pub use rate::{CountBase, Rate};

#[cfg(test)]
mod tests;
