//! From "it is slow" to the line that makes it so, the way one does it by hand: which events rose against an idle baseline, which
//! of them to sample by, and the call chains at its samples.
//!
//! | module | does |
//! |---|---|
//! | [`workloads`] | programs with a known bottleneck, each with a variant that has it not |
//! | [`child`] | a workload in a process of its own, whose events are there before it works |
//! | [`counting`] | events of a tree of processes |
//! | [`choice`] | the event to sample by |
//! | [`sampling`], [`records`] | samples of a tree of processes, with call chains; their records in perf's ring |
//! | [`symbols`], [`stacks`] | names of addresses, and the chains by them |

pub mod child;
pub mod choice;
pub mod counting;
pub mod records;
pub mod sampling;
pub mod stacks;
pub mod symbols;
mod sys;
pub mod workloads;
