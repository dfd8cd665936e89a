//! The axis of a plot: its range, its ticks and their texts.

use crate::table::layout::unit;

/// Most ticks an axis is given; a plot is as narrow as a phone.
const MOST: usize = 7;

/// Formats a ratio as the text of a tick: as many digits as its step needs.
pub(crate) fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a time as the text of a tick, `value` in ns: up to four digits, without zeros at the end.
pub(crate) fn duration(value: f64) -> String {
    let (value, _, unit) = unit(value);
    format!("{} {unit}", plain((value * 1e3).round() / 1e3))
}

/// Formats the value of a tick.
pub(crate) type Format = fn(f64) -> String;

/// Returns the format of the ticks of a metric, whose key names the unit.
pub(crate) fn ticks(metric: &str) -> Format {
    if metric.ends_with("_ns") { duration } else { plain }
}

/// One axis.
pub(crate) struct Axis {
    /// Label of the axis, with its unit.
    pub(super) label: String,
    low: f64,
    high: f64,
    log: bool,
    /// The ticks with their texts, the lowest first.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    fn new(label: &str, (low, high): (f64, f64), log: bool, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        let mut ticks: Vec<(f64, String)> = ticks.into_iter().collect();
        // A tick whose text would be its neighbour's is left out.
        ticks.dedup_by(|tick, before| tick.1 == before.1);
        Self { label: label.to_owned(), low, high, log, ticks }
    }

    /// Creates an axis of places with names, at 1, 2, 3 and so on; of many every second name or fewer are shown.
    pub(crate) fn named(label: &str, names: &[String]) -> Self {
        let places = (1..).map(f64::from).zip(names.iter().cloned());
        let every = names.len().div_ceil(MOST).max(1);
        Self::new(label, (1.0, (names.len() as f64).max(2.0)), false, places.step_by(every))
    }

    /// Creates the axis of a cost, of decades, or of 1-2-5 where there are few; values that are not above 0 have no place and are left out.
    pub(crate) fn log(label: &str, values: impl IntoIterator<Item = f64>, format: Format) -> Self {
        let placed = values.into_iter().filter(|value| value.is_finite() && *value > 0.0).map(|value| (value, value));
        let (low, high) = placed.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))).unwrap_or((1.0, 10.0));
        // A little room, and at least 2 %.
        let room = (high / low).powf(0.04).max(1.01);
        let (low, high) = (low / room, high * room);
        let ticks = powers(low, high).into_iter().map(|tick| (tick, format(tick)));
        Self::new(&format!("{label}, lower is better"), (low, high), true, ticks)
    }

    /// Creates HdrHistogram's usual axis: x = 1 / (1 − p), so that each further nine takes the same room.
    pub(crate) fn percentile(largest: f64) -> Self {
        let high = largest.clamp(10.0, 1e9);
        let decades = (1..=high.log10().floor() as i32).map(|n| 10_f64.powi(n));
        let ticks = [1.0, 2.0].into_iter().chain(decades).map(|tick| (tick, percentile(tick)));
        Self::new("percentile", (1.0, high), true, ticks)
    }

    /// Returns the place of a value if the axis reaches from `from` to `to`. Values beyond the ends lie at them.
    pub(crate) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let scale = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (scale(self.low), scale(self.high));
        from + (to - from) * ((scale(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten that cover the range.
fn even(low: f64, high: f64) -> Vec<f64> {
    let wanted = (high - low) / (MOST - 1) as f64;
    let power = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= wanted * 0.999_999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil();
    (0..=MOST).map(|n| (first + n as f64) * step).take_while(|tick| *tick <= high + step * 1e-9).collect()
}

/// Chooses the finest of 1-2-5 per decade, decades, and every second or third decade that is not too fine.
fn powers(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let within = |digits: &[f64], every: i32| -> Vec<f64> {
        (first..=last)
            .filter(|power| power.rem_euclid(every) == 0)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    };
    let fine = [within(&[1.0, 2.0, 5.0], 1), within(&[1.0, 3.0], 1), within(&[1.0], 1), within(&[1.0], 3)];
    let found = fine.into_iter().find(|ticks| ticks.len() <= MOST).unwrap_or_default();
    if found.len() < 3 { even(low, high) } else { found }
}

fn percentile(x: f64) -> String {
    if x <= 1.0 {
        return "0 %".to_owned();
    }
    // 99.9 % is the first with a decimal.
    let nines = (3..=9).filter(|power| 10_f64.powi(*power) <= x * 1.01).count();
    if x < 10.0 { "50 %".to_owned() } else { format!("{:.nines$} %", 100.0 - 100.0 / x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_within() {
        for (low, high) in [(0.0, 1.0), (0.0, 7.3), (3.0, 3.1), (1e9, 1.000_001e9), (0.0, 0.004)] {
            let ticks = even(low, high);
            assert!((2..=MOST + 1).contains(&ticks.len()), "{low} {high} {ticks:?}");
        }
        for (low, high) in [(75e3, 13e6), (80e3, 90e3), (1.0, 1e9), (5e3, 45e6), (0.5, 2.0)] {
            let ticks = powers(low, high);
            assert!((2..=MOST + 1).contains(&ticks.len()), "{low} {high} {ticks:?}");
            assert!(ticks.iter().all(|tick| (low * 0.99..=high * 1.01).contains(tick)), "{ticks:?}");
        }
    }

    #[test]
    fn degenerate_values_give_a_range_all_the_same() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![f64::NAN, f64::INFINITY], vec![-1.0]] {
            let axis = Axis::log("", values.clone(), |v| v.to_string());
            assert!(axis.high > axis.low && axis.high.is_finite(), "{values:?}");
            assert!(axis.ticks.iter().all(|(tick, _)| tick.is_finite()));
            assert!((0.0..=1.0).contains(&axis.place(3.0, 0.0, 1.0)));
        }
    }

    #[test]
    fn an_axis_fits_narrow_data_and_its_texts_differ() {
        let axis = Axis::log("", [1.02, 1.06], plain);
        assert!(axis.place(1.02, 0.0, 1.0) < 0.25 && axis.place(1.06, 0.0, 1.0) > 0.75, "{} {}", axis.low, axis.high);
        let texts: Vec<&String> = axis.ticks.iter().map(|(_, text)| text).collect();
        assert!(texts.len() >= 3 && texts.windows(2).all(|two| two[0] != two[1]), "{texts:?}");
        assert_eq!((plain(1.005), plain(200.0), plain(0.5)), ("1.005".into(), "200".into(), "0.5".into()));
        assert_eq!(
            (duration(104_500.0), duration(2e6), duration(999.0)),
            ("104.5 µs".into(), "2 ms".into(), "999 ns".into())
        );
    }
}
