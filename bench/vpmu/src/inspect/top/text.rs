//! Figures and functions as plain text: the tables of `--stdio`, and the summary.

use std::fmt::Write as _;

use host_pmu::stats::OpKind;
use results::table::layout::time;
use vmm::sample::{LiveCounts, ReturnKind};

use super::model::{Handler, Line, Snapshot};

/// Functions of a table.
const ROWS: usize = 20;
/// Functions of the summary.
const SUMMARY_ROWS: usize = 10;

/// Computes a share in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Names the ring that a function ran in.
pub const fn ring(line: &Line) -> &'static str {
    if line.user { "3" } else { "0" }
}

/// Exits, host operations and NMIs as `name figure`, each divided by `seconds`.
pub fn rates(counts: &LiveCounts, seconds: f64) -> [(&'static str, String); 3] {
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let list = |figures: &[(&'static str, u64)]| {
        let figures: Vec<_> = figures.iter().map(|(key, count)| format!("{key} {:.1}", rate(*count))).collect();
        figures.join("  ")
    };
    [
        ("exits/s", list(&ReturnKind::ALL.map(|kind| (kind.key(), counts.exits[kind as usize])))),
        ("host/s", list(&OpKind::ALL.map(|kind| (kind.key(), counts.ops[kind as usize])))),
        ("guest/s", list(&[("overflows", counts.overflows), ("nmis", counts.nmis)])),
    ]
}

/// Formats a line of figures.
pub fn line(name: &str, figures: impl std::fmt::Display) -> String {
    format!("{name:<8} {figures}")
}

/// Formats the line of an event.
pub fn event((name, samples, counts): &(String, f64, f64)) -> String {
    line("event", format_args!("{name}  samples/s {samples:.1}  counts/s {counts:.1}"))
}

/// Formats the handler's times.
pub fn handler(handler: Option<Handler>) -> Option<String> {
    let Handler { count, p50, p99, worst } = handler?;
    let [p50, p99, worst] = [p50, p99, worst].map(|ns| time(ns as f64));
    Some(format!("{count} runs, p50 {p50}, p99 {p99}, worst {worst}"))
}

/// Formats the table of a tick.
pub fn table(shown: &Snapshot) -> String {
    let [last, window, all] = shown.samples;
    let missing: u64 = shown.lost.iter().sum();
    let mut text = format!(
        "table {}  at {:.3} s  window {:.3} s  samples {last}  in window {window}  over all {all}  lost {missing}\n",
        shown.ticks, shown.seconds[0], shown.seconds[1]
    );
    for event in shown.events.iter().map(event) {
        let _ = writeln!(text, "{event}");
    }
    for (name, figures) in rates(&shown.window, shown.seconds[1]) {
        let _ = writeln!(text, "{}", line(name, figures));
    }
    if let Some(times) = handler(shown.handler[0]) {
        let _ = writeln!(text, "{}", line("handler", times));
    }
    let _ = writeln!(text, "{:>8}{:>8}  ring  function", "window", "all");
    for function in shown.functions.iter().take(ROWS) {
        let _ = writeln!(
            text,
            "{:>6.2} %{:>6.2} %{:>6}  {}",
            percent(function.window, window),
            percent(function.all, all),
            ring(function),
            function.name
        );
    }
    text.push('\n');
    text
}

/// Formats the summary. `every` is the number of samples of all events, `dropped` that of bytes of guest output that went nowhere.
pub fn summary(shown: &Snapshot, every: u64, throttled: u64, dropped: Option<u64>) -> String {
    let all = shown.samples[2];
    let [ours, kernels] = shown.lost;
    let mut text = format!("summary  {every} samples in {:.3} s, {} lost", shown.seconds[0], ours + kernels);
    if ours + kernels > 0 {
        let _ = write!(text, " ({ours} since the reader was late, {kernels} since the kernel's ring was full)");
    }
    text.push('\n');
    if throttled > 0 {
        let _ = writeln!(text, "the kernel throttled an event {throttled} times: sample less often");
    }
    let counts = shown.all;
    let exits: Vec<_> =
        ReturnKind::ALL.map(|kind| format!("{} {}", kind.key(), counts.exits[kind as usize])).into_iter().collect();
    let ops: Vec<_> = OpKind::ALL.map(|kind| format!("{} {}", kind.key(), counts.ops[kind as usize])).into();
    let _ = writeln!(text, "{}", line("exits", exits.join("  ")));
    let _ = writeln!(text, "{}", line("host", ops.join("  ")));
    let guest = format_args!("overflows {}  nmis {}", counts.overflows, counts.nmis);
    let _ = writeln!(text, "{}", line("guest", guest));
    if let Some(times) = handler(shown.handler[1]) {
        let _ = writeln!(text, "{}", line("handler", times));
    }
    if let Some(dropped) = dropped {
        let what = format_args!("{dropped} bytes of the guest were dropped (--guest-output FILE keeps them)");
        let _ = writeln!(text, "{}", line("output", what));
    }
    if shown.functions.is_empty() {
        text.push_str(
            "no sample was taken: the guest ran for less than a period, slept, or the event does not happen\n",
        );
        return text;
    }
    let _ = writeln!(text, "{:>8}  ring  function", "all");
    let mut lines: Vec<_> = shown.functions.iter().collect();
    lines.sort_by(|a, b| (b.all, &a.name).cmp(&(a.all, &b.name)));
    for function in lines.into_iter().take(SUMMARY_ROWS) {
        let _ = writeln!(text, "{:>6.2} %{:>6}  {}", percent(function.all, all), ring(function), function.name);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::inspect::top) fn snapshot() -> Snapshot {
        let line = |user, name: &str, window, all| Line { user, name: name.to_owned(), window, all };
        Snapshot {
            ticks: 3,
            seconds: [3.0, 2.0],
            events: vec![("cpu-clock".to_owned(), 8.0, 8e6)],
            samples: [6, 16, 40],
            lost: [2, 1],
            window: LiveCounts { exits: [2, 4, 6, 0, 20], nmis: 10, overflows: 12, ops: [1, 0, 5, 5, 0, 0] },
            all: LiveCounts { exits: [3, 5, 7, 0, 30], nmis: 15, overflows: 18, ops: [2, 1, 8, 8, 0, 0] },
            handler: [Some(Handler { count: 10, p50: 50, p99: 60, worst: 70 }), None],
            history: vec![1, 5, 9],
            functions: vec![line(true, "ftest", 12, 10), line(false, "nmi_handler", 4, 30)],
            callers: None,
        }
    }

    #[test]
    fn a_table_has_every_figure() {
        let text = table(&snapshot());
        let expected = "\
table 3  at 3.000 s  window 2.000 s  samples 6  in window 16  over all 40  lost 3
event    cpu-clock  samples/s 8.0  counts/s 8000000.0
exits/s  rdmsr 1.0  wrmsr 2.0  io 3.0  mmio 0.0  signal 10.0
host/s   open 0.5  release 0.0  pause 2.5  resume 2.5  period 0.0  read 0.0
guest/s  overflows 6.0  nmis 5.0
handler  10 runs, p50 50 ns, p99 60 ns, worst 70 ns
  window     all  ring  function
 75.00 % 25.00 %     3  ftest
 25.00 % 75.00 %     0  nmi_handler

";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_summary_is_of_the_whole() {
        let text = summary(&snapshot(), 41, 5, Some(7));
        let expected = "\
summary  41 samples in 3.000 s, 3 lost (2 since the reader was late, 1 since the kernel's ring was full)
the kernel throttled an event 5 times: sample less often
exits    rdmsr 3  wrmsr 5  io 7  mmio 0  signal 30
host     open 2  release 1  pause 8  resume 8  period 0  read 0
guest    overflows 18  nmis 15
output   7 bytes of the guest were dropped (--guest-output FILE keeps them)
     all  ring  function
 75.00 %     0  nmi_handler
 25.00 %     3  ftest
";
        assert_eq!(text, expected);
        assert!(summary(&Snapshot::default(), 0, 0, None).contains("no sample was taken"));
    }
}
