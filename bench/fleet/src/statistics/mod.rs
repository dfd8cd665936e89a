//! Statistics by host: hosts and boots are never pooled.
//!
//! A series is one figure's logarithm in one host class. It is a sum of level, host, boot of the host, period (a day or repetition,
//! shared by all hosts) and rest. Changes with a changed fact come first, each host its own control; then components of variance, levels
//! as means over hosts, and hosts that differ from their class.

mod analysis;
mod changes;
mod components;
mod event;
mod facts;
mod fit;
mod grid;
mod heat;
mod levels;
mod odd;
mod periods;
mod spec;
mod spread;

pub(crate) use analysis::are_changes_judged;
pub use analysis::{Analysis, Class, PeriodRow, analyse};
pub use changes::{Change, ChangeRow};
pub use components::{Components, Spread};
pub(crate) use grid::{Grid, Series};
pub use grid::{Kind, Setting};
pub(crate) use heat::HeatRow;
pub use levels::LevelRow;
pub(crate) use odd::MIN_CLASS;
pub use odd::{OddFigure, OddHost};
pub use periods::Clock;
pub use spec::FleetSpec;

#[cfg(test)]
mod tests;
