//! A synthetic fleet as documents of the size that real runs leave.
#![expect(clippy::unwrap_used, reason = "a test helper fails the test")]
#![expect(clippy::cast_sign_loss, reason = "a time is positive")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::model::{ARMS, Cell, Fleet, METRICS, STRATEGIES, name};
use crate::run::{Labels, Run};
use results::document::{Arm, Document, GuestRun, Summary, latency_histogram};
use results::fixture;
use results::synthetic::Random;

/// Rounds of a guest, as a default run has them.
const PER_GUEST: u64 = 20;
/// Usual time of each metric, ns.
const USUAL: [f64; METRICS.len()] = [150_000.0, 40_000.0, 1_500.0];
/// Usual ratio of each arm to the floor.
const RATIO: [f64; ARMS] = [1.06, 1.03, 1.04, 1.0];
/// Spread of rounds.
const ROUNDS: f64 = 0.04;

/// The usual time of an arm.
pub(super) fn usual_ns(arm: usize, metric: usize) -> f64 {
    USUAL[metric] * RATIO[arm]
}

/// A template of a class and kernel, reduced: facts and parameters of every such run.
pub(super) fn reduced(fleet: &Fleet, class: usize, new_kernel: bool) -> Run {
    let cell = fleet.of_host(0, false).into_iter().next();
    let none =
        || Cell { host: 0, class, day: 0, boot: 0, new_kernel, started_unix: 1, logs: [[0.0; METRICS.len()]; ARMS] };
    let cell = Cell { class, new_kernel, ..cell.unwrap_or_else(none) };
    let (_dir, record) = fixture::written(&document(&template(2), &cell, 1));
    Run::of(&record, "", Labels::default())
}

/// A document of so many rounds that [`document`] turns into that of a cell.
fn template(rounds: u64) -> Document {
    let mut template = fixture::of_strategies(rounds, &STRATEGIES);
    "release".clone_into(&mut template.tool.profile);
    let host = &mut template.host;
    host.microcode = Some("0x5003604".to_owned());
    host.governor = Some("performance".to_owned());
    // The histograms of arms have the width of measured ones.
    let mut random = Random::new(3);
    for arm in &mut template.arms {
        for (place, metric) in METRICS.iter().enumerate() {
            let Some(summary) = arm.metrics.get_mut(*metric) else { continue };
            let mut histogram = latency_histogram();
            for _ in 0..summary.count {
                histogram.saturating_record((USUAL[place] * (0.1 * random.normal()).exp()) as u64);
            }
            *summary = Summary::of(&histogram).unwrap();
        }
    }
    template
}

/// The document of a cell.
#[must_use]
pub fn document(template: &Document, cell: &Cell, seed: u64) -> Document {
    let mut document = template.clone();
    let mut random = Random::new(seed ^ ((cell.host as u64) << 20) ^ cell.day);
    document.started_unix = cell.started_unix;
    document.seed = seed;
    let host = &mut document.host;
    host.name = Some(name(cell.host));
    host.boot = Some(format!("{:08x}-0000-4000-8000-{:012x}", cell.host, cell.boot));
    host.kernel = Some(if cell.new_kernel { "6.1.0-32-amd64" } else { "6.1.0-31-amd64" }.to_owned());
    host.class = ["bare-metal host (Cascade Lake, kvm_intel, hardware PMU)", "bare-metal host (kvm_amd, hardware PMU)"]
        .get(cell.class)
        .map_or_else(|| format!("bare-metal host (class {})", cell.class), |class| (*class).to_owned());
    host.cpu_model = Some(format!("Processor of class {}", cell.class));
    for (place, arm) in document.arms.iter_mut().take(ARMS).enumerate() {
        fill(arm, place, &cell.logs[place], &mut random);
    }
    document
}

