//! Cost of an operation, ns: fixed or distributed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use toml::{Table, Value};

use crate::stream::{Stream, draw_with_rest};

/// Maximum number of quantiles.
pub(super) const MAX_QUANTILES: usize = 1001;

/// A cost in whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Fixed(u64),
    /// Equally spaced quantiles, at least two, ascending.
    Quantiles(Box<[u64]>),
}

impl Cost {
    /// Returns a cost that is the same at each operation.
    pub const fn fixed(ns: u64) -> Self {
        Self(Kind::Fixed(ns))
    }

    /// Creates a cost of equally spaced quantiles from minimum to maximum, ascending, at least one.
    pub(super) fn quantiles(ns: Vec<u64>) -> Self {
        match ns[..] {
            [only] => Self::fixed(only),
            _ if ns.iter().all(|&n| n == ns[0]) => Self::fixed(ns[0]),
            _ => Self(Kind::Quantiles(ns.into_boxed_slice())),
        }
    }

    /// Returns the cost with every quantile times `factor`, at most `most` ns.
    pub(super) fn scaled(&self, factor: f64, most: f64) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
        let scale = |ns: u64| (ns as f64 * factor).min(most).round() as u64;
        match &self.0 {
            Kind::Fixed(ns) => Self::fixed(scale(*ns)),
            Kind::Quantiles(ns) => Self::quantiles(ns.iter().map(|&ns| scale(ns)).collect()),
        }
    }

    /// Returns the mean of many draws, ns.
    pub fn mean(&self) -> f64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns as f64,
            Kind::Quantiles(ns) => {
                let steps = ns.windows(2).map(|ends| f64::midpoint(ends[0] as f64, ends[1] as f64));
                steps.sum::<f64>() / (ns.len() - 1) as f64
            }
        }
    }

    /// Draws a random cost; uniform between neighbouring quantiles. One draw, of which the cost is an ascending
    /// function: arms that differ in a cost differ as its distributions do.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns,
            Kind::Quantiles(ns) => {
                let (at, rest) = draw_with_rest(stream, ns.len() as u64 - 1);
                let (low, high) = (ns[at as usize], ns[at as usize + 1]);
                low + ((u128::from(rest) * u128::from(high - low + 1)) >> 64) as u64
            }
        }
    }

    /// Draws the sum of `n` random costs.
    #[inline]
    pub fn sample_n(&self, n: u64, stream: &mut Stream) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => ns * n,
            Kind::Quantiles(_) => (0..n).map(|_| self.sample(stream)).sum(),
        }
    }

    /// Returns the minimum.
    pub fn smallest(&self) -> u64 {
        match &self.0 {
            Kind::Fixed(ns) => *ns,
            Kind::Quantiles(ns) => ns[0],
        }
    }
}

/// Maximum of a cost, ns: a quarter of an hour.
pub(super) const MAX_NS: f64 = 1e12;

/// The keys of a table not yet read.
pub(super) struct Section<'a> {
    path: String,
    table: Table,
    sources: &'a mut BTreeMap<String, String>,
}

impl<'a> Section<'a> {
    pub(super) fn new(path: &str, table: Table, sources: &'a mut BTreeMap<String, String>) -> Self {
        Self { path: path.to_owned(), table, sources }
    }

