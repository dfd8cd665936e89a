//! Constants of a simulation, read from a TOML file.
//!
//! A constant is a table with a value, whose key is the unit, and a `source`. A cost is a number of nanoseconds or a list of
//! equally spaced quantiles, from minimum to maximum. Constants fitted to a published figure are listed in `fitted`; all others
//! come from their source.

mod cost;
mod costs;
mod file;
mod host;
mod rate;
mod read;

pub use cost::Cost;
pub use costs::{Costs, MediatedCosts};
pub use file::{EMBEDDED, Fitted, Model, ModelError};
pub use host::{HostModel, Others};
pub use rate::{CountBase, Rate};

#[cfg(test)]
mod tests;
