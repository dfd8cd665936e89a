//! Results of many hosts. Rounds and histograms of thousands of documents do not fit in memory, and statistics by host do not need
//! them: a document is reduced to a [`Run`], with one [`Figure`] for each arm and metric.
//!
//! [`campaign`] is a plan and the folder of its outcomes, [`slurm`] runs its elements on a cluster, [`index`] keeps
//! runs beside their documents, and [`analyse`] and [`compare`] judge them.

mod before_after;
pub mod campaign;
mod gather;
pub mod hash;
pub mod index;
mod run;
mod show;
pub mod slurm;
mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod synthetic;

pub use before_after::{FleetComparison, FleetRow, by_fact, by_variant, compare, too_few};
pub use gather::gather;
pub use run::{Figure, Labels, Level, Run};
pub use show::tables::{ElementEnd, ElementLine};
pub use show::{page, report};
pub use statistics::{
    Analysis, Change, ChangeRow, Class, Clock, Components, FleetSpec, Kind, LevelRow, OddFigure, OddHost, PeriodRow,
    Setting, Spread, analyse,
};
