//! A point of a grid: keys, the plan that they make, and the line that its document leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use arch_pmu::spec::Vendor;
use fleet::hash::sha256;
use results::document::{Status, StrategyParameter};
use results::error::Error;
use results::sweep::{Line, SCHEMA};
use sim::model::Model;

use crate::arms::arm::replay::Parts;
use crate::arms::arm::sim::{check_strategies, facts};
use crate::arms::rounds::plan::Plan;
use crate::experiment::nmi_latency::simulated::{SimSpec, simulate};
use crate::setting::parse::{Keys, of_keys};
use crate::setting::strategy::StrategyChoice;

/// Tool and revision. Another revision may simulate differently, so the revision is part of the key.
const TOOL: &str = concat!("vpmu ", env!("CARGO_PKG_VERSION"), " ", env!("VPMU_GIT_REVISION"));
/// Digits of a key: 128 bits.
const KEY_DIGITS: usize = 32;

/// What the points of a grid share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(super) strategies: Vec<StrategyParameter>,
    /// By folder.
    pub(super) traces: BTreeMap<PathBuf, Parts>,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// `vpmu sim`'s options but the strategies.
    pub keys: Keys,
    /// Identifies the parameters, the model's constants and the tool's revision: 32 hexadecimal digits.
    pub key: String,
}

impl Point {
    /// Returns the keys as lines and tables have them: a trace by its name.
    pub fn shown(&self) -> Keys {
        let name = |folder: &String| Path::new(folder).file_name().map(|name| name.to_string_lossy().into_owned());
        let shown = |(key, value): (&String, &String)| {
            let value = if key == "trace" { name(value) } else { None }.unwrap_or_else(|| value.clone());
            (key.clone(), value)
        };
        self.keys.iter().map(shown).collect()
    }
}

impl Shared {
    /// Returns the names of the strategies, which are the arms of each point.
    pub fn names(&self) -> Vec<&str> {
        self.strategies.iter().map(|one| one.name.as_str()).collect()
    }

    fn plan(&self, keys: &Keys) -> Result<(Plan, Model), Error> {
        let mut spec: SimSpec = of_keys(keys)?;
        spec.spec.arms.strategy = self.strategies.iter().cloned().map(StrategyChoice::Defined).collect();
        let model = spec.model()?;
        check_strategies(&model, Vendor::Intel, self.names().into_iter())?;
        let mut plan = spec.plan(&model)?;
        plan.simulate(&model.name);
        if let Some(parts) = spec.trace.as_ref().and_then(|folder| self.traces.get(folder)) {
            plan.replay(parts);
        }
        Ok((plan, model))
    }

    /// Makes a point.
    ///
    /// # Errors
    /// Exit 2 with the key that is wrong.
    pub(super) fn point(&self, keys: Keys) -> Result<Point, Error> {
        let (plan, model) = self.plan(&keys)?;
        let parts = (SCHEMA, TOOL, &plan.parameters, plan.seed, facts(&model).model);
        let trace = plan.replayed.as_ref().map(|parts| (&parts.trace.meta, parts.trace.bytes()));
        // Serialization of numbers, texts and maps with text keys cannot fail.
        let mut key = sha256(&serde_json::to_vec(&(parts, trace)).unwrap_or_default());
        key.truncate(KEY_DIGITS);
        Ok(Point { keys, key })
    }

    /// Simulates a point, which is an ordinary experiment; `None` if the user stopped it.
    ///
    /// # Errors
    /// Errors of the simulation.
    pub fn line(&self, point: &Point, stop: &AtomicBool) -> Result<Option<Line>, Error> {
        let (plan, model) = self.plan(&point.keys)?;
        let document = simulate(&plan, model, stop)?;
        let whole = document.status != Status::Interrupted;
        Ok(whole.then(|| Line::of(point.shown(), point.key.clone(), TOOL, &document)))
    }
}

#[cfg(test)]
mod tests {
    use results::document::Arm;
    use results::metric::HOST_WORK;

    use super::super::grid::Grid;
    use super::*;

    fn lines(words: &str) -> Vec<Line> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let (points, shared) = Grid::new(None, &words).unwrap().points().unwrap();
        points.iter().map(|point| shared.line(point, &AtomicBool::new(false)).unwrap().unwrap()).collect()
    }

    fn arm<'a>(line: &'a Line, name: &str) -> &'a Arm {
        line.arms.iter().find(|arm| arm.name == name).unwrap()
    }

    #[test]
    fn a_trace_takes_the_place_of_a_workload() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces");
        let traces = format!("trace={corpus}/record10-clx-6.1,{corpus}/stat-clx-6.1");
        let found = lines(&format!(
            "strategy=recreate,reuse-lazy,gate,virtual model=clx-ap-watchdog-on {traces} cost.open=1,10"
        ));
        assert_eq!(found.len(), 4);
        let work = |line: &Line, name: &str| arm(line, name).metrics[HOST_WORK.key].mean.unwrap();
        for pair in found.chunks(2) {
            let [cheap, dear] = pair else { panic!() };
            assert_eq!(cheap.latency(), Some(&HOST_WORK));
            assert!(
                work(cheap, "recreate") > work(cheap, "reuse-lazy") && work(cheap, "reuse-lazy") > work(cheap, "gate")
            );
            assert!(work(cheap, "gate") > work(cheap, "floor") && work(dear, "recreate") > work(cheap, "recreate"));
            assert!(arm(cheap, "virtual").not_available.is_some());
        }
        assert_eq!(
            (found[0].point["trace"].as_str(), arm(&found[0], "gate").own.counts.nmis),
            ("record10-clx-6.1", 138)
        );
        assert_eq!(arm(&found[0], "gate").metrics[HOST_WORK.key].count, 138);
    }

    #[test]
    fn a_line_is_the_document_that_sim_would_have() {
        let point = lines("strategy=reuse workload=counting1 rounds=3 samples=20 time-limit=1s baseline=40ms warmup=1");
        let spec: SimSpec = of_keys(&point[0].point).unwrap();
        let model = spec.model().unwrap();
        let mut plan = spec.plan(&model).unwrap();
        plan.arms.retain(|arm| ["reuse", "floor"].contains(&arm.strategy.as_str()));
        let document = simulate(&plan, model, &AtomicBool::new(false)).unwrap();
        assert_eq!(point[0].arms, Line::of(Keys::new(), String::new(), TOOL, &document).arms);
        let text = serde_json::to_string(&point[0]).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), point[0]);
    }
}
