//! Sweeps: lines of `sweep.jsonl`, as far as a plot needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::figure::Figure;
use super::front::{Candidate, front};
use crate::error::Error;
use crate::open;
use crate::plot::Inks;
use crate::table::layout::{plural, time};

/// The schema of a line.
const SCHEMA: &str = "vpmu-sweep/1";
/// Largest file, and most lines, that are read.
const MAX_BYTES: u64 = 256 << 20;
const MAX_LINES: usize = 500_000;
/// Most candidates in a plot: those that are nearest to the front.
const CANDIDATES: usize = 21;

/// Words between a strategy and the slices after which it releases.
const RELEASED: &str = ", released after ";

/// A simulated point.
#[derive(Debug, Deserialize)]
pub(super) struct Point {
    point: What,
    result: Figures,
}

#[derive(Debug, Deserialize)]
struct What {
    strategy: String,
    release_slices: Option<u32>,
    model: String,
    workload: String,
    vcpus: u64,
    cpus: u64,
    /// Everything else, such as period and costs.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl What {
    /// Returns the setting that distinguishes its plot from others, without names: seeds and lengths only change how
    /// sure a figure is.
    fn setting(&self) -> String {
        let minor = ["definition", "model_hash", "seed", "samples", "hosts", "time_limit_ns", "tail_ns", "costs"];
        let rest = self.rest.iter().filter(|(name, value)| !minor.contains(&name.as_str()) && !value.is_null());
        let rest = rest.map(|(name, value)| {
            let (name, ns) =
                (name.strip_suffix("_ns").unwrap_or(name), value.as_f64().filter(|_| name.ends_with("_ns")));
            let value = ns.map_or_else(|| value.as_str().map_or_else(|| value.to_string(), str::to_owned), time);
            format!("{} {value}", name.replace('_', " "))
        });
        // Costs of the model stand there by their factor, and none where the model's own hold.
        let costs = self.rest.get("costs").and_then(Value::as_object).into_iter().flatten();
        rest.chain(costs.map(|(cost, factor)| format!("{cost} × {factor}"))).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Deserialize)]
struct Figures {
    nmi_handler_ns: Option<Latency>,
    rotation_ns: Option<Latency>,
    floor_p50_ns: Option<u64>,
    x_floor: Option<f64>,
    held_mean: f64,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: u64,
}

/// Reads a sweep. A killed sweep leaves a last line that is cut off, which is no error.
///
/// # Errors
/// Exit 2 with the line's number.
pub(super) fn read(path: &Path) -> Result<Vec<Point>, Error> {
    let refuse =
        |why: String| Error::usage(format!("cannot use {}", path.display()), why, "give what vpmu sweep wrote");
    let file = open::found(path, MAX_BYTES).map_err(|error| refuse(error.to_string()))?;
    let mut points = Vec::new();
    let mut reader = BufReader::new(file);
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        if reader.read_line(&mut text).map_err(|error| refuse(error.to_string()))? == 0 {
            break;
        }
        if number > MAX_LINES {
            return Err(refuse(format!("it has more than {MAX_LINES} lines")));
        }
        match line(&text) {
            Ok(point) => points.push(point),
            Err(_) if !text.ends_with('\n') => break,
            Err(why) => return Err(refuse(format!("line {number}: {why}"))),
        }
    }
    Ok(points)
}

fn line(text: &str) -> Result<Point, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON, as column {} shows", error.column()))?;
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Some(other) => Err(format!("its schema is {other}, not {SCHEMA}")),
        None => Err(format!("it has no \"schema\": \"{SCHEMA}\"")),
    }
}

/// Returns the names of the strategies of a sweep.
pub(super) fn strategies(points: &[Point]) -> impl Iterator<Item = &str> {
    points.iter().map(|point| point.point.strategy.as_str())
}

/// Draws a plot of strategies for each model and workload; at most `most`, and how many there would be.
pub(super) fn figures(points: &[Point], inks: &Inks, most: usize) -> (Vec<Figure>, usize) {
    let mut by_what: BTreeMap<(&str, &str, u64, u64, String), Vec<&Point>> = BTreeMap::new();
    for point in points {
        let what = &point.point;
        by_what.entry((&what.model, &what.workload, what.vcpus, what.cpus, what.setting())).or_default().push(point);
    }
    let all = by_what.len();
    let figures = by_what.into_iter().take(most).filter_map(|((model, workload, vcpus, cpus, setting), points)| {
        let [vcpus, cpus] = [(vcpus, "vCPU"), (cpus, "CPU")].map(|(n, what)| plural(n as usize, what));
        let title = format!("{workload} on model {model}, {vcpus} on {cpus}");
        figure(&title, &setting, &points, inks)
    });
    (figures.collect(), all)
}

