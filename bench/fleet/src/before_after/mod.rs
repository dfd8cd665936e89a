//! Before against after on the same hosts, as pairs.

mod model;
mod pairs;
mod show;
mod split;

pub use model::{FleetComparison, FleetRow};
pub use pairs::compare;
pub use split::{by_fact, by_variant};

#[cfg(test)]
mod tests;
