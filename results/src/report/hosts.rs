//! The hosts, and what may have spoiled their results.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figure::Table;
use crate::document::Record;
use crate::host::HostFacts;

/// Most hosts that are shown; the newest.
const HOSTS: usize = 24;
/// Most caveats of a host.
const CAVEATS: usize = 40;

/// A host with its caveats.
#[derive(Debug, Serialize)]
pub(super) struct Host {
    class: String,
    results: usize,
    facts: Vec<(&'static str, String)>,
    caveats: Option<Table>,
}

/// A caveat, over all results of a host.
struct Caveat<'a> {
    results: usize,
    message: &'a str,
    remedy: Option<&'a str>,
}

fn facts(host: &HostFacts) -> Vec<(&'static str, String)> {
    let on_off = |value: Option<bool>| value.map(|on| if on { "on" } else { "off" }.to_owned());
    let list = |values: &[String]| (!values.is_empty()).then(|| values.join(", "));
    let tuning = &host.tuning;
    let facts = [
        ("CPU", host.cpu_model.clone()),
        ("microcode", host.microcode.clone()),
        ("online CPUs", host.cpus_online.clone()),
        ("isolated CPUs", host.cpus_isolated.clone()),
        ("kernel", host.kernel.clone()),
        ("KVM", host.kvm.clone()),
        ("kvm.enable_pmu", host.kvm_enable_pmu.clone()),
        ("mediated vPMU", on_off(host.kvm_mediated_pmu)),
        ("perf event sources", list(&host.perf_pmus)),
        ("virtualized", host.cpu_model.as_ref().map(|_| if host.virtualized { "yes" } else { "no" }.to_owned())),
        ("governor", host.governor.clone()),
        ("turbo", on_off(host.turbo)),
        ("SMT", host.smt.clone()),
        ("NMI watchdog", on_off(host.nmi_watchdog)),
        ("clock source", host.clocksource.clone()),
        ("huge pages", tuning.thp.clone()),
        ("halt_poll_ns", tuning.halt_poll_ns.map(|ns| ns.to_string())),
        (
            "deepest idle state",
            tuning.deepest_idle.as_ref().map(|state| format!("{} ({} µs)", state.name, state.exit_latency_us)),
        ),
        ("load before", host.loadavg_1m.map(|load| format!("{load:.2}"))),
        ("steal meanwhile", host.steal_share().map(|share| format!("{:.2} %", share * 100.0))),
        ("CPU quota", host.quota.map(|quota| format!("{:.2} CPUs", quota.cpus))),
        ("mitigations", list(&host.mitigations.keys().cloned().collect::<Vec<_>>())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Returns the hosts, that of the newest result first, and how many more there are.
pub(super) fn hosts(records: &[Record]) -> (Vec<Host>, usize) {
    // Class, CPU, kernel.
    let mut by_host: BTreeMap<[&str; 3], Vec<&Record>> = BTreeMap::new();
    for record in records {
        let host = &record.host;
        let [cpu, kernel] = [&host.cpu_model, &host.kernel].map(|text| text.as_deref().unwrap_or_default());
        by_host.entry([&host.class, cpu, kernel]).or_default().push(record);
    }
    let mut hosts: Vec<Vec<&Record>> = by_host.into_values().collect();
    for records in &mut hosts {
        records.sort_by_key(|record| std::cmp::Reverse(record.started_unix));
    }
    hosts.sort_by_key(|records| records.first().map(|record| std::cmp::Reverse(record.started_unix)));
    let more = hosts.len().saturating_sub(HOSTS);
    (hosts.iter().take(HOSTS).filter_map(|records| host(records)).collect(), more)
}

/// Returns one host, from its results, the newest first.
fn host(records: &[&Record]) -> Option<Host> {
    let newest = records.first()?;
    let mut found: BTreeMap<(&str, &str), Caveat<'_>> = BTreeMap::new();
    for record in records {
        for warning in &record.warnings {
            let arm = warning.arm.as_deref().unwrap_or("all");
            let caveat = found.entry((arm, &warning.code)).or_insert(Caveat {
                results: 0,
                message: &warning.message,
                remedy: warning.remedy.as_deref(),
            });
            caveat.results += 1;
        }
    }
    let mut table = Table::new(
        "What may have spoiled results: the newest wording, and how many results have it",
        &["caveat", "arm", "results", "what", "what helps"],
    );
    let count = found.len();
    for ((arm, code), caveat) in found.into_iter().take(CAVEATS) {
        table.rows.push(vec![
            code.to_owned(),
            arm.to_owned(),
            format!("{} of {}", caveat.results, records.len()),
            caveat.message.to_owned(),
            caveat.remedy.unwrap_or("–").to_owned(),
        ]);
    }
    if count > CAVEATS {
        let more = format!("{} more kinds of caveat: see the documents", count - CAVEATS);
        table.rows.push(vec!["…".to_owned(), String::new(), String::new(), more, String::new()]);
    }
    Some(Host {
        class: newest.host.class.clone(),
        results: records.len(),
        facts: facts(&newest.host),
        caveats: (!table.rows.is_empty()).then_some(table),
    })
}