    /// Returns `key` with its sections.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.table.keys().cloned().collect()
    }

    /// Checks that no key is left.
    pub(super) fn end(self) -> Result<(), String> {
        match self.table.keys().next() {
            Some(key) => Err(format!("{}: unknown key", self.path(key))),
            None => Ok(()),
        }
    }

    fn take(&mut self, key: &str) -> Result<Value, String> {
        self.table.remove(key).ok_or_else(|| format!("{}: missing", self.path(key)))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<String, String> {
        match self.take(key)? {
            Value::String(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(format!("{}: not a text", self.path(key))),
        }
    }

    pub(super) fn table(&mut self, key: &str) -> Result<Table, String> {
        match self.take(key)? {
            Value::Table(table) => Ok(table),
            _ => Err(format!("{}: not a table", self.path(key))),
        }
    }

    /// Reads what may be left out.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.table.contains_key(key) { read(self, key).map(Some) } else { Ok(None) }
    }

    pub(super) fn optional_list(&mut self, key: &str) -> Result<Option<Vec<Value>>, String> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(format!("{}: not a list", self.path(key))),
        }
    }

    pub(super) fn section<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Section<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.path(key);
        let table = self.table(key)?;
        let mut section = Section::new(&path, table, self.sources);
        let value = read(&mut section)?;
        section.end()?;
        Ok(value)
    }

    /// Reads the value of constant `key` in `unit`; records its source.
    pub(super) fn constant(&mut self, key: &str, unit: &str) -> Result<(String, Value), String> {
        let path = self.path(key);
        let value = self.section(key, |constant| {
            let value = constant.take(unit)?;
            let source = constant.text("source")?;
            constant.interval()?;
            Ok((value, source))
        });
        let (value, source) = value?;
        self.sources.insert(path.clone(), source);
        Ok((format!("{path}.{unit}"), value))
    }

    /// Checks the optional 95 % interval of a constant, which is for the reader; a simulation has no use for it.
    fn interval(&mut self) -> Result<(), String> {
        let path = self.path("interval");
        let Some(list) = self.optional_list("interval")? else { return Ok(()) };
        let bounds = list.iter().map(|bound| number(&path, bound)).collect::<Result<Vec<_>, _>>()?;
        match bounds[..] {
            [low, high] if low <= high => Ok(()),
            _ => Err(format!("{path}: not a lower and an upper bound")),
        }
    }

    /// Reads a finite number that is not negative.
    pub(super) fn number(&mut self, key: &str, unit: &str) -> Result<f64, String> {
        let (path, value) = self.constant(key, unit)?;
        number(&path, &value)
    }

    pub(super) fn whole(&mut self, key: &str, unit: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
        let (path, value) = self.constant(key, unit)?;
        let whole = value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
        whole.ok_or_else(|| format!("{path}: {value} is not a whole number from {} to {}", range.start(), range.end()))
    }

    /// Reads a cost: ns, or equally spaced quantiles.
    pub(super) fn cost(&mut self, key: &str) -> Result<Cost, String> {
        let (path, value) = self.constant(key, "ns")?;
        let Value::Array(list) = value else { return Ok(Cost::fixed(ns(&path, &value)?)) };
        if list.is_empty() {
            return Err(format!("{path}: a distribution needs at least one value"));
        }
        if list.len() > MAX_QUANTILES {
            return Err(format!("{path}: {} quantiles are more than {MAX_QUANTILES}", list.len()));
        }
        let knots = list.iter().map(|value| ns(&path, value)).collect::<Result<Vec<_>, _>>()?;
        if !knots.is_sorted() {
            return Err(format!("{path}: quantiles must ascend"));
        }
        Ok(Cost::quantiles(knots))
    }
}

fn ns(path: &str, value: &Value) -> Result<u64, String> {
    let ns = number(path, value)?;
    if ns > MAX_NS {
        return Err(format!("{path}: {ns} is more than {MAX_NS} ns"));
    }
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    Ok(ns.round() as u64)
}

fn number(path: &str, value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Integer(n) => *n as f64,
        Value::Float(n) => *n,
        _ => return Err(format!("{path}: {value} is not a number")),
    };
    if !number.is_finite() {
        return Err(format!("{path}: {number} is not a finite number"));
    }
    if number < 0.0 {
        return Err(format!("{path}: {number} is negative"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::{Purpose, Streams};

    proptest! {
        #[test]
        fn samples_lie_within_and_halves_around_the_median(
            mut knots in proptest::collection::vec(0..1_000_000u64, 3..9), seed: u64,
        ) {
            knots.sort_unstable();
            if knots.len() % 2 == 0 {
                knots.pop();
            }
            let (least, median, most) = (knots[0], knots[knots.len() / 2], knots[knots.len() - 1]);
            let cost = Cost::quantiles(knots);
            prop_assert_eq!(cost.smallest(), least);
            let mut streams = Streams::new(seed, 0, 0);
            let stream = streams.of(Purpose::Exit);
            let mut not_above = 0;
            for _ in 0..400 {
                let ns = cost.sample(stream);
                prop_assert!((least..=most).contains(&ns));
                not_above += u32::from(ns <= median);
            }
            // Binomial(400, 1/2) exceeds 130 except with probability 10^-11.
            prop_assert!(not_above > 130);
        }
    }
}
