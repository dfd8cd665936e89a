//! Slurm as a place to run elements of a campaign, through its own commands: `sbatch`, `scontrol`, `sacct`, `scancel`, `sinfo`.
//!
//! Nothing here knows about experiments: a [`request::Request`] goes in, job ids and states come out. libslurm is not linked: its
//! interface changes with each release, the commands' output does not. Parsers take the output of 22.05, and ignore
//! fields and states that they do not know.
//!
//! [`command::Slurm`] runs the commands, each with a time limit. [`submit`] splits a request into array jobs and
//! submits them and ends jobs, [`query`] asks for the state of each element, [`nodes`] lists nodes and
//! reads what the controller says about itself.

pub mod command;
pub mod hostlist;
pub mod nodes;
pub mod query;
pub mod request;
pub mod script;
pub mod submit;
