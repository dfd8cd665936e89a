//! Results of many hosts. Rounds and histograms of thousands of documents do not fit in memory, and statistics by host do not need
//! them: a document is reduced to a [`Run`], with one [`Figure`] for each arm and metric.
//!
//! [`campaign`] is a plan and the folder of its outcomes, [`slurm`] runs its elements on a cluster, and [`index`] keeps
//! runs beside their documents. The runs of a host are one block: [`analyse`] names hosts that stand apart, and [`compare()`]
//! judges one side by another; [`Findings`] are those of a campaign.

pub mod campaign;
mod compare;
mod findings;
pub mod hash;
mod hosts;
pub mod index;
mod run;
mod series;
mod show;
pub mod slurm;
#[cfg(test)]
#[path = "../tests/fixtures/synthetic.rs"]
mod synthetic;

pub use compare::{compare, too_few};
pub use findings::{Findings, Variant, variants};
pub use hosts::{Analysis, HostRow, LevelRow, MIN_HOSTS, analyse};
pub use run::{Figure, Labels, Run};
pub use series::Question;
pub use show::{groups, progress, report, shortened};
