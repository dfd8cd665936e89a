//! Times a folder of documents: read without an index, and from one. The index in the folder is made anew.
//!
//! `cargo run --release -p fleet --example index -- DIR [DOCUMENTS]`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use fleet::Labels;
use fleet::index::{INDEX, Index};

/// Lists every document of a folder and below it, relative to it.
fn documents(dir: &Path, below: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            documents(dir, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads the most memory that this process had, MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// Reads the CPU time of this process, s: on a busy machine it says more than the time that passed.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in brackets; utime and stime are fields 14 and 15 of proc(5), in 1/100 s.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: index DIR [DOCUMENTS]");
        return ExitCode::from(2);
    };
    let most = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    if let Err(error) = documents(&dir, Path::new(""), &mut found) {
        eprintln!("{}: {error}", dir.display());
        return ExitCode::from(2);
    }
    found.sort();
    found.truncate(most);
    let _ = std::fs::remove_file(dir.join(INDEX));
    let mut times = Vec::new();
    for what in ["cold", "from the index"] {
        let (begun, before) = (Instant::now(), cpu());
        let mut index = Index::open(&dir);
        let refreshed = index.refresh(found.iter().map(|path| (path.clone(), Labels::default())), &|_, _| {});
        let runs = index.runs();
        let seconds = begun.elapsed().as_secs_f64();
        for line in refreshed.bad.iter().map(|(_, error)| error.to_string()).chain(refreshed.warning).take(5) {
            println!("{line}");
        }
        let figures: usize = runs.iter().map(|run| run.figures.len()).sum();
        println!(
            "{what}: {} runs with {figures} figures, {} documents read, {seconds:.2} s, {:.2} s of CPU time, {} MiB at most",
            runs.len(),
            refreshed.read,
            cpu() - before,
            peak()
        );
        times.push(seconds);
    }
    println!("the index is {:.1} times as quick", times[0] / times[1]);
    ExitCode::SUCCESS
}
