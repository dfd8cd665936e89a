//! Published figures of programs with a bottleneck, measured on this host by the workloads of triage.
//!
//! [`measure`] runs them; [`document`] sets what was found beside what was published, with the reasons for the difference; [`show`] prints it.

pub mod document;
pub mod measure;
pub mod show;
