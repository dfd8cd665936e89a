//! `vpmu sim --trace`: a trace through the strategies, on a host of a model.

use std::rc::Rc;
use std::time::Duration;

use host_pmu::stats::OpKind;
use host_pmu::strategy::{Pause, Strategy};
use results::error::Error;
use results::table::Report;
use results::table::fold::Table;
use results::table::layout::ns;
use serde_json::{Value, json};
use sim::guest::Latency;
use sim::model::Model;
use sim::replay::{Divergence, Replay, Replayed};
use trace::read::Trace;

use crate::arms::arm::play::{self, register_name};
use crate::arms::arm::replay::IN_NO_TRACE;

/// A strategy and what a replay under it found.
pub type Found = (Strategy, Replayed);

/// Replays the trace under each strategy.
///
/// # Errors
/// Exit 2: the trace cannot be read, or a strategy cannot be replayed.
pub fn replay(trace: &Trace, model: &Model, strategies: Vec<Strategy>, seed: u64) -> Result<Vec<Found>, Error> {
    let pmu = play::pmu(&trace.meta)?;
    if let Some(strategy) = strategies.iter().find(|strategy| strategy.pause == Pause::Virtual) {
        return Err(Error::usage(
            format!("cannot replay a trace under {}", strategy.name),
            IN_NO_TRACE,
            "leave it out; vpmu sim without --trace simulates it",
        ));
    }
    let shared = Rc::new(model.clone());
    // One pass over the files serves all strategies.
    let mut replays: Vec<Vec<Replay>> = strategies
        .iter()
        .map(|strategy| {
            (0..trace.meta.vcpus).map(|vcpu| Replay::new(&shared, pmu, strategy, seed, vcpu as u16)).collect()
        })
        .collect();
    trace.read_beside(|rows| {
        let vcpu = rows.first().map_or(0, |row| usize::from(row.vcpu));
        for replay in replays.iter_mut().filter_map(|vcpus| vcpus.get_mut(vcpu)) {
            replay.feed(rows);
        }
    })?;
    let merged = |vcpus: Vec<Replay>| {
        let mut all = Replayed::default();
        for replay in vcpus {
            all.merge(&replay.finish());
        }
        all
    };
    Ok(strategies.into_iter().zip(replays.into_iter().map(merged)).collect())
}

/// Returns whether this is the strategy that the trace was recorded under.
fn is_recorded(trace: &Trace, strategy: &Strategy) -> bool {
    Strategy::from_toml(&trace.meta.definition).is_ok_and(|recorded| recorded == *strategy)
}

fn operations(found: &Replayed) -> [u64; OpKind::ALL.len()] {
    OpKind::ALL.map(|kind| found.host.ops.count(kind))
}

/// Returns the median, if there is one.
fn p50(of: &Latency) -> Option<u64> {
    (of.count() > 0).then(|| of.histogram().value_at_quantile(0.5))
}

fn total_ns(found: &Replayed) -> u64 {
    OpKind::ALL.iter().map(|kind| found.host.ops.total_ns(*kind)).sum()
}

/// Shows what the replays found.
pub fn shown(trace: &Trace, model: &str, found: &[Found]) -> Report {
    let mut report = Report::new("replay");
    let header = [
        "arm", "opens", "ops", "exits", "held", "host", "restart", "releases", "pauses", "resumes", "periods", "reads",
        "diverged",
    ];
    let of = match found.first().map_or(0, |(_, found)| found.counts.pmis) {
        0 => "of the whole trace, which has no PMIs".to_owned(),
        pmis => format!("per PMI of {pmis}"),
    };
    let mut table = Table::new(header).caption(format!("Host work {of}, replayed on {model}"));
    for (strategy, found) in found {
        let pmis = found.counts.pmis.max(1) as f64;
        let each = |count: u64| format!("{:.2}", count as f64 / pmis);
        let [opens, releases, pauses, resumes, periods, reads] = operations(found);
        let held = found.counts.held_ns as f64 / found.counts.time_ns.max(1) as f64;
        table.add_row([
            strategy.name.clone(),
            each(opens),
            each(operations(found).iter().sum()),
            each(found.accesses),
            format!("{held:.2}"),
            ns(Some(total_ns(found) / found.counts.pmis.max(1))),
            ns(p50(&found.handler)),
            each(releases),
            each(pauses),
            each(resumes),
            each(periods),
            each(reads),
            (found.divergences + found.pmis_differ).to_string(),
        ]);
    }
    report.table(table);
    report.note("ops, exits: host operations and accesses; held: host events of a vCPU, mean over time");
    report.note("diverged: values and PMIs that are not the trace's, of all of it");
    report.note("host: time of the operations, by the model; restart: median from a PMI's entry to the guest's counters on again, at the guest's own pace");
    for (strategy, found) in found {
        report.notes(said(trace, model, strategy, found));
    }
    report
}

