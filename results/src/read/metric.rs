//! A summary of values, as far as any experiment's summaries agree.

use serde_json::{Map, Value};

/// Quantiles of a distribution in ns. What a document does not hold (a round's summary is short) is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Number of values; never 0.
    pub count: u64,
    /// Smallest.
    pub min: Option<f64>,
    /// 10th percentile.
    pub p10: Option<f64>,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// HdrHistogram V2, base64.
    pub histogram: Option<String>,
}

/// Whether an object is a summary: it counts values and has a median.
fn is_summary(map: &Map<String, Value>) -> bool {
    map.contains_key("p50") && map.contains_key("count")
}

/// A summary of nothing, as it stands for what did not happen: zeros throughout.
fn is_empty(map: &Map<String, Value>) -> bool {
    map.values().all(|value| value.as_f64() == Some(0.0))
}

/// How deep summaries may lie within an arm: `phases` → `open` → `open_ns`.
const DEPTH: usize = 2;
/// The key of a list of phases.
const PHASES: &str = "phases";

/// Every summary within `map`, by its path, such as `nmi_handler_ns` or `phases/open_ns`.
///
/// # Errors
/// Which one is wrong, and how.
pub(super) fn find(map: &Map<String, Value>) -> Result<Vec<(String, Metric)>, String> {
    let mut found = Vec::new();
    walk("", map, DEPTH, &mut found)?;
    Ok(found)
}

fn walk(above: &str, map: &Map<String, Value>, depth: usize, found: &mut Vec<(String, Metric)>) -> Result<(), String> {
    for (key, value) in map {
        let path = if above.is_empty() { key.clone() } else { format!("{above}/{key}") };
        let inner = match value {
            Value::Object(inner) => inner,
            // Phases in their order, each with its name.
            Value::Array(list) if key == PHASES && depth > 1 => {
                for phase in list {
                    let named = phase.as_object().and_then(|map| Some((map.get("phase")?.as_str()?, map)));
                    let (name, inner) = named.ok_or_else(|| format!("{path}: a phase has no name (\"phase\")"))?;
                    walk(&format!("{path}/{name}"), inner, depth - 2, found)?;
                }
                continue;
            }
            _ => continue,
        };
        if is_summary(inner) {
            if is_empty(inner) {
                continue;
            }
            let metric = Metric::new(inner).map_err(|why| format!("{path}: {why}"))?;
            if !path.ends_with("_ns") {
                return Err(format!("{path}: its unit is unknown; a summary's name ends in _ns"));
            }
            found.push((path, metric));
        } else if depth > 0 {
            walk(&path, inner, depth - 1, found)?;
        }
    }
    Ok(())
}

impl Metric {
    fn new(map: &Map<String, Value>) -> Result<Self, String> {
        let count = map.get("count").and_then(Value::as_u64).ok_or("count is not a whole number")?;
        if count == 0 {
            return Err("it summarizes no values".to_owned());
        }
        let number = |key: &str| match map.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(n) if n.is_finite() && n >= 0.0 => Ok(Some(n)),
                _ => Err(format!("{key} is {value}, not a number of ns")),
            },
        };
        let metric = Self {
            count,
            min: number("min")?,
            p10: number("p10")?,
            p50: number("p50")?.ok_or("it has no p50")?,
            p90: number("p90")?,
            p99: number("p99")?,
            p99_9: number("p99_9")?,
            max: number("max")?,
            mean: number("mean")?,
            histogram: map.get("histogram").and_then(Value::as_str).map(str::to_owned),
        };
        metric.is_ordered()?;
        Ok(metric)
    }

    /// The quantiles that are there, in order.
    fn quantiles(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("min", self.min),
            ("p10", self.p10),
            ("p50", Some(self.p50)),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99_9", self.p99_9),
            ("max", self.max),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    fn is_ordered(&self) -> Result<(), String> {
        let all: Vec<_> = self.quantiles().collect();
        for pair in all.windows(2) {
            let [(low, a), (high, b)] = pair else { continue };
            if a > b {
                return Err(format!("{low} is {a} and {high} is {b}: edited by hand?"));
            }
        }
        if let (Some(mean), Some(max)) = (self.mean, self.max)
            // A histogram keeps three digits, so its mean may be off by a thousandth.
            && (mean > max * 1.001 + 1.0 || self.min.is_some_and(|min| mean < min * 0.999 - 1.0))
        {
            return Err(format!("mean is {mean}, outside of min and max: edited by hand?"));
        }
        Ok(())
    }
}
