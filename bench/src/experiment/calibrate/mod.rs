//! A model of this host, fitted to measured guests.
//!
//! Costs of host operations are the distributions measured in arms `recreate` and `reuse`. Constants that only the guest sees
//! are solved for with the simulator: exit and instruction so that the simulated floor takes as long as the measured one with
//! one event and with ten; tick-exit so that the rotations of the floor do. No latency of a strategy is fitted; [`check`]
//! compares measured with simulated latencies.

pub mod check;
pub mod draft;
pub mod fit;
pub mod measure;
pub mod spec;
