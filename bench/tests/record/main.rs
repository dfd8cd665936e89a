//! Recordings of a guest whose functions have known shares, as `vpmu record` writes them and stock perf reads them.

mod planted;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::probe::{EventProbe as _, ThisHost};
use host_pmu::backend::BackendKey;
use tempfile::TempDir;
use trials::Case;

/// Shares of the planted functions, percent.
const SHARES: [(&str, f64); 3] = [("half", 50.0), ("three_tenths", 30.0), ("fifth", 20.0)];
/// Most points between a share and what some thousand samples show.
const TOLERANCE: f64 = 4.0;
/// Prime, so that samples do not keep step with the guest's rounds.
const RATE: &str = "3989";

fn main() -> ExitCode {
    let kvm = vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string());
    let events = ThisHost.try_open(&BackendKey::CpuClock).map_err(|refused| refused.why);
    let here = kvm.clone().and(events).err();
    let perf = Command::new("perf").arg("version").output().is_ok_and(|done| done.status.success());
    let with_perf =
        here.clone().or_else(|| (!perf).then(|| "perf is not installed (Debian package: linux-perf)".to_owned()));
    let case = |name: &str, missing: &Option<String>, run: fn() -> Result<()>| {
        Case::fallible(name, missing.clone(), move || run().map_err(|error| format!("{error:#}")))
    };
    let cases = [
        case("shares_and_chains_of_a_planted_guest", &with_perf, shares_and_chains),
        case("each_level_and_mode_has_all_samples", &with_perf, levels_and_modes),
        case("an_interrupted_recording_is_readable", &with_perf, interrupted),
        case("a_full_disk_leaves_a_readable_recording", &with_perf, full_disk),
        case("a_reader_that_leaves_ends_the_recording", &here, reader_leaves),
        case("a_recorded_payload_takes_all_its_nmis", &here, payload),
        case("what_cannot_be_recorded_is_refused", &None, refusals),
    ];
    trials::run(cases, kvm.is_ok())
}

fn vpmu() -> Command {
    let mut vpmu = Command::new(env!("CARGO_BIN_EXE_vpmu"));
    vpmu.stdin(Stdio::null());
    vpmu
}

/// A folder with the planted guest in it.
fn planted(rounds: u32) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    planted::build(&folder.path().join("planted"), rounds)?;
    Ok(folder)
}

fn record(folder: &Path, options: &[&str]) -> Result<Output> {
    let output = vpmu().current_dir(folder).arg("record").args(options).args(["--", "run", "planted"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(output)
}

/// The number of samples that the summary says.
fn said_samples(output: &Output) -> Result<usize> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = said.split_whitespace().skip_while(|word| *word != "recorded").nth(1);
    words.and_then(|word| word.parse().ok()).with_context(|| format!("no number of samples: {said}"))
}

/// The functions of each sample by perf script, innermost first.
fn perf_script(folder: &Path, file: &str) -> Result<Vec<Vec<String>>> {
    let mut perf = Command::new("perf");
    perf.current_dir(folder).args(["script", "-i", file, "-F", "comm,ip,sym"]);
    let output = perf.output()?;
    ensure!(output.status.success(), "perf script: {}", String::from_utf8_lossy(&output.stderr));
    Ok(stacks(&String::from_utf8_lossy(&output.stdout)))
}

/// A sample is a line with the thread's name, and lines of frames behind it or the frame itself.
fn stacks(text: &str) -> Vec<Vec<String>> {
    let mut stacks: Vec<Vec<String>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let frame = match line.split_once("/KVM") {
            Some((_, rest)) => {
                stacks.push(Vec::new());
                rest
            }
            None => line,
        };
        if let (Some(symbol), Some(stack)) = (frame.split_whitespace().nth(1), stacks.last_mut()) {
            stack.push(symbol.to_owned());
        }
    }
    stacks
}

fn shares_of<'a>(leaves: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, f64> {
    let (mut counts, mut all) = (BTreeMap::new(), 0.0);
    for leaf in leaves.filter(|leaf| SHARES.iter().any(|(name, _)| name == leaf)) {
        *counts.entry(leaf).or_insert(0.0) += 1.0;
        all += 1.0;
    }
    counts.into_iter().map(|(name, count)| (name, 100.0 * count / all)).collect()
}

