//! Plots of sweeps: strategies by what they cost and what they hold, for each model and workload.

use std::collections::{BTreeMap, BTreeSet};

use super::figure::{Figure, front};
use crate::plot::Inks;
use crate::sweep::Line;

/// Most candidates in a plot: the fastest.
const CANDIDATES: usize = 21;
/// Keys that only change how sure a figure is.
const MINOR: [&str; 5] = ["seed", "samples", "rounds", "time-limit", "hard-limit"];

/// Returns the keys in the title of a point's plot, and the others.
fn setting(line: &Line) -> [String; 2] {
    let major = line.point.iter().filter(|(key, _)| !MINOR.contains(&key.as_str()));
    let (title, rest): (Vec<_>, Vec<_>) =
        major.partition(|(key, _)| ["model", "workload", "trace"].contains(&key.as_str()));
    [title, rest]
        .map(|keys| keys.into_iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", "))
}

/// Draws a plot of strategies for each model and workload; at most `most`, and how many there would be.
pub(super) fn figures(points: &[Line], inks: &Inks, most: usize) -> (Vec<Figure>, usize) {
    let mut by_what: BTreeMap<[String; 2], Vec<&Line>> = BTreeMap::new();
    for point in points {
        by_what.entry(setting(point)).or_default().push(point);
    }
    let all = by_what.len();
    let figures = by_what.into_iter().take(most);
    (figures.filter_map(|([title, setting], points)| figure(&title, &setting, &points, inks)).collect(), all)
}

fn figure(title: &str, setting: &str, points: &[&Line], inks: &Inks) -> Option<Figure> {
    // Points of one name differ in seed or length only: the mean of their medians represents them.
    let mut sums: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
    let mut without = BTreeSet::new();
    let key = points.iter().find_map(|point| point.latency())?.key;
    let level = |arm: &crate::sweep::Arm| Some(arm.metrics.get(key)?.median());
    for arm in points.iter().flat_map(|point| point.strategies()).filter(|arm| arm.not_available.is_none()) {
        let held = arm.own.events_held.time_mean.unwrap_or(0.0).max(0.0);
        match level(arm).filter(|_| held.is_finite()) {
            Some(latency) => {
                let (n, all_held, all) = sums.entry(&arm.name).or_default();
                (*n, *all_held, *all) = (*n + 1.0, *all_held + held, *all + latency);
            }
            None => drop(without.insert(arm.name.as_str())),
        }
    }
    // What livelocks with one seed has no mean over all.
    let means = sums.into_iter().filter(|(name, _)| !without.contains(name));
    let mut candidates: Vec<_> = means.map(|(name, (n, held, all))| (name.to_owned(), held / n, all / n)).collect();
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by(|a, b| a.2.total_cmp(&b.2));
    let mut note =
        format!("Simulated: {} points; {setting}. Points of one name (other seeds) are averaged.", points.len());
    if candidates.len() > CANDIDATES {
        note.extend([format!(" The {} slowest strategies are left out.", candidates.len() - CANDIDATES)]);
        candidates.truncate(CANDIDATES);
    }
    if !without.is_empty() {
        let names = without.into_iter().collect::<Vec<_>>().join(", ");
        note.extend([" Without a figure, as the guest livelocks: ", &names, "."]);
    }
    let floor = points.iter().filter_map(|point| level(point.floor()?)).reduce(f64::min);
    Some(front(title, &note, candidates, (key, floor), inks))
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
        let rows = figures[0].table.as_ref().unwrap().rows();
        let not_beaten: Vec<&str> = rows.iter().filter(|row| row[3].text() == "●").map(|row| row[0].text()).collect();
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
