//! A synthetic fleet as runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::documents;
use super::model::{ARMS, Cell, Fleet, METRICS, STRATEGIES, name};
use crate::run::{Figure, Labels, Level, Run};

/// All runs of a fleet, by host and day, as they would be read from its documents.
#[must_use]
pub fn runs(fleet: &Fleet) -> Vec<Run> {
    let slow = fleet.slow();
    let template = Template::new(fleet);
    (0..fleet.hosts)
        .into_par_iter()
        .flat_map_iter(|host| {
            let cells = fleet.of_host(host, slow.contains(&host));
            let name: Arc<str> = name(host).into();
            cells.into_iter().map(|cell| template.run(&name, &cell)).collect::<Vec<_>>()
        })
        .collect()
}

/// Parts that runs of a fleet share.
struct Template {
    run: Run,
    /// Facts by class and kernel.
    facts: Vec<[Arc<BTreeMap<String, String>>; 2]>,
    arms: [Arc<str>; ARMS],
    metrics: [Arc<str>; METRICS.len()],
    /// Logarithm of the usual time of each arm, for each metric.
    usual: [[f64; METRICS.len()]; ARMS],
    within: f64,
}

impl Template {
    fn new(fleet: &Fleet) -> Self {
        let run = documents::reduced(fleet, 0, false);
        let facts = |class| [false, true].map(|new| documents::reduced(fleet, class, new).facts);
        let arm = |arm: usize| STRATEGIES.get(arm).copied().unwrap_or("floor");
        Self {
            facts: (0..fleet.classes.max(1)).map(facts).collect(),
            arms: std::array::from_fn(|n| arm(n).into()),
            metrics: METRICS.map(Into::into),
            usual: std::array::from_fn(|arm| std::array::from_fn(|metric| documents::usual_ns(arm, metric).ln())),
            within: fleet.within_run,
            run,
        }
    }

    fn run(&self, host: &Arc<str>, cell: &Cell) -> Run {
        let mut figures = Vec::with_capacity(ARMS * METRICS.len());
        for (arm, logs) in cell.logs.iter().enumerate() {
            for (metric, log) in logs.iter().enumerate() {
                let at = |arm: usize, log: f64| self.usual[arm][metric] + log;
                let floor = at(ARMS - 1, cell.logs[ARMS - 1][metric]);
                let ratio = (arm < ARMS - 1)
                    .then(|| Level { log: at(arm, *log) - floor, error: Some(self.within * std::f64::consts::SQRT_2) });
                figures.push(Figure {
                    arm: Arc::clone(&self.arms[arm]),
                    metric: Arc::clone(&self.metrics[metric]),
                    rounds: 10,
                    time: Level { log: at(arm, *log), error: Some(self.within) },
                    ratio,
                    doubt: None,
                });
            }
        }
        Run {
            file: format!("{host}/{:03}.json", cell.day),
            labels: Labels { repetition: Some(cell.day), ..Labels::default() },
            started_unix: cell.started_unix,
            host: Arc::clone(host),
            boot: format!("{host}-{}", cell.boot).into(),
            facts: Arc::clone(&self.facts[cell.class][usize::from(cell.new_kernel)]),
            figures,
            ..self.run.clone()
        }
    }
}
