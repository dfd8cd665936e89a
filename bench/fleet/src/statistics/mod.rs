//! Statistics by host: hosts and boots are never pooled.
//!
//! A series is one figure's logarithm in one host class. It is a sum of level, host, boot of the host, period (a day or
//! repetition, shared by all hosts) and rest. Changes with a changed fact come first, each host its own control; then
//! components of variance, levels as means over hosts, and hosts that differ from their class.

mod analysis;
mod changes;
mod fit;
mod grid;
mod levels;
mod odd;
mod spread;

pub(crate) use analysis::are_changes_judged;
pub use analysis::{Analysis, Class, PeriodRow, analyse};
pub use changes::{Change, ChangeRow};
pub use fit::{Components, Spread};
pub use grid::{Clock, FleetSpec, Kind, Setting};
pub(crate) use grid::{Grid, Series};
pub(crate) use levels::HeatRow;
pub use levels::LevelRow;
pub(crate) use odd::MIN_CLASS;
pub use odd::{OddFigure, OddHost};
