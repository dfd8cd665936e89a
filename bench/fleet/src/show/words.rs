//! Figures as words, the same in every format.

use crate::statistics::Kind;
use results::stats::interval::Interval;
use results::table::layout::{ratio, time};

/// A level: a time, or a ratio.
pub(crate) fn value(kind: Kind, level: f64) -> String {
    if kind == Kind::Ratio { format!("× {level:.3}") } else { time(level) }
}

/// A level with its interval.
pub(super) fn level(kind: Kind, level: f64, interval: Option<Interval>) -> String {
    let Some(Interval { low, high }) = interval else { return value(kind, level) };
    // Half of the interval's width in per cent says as much as its ends.
    let half = ((high / low).sqrt() - 1.0) * 100.0;
    format!("{} ± {half:.*} %", value(kind, level), if half < 0.95 { 2 } else { 1 })
}

/// A ratio with its interval.
pub(super) fn over(found: f64, interval: Option<Interval>) -> String {
    let interval = interval.map_or_else(String::new, |Interval { low, high }| format!(" [{low:.3}, {high:.3}]"));
    format!("{}{interval}", if interval.is_empty() { ratio(found) } else { format!("{found:.3}") })
}
