//! Files of a sweep.

/// Name of the file of finished points in a results folder.
pub const FILE: &str = "sweep.jsonl";
/// The Pareto front of its points, beside it.
pub const FRONT: &str = "pareto.json";
