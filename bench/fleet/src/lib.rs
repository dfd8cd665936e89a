//! Results of many hosts. Rounds and histograms of thousands of documents do not fit in memory, and statistics by host do not need
//! them: a document is reduced to a [`Run`], with one [`Figure`] for each arm and metric.
//!
//! [`campaign`] is a plan and the folder of its outcomes, [`slurm`] runs its elements on a cluster, and [`index`] keeps
//! runs beside their documents. The runs of a host are one block: [`analyse`] names hosts that stand apart, [`compare`] judges one
//! side by another, and [`history`] follows the hosts over time.

pub mod campaign;
mod compare;
pub mod hash;
mod history;
mod hosts;
pub mod index;
mod run;
mod series;
mod show;
pub mod slurm;
#[cfg(test)]
#[path = "../tests/fixtures/synthetic.rs"]
mod synthetic;

pub use compare::{FleetComparison, FleetRow, compare, too_few};
pub use history::{FleetHistory, PeriodRow, Step, history};
pub use hosts::{Analysis, HostRow, LevelRow, analyse};
pub use run::{Figure, Labels, Run};
pub use series::Question;
pub use show::{progress, report, shortened};
