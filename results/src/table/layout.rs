//! Lays out tables, and formats numbers.

use std::io::IsTerminal;

use crate::paired::{Level, Ratio};
use crate::stats::interval::Interval;

/// Columns where stdout is no terminal.
const PLAIN: usize = 80;
/// Least columns that text is laid out for.
const LEAST: usize = 40;

/// Returns the columns of text printed to stdout: COLUMNS, else those of the terminal, else 80.
pub fn columns() -> usize {
    let out = std::io::stdout();
    let terminal = if out.is_terminal() { rustix::termios::tcgetwinsize(out).ok() } else { None };
    chosen(std::env::var("COLUMNS").ok().as_deref(), terminal.map(|size| size.ws_col))
}

fn chosen(asked: Option<&str>, terminal: Option<u16>) -> usize {
    let asked = asked.and_then(|text| text.parse().ok());
    let given = asked.or(terminal.map(usize::from)).filter(|&columns| columns > 0);
    given.unwrap_or(PLAIN).max(LEAST)
}

/// Formats nanoseconds for people: three significant digits in ns, µs, ms or s.
pub fn time(ns: f64) -> String {
    let (value, decimals, unit) = unit(ns);
    format!("{value:.decimals$} {unit}")
}

/// Converts a number of ns to the unit that suits it, with the decimals for three digits. Measurements are in whole nanoseconds.
pub fn unit(ns: f64) -> (f64, usize, &'static str) {
    let (value, unit) = match ns {
        n if n < 999.5 => return (n, 0, "ns"),
        n if n < 999_500.0 => (n / 1e3, "µs"),
        n if n < 999_500_000.0 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    (value, digits(value), unit)
}

/// Text in place of an interval of rounds that are all the same, as a simulation's may be.
const NO_SPREAD: &str = "[no spread]";

/// Formats a level of a metric with its interval, a time in one unit: `70.1 µs [69.5, 71.0]`.
pub fn level(metric: &str, level: &Level) -> String {
    let interval = |text: &dyn Fn(f64) -> String| match level.interval {
        Some(interval) if interval.is_point() => format!(" {NO_SPREAD}"),
        Some(Interval { low, high }) => format!(" [{}, {}]", text(low), text(high)),
        None => String::new(),
    };
    if !metric.ends_with("_ns") {
        return value(metric, level.ns) + &interval(&|end| value(metric, end));
    }
    let (value, decimals, name) = unit(level.ns);
    let scale = if level.ns > 0.0 { value / level.ns } else { 1.0 };
    format!("{value:.decimals$} {name}{}", interval(&|end| format!("{:.decimals$}", end * scale)))
}

/// Formats a ratio of two arms with its interval.
pub fn ratio_with(found: &Ratio) -> String {
    ratio_in(found.ratio, found.interval)
}

/// Formats a ratio with its interval, if it has one: `0.970 [0.957, 0.982]`; fewer digits where it is less sure.
pub fn ratio_in(value: f64, interval: Option<Interval>) -> String {
    let Some(interval @ Interval { low, high }) = interval else { return ratio(value) };
    let sharp = (high / low).sqrt() - 1.0 < 0.01;
    let decimals = if value >= 9.995 { 1 } else { digits(value) + usize::from(sharp) };
    let spread = format!("[{low:.decimals$}, {high:.decimals$}]");
    format!("{value:.decimals$} {}", if interval.is_point() { NO_SPREAD } else { &spread })
}

/// Formats a value of a metric: the end of its key names the unit, and without one it is a count.
pub fn value(metric: &str, value: f64) -> String {
    match value {
        ns if metric.ends_with("_ns") => time(ns),
        bytes if metric.ends_with("_bytes") => match bytes {
            n if n < 1e3 => format!("{n:.0} B"),
            n if n < 1e6 => format!("{} kB", ratio(n / 1e3)),
            n => format!("{} MB", ratio(n / 1e6)),
        },
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        mean => ratio(mean),
    }
}

/// Formats a signed figure; what rounds to zero has no sign.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    if text[1..].bytes().all(|byte| matches!(byte, b'0' | b'.')) { text[1..].to_owned() } else { text }
}

