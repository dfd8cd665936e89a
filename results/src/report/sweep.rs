//! Plots of sweeps.

use std::collections::{BTreeMap, BTreeSet};

use super::figure::Figure;
use super::front::{Candidate, front};
use crate::plot::Inks;
use crate::sweep::Line;

/// Most candidates in a plot: those that are nearest to the front.
const CANDIDATES: usize = 21;
/// Keys that only change how sure a figure is.
const MINOR: [&str; 5] = ["seed", "samples", "rounds", "time-limit", "hard-limit"];

/// Returns the keys in the title of a point's plot, and the others.
fn setting(line: &Line) -> (String, String) {
    let (title, rest): (Vec<_>, Vec<_>) = line
        .point
        .iter()
        .filter(|(key, _)| !MINOR.contains(&key.as_str()))
        .partition(|(key, _)| ["model", "workload", "trace"].contains(&key.as_str()));
    let [title, rest] = [title, rest].map(|keys| {
        let shown = keys.into_iter().map(|(key, value)| format!("{key} {value}"));
        shown.collect::<Vec<_>>().join(", ")
    });
    (title, rest)
}

/// Returns the names of the strategies of a sweep.
pub(super) fn strategies(points: &[Line]) -> impl Iterator<Item = &str> {
    points.iter().flat_map(Line::strategies).map(|arm| preset(&arm.name))
}

/// Returns the strategy of an arm whose name has its slices.
fn preset(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// Draws a plot of strategies for each model and workload; at most `most`, and how many there would be.
pub(super) fn figures(points: &[Line], inks: &Inks, most: usize) -> (Vec<Figure>, usize) {
    let mut by_what: BTreeMap<(String, String), Vec<&Line>> = BTreeMap::new();
    for point in points {
        by_what.entry(setting(point)).or_default().push(point);
    }
    let all = by_what.len();
    let figures = by_what.into_iter().take(most);
    (figures.filter_map(|((title, setting), points)| figure(&title, &setting, &points, inks)).collect(), all)
}

fn figure(title: &str, setting: &str, points: &[&Line], inks: &Inks) -> Option<Figure> {
    // Points of one name differ in seed or length only: the mean of their medians represents them.
    let mut by_arm: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
    let mut without = BTreeSet::new();
    let level = |point: &Line, arm: &crate::sweep::Arm| Some(arm.metrics.get(point.latency()?.key)?.median());
    for (point, arm) in points.iter().flat_map(|point| point.strategies().map(move |arm| (point, arm))) {
        let held = arm.own.events_held.time_mean.unwrap_or(0.0);
        match level(point, arm).filter(|_| held.is_finite()) {
            Some(latency) => {
                let sums = by_arm.entry(arm.name.clone()).or_insert((0.0, 0.0, 0.0));
                *sums = (sums.0 + 1.0, sums.1 + held.max(0.0), sums.2 + latency);
            }
            None if arm.not_available.is_none() => drop(without.insert(arm.name.as_str())),
            None => {}
        }
    }
    // What livelocks with one seed has no mean over all.
    by_arm.retain(|name, _| !without.contains(name.as_str()));
    let no_figure = without.into_iter().collect::<Vec<_>>().join(", ");
    let no_figure = if no_figure.is_empty() {
        no_figure
    } else {
        format!(" Without a figure, as the guest livelocks: {no_figure}.")
    };
    let mut candidates: Vec<Candidate<'_>> = by_arm
        .iter()
        .map(|(name, (n, held, latency))| Candidate {
            name,
            ink: inks.of(preset(name)),
            held: held / n,
            latency: latency / n,
        })
        .collect();
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by(|a, b| a.latency.total_cmp(&b.latency).then(a.held.total_cmp(&b.held)));
    let left_out = candidates.len().saturating_sub(CANDIDATES);
    candidates.truncate(CANDIDATES);
    let floor = points.iter().filter_map(|point| level(point, point.floor()?)).reduce(f64::min);
    let slow = if left_out > 0 { format!(" The {left_out} slowest strategies are left out.") } else { String::new() };
    let many = points.len();
    let note =
        format!("Simulated: {many} points; {setting}. Points of one name (other seeds) are averaged.{slow}{no_figure}");
    Some(front(title, &note, &candidates, floor))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::sweep::{SCHEMA, read};

    fn point(arms: &[(&str, f64, u64)]) -> String {
        let arm = |&(name, held, p50): &(&str, f64, u64)| {
            let kind = if name == "floor" { name } else { "strategy" };
            format!(
                "{{\"strategy\": \"{name}\", \"kind\": \"{kind}\", \"metrics\": {{\"nmi_handler_ns\": {{\"count\": 9, \"p50\": {p50}}}}}, \
                 \"events_held\": {{\"time_mean\": {held}, \"max\": 7, \"at_end\": 0, \"tail\": []}}}}"
            )
        };
        let arms = arms.iter().map(arm).collect::<Vec<_>>().join(", ");
        let keys = "{\"model\": \"icx-2021\", \"workload\": \"sampling4\", \"vcpus\": \"2\", \"seed\": \"1\"}";
        format!(
            "{{\"schema\": \"{SCHEMA}\", \"key\": \"k\", \"tool\": \"vpmu\", \"point\": {keys}, \"arms\": [{arms}]}}\n"
        )
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.jsonl");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_sweep_becomes_a_front_and_a_cut_off_last_line_is_forgiven() {
        let arms = [("recreate", 0.5, 9000), ("reuse", 4.0, 1000), ("worse", 5.0, 2000), ("floor", 0.0, 900)];
        let (_dir, path) = written(&(point(&arms) + "{\"schema"));
        let points = read(&path).unwrap();
        let (figures, all) = figures(&points, &Inks::new([]), 5);
        assert_eq!((figures.len(), all), (1, 1));
        assert_eq!(figures[0].title, "model icx-2021, workload sampling4");
        let not_beaten: Vec<&str> =
            figures[0].table.rows.iter().filter(|row| row[3] == "yes").map(|row| row[0].as_str()).collect();
        assert_eq!(not_beaten, ["recreate", "reuse"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let (_dir, path) = written(&(point(&[("reuse", 1.0, 1)]) + "{\"schema\": \"vpmu-sweep/1\"}\n"));
        let error = read(&path).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        assert!(error.to_string().contains("line 2: its schema is vpmu-sweep/1"), "{error}");
        assert!(read(Path::new("/nonexistent/s.jsonl")).is_err());
    }
}
