//! A model of this host, fitted to measured guests.
//!
//! Costs of host operations are the distributions measured in arms `recreate` and `reuse`. Each constant that only the guest sees has
//! a figure of its own: `instruction` a loop in ring 0 that does not exit, `exit` the floor's handler of one event beyond its instructions,
//! `tick-exit` the floor's rotations beyond what its handlers account for; the last two are solved for with the simulator. Guests of all
//! workloads take turns, so that the host's modes meet all alike, and each fitted constant has a 95 % interval over guests. No latency of
//! a strategy is fitted; [`check`] compares measured with simulated latencies.

pub mod check;
pub mod draft;
mod estimate;
pub mod fit;
pub mod measure;
pub mod spec;

#[cfg(test)]
mod tests;