fn check_shares(shares: &BTreeMap<&str, f64>, by: &str) -> Result<()> {
    for (name, share) in SHARES {
        let found = shares.get(name).copied().unwrap_or(0.0);
        ensure!((found - share).abs() <= TOLERANCE, "{by}: {name} has {found:.1} %, not {share} %: {shares:?}");
    }
    Ok(())
}

fn shares_and_chains() -> Result<()> {
    let folder = planted(16_000)?;
    let output = record(folder.path(), &["-g", "-F", RATE])?;
    let samples = said_samples(&output)?;
    let stacks = perf_script(folder.path(), "perf.data")?;
    ensure!(samples > 1500 && stacks.len() == samples, "{samples} samples, and perf script shows {}", stacks.len());
    check_shares(&shares_of(stacks.iter().filter_map(|stack| Some(stack.first()?.as_str()))), "perf script")?;
    let planted: Vec<_> = stacks.iter().filter(|stack| SHARES.iter().any(|(name, _)| stack[0] == *name)).collect();
    let whole = |stack: &&&Vec<String>| stack[1..] == ["round_of_work", "guest_main", "ring_3"];
    let complete = planted.iter().filter(whole).count();
    ensure!(complete * 100 >= planted.len() * 99, "{complete} of {} chains are complete", planted.len());
    let report = Command::new("perf")
        .current_dir(folder.path())
        .args(["report", "-i", "perf.data", "--stdio", "--no-children", "-g", "none", "-F", "overhead,sym"])
        .output()?;
    let text = String::from_utf8_lossy(&report.stdout);
    let of_line = |line: &str| {
        let (share, rest) = line.trim().split_once('%')?;
        Some((rest.split_whitespace().last()?.to_owned(), share.parse().ok()?))
    };
    let shares: Vec<(String, f64)> = text.lines().filter_map(of_line).collect();
    check_shares(&shares.iter().map(|(name, share)| (name.as_str(), *share)).collect(), "perf report")?;
    let printed = vpmu().current_dir(folder.path()).args(["report", "perf.data", "--format", "folded"]).output()?;
    let text = String::from_utf8_lossy(&printed.stdout);
    let mut leaves = Vec::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').context("a line without a count")?;
        let chain: Vec<_> = stack.split(';').collect();
        let leaf = chain.last().copied().unwrap_or_default();
        if SHARES.iter().any(|(name, _)| *name == leaf) && count.parse::<usize>()? > 10 {
            ensure!(chain[..4] == ["CPU 0/KVM", "ring_3", "guest_main", "round_of_work"], "{line}");
        }
        leaves.extend(std::iter::repeat_n(leaf, count.parse()?));
    }
    ensure!(leaves.len() == samples, "{samples} samples, and {} in folded stacks", leaves.len());
    check_shares(&shares_of(leaves.into_iter()), "folded stacks")?;
    let page = vpmu().current_dir(folder.path()).args(["report", "perf.data", "-o", "page.html"]).output()?;
    let text = std::fs::read_to_string(folder.path().join("page.html"))?;
    ensure!(page.status.success() && text.contains("[\"three_tenths\","), "the page lacks a function");
    Ok(())
}

fn levels_and_modes() -> Result<()> {
    let folder = planted(3000)?;
    for level in ["-z=0", "-z", "-z2", "-z3", "-z5", "-z8"] {
        let output = record(folder.path(), &["-g", "-F", RATE, level])?;
        let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "perf.data")?.len());
        ensure!(said == shown && said > 100, "{level}: {said} samples, and perf script shows {shown}");
        let output = record(folder.path(), &["-g", "-F", RATE, level, "-o", "-"])?;
        std::fs::write(folder.path().join("piped"), &output.stdout)?;
        let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "piped")?.len());
        ensure!(said == shown && said > 100, "{level}, pipe: {said} samples, and perf script shows {shown}");
    }
    Ok(())
}

fn interrupted() -> Result<()> {
    let folder = planted(50_000_000)?;
    let mut child = vpmu();
    child.current_dir(folder.path()).args(["record", "-g", "-z", "--", "run", "planted"]);
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_millis(1500));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    ensure!(kill.success(), "cannot interrupt it");
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(3), "{}", output.status);
    let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "perf.data")?.len());
    ensure!(said == shown && said > 0, "{said} samples, and perf script shows {shown}");
    // Killed at once: perf reads all that was flushed.
    for level in ["-z=0", "-z"] {
        let mut child = vpmu();
        child.current_dir(folder.path()).args(["record", "-g", level, "--", "run", "planted"]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_secs(3));
        child.kill()?;
        child.wait()?;
        ensure!(!perf_script(folder.path(), "perf.data")?.is_empty(), "{level}: a killed recording has no sample");
    }
    Ok(())
}