/// Returns the rows that are missing. Of those at its end no row tells.
fn missing(trace: &Trace, found: &Replayed) -> u64 {
    found.missing.max(trace.meta.lost)
}

/// Says where a replay differs from its trace, and how it does from the run.
fn said(trace: &Trace, model: &str, strategy: &Strategy, found: &Replayed) -> Vec<String> {
    let name_of = &strategy.name;
    let mut lines = Vec::new();
    if found.counts.ungated > 0 {
        lines.push(format!(
            "{name_of}: the gate fell apart to single events, as {model} has no counters for its events together: the arm is no gate"
        ));
    }
    if found.counts.pinned_errors > 0 {
        lines.push(format!(
            "{name_of}: {} times {model} had no counter for a pinned event: counts are too low",
            found.counts.pinned_errors
        ));
    }
    if let Some(Divergence { row, recorded, replayed }) = found.first {
        let replayed = replayed.map_or_else(|| "none".to_owned(), |value| format!("{value:#x}"));
        let at = Duration::from_nanos(recorded.at).as_secs_f64();
        lines.push(format!(
            "{name_of}: {} of {} values ({} of counters) and {} of {} PMIs differ; the first at {at:.6} s, row {row} of vCPU {}: {} {} {:#x}, here {replayed}",
            found.divergences,
            found.accesses,
            found.counter_divergences,
            found.pmis_differ,
            found.pmis,
            recorded.vcpu,
            recorded.kind.key(),
            register_name(recorded.kind, recorded.register),
            recorded.value,
        ));
    }
    if found.pmis_missing + found.masked_differ > 0 {
        lines.push(format!(
            "{name_of}: {} of the trace's PMIs are missing; {} more differ that met a mask, which no guest sees",
            found.pmis_missing, found.masked_differ
        ));
    }
    let missing = missing(trace, found);
    if missing > 0 {
        lines.push(format!("{name_of}: {missing} rows are missing in the trace, and what follows from them differs"));
    }
    if is_recorded(trace, strategy) {
        let ops = operations(found);
        let run = trace.meta.pmis.filter(|_| !trace.meta.ops.is_empty());
        let recorded: u64 = trace.meta.ops.iter().sum();
        let same = trace.meta.ops == ops && run == Some(found.counts.pmis);
        lines.push(match run {
            None => format!("{name_of}: the trace's own strategy; operations and PMIs of its run were not counted"),
            Some(pmis) if same && found.divergences + found.pmis_differ == 0 => format!(
                "{name_of}: the trace's own strategy: the same registers, {pmis} PMIs and {recorded} operations"
            ),
            Some(pmis) => format!(
                "{name_of}: the trace's own strategy: {} PMIs and {} operations, and the run had {pmis} and {recorded}",
                found.counts.pmis,
                ops.iter().sum::<u64>()
            ),
        });
    }
    lines
}

