//! Running campaigns, on this machine or on the nodes of a cluster; [`fleet::campaign`] is what they are.
//!
//! Each element is an [`attempt`] or several, until one comes to an end of its own.

pub mod attempt;
