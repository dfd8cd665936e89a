//! Lines of a sweep: a point of a grid of simulations, and the figures of its arms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{self, ArmKind, Document, GuestArm, Metrics, MsrCount, Summary};
use crate::metric::{HOST_WORK, Metric, NMI_HANDLER, ROTATION};

/// Name of the file of finished points in a results folder.
pub const FILE: &str = "sweep.jsonl";
/// The Pareto front of its points, beside it.
pub const FRONT: &str = "pareto.json";
/// The schema of a line.
pub const SCHEMA: &str = "vpmu-sweep/2";
/// Largest file: about 100 000 points of nine strategies.
pub const MAX_BYTES: u64 = 1 << 30;

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// An arm of a document: the figures of all its rounds together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in documents.
    #[serde(rename = "strategy")]
    pub name: String,
    /// Role of the arm.
    pub kind: ArmKind,
    /// Why there are no figures, if it cannot run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_available: Option<String>,
    /// Why figures are not whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Its metrics, without histograms.
    pub metrics: Metrics,
    /// Its counts. MSR exits are all registers' together.
    #[serde(flatten)]
    pub own: GuestArm,
}

impl Arm {
    fn of(arm: &document::Arm) -> Self {
        let brief = |summary: &Summary| Summary { histogram: None, ..summary.clone() };
        let add = |all: MsrCount, one: &MsrCount| MsrCount {
            reads: all.reads + one.reads,
            writes: all.writes + one.writes,
            faults: all.faults + one.faults,
        };
        let mut own = arm.own.clone();
        let exits = own.msr_exits.values().fold(MsrCount::default(), add);
        own.msr_exits = [("all".to_owned(), exits)].into();
        Self {
            name: arm.name.clone(),
            kind: arm.kind,
            not_available: arm.not_available.clone(),
            incomplete: arm.incomplete.clone(),
            metrics: arm.metrics.iter().map(|(key, one)| (key.clone(), brief(one))).collect(),
            own,
        }
    }
}

impl Line {
    /// Makes the line of a point from its document.
    pub fn of(point: BTreeMap<String, String>, key: String, tool: &str, document: &Document) -> Self {
        let arms = document.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm).map(Arm::of).collect();
        Self { schema: SCHEMA.to_owned(), key, tool: tool.to_owned(), point, arms }
    }

    /// Parses a line.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let wrong = |error: serde_json::Error| error.to_string();
        let Head { schema } = serde_json::from_str(text).map_err(wrong)?;
        if schema != SCHEMA {
            return Err(format!("its schema is {schema}, not {SCHEMA}"));
        }
        serde_json::from_str(text).map_err(wrong)
    }

    /// Returns the strategies' arms.
    pub fn strategies(&self) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(|arm| arm.kind == ArmKind::Strategy)
    }

    /// Returns the floor.
    pub fn floor(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.kind == ArmKind::Floor)
    }

    /// Returns what a user of its guests notices: the handler or, of guests that only count, the rotation; of a trace the host's
    /// work. It is what the floor has: a guest that is to take NMIs and times no handler livelocks.
    pub fn latency(&self) -> Option<&'static Metric> {
        let floor = self.floor()?;
        [&HOST_WORK, &NMI_HANDLER, &ROTATION].into_iter().find(|metric| floor.metrics.contains_key(metric.key))
    }
}