fn figure(title: &str, setting: &str, points: &[&Point], inks: &Inks) -> Option<Figure> {
    // Points of one name differ in seed or length only: the mean of their medians represents them.
    let mut by_arm: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
    let mut without = BTreeSet::new();
    for point in points {
        let result = &point.result;
        // Rotations without a ratio to the floor are those of a guest that was to take NMIs, and livelocked.
        let rotation = result.rotation_ns.as_ref().filter(|_| result.x_floor.is_some());
        let latency = result.nmi_handler_ns.as_ref().or(rotation);
        if let Some(latency) = latency.filter(|_| point.result.held_mean.is_finite()) {
            let what = &point.point;
            let name = what
                .release_slices
                .map_or_else(|| what.strategy.clone(), |slices| format!("{}{RELEASED}{slices} slices", what.strategy));
            let sums = by_arm.entry(name).or_insert((0.0, 0.0, 0.0));
            *sums = (sums.0 + 1.0, sums.1 + point.result.held_mean.max(0.0), sums.2 + latency.p50 as f64);
        } else {
            without.insert(point.point.strategy.as_str());
        }
    }
    // What livelocks with one seed has no mean over all.
    by_arm.retain(|name, _| !without.contains(name.split(RELEASED).next().unwrap_or(name)));
    let no_figure = without.into_iter().collect::<Vec<_>>().join(", ");
    let no_figure = if no_figure.is_empty() {
        no_figure
    } else {
        format!(" Without a figure, as the guest livelocks: {no_figure}.")
    };
    let mut candidates: Vec<Candidate<'_>> = by_arm
        .iter()
        .map(|(name, (n, held, latency))| {
            let strategy = name.split_once(RELEASED).map_or(name.as_str(), |(strategy, _)| strategy);
            Candidate { name, ink: inks.of(strategy), held: held / n, latency: latency / n }
        })
        .collect();
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by(|a, b| a.latency.total_cmp(&b.latency).then(a.held.total_cmp(&b.held)));
    let left_out = candidates.len().saturating_sub(CANDIDATES);
    candidates.truncate(CANDIDATES);
    let floor = points.iter().filter_map(|point| point.result.floor_p50_ns).min().map(|ns| ns as f64);
    let slow = if left_out > 0 { format!(" The {left_out} slowest strategies are left out.") } else { String::new() };
    let many = points.len();
    let note =
        format!("Simulated: {many} points; {setting}. Points of one name (other seeds) are averaged.{slow}{no_figure}");
    Some(front(title, &note, &candidates, floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(strategy: &str, held: f64, p50: u64) -> String {
        point_at(strategy, held, p50, "{}")
    }

    fn point_at(strategy: &str, held: f64, p50: u64, costs: &str) -> String {
        let latency = format!("{{\"count\": 9, \"p50\": {p50}}}");
        format!(
            "{{\"schema\": \"{SCHEMA}\", \"point\": {{\"strategy\": \"{strategy}\", \"release_slices\": null, \
             \"model\": \"icx-2021\", \"workload\": \"sampling4/ftest\", \"vcpus\": 2, \"cpus\": 2, \"timer\": \"periodic\", \"slice_ns\": 3000000, \"costs\": {costs}}}, \"result\": \
             {{\"nmi_handler_ns\": {latency}, \"rotation_ns\": null, \"floor_p50_ns\": 900, \"held_mean\": {held}}}}}\n"
        )
    }

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.jsonl");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_sweep_becomes_a_front_and_a_cut_off_last_line_is_forgiven() {
        let text = point("recreate", 0.5, 9000) + &point("reuse", 4.0, 1000) + &point("worse", 5.0, 2000) + "{\"schema";
        let (_dir, path) = written(&text);
        let points = read(&path).unwrap();
        let (figures, all) = figures(&points, &Inks::new([]), 5);
        assert_eq!((figures.len(), all), (1, 1));
        assert_eq!(figures[0].title, "sampling4/ftest on model icx-2021, 2 vCPUs on 2 CPUs");
        let not_beaten: Vec<&str> =
            figures[0].table.rows.iter().filter(|row| row[3] == "yes").map(|row| row[0].as_str()).collect();
        assert_eq!(not_beaten, ["recreate", "reuse"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let (_dir, path) = written(&(point("reuse", 1.0, 1) + "{\"schema\": \"vpmu-sweep/2\"}\n"));
        let error = read(&path).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("line 2: its schema is vpmu-sweep/2"), "{error}");
        assert!(read(Path::new("/nonexistent/s.jsonl")).is_err());
    }
}
