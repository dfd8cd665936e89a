//! Arms: what every experiment's have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guest::GuestArm;
use super::rounds::{self, Metrics, Rounds};
use super::summary::Summary;
use crate::host::{HostFs, mediated};
use crate::metric::{self, Metric};

/// Names of arms with KVM's own vPMU: one that KVM emulates by host events, and one that is the PMU itself.
pub const KVM_ARMS: [&str; 2] = ["kvm", "kvm-mediated"];

/// Begin of the names of arms with KVM's own vPMU whose host events a kernel module keeps.
pub const BELOW_KVM: &str = "kvm:";

/// Returns the one of [`KVM_ARMS`] that this host has.
pub fn kvm_arm(fs: &HostFs) -> &'static str {
    KVM_ARMS[usize::from(mediated(fs) == Some(true))]
}

/// Role of an arm in a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// A strategy on the userspace vPMU, or for setting up events.
    #[default]
    Strategy,
    /// The userspace vPMU with no host event; PMIs raised by a timer.
    Floor,
    /// KVM's own vPMU.
    Kvm,
}

/// An arm: one of the things that an experiment compares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Strategy name, "floor", or one of "kvm" and "kvm-mediated" (`KVM_ARMS`); "kvm:" and a strategy name where the kernel
    /// module keeps the host events of KVM's own vPMU.
    #[serde(rename = "arm")]
    pub name: String,
    /// Role of the arm.
    pub kind: ArmKind,
    /// Backend key; "none" for the floor, its name for an arm with KVM's own vPMU.
    pub backend: String,
    /// The backend only stands in for hardware events.
    pub stand_in: bool,
    /// Why there are no figures, if this arm cannot run here.
    pub not_available: Option<String>,
    /// Why figures are not whole: one line per round and vCPU.
    pub incomplete: Vec<String>,
    /// Turns that are in no figure, and why, a line each: rounds that are not complete, discarded turns, ends of guests. Fewer than
    /// one for 20 rounds; of more, or where they cannot be left out, the figures are not whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What else is to be said of the arm, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Its metrics over all rounds.
    pub metrics: Metrics,
    /// Its counts; 0 where there is no guest.
    #[serde(flatten)]
    pub own: GuestArm,
    /// Its rounds.
    #[serde(deserialize_with = "rounds::whole")]
    pub rounds: Rounds,
}

impl Arm {
    /// Returns whether it was asked for by name: a strategy of a userspace vPMU's or of KVM's host events.
    pub fn is_strategy(&self) -> bool {
        self.kind == ArmKind::Strategy || self.name.starts_with(BELOW_KVM)
    }

    /// Says why its figures are not whole; `None` if they are.
    pub fn doubt(&self) -> Option<String> {
        let incomplete = self.incomplete.first().map(|why| format!("incomplete: {why}"));
        incomplete.or_else(|| self.own.doubts().next())
    }

    /// Returns one of its metrics.
    pub fn metric(&self, metric: &Metric) -> Option<&Summary> {
        self.metrics.get(metric.key)
    }

    /// Returns the metric that stands for the arm, by key: the first headline metric it has, else the first of all.
    pub fn headline(&self) -> Option<(&str, &Summary)> {
        let mut headlines = metric::ALL.into_iter().filter(|metric| metric.headline);
        let found = headlines.find_map(|metric| self.metrics.get_key_value(metric.key));
        found.or_else(|| self.metrics.first_key_value()).map(|(key, summary)| (key.as_str(), summary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::tree;

    #[test]
    fn a_mediated_vpmu_has_a_name_of_its_own() {
        let parameter = "sys/module/kvm_amd/parameters/enable_mediated_pmu";
        for (files, fact, arm) in [
            (&[][..], None, "kvm"),
            (&[(parameter, "N\n")], Some(false), "kvm"),
            (&[(parameter, "Y\n")], Some(true), "kvm-mediated"),
        ] {
            let (_dir, fs) = tree(files);
            assert_eq!((mediated(&fs), kvm_arm(&fs)), (fact, arm));
        }
    }
}
