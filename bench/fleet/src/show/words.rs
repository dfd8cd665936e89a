//! Figures as words, the same in every format.

use crate::statistics::Kind;
use results::compare::percent;
use results::stats::interval::Interval;
use results::table::layout::{ratio, signed, time};

/// A relative change with its interval: `+3.1 % [+2.9, +3.3]`.
pub(crate) fn change(share: f64, interval: Option<Interval>) -> String {
    let interval = interval.map_or_else(String::new, |Interval { low, high }| {
        format!(" [{}, {}]", signed(low * 100.0, 1), signed(high * 100.0, 1))
    });
    percent(share) + &interval
}

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

/// Keeps a text in its cell of a Markdown table.
pub(crate) fn cell(text: &str) -> String {
    let one_line = results::error::one_line(text);
    one_line.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('`', "\\`")
}
