//! From "it is slow" to the line that makes it so, the way one does it by hand: which events rose against an idle baseline, which
//! of them to sample by, the call chains at its samples, and a variant without the bottleneck beside it.
//!
//! | module | does |
//! |---|---|
//! | [`workloads`] | programs with a known bottleneck, each with a variant that has it not |
//! | [`counting`] | events of a tree of processes |
//! | [`sampling`] | samples of a tree of processes, with call chains |
//! | [`symbols`] | names of addresses |
//! | [`choice`], [`verdict`] | what the figures say |
//! | [`run`] | the whole, as an [`account::Account`] |
//! | [`practice`] | published figures of such programs, measured here |

pub mod account;
pub mod child;
pub mod choice;
pub mod counting;
pub mod practice;
pub mod run;
pub mod sampling;
pub mod show;
pub mod stacks;
pub mod symbols;
mod sys;
pub mod verdict;
pub mod workloads;
