//! Options that end a comparison of arms.

use std::time::Duration;

use clap::Args;

use super::options::ArmsOptions;
use crate::arms::rounds::spec::{CommonSpec, OPEN_ENDED};
use crate::experiment::nmi_latency::spec::{LONGEST, ROUNDS};
use crate::setting::parse::{number_in, share};

/// Bound on a run that ends when its figures are sure.
const LONGEST_SURE: Duration = Duration::from_secs(600);
/// Rounds of a quick run.
const QUICK_ROUNDS: u64 = 24;
/// Its bound.
const LONGEST_QUICK: Duration = Duration::from_secs(5);

/// The end of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rounds")]
pub struct LengthOptions {
    /// A few seconds; the figures are indicative only
    #[arg(long, conflicts_with_all = ["rounds", "duration", "until_ci"])]
    pub quick: bool,

    /// End when each ratio's 95 % interval is at most this wide to either side, e.g. 2%
    ///
    /// Judged are the ratios of the first table: of strategies to one another (of more than three: to the one before) and to the
    /// floor, at two looks in a row, the first after ten guests an arm. Without --rounds or --duration it gives up after ten minutes.
    /// Exit 3 if it is not reached.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub until_ci: Option<f64>,

    /// Rounds in which an arm's guest lives on before a fresh one replaces it [default: 20, or 1]
    ///
    /// 1 is the default of hardware events and tracepoints: the first one of a host and the last close may take tens of ms, which
    /// guests that live at the same time spare each other. Where others hold such an event anyway, as the NMI watchdog does, more
    /// rounds per guest make the intervals narrower.
    #[arg(long, value_name = "N", value_parser = number_in(1..=10_000))]
    pub guest_rounds: Option<u64>,
}

impl LengthOptions {
    /// Returns the specification with this end.
    #[must_use]
    pub(super) fn of(&self, arms: &ArmsOptions, common: CommonSpec) -> CommonSpec {
        let (rounds, longest) = match (self.quick, self.until_ci, arms.duration) {
            (true, ..) => (QUICK_ROUNDS, LONGEST_QUICK),
            (false, _, Some(duration)) => (OPEN_ENDED, duration),
            (false, Some(_), None) => (OPEN_ENDED, LONGEST_SURE),
            (false, None, None) => (ROUNDS, LONGEST),
        };
        CommonSpec {
            rounds: arms.rounds.unwrap_or(rounds),
            // Rounds that are asked for are not cut short.
            duration: arms.duration.or_else(|| arms.rounds.is_none().then_some(longest)),
            rounds_per_guest: self.guest_rounds,
            until_ci: self.until_ci,
            quick: self.quick,
            ..common
        }
    }
}