/// Returns the same as JSON.
pub fn as_json(trace: &Trace, model: &str, found: &[Found]) -> Value {
    let arm = |(strategy, found): &Found| {
        let ops: serde_json::Map<String, Value> =
            OpKind::ALL.iter().map(|kind| (kind.key().to_owned(), found.host.ops.count(*kind).into())).collect();
        json!({
            "arm": strategy.name,
            "recorded_under": is_recorded(trace, strategy),
            "accesses": found.accesses,
            "pmis": found.counts.pmis,
            "overflows": found.counts.overflows,
            "ops": ops,
            "ops_ns": total_ns(found),
            "held_ns": found.counts.held_ns,
            "time_ns": found.counts.time_ns,
            "held_max": found.counts.held_max,
            "restart_p50_ns": p50(&found.handler),
            "recorded_restart_p50_ns": p50(&found.recorded),
            "divergences": found.divergences,
            "counter_divergences": found.counter_divergences,
            "trace_pmis": found.pmis,
            "pmis_missing": found.pmis_missing,
            "pmi_divergences": found.pmis_differ,
            "masked_divergences": found.masked_differ,
            "missing_rows": missing(trace, found),
            "pinned_errors": found.counts.pinned_errors,
            "ungated": found.counts.ungated,
        })
    };
    json!({
        "schema": "vpmu-replay/1",
        "model": model,
        "trace": trace.meta,
        "arms": found.iter().map(arm).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::arm::sim;

    #[test]
    fn a_gate_falls_apart_where_the_model_has_too_few_counters_for_it() {
        let (text, many) = sim::model_text("clx-ap-watchdog-on").unwrap();
        let few = Model::from_toml("few", &text.replace("cascade-lake-no-smt", "cascade-lake")).unwrap();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces/record10-clx-6.1");
        let trace = Trace::open(folder.as_ref()).unwrap();
        let on = |model: &Model| {
            let strategies = ["gate", "reuse", "gate-pool"].map(|name| Strategy::preset(name).unwrap());
            replay(&trace, model, strategies.into(), 1).unwrap()
        };
        let fell = |found: &[Found]| [0, 1, 2].map(|at| found[at].1.counts.ungated > 0);
        let lost = |found: &[Found]| found.iter().all(|(_, found)| found.counts.pinned_errors > 0);
        let (enough, found) = (on(&many), on(&few));
        assert_eq!((fell(&enough), lost(&enough[..1])), ([false; 3], false));
        assert_eq!((fell(&found), lost(&found)), ([true, false, true], true), "a single event is lost as well");
        let said = shown(&trace, "few", &found).text(200).split_whitespace().collect::<Vec<_>>().join(" ");
        let why =
            "the gate fell apart to single events, as few has no counters for its events together: the arm is no gate";
        assert!(said.contains(&format!("gate: {why}")) && !said.contains("reuse: the gate"), "{said}");
        assert!(
            said.contains("reuse: ") && said.contains("had no counter for a pinned event: counts are too low"),
            "{said}"
        );
        assert!(as_json(&trace, "few", &found)["arms"][0]["ungated"] == 1);
    }

    /// Under its own strategy a trace gives the registers, PMIs and host operations of its run; and each with some PMIs can be played back on KVM.
    #[test]
    fn the_corpus_is_replayed_exactly() {
        let model = sim::model("development-host").unwrap();
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces");
        let entries = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
        let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        assert!(folders.len() >= 17, "{folders:?}");
        for folder in folders {
            let trace = Trace::open(&folder).unwrap();
            let own = Strategy::from_toml(&trace.meta.definition).unwrap();
            let (_, found) = replay(&trace, &model, vec![own], 1).unwrap().remove(0);
            let differ = [found.divergences, found.pmis_differ, found.masked_differ, found.missing];
            assert_eq!((differ, found.accesses), ([0; 4], trace.meta.accesses), "{folder:?}: {:?}", found.first);
            let ops = operations(&found);
            assert!(trace.meta.ops.is_empty() || trace.meta.ops == ops, "{folder:?}: {ops:?} of {:?}", trace.meta.ops);
            if found.pmis < play::LEAST_PLAYED {
                assert!(play::played(&trace).is_err(), "{folder:?}: a handler is timed there");
                continue;
            }
            let (_, _, played) = play::played(&trace).unwrap();
            assert_eq!((played.pmis, played.cut), (found.pmis, 0), "{folder:?}");
            let steps = played.rows.iter().flatten().count() as u64;
            assert_eq!(steps + played.faults, trace.meta.accesses + played.pmis, "{folder:?}");
        }
    }
}
