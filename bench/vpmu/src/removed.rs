//! Words of earlier releases that are gone, and what to use instead. For this release only: the next one deletes this file, its line
//! in `lib.rs` and the calls of its functions.

use std::io::Read as _;
use std::path::Path;

use results::error::Error;
use results::open::found;

/// The command that had it, the word, and what to use instead.
type Row = (&'static str, &'static str, &'static str);

/// Commands; of the tool itself, and of its commands.
const COMMANDS: &[Row] = &[
    ("", "list", "`vpmu show events` lists the events of this host"),
    ("", "kernel-module", "in host-pmu/kernel: make, make check, sudo make load, sudo make unload; or DKMS"),
    ("", "top", "`vpmu record --interval 1s` prints the tables while it records"),
    ("trace", "show", "DuckDB and pandas read the folder's CSV files"),
    ("trace", "stat", "DuckDB and pandas read the folder's CSV files"),
    ("trace", "cut", "`vpmu sim --trace` replays the whole trace; DuckDB and pandas read a part of its rows"),
    ("fleet", "cancel", "`scancel JOB…`: `vpmu fleet status` and DIR/submissions.jsonl have the jobs"),
    (
        "fleet",
        "collect",
        "`vpmu fleet status` and `report` join the parts of sweeps, and `report` brings the index up to date",
    ),
    ("fleet", "wait", "`vpmu fleet status DIR --wait`"),
    ("trace", "merge", "give `vpmu sim --trace` one trace at a time"),
    ("trace", "anonymize", "host and guest are named in _trace.json, addresses in the column rip"),
];

/// Options, and values behind their option; those of every command have no command.
const OPTIONS: &[Row] = &[
    ("ab", "--rounds", "--pairs N: a pair has a process of six rounds on each side"),
    ("ab", "--backend", "after --: vpmu ab BASE NEW -- --backend …"),
    ("ab", "--period", "after --: vpmu ab BASE NEW -- --period …"),
    ("ab", "--pin", "after --: vpmu ab BASE NEW -- --pin …"),
    ("ab", "--samples", "after --: vpmu ab BASE NEW -- --samples …"),
    ("ab", "--strategy", "after --: vpmu ab BASE NEW -- --strategy …"),
    ("ab", "--vcpus", "after --: vpmu ab BASE NEW -- --vcpus …"),
    ("ab", "--workload", "after --: vpmu ab BASE NEW -- --workload …"),
    ("", "--backend task-clock", "cpu-clock counts the same time of the vCPU's thread"),
    ("", "--require-guest", "leave it out: an experiment that is named simulates with --backend sim:MODEL alone"),
    ("calibrate", "--check", "vpmu sim MODEL beside vpmu nmi-latency, each with the same --strategy and --workload"),
    ("calibrate", "--name", "the model's name is that of its file: -o NAME.toml"),
    ("compare", "--ratios", "--threshold 100% --ignore-host-differences --metric nmi_handler_ns for a factor of 2"),
    ("conformance", "--no-seccomp", "leave it out: vCPU threads are always confined"),
    ("conformance", "--time-limit", "leave it out: a run has two minutes, with --backend step ten"),
    ("doctor", "--fix", "`vpmu doctor` prints the commands that set what it finds, and those that put it back"),
    ("doctor", "--undo", "`vpmu doctor`, before anything is set, prints the commands that put it back"),
    ("export", "--format bmf", "--format csv, or jq on the document (docs/report.md#exports)"),
    ("export", "--format github-action", "--format csv, or jq on the document (docs/report.md#exports)"),
    ("export", "--format prometheus", "--format csv, or jq on the document (docs/report.md#exports)"),
    ("export", "--format parquet", "--format csv, which DuckDB and pandas read"),
    ("fleet", "--all", "`vpmu fleet status DIR --json` has every element"),
    ("fleet", "--retry-failed", "remove DIR/elements/NNNNNN/done.json of an element: the next `submit` runs it again"),
    ("fleet", "--keep-binary", "a campaign has one vpmu: give another folder with -o DIR"),
    ("fleet", "--trust-group", "a campaign's folder is its user's alone: chmod 700 DIR"),
    (
        "history",
        "--by-host",
        "`vpmu compare --by-host` on two campaigns, or `vpmu history` on the documents of one host",
    ),
    ("history", "--times", "leave it out: results without a floor are followed by their times"),
    ("history", "--window", "leave it out: all runs on either side of a place are compared"),
    ("linux", "--env", "--run 'NAME=VALUE command': a shell runs the line"),
    ("linux", "--stdin", "--with FILE and --run 'command <FILE': a shell runs the line"),
    ("linux", "--share", "--with FILE[:PATH] brings in, --get PATH with -o DIR brings out"),
    (
        "record",
        "--as",
        "with -g a Linux guest is a host for perf report --kallsyms, without it a guest for perf kvm report",
    ),
    ("record", "--at-pmi", "-e cpu-clock samples the guest, and nmi-latency times its PMI handler"),
    ("record", "--compress-threads", "-z at a lower level, which the recorder's own thread keeps up with"),
    ("record", "--mmap-flush", "each half second, or 128K, is written together"),
    ("record", "--event exit", "-e kvm:kvm_exit, kvm:kvm_msr, kvm:kvm_pio or kvm:kvm_mmio"),
    ("record", "--event pmi", "-e cpu-clock samples the guest, and nmi-latency times its PMI handler"),
    ("report", "--event", "perf report and perf script show each event of a recording"),
    ("report", "--format", "perf script, inferno and samply make stacks and profiles of a recording"),
    ("reproduce", "--append", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--guest", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--kernel", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--memory", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--modules", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--perf", "after --: vpmu reproduce --run vpmu-reuse -- --guest linux --kernel FILE …"),
    ("reproduce", "--depth", "leave it out: the figure is recorded as it was published"),
    ("reproduce", "--frequency", "leave it out: the figure is recorded as it was published"),
    ("reproduce", "--levels", "leave it out: the figure is recorded as it was published"),
    ("reproduce", "--products", "leave it out: the figure is recorded as it was published"),
    ("reproduce", "--run record-overhead", "time vpmu run IMAGE beside vpmu record -F HZ -- run IMAGE"),
    ("stat-setup", "--last-close", "no way of closing shortens it (docs/stat-setup.md)"),
    ("stat-setup", "--scale", "--events 100,200,400 has a result for each number"),
    ("stat-setup", "--mode", "perf bench internals evlist-open-close times events with buffers"),
    ("stat-setup", "--warmup", "leave it out: each arm runs twice before the rounds"),
    ("sweep", "--by", "latencies are compared by the median, of traces by the mean; sweep.jsonl has all"),
    ("sweep", "--dry-run", "vpmu sweep itself: a point takes less than a second, and none is simulated twice"),
    ("sweep", "--markdown", "DIR/pareto.md"),
    ("sweep", "--threads", "RAYON_NUM_THREADS=N"),
    ("sweep", "--strategy", "strategy=LIST"),
    ("sweep", "--model", "model=LIST"),
    ("sweep", "--workload", "workload=LIST"),
    ("sweep", "--trace", "trace=LIST"),
    ("sweep", "--slice", "slice=LIST"),
    ("sweep", "--release-slices", "release-slices=LIST"),
    ("sweep", "--vcpus", "vcpus=LIST"),
    ("sweep", "--cpus", "cpus=LIST"),
    ("sweep", "--seed", "seed=LIST"),
    ("sweep", "--period", "period=N"),
    ("sweep", "--freq", "freq=HZ"),
    ("sweep", "--mux-interval", "mux-interval=TIME"),
    ("sweep", "--timer", "timer=KIND"),
    ("sweep", "--samples", "samples=N"),
    ("sweep", "--time-limit", "time-limit=TIME"),
    ("sweep", "--tail", "tail=TIME"),
    ("sweep", "--cost", "cost.NAME=LIST, e.g. cost.open=0.1,1,10"),
    ("sweep", "--hosts", "rounds=N: each round has fresh hosts"),
    ("triage", "--event", "perf record -e EVENT -g -- vpmu workload NAME samples by any event"),
    ("workload", "--list", "`vpmu triage --help` lists them"),
];

/// Keys of strategy files, and their values: none is every value, of a table it is the key.
const STRATEGY: &[Row] = &[
    ("hold-max", "", "a pool's size bounds what is held: reuse = { pool = K }"),
    ("mark", "", "leave it out: writes keep a counter in use, as in KVM"),
    ("overflow", "stop", "overflow = \"reprogram\", as KVM has it, or \"keep\""),
    ("release", "hlt", "release = { slices = N } or \"never\""),
    ("release", "idle-ms", "release = { slices = N } or \"never\""),
];

/// Returns the error of a word in the place of a command of `path`, which is the words before it.
pub(crate) fn command(path: &str, word: &str) -> Option<Error> {
    let (_, _, instead) = COMMANDS.iter().find(|(of, gone, _)| *of == path && *gone == word)?;
    Some(gone([path, word].join(" ").trim_start(), instead))
}

/// Returns the error of an option of the command `path`, or of an option and its value.
pub(crate) fn option(path: &str, word: &str) -> Option<Error> {
    let is = |gone: &str| word.strip_prefix(gone).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    // Guests of `record` have options of their own behind them.
    let of = |command: &str| command.is_empty() || path.split(' ').next() == Some(command);
    let (_, _, instead) = OPTIONS.iter().find(|(command, gone, _)| of(command) && is(gone))?;
    Some(gone(word, instead))
}

/// Returns the error of a recording where results are wanted.
pub(crate) fn recording(file: &Path) -> Option<Error> {
    let mut magic = [0; 8];
    found(file, u64::MAX).and_then(|mut file| file.read_exact(&mut magic)).ok()?;
    let what = format!("the page of a recording ({})", file.display());
    (magic == *b"PERFILE2").then(|| gone(&what, "perf report, hotspot, samply and inferno read it"))
}

/// Returns the first key or value of a strategy file that is gone, and what to use instead.
pub(crate) fn of_strategy(file: &toml::Table) -> Option<(String, &'static str)> {
    let is =
        |value: &toml::Value, gone: &str| gone.is_empty() || value.as_str() == Some(gone) || value.get(gone).is_some();
    let row = STRATEGY.iter().find(|(key, gone, _)| file.get(*key).is_some_and(|value| is(value, gone)));
    row.map(|(key, value, instead)| (format!("{} is gone", [*key, *value].join(" ").trim_end()), *instead))
}

fn gone(word: &str, instead: &str) -> Error {
    Error::usage(format!("{word} is gone"), "", instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::app::parse;

    #[test]
    fn each_word_is_refused_with_what_replaces_it() {
        for (of, word, instead) in COMMANDS.iter().chain(OPTIONS) {
            let line = ["vpmu", of, word].join(" ");
            let error = parse(line.split_whitespace()).expect_err(&line);
            let text = error.to_string();
            assert!(error.exit.code() == 2 && text.contains("is gone") && text.ends_with(instead), "{line}: {text}");
        }
        assert!(command("trace", "show").unwrap().to_string().starts_with("trace show is gone"));
        for (key, value, instead) in STRATEGY {
            for file in [format!("{key} = '{value}'"), format!("{key} = {{ '{value}' = 3 }}")] {
                assert_eq!(of_strategy(&file.parse().unwrap()).unwrap().1, *instead, "{file}");
            }
        }
        assert!(of_strategy(&"overflow = 'keep'\nrelease = { slices = 1 }".parse().unwrap()).is_none());
    }

    #[test]
    fn the_changelog_has_each_word() {
        let changelog = include_str!("../../../CHANGELOG.md");
        for (of, word, _) in COMMANDS.iter().chain(OPTIONS) {
            let of = if of.is_empty() { word.to_string() } else { format!("{of} {word}") };
            assert!(changelog.contains(&format!("`{of}`")), "{of}");
        }
    }
}