fn fill(arm: &mut Arm<GuestRun>, place: usize, logs: &[f64; METRICS.len()], random: &mut Random) {
    // Rounds of one arm take the same shape around their p50.
    let shape = |p50: f64, count: u64| {
        let at = |factor: f64| Some((p50 * factor) as u64);
        let (min, p10, p90, p99, max) = (at(0.78), at(0.85), at(1.15), at(1.4), at(1.7));
        Summary {
            count,
            min,
            p10,
            p50: p50 as u64,
            p90,
            p99,
            max,
            mean: Some(p50 * 1.031_234_567),
            ..Summary::default()
        }
    };
    let mut most = [0; METRICS.len()];
    let rounds = &mut arm.rounds;
    rounds.guest = rounds.index.iter().map(|index| Some(index / PER_GUEST)).collect();
    rounds.guest_start_us = rounds.index.iter().map(|index| if index % PER_GUEST == 0 { 15_055 } else { 0 }).collect();
    rounds.probe_ns = rounds.index.iter().map(|_| Some(11_393.0 + random.uniform() * 1000.0)).collect();
    for (metric, name) in METRICS.iter().enumerate() {
        let Some(column) = rounds.metrics.get_mut(*name) else { continue };
        for count in std::mem::take(column).count {
            let p50 = (usual_ns(place, metric).ln() + logs[metric] + ROUNDS * random.normal()).exp();
            let summary = shape(p50, count);
            most[metric] = most[metric].max(summary.max.unwrap_or(0));
            column.push(Some(&summary));
        }
    }
    for (metric, name) in METRICS.iter().enumerate() {
        let Some(summary) = arm.metrics.get_mut(*name) else { continue };
        let (count, histogram) = (summary.count, summary.histogram.take());
        let all = shape((usual_ns(place, metric).ln() + logs[metric]).exp(), count);
        *summary = Summary { max: Some(most[metric]), p99_9: all.p99, histogram, ..all };
    }
}

/// Bytes of one document of so many rounds.
#[must_use]
pub fn size_of(fleet: &Fleet, rounds: u64) -> u64 {
    let cell = fleet.of_host(0, false).into_iter().next();
    cell.map_or(0, |cell| document(&template(rounds), &cell, 1).to_json().unwrap().len() as u64)
}

/// Writes the documents of a fleet, `HOST/DAY.json` each, and gives how many there are.
///
/// # Errors
/// Those of the file system.
pub fn write(fleet: &Fleet, rounds: u64, folder: &Path) -> io::Result<usize> {
    let (slow, template, written) = (fleet.slow(), template(rounds), AtomicUsize::new(0));
    (0..fleet.hosts).into_par_iter().try_for_each(|host| -> io::Result<()> {
        let folder = folder.join(name(host));
        std::fs::create_dir_all(&folder)?;
        for cell in fleet.of_host(host, slow.contains(&host)) {
            let text = document(&template, &cell, fleet.seed).to_json().map_err(io::Error::other)?;
            std::fs::write(folder.join(format!("{:03}.json", cell.day + 1)), text)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(written.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_document_is_small() {
        let size = size_of(&Fleet::default(), 240);
        assert!((50_000..200_000).contains(&size), "{size} bytes");
    }

    #[test]
    fn documents_are_read_back_with_the_figures_they_were_made_of() {
        let fleet = Fleet { hosts: 2, days: 2, missing: 0.0, outliers: 0.0, ..Fleet::default() };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write(&fleet, 12, dir.path()).unwrap(), 4);
        let record = results::read::record(&dir.path().join("node0001/002.json")).unwrap();
        let run = Run::of(&record, "x", Labels::default());
        let made = &crate::synthetic::runs(&fleet)[3];
        assert_eq!(
            (&run.host, &run.key, &run.facts),
            (&made.host, &made.key.replace("\"rounds\":2", "\"rounds\":12").into(), &made.facts)
        );
        for (figure, wanted) in
            made.figures.iter().filter_map(|wanted| Some((run.figure(&wanted.arm, &wanted.metric)?, wanted)))
        {
            assert!((figure.time.log - wanted.time.log).abs() < 0.05, "{figure:?} {wanted:?}");
            assert_eq!(figure.ratio.is_some(), wanted.ratio.is_some());
        }
        assert_eq!(run.figures.len(), made.figures.len());
    }
}
