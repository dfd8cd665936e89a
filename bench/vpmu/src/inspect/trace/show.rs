//! Lists the rows of a trace, and counts its accesses by register.

use host_pmu::trace::{Kind, LVTPC, Row};
use results::error::Error;
use results::table::Report;
use results::table::fold::Table;
use results::table::layout::{ns, plural};
use trace::mix::{Mix, name};
use trace::read::Trace;

/// Lists the first `rows` rows from `from` ns on.
///
/// # Errors
/// A segment cannot be read.
pub fn rows(trace: &Trace, from: u64, rows: usize) -> Result<Report, Error> {
    let mut table = Table::new(["time, ns", "vCPU", "kind", "register", "value", "RIP"]).keys(2).left(2).left(3);
    let (mut shown, mut follow, mut last) = (0, false, 0);
    'all: for batch in trace.batches() {
        let batch = batch?;
        last = batch.iter().map(|row| row.at).fold(last, u64::max);
        for row in batch.iter().filter(|row| row.at >= from) {
            follow = shown == rows;
            if follow {
                break 'all;
            }
            shown += 1;
            let rip = if row.rip == 0 { String::new() } else { format!("{:#x}", row.rip) };
            table.add_row([
                row.at.to_string(),
                row.vcpu.to_string(),
                row.kind.key().to_owned(),
                register(row),
                value(row),
                rip,
            ]);
        }
    }
    let end = match (shown, follow) {
        (0, _) => format!("no row is from {from} ns on: the trace ends at {last} ns"),
        (_, true) => "more rows follow: a larger --rows or a later --from shows them".to_owned(),
        (_, false) => "no more rows follow".to_owned(),
    };
    let mut report = Report::new("trace");
    report.table(table);
    report.note(end);
    report.note(about(trace));
    Ok(report)
}

fn register(row: &Row) -> String {
    match row.kind {
        Kind::Count | Kind::Overflow => format!("counter {}", row.register),
        Kind::Pmi | Kind::LatePmi if row.register == LVTPC => "LVTPC".to_owned(),
        kind => name(kind, row.register),
    }
}

fn value(row: &Row) -> String {
    match row.kind {
        Kind::Count | Kind::Overflow | Kind::Entry | Kind::Lost => row.value.to_string(),
        Kind::Slice | Kind::Sleep => String::new(),
        _ => format!("{:#x}", row.value),
    }
}

/// Says in a sentence what the trace is of.
fn about(trace: &Trace) -> String {
    let meta = &trace.meta;
    let unfinished =
        if meta.finished { "" } else { "; it was not finished, and what is after its last segment is missing" };
    let lost = if meta.lost > 0 { format!("; {} rows are missing in it", meta.lost) } else { String::new() };
    let unknown =
        if meta.unknown.is_empty() { String::new() } else { format!("; unknown: {}", meta.unknown.join(", ")) };
    // A trace that was made anonymous names neither guest nor host.
    let named = |name: &str, other: &str| if name.is_empty() { other.to_owned() } else { name.to_owned() };
    format!(
        "{} with {} ({}, PMU version {}), {} behind {}, on {}{unfinished}{lost}{unknown}",
        named(&meta.guest, "a guest"),
        plural(meta.vcpus, "vCPU"),
        meta.cpu,
        meta.pmu_version,
        meta.strategy,
        meta.backend,
        named(&meta.host, "a host without a name")
    )
}

/// Counts accesses by register, and per PMI.
///
/// # Errors
/// A segment cannot be read.
pub fn mix(trace: &Trace) -> Result<(Mix, Report), Error> {
    let mut mix = Mix::default();
    for batch in trace.batches() {
        mix.add(&batch?);
    }
    let pmis = mix.pmis;
    let mut table = Table::new(["access", "register", "count", "per PMI"]).keys(2).left(1);
    let accesses = mix.rows.iter().filter(|((kind, _), _)| kind.is_access());
    for ((kind, register), count) in accesses {
        let each = if pmis == 0 { "–".to_owned() } else { format!("{:.2}", *count as f64 / pmis as f64) };
        table.add_row([kind.key().to_owned(), name(*kind, *register), count.to_string(), each]);
    }
    let mut report = Report::new("trace");
    report.table(table);
    let of = |kind| mix.of(kind);
    report.note(format!(
        "{} accesses, {pmis} PMIs, {} overflows, {} signals, {} slices, {} sleeps in {} of vCPU time; {:.2} bytes an access",
        mix.accesses(),
        of(Kind::Overflow),
        of(Kind::Signal),
        of(Kind::Slice),
        of(Kind::Sleep),
        ns(Some(mix.ns)),
        trace.bytes() as f64 / mix.accesses().max(1) as f64
    ));
    report.note(about(trace));
    Ok((mix, report))
}
