//! A campaign: a plan, the elements that it becomes, and the folder that keeps their outcomes.
//!
//! A [`plan`] becomes [`element`]s. Submitting it ([`submission`]) makes a campaign's [`folder`], which is acted on
//! only if nobody else could have changed it; elements become Slurm's [`jobs`]. [`standing`] says how far a campaign is. Running an
//! element is the tool's.

pub mod element;
pub mod folder;
pub mod jobs;
pub mod options;
pub mod plan;
pub mod standing;
pub mod submission;
