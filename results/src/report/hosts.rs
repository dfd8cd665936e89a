//! The hosts, and what may have spoiled their results.

use std::collections::BTreeMap;

use super::figure::date;
use super::page::Piece;
use crate::document::{Record, Warning};
use crate::host::{HostFacts, noise};
use crate::table::Table;
use crate::table::layout::plural;

/// Most hosts that are shown; the newest.
pub(super) const HOSTS: usize = 24;

/// Returns what a host is and how it is set, as `doctor` says it.
fn facts(host: &HostFacts) -> Vec<(&'static str, String)> {
    let join = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
    let facts = [
        ("CPU", host.cpu_model.clone()),
        ("microcode", host.microcode.clone()),
        ("online CPUs", host.cpus_online.clone()),
        ("isolated CPUs", host.cpus_isolated.clone()),
        ("kernel", host.kernel.clone()),
        ("KVM", host.kvm.clone()),
        ("kvm.enable_pmu", host.kvm_enable_pmu.clone()),
        ("mediated vPMU", host.kvm_mediated_pmu.map(|on| if on { "on" } else { "off" }.to_owned())),
        ("perf event sources", join(host.perf_pmus.iter().map(String::as_str).collect())),
        ("mitigations", join(host.mitigations.keys().map(String::as_str).collect())),
        ("steal meanwhile", host.steal_share().map(|share| format!("{:.2} %", share * 100.0))),
    ];
    let told = facts.into_iter().filter_map(|(name, value)| Some((name, value?)));
    // A simulated host has no settings.
    let settings = host.cpu_model.iter().flat_map(|_| noise::findings(host, &[]));
    let settings = settings.filter(|finding| !finding.found.starts_with("unknown"));
    told.chain(settings.map(|finding| (finding.check, finding.found))).collect()
}

/// Returns the hosts, that of the newest result first, and how many there are.
pub(super) fn hosts(records: &[Record]) -> (Vec<Piece>, usize) {
    let mut by_host: BTreeMap<[Option<&str>; 3], Vec<&Record>> = BTreeMap::new();
    for record in records {
        let host = &record.host;
        let key = [Some(host.class.as_str()), host.cpu_model.as_deref(), host.kernel.as_deref()];
        by_host.entry(key).or_default().push(record);
    }
    let mut hosts: Vec<Vec<&Record>> = by_host.into_values().collect();
    let newest = |records: &[&Record]| records.iter().map(|record| record.started_unix).max();
    hosts.sort_by_key(|records| std::cmp::Reverse(newest(records)));
    (hosts.iter().take(HOSTS).filter_map(|records| host(records)).collect(), hosts.len())
}

/// Returns one host from its results, folded.
fn host(records: &[&Record]) -> Option<Piece> {
    let newest = records.iter().max_by_key(|record| record.started_unix)?;
    let mut found: BTreeMap<(&str, &str), (usize, &Warning)> = BTreeMap::new();
    for warning in records.iter().flat_map(|record| &record.warnings) {
        let arm = warning.arm.as_deref().unwrap_or("all");
        found.entry((arm, &warning.code)).or_insert((0, warning)).0 += 1;
    }
    let head = ["caveat", "arm", "results", "what", "what helps"];
    let caption = "What may have spoiled results, and how many results have it";
    let mut table = Table::new(head).keys(2).left(3).left(4).caption(caption).cut();
    for ((arm, code), (count, warning)) in found {
        let count = format!("{count} of {}", records.len());
        table.add_row([code, arm, &count, &warning.message, warning.remedy.as_deref().unwrap_or("–")]);
    }
    let mut pieces = vec![Piece::Facts { facts: facts(&newest.host) }];
    if !table.is_empty() {
        pieces.push(Piece::table(table));
    }
    let summary = format!(
        "{}: {}; facts as of the newest, {}",
        newest.host.class,
        plural(records.len(), "result"),
        date(newest.started_unix)
    );
    Piece::fold(summary, pieces)
}
