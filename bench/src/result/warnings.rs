//! Caveats as data: what a reader should know before trusting a figure.

use serde::{Deserialize, Serialize};

use super::arm::{ArmKind, ArmResult};
use super::{Document, Parameters};

/// A caveat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A stable key, e.g. "lost-nmis".
    pub code: String,
    /// The arm it is about; `None`: the whole experiment.
    pub arm: Option<String>,
    /// What, and what it means.
    pub message: String,
}

/// Share of stolen CPU time above which it is worth a warning.
const STEAL: f64 = 0.01;

/// All caveats of a document.
#[must_use]
pub fn collect(document: &Document) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut add = |code: &str, message: String| {
        found.push(Warning {
            code: code.to_owned(),
            arm: None,
            message,
        });
    };
    if document.tool.profile != "release" {
        add(
            "debug-build",
            "this is a debug build; build with --release for figures".to_owned(),
        );
    }
    if let Some(share) = document.host.steal_share().filter(|&share| share > STEAL) {
        let percent = share * 100.0;
        add(
            "steal",
            format!("the hypervisor took {percent:.1} % of this host's CPU time meanwhile"),
        );
    }
    let cpus = document.host.online().map_or(1, |list| list.len());
    if let Some(load) = document.host.loadavg_1m.filter(|&load| load >= cpus as f64) {
        add(
            "load",
            format!(
                "the load was {load:.2} on {cpus} CPUs before the start: other work shared them"
            ),
        );
    }
    let parameters = &document.parameters;
    if u64::try_from(cpus).is_ok_and(|cpus| parameters.vcpus > cpus) {
        let vcpus = parameters.vcpus;
        add(
            "overcommit",
            format!("{vcpus} vCPUs share {cpus} CPUs: latencies hold waiting times"),
        );
    }
    for arm in &document.arms {
        found.extend(of_arm(arm, parameters));
    }
    found
}

fn of_arm(arm: &ArmResult, parameters: &Parameters) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut add = |when: bool, code: &str, message: String| {
        if when {
            found.push(Warning {
                code: code.to_owned(),
                arm: Some(arm.strategy.clone()),
                message,
            });
        }
    };
    let rounds = arm.rounds.len();
    let broken = arm.rounds.iter().filter(|r| !r.complete).count();
    let reason = arm.incomplete.first().map_or("", String::as_str);
    add(
        broken > 0,
        "incomplete",
        format!("{broken} of {rounds} rounds are incomplete: {reason}"),
    );
    let short = arm
        .rounds
        .iter()
        .filter(|r| r.complete && measured(r, parameters) < parameters.samples)
        .count();
    add(
        short > 0,
        "fewer-samples",
        format!("--time-limit ended {short} of {rounds} rounds before --samples was reached"),
    );
    match arm.lost {
        Some(lost) if lost > 0 => {
            add(
                true,
                "lost-nmis",
                format!("{lost} NMIs were delivered but not taken by the guest"),
            );
        }
        Some(lost) if lost < 0 => {
            let more = lost.unsigned_abs();
            add(
                true,
                "surplus-nmis",
                format!("the guest took {more} NMIs more than were delivered"),
            );
        }
        _ => {}
    }
    let n = arm.nmis_without_status;
    add(
        n > 0,
        "unknown-nmis",
        format!("{n} NMIs found no overflow in GLOBAL_STATUS"),
    );
    let n = arm.undeliverable;
    add(
        n > 0,
        "undeliverable",
        format!("{n} PMIs had an LVTPC delivery mode this VMM does not know"),
    );
    let n = arm.log_dropped;
    add(
        n > 0,
        "log-full",
        format!("the guest's log was full: {n} entries are not in the figures"),
    );
    let n = arm.log_invalid;
    add(
        n > 0,
        "log-invalid",
        format!("{n} log entries make no sense and are not in the figures"),
    );
    let n = arm.delivery_unmatched;
    add(
        n > 0 && arm.kind != ArmKind::Kvm,
        "delivery-unmatched",
        format!(
            "deliveries of {n} vCPU runs do not match handler entries; their delivery latency is left out"
        ),
    );
    let n = arm.delivery_negative;
    add(
        n > 0,
        "delivery-negative",
        format!("{n} handler entries precede their delivery: the TSC offset is off"),
    );
    let n = arm.pinned_errors;
    add(
        n > 0,
        "pinned-errors",
        format!("{n} times the host had no counter for a pinned event: counts are too low"),
    );
    let n = arm.throttled;
    add(
        n > 0,
        "throttled",
        format!("the host throttled sampling {n} times: overflows are missing; raise --period"),
    );
    let n = arm.failed_opens;
    let error = arm.last_error.as_deref().unwrap_or("no error text");
    add(
        n > 0,
        "failed-opens",
        format!("{n} host events did not open ({error}): their counters did not count"),
    );
    let n = arm.refused_periods;
    add(
        n > 0,
        "refused-periods",
        format!("the host refused {n} periods; their events were opened anew"),
    );
    found
}

/// Samples of a round per vCPU.
fn measured(round: &super::arm::RoundResult, parameters: &Parameters) -> u64 {
    let count = |latency: &Option<super::arm::RoundLatency>| latency.map_or(0, |l| l.count);
    let sampling = parameters.events.iter().any(|event| event.period > 0);
    let all = if sampling {
        // The log may be full before the target is reached; NMIs are counted regardless.
        round.nmis.max(count(&round.nmi_handler_ns))
    } else {
        count(&round.rotation_ns)
    };
    all / parameters.vcpus.max(1)
}