/// Formats a share as a number of per cent of about three digits, without the unit and without zeros behind its point.
pub fn percent(share: f64) -> String {
    let text = ratio(share * 100.0);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a relative change in per cent with its interval: `+3.1 % [+2.9, +3.3]`; of whole numbers where that is as wide as ten.
pub fn change(share: f64, interval: Option<Interval>) -> String {
    let decimals = usize::from(interval.is_none_or(|interval| interval.high - interval.low < 0.1));
    let interval = interval.map_or_else(String::new, |Interval { low, high }| {
        format!(" [{}, {}]", signed(low * 100.0, decimals), signed(high * 100.0, decimals))
    });
    format!("{} %{interval}", signed(share * 100.0, decimals))
}

/// Formats a p value.
pub fn p(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

/// Returns a dash for an unknown figure.
pub fn dash() -> String {
    "–".to_owned()
}

/// Formats a level against the floor's.
pub fn against(ratio: f64) -> String {
    format!("× {ratio:.3}")
}

/// Formats a ratio or a mean count: about three significant digits, none of them lost in zeros.
pub fn ratio(value: f64) -> String {
    let decimals = digits(value);
    format!("{value:.decimals$}")
}

/// Formats a mean count in at most five characters, as long as it is below 100 000: of the smallest the power of ten is what tells.
pub fn mean(value: f64) -> String {
    if value > 0.0 && value < 0.000_95 { format!("{value:.0e}") } else { format!("{value:.*}", digits(value).min(3)) }
}

/// Decimals for about three digits.
fn digits(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        v if v < 0.000_1 => 6,
        v if v < 0.001 => 5,
        v if v < 0.009_95 => 4,
        v if v < 0.0995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    }
}

/// Formats a count with its noun: `1 run`, `2 runs`.
pub fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_numbers_of_per_cent_where_they_can_be_and_counts_are_short() {
        for (share, text) in [(0.07, "7"), (0.005, "0.5"), (0.03, "3"), (1.0, "100"), (0.0, "0"), (1.764_32, "176")] {
            assert_eq!(percent(share), text);
        }
        assert_eq!([0.0, 0.000_26, 0.005_3, 0.037, 1073.0].map(mean), ["0", "3e-4", "0.005", "0.037", "1073"]);
    }

    #[test]
    fn times_have_three_digits_and_the_right_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (9_996.0, "10.0 µs"),
            (84_600.0, "84.6 µs"),
            (104_923.0, "105 µs"),
            (43_163_000.0, "43.2 ms"),
            (999_700_000.0, "1.00 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn columns_is_asked_first_then_the_terminal() {
        assert_eq!((chosen(None, None), chosen(None, Some(200)), chosen(Some("60"), Some(200))), (80, 200, 60));
        // A pty without a size, a variable that is no number, a terminal of a few columns.
        assert_eq!((chosen(None, Some(0)), chosen(Some("x"), Some(120)), chosen(Some("3"), None)), (80, 120, 40));
    }

    #[test]
    fn intervals_have_the_unit_and_digits_of_their_figure() {
        let shown = |ns, interval| level("a_ns", &Level { ns, interval, rounds: 9 });
        let interval = |low, high| Some(Interval { low, high });
        assert_eq!(shown(70_123.0, interval(9_500.0, 101_040.0)), "70.1 µs [9.5, 101.0]");
        assert_eq!(shown(70_123.0, interval(70_123.0, 70_123.0)), "70.1 µs [no spread]");
        assert_eq!([shown(70_123.0, None), shown(0.0, interval(0.0, 2.0))], ["70.1 µs", "0 ns [0, 2]"]);
        let shown_ratio = |ratio, low, high| ratio_in(ratio, interval(low, high));
        assert_eq!(shown_ratio(0.97, 0.97, 0.97), "0.970 [no spread]");
        assert_eq!(shown_ratio(0.97, 0.9651, 0.9749), "0.970 [0.965, 0.975]");
        assert_eq!(shown_ratio(0.97, 0.957, 0.9822), "0.97 [0.96, 0.98]");
        assert_eq!(shown_ratio(0.97, 0.9, 1.04), "0.97 [0.90, 1.04]");
        assert_eq!(shown_ratio(20.0, 19.5, 20.5), "20.0 [19.5, 20.5]");
        assert_eq!(shown_ratio(0.006_41, 0.005, 0.008), "0.0064 [0.0050, 0.0080]");
    }

    #[test]
    fn what_rounds_to_zero_has_no_sign() {
        for (value, decimals, text) in
            [(-0.04, 1, "0.0"), (0.04, 1, "0.0"), (-0.06, 1, "-0.1"), (3.0, 2, "+3.00"), (-0.2, 0, "0")]
        {
            assert_eq!(signed(value, decimals), text);
        }
    }
}
