//! Campaigns: many runs of `vpmu`, on this machine or on the nodes of a cluster.
//!
//! A [`plan`] becomes [`element`]s. Submitting it ([`submission`]) makes a campaign's [`folder`], which is acted on only if nobody else
//! could have changed it ([`trust`]), and each element is an [`attempt`] or several, until
//! one comes to an end of its own. Elements run one after the other ([`local`]) or as Slurm's array jobs ([`on_slurm`], by way of
//! [`slurm`], which knows nothing of campaigns). [`standing`] says how far a campaign is; [`merge`] puts parts of a sweep together.

pub mod attempt;
pub mod element;
pub mod folder;
pub mod local;
pub mod merge;
pub mod on_slurm;
pub mod options;
pub mod plan;
pub mod standing;
pub mod submission;
pub mod trust;
