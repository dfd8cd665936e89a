//! Typed access to a section of a model file; errors name the key, and unknown keys are refused.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::cost::{Cost, MAX_QUANTILES};

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
        let Value::Table(table) = self.take(key)? else { return Err(format!("{path}: not a table")) };
        let mut section = Section::new(&path, table, self.sources);
        let value = read(&mut section)?;
        section.end()?;
        Ok(value)
    }

    pub(super) fn optional_section<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Section<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.table.contains_key(key) { self.section(key, read).map(Some) } else { Ok(None) }
    }

    /// Reads the value of constant `key` in `unit`; records its source.
    fn constant(&mut self, key: &str, unit: &str) -> Result<(String, Value), String> {
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

    pub(super) fn optional_whole(
        &mut self,
        key: &str,
        unit: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, String> {
        if self.table.contains_key(key) { self.whole(key, unit, range).map(Some) } else { Ok(None) }
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

    pub(super) fn optional_cost(&mut self, key: &str) -> Result<Option<Cost>, String> {
        if self.table.contains_key(key) { self.cost(key).map(Some) } else { Ok(None) }
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
