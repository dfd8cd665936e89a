//! Lines of a sweep: a point of a grid of simulations, and the figures of its arms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Arm, ArmKind, Document, GuestArm, MsrCount, Rounds, Summary};
use crate::metric::{Metric, NMI_HANDLER, ROTATION};

/// Name of the file of finished points in a results folder.
pub const FILE: &str = "sweep.jsonl";
/// The schema of a line.
pub const SCHEMA: &str = "vpmu-sweep/4";
/// Largest file: about 100 000 points of nine strategies.
pub const MAX_BYTES: u64 = 1 << 30;

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: String,
    /// Identifies the point, its model and the tool's revision.
    pub key: String,
    /// The tool and its revision.
    pub tool: String,
    /// What it simulates, by the keys of `vpmu sweep`. The strategies are the arms.
    pub point: BTreeMap<String, String>,
    /// The strategies, and the floor.
    pub arms: Vec<Arm>,
}

/// Returns an arm as a line has it: the figures of all rounds together without histograms, and MSR exits of all registers together.
fn brief(arm: &Arm) -> Arm {
    let metric = |(key, summary): (&String, &Summary)| (key.clone(), Summary { histogram: None, ..summary.clone() });
    let add = |all: MsrCount, one: &MsrCount| MsrCount {
        reads: all.reads + one.reads,
        writes: all.writes + one.writes,
        faults: all.faults + one.faults,
    };
    let exits = arm.own.msr_exits.values().fold(MsrCount::default(), add);
    let own = GuestArm { msr_exits: [("all".to_owned(), exits)].into(), ..arm.own.clone() };
    Arm { metrics: arm.metrics.iter().map(metric).collect(), own, rounds: Rounds::default(), ..arm.clone() }
}

impl Line {
    /// Makes the line of a point from its document.
    pub fn of(point: BTreeMap<String, String>, key: String, tool: &str, document: &Document) -> Self {
        let arms = document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm).map(brief).collect();
        Self { schema: SCHEMA.to_owned(), key, tool: tool.to_owned(), point, arms }
    }

    /// Returns the strategies' arms.
    pub fn strategies(&self) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy)
    }

    /// Returns the floor.
    pub fn floor(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.kind == ArmKind::Floor)
    }

    /// Returns what a user of its guests notices: the handler or, of guests that only count, the rotation. It is what the floor has: a guest that is to take NMIs and times no handler livelocks.
    pub fn latency(&self) -> Option<&'static Metric> {
        let floor = self.floor()?;
        [&NMI_HANDLER, &ROTATION].into_iter().find(|metric| floor.metrics.contains_key(metric.key))
    }
}
