//! Running campaigns, on this machine or on the nodes of a cluster; [`fleet::campaign`] is what they are.
//!
//! Each element is an [`attempt`] or several, until one comes to an end of its own. Elements run one after the other
//! ([`attempt::one_after_the_other`]) or as Slurm's array jobs ([`on_slurm`]). [`merge`] puts parts of a sweep
//! together.

pub mod attempt;
pub mod merge;
pub mod on_slurm;