fn full_disk() -> Result<()> {
    let folder = planted(50_000_000)?;
    let small = folder.path().join("small");
    std::fs::create_dir(&small)?;
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=160k", "tmpfs"]).arg(&small).output()?;
    if !mount.status.success() {
        eprintln!("SKIP: a_full_disk_leaves_a_readable_recording: it takes root to mount a small disk");
        return Ok(());
    }
    let options = ["record", "-g", "-F", RATE, "-o", "small/x.data", "--", "run", "planted"];
    let output = vpmu().current_dir(folder.path()).args(options).output();
    let shown = perf_script(folder.path(), "small/x.data");
    let unmounted = Command::new("umount").arg(&small).status()?;
    let (output, shown) = (output?, shown?);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(unmounted.success() && output.status.code() == Some(3), "{}: {said}", output.status);
    ensure!(said.contains("ended early") && said.contains("No space left"), "{said}");
    ensure!(shown.len() > 100, "perf script shows {} samples", shown.len());
    ensure!(shown.iter().flatten().any(|symbol| symbol == "half"), "no function has its name");
    Ok(())
}

fn reader_leaves() -> Result<()> {
    let folder = planted(50_000_000)?;
    let mut child = vpmu();
    child.current_dir(folder.path()).args(["record", "-F", RATE, "-o", "-", "--", "run", "planted"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut pipe = child.stdout.take().context("no stdout")?;
    let mut start = [0; 16];
    pipe.read_exact(&mut start)?;
    ensure!(start.starts_with(b"PERFILE2"), "{start:x?}");
    drop(pipe);
    let began = Instant::now();
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(began.elapsed() < Duration::from_secs(30) && output.status.code() == Some(3), "{}: {said}", output.status);
    ensure!(!said.contains("error") && said.contains("recorded "), "{said}");
    std::io::stderr().flush()?;
    Ok(())
}

fn payload() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = ["record", "-F", "2000", "-z", "--", "payload", "--samples", "300", "--vcpus", "2"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let nmis = said.split(" NMIs").next().and_then(|text| text.split_whitespace().last()?.parse::<u64>().ok());
    ensure!(nmis.is_some_and(|nmis| nmis >= 600), "not all NMIs: {said}");
    ensure!(said_samples(&output)? > 100, "{said}");
    ensure!(folder.path().join("perf.data.payload").is_file(), "no payload for perf");
    Ok(())
}

fn refusals() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("empty"), "")?;
    for (options, needle) in [
        (&["-e", "kvm:no_such_event", "--", "run", "empty"][..], "kvm:no_such_event"),
        (&["--", "run", "no-such-image"], "no-such-image"),
        (&["-o", "no/such/folder/x", "--", "run", "empty"], "no/such/folder/x"),
        (&["--", "payload", "--backend", "sim:hots"], "simulated"),
    ] {
        let output = vpmu().current_dir(folder.path()).arg("record").args(options).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(matches!(output.status.code(), Some(2 | 4)), "{options:?}: {}: {said}", output.status);
        ensure!(said.contains(needle), "{said} lacks {needle}");
        ensure!(!folder.path().join("perf.data").exists(), "{options:?} left a recording");
    }
    // A guest that does not begin leaves earlier recordings where they are: none, and one of the name.
    let (file, old) = (folder.path().join("perf.data"), folder.path().join("perf.data.old"));
    std::fs::write(&old, "older")?;
    for before in [None, Some("newer")] {
        if let Some(text) = before {
            std::fs::write(&file, text)?;
        }
        let output = vpmu().current_dir(folder.path()).args(["record", "--", "run", "empty"]).output()?;
        ensure!(matches!(output.status.code(), Some(2 | 4)), "{}", output.status);
        ensure!(std::fs::read_to_string(&file).ok().as_deref() == before, "{before:?}");
    }
    let output =
        vpmu().current_dir(folder.path()).args(["record", "-o", "/dev/null", "--", "run", "empty"]).output()?;
    ensure!(!output.status.success() && std::path::Path::new("/dev/null").exists(), "a device is gone");
    Ok(())
}
