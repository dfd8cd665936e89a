//! Recordings of a guest whose functions have known shares, as `vpmu record` writes them and stock perf reads them.

mod edges;
mod rig;

use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use host_pmu::sampler::SampledEvent;
use serde_json::Value;
use trials::Case;

use crate::binary::{ended_by, run, text};
use crate::prerequisites::{guests, kvm, namespaces, program};

use edges::{at_the_exit, full_disk, last_overflow};
use rig::{RATE, build_planted, leaves, perf_script, planted, record, said_samples, vpmu};

/// The planted functions.
const FUNCTIONS: [&str; 3] = ["half", "three_tenths", "fifth"];

pub(crate) fn cases() -> Vec<Case> {
    let expected = kvm().is_ok();
    let here = guests().err();
    let tracepoint = "kvm:kvm_userspace_exit".parse().and_then(|event: SampledEvent| event.probe()).err();
    let with_tracepoint = here.clone().or(tracepoint);
    let with_perf = here.clone().or_else(|| program("perf", "linux-perf").err());
    let tools =
        ["inferno-flamegraph", "samply"].into_iter().find_map(|name| program(name, "none: cargo install").err());
    let with_viewers = with_perf.clone().or(tools);
    let case = |name: &str, missing: &Option<String>, run: fn() -> Result<()>| {
        Case::fallible(name, missing.clone(), run).expected(expected)
    };
    vec![
        case("samples_are_all_there_with_their_chains", &with_perf, samples_and_chains),
        case("each_level_and_mode_has_all_samples", &with_perf, levels_and_modes),
        Case::fallible("a_flame_graph_and_a_profile_have_all_samples", with_viewers, viewers).expected(false),
        case("an_interrupted_recording_is_readable", &with_perf, interrupted),
        case("a_full_disk_leaves_a_readable_recording", &with_perf.clone().or_else(|| namespaces().err()), full_disk),
        case("a_sample_in_the_handling_of_an_exit_is_at_its_instruction", &with_perf, at_the_exit),
        case("the_last_overflow_is_a_sample", &with_tracepoint, last_overflow),
        case("a_reader_that_leaves_ends_the_recording", &here, reader_leaves),
        case("a_recorded_payload_takes_all_its_nmis_and_tables_add_up", &here, payload),
        case("the_table_of_compression_has_every_level", &here, table_of_compression).beside(4),
        case("what_cannot_be_recorded_is_refused", &None, refusals),
    ]
}

/// What the summary says, perf script and perf report show; the planted functions are there, with their callers.
fn samples_and_chains() -> Result<()> {
    let folder = planted(16_000)?;
    let output = record(folder.path(), &["-g", "-F", RATE])?;
    let samples = said_samples(&output)?;
    let stacks = perf_script(folder.path(), "perf.data")?;
    ensure!(samples > 0 && stacks.len() == samples, "{samples} samples, and perf script shows {}", stacks.len());
    let found = leaves(stacks.iter().filter_map(|stack| Some(stack.first()?.as_str())));
    ensure!(FUNCTIONS.iter().all(|name| found.contains_key(name)), "{found:?}");
    // Before a function has made its frame, and after it has left it, a frame pointer does not lead to its caller.
    let mut without_caller = 0;
    for stack in stacks.iter().filter(|stack| FUNCTIONS.contains(&stack[0].as_str())) {
        let is_whole = stack[1..] == ["round_of_work", "guest_main", "ring_3"];
        ensure!(is_whole || stack[1..] == ["guest_main", "ring_3"], "{stack:?}");
        without_caller += usize::from(!is_whole);
    }
    ensure!(100 * without_caller <= stacks.len(), "{without_caller} of {} chains lack the caller", stacks.len());

    let report = Command::new("perf")
        .current_dir(folder.path())
        .args(["report", "-i", "perf.data", "--stdio", "--no-children", "-g", "none", "-F", "sample,sym"])
        .output()?;
    let warned = text(&report.stderr);
    ensure!(!warned.contains("kptr_restrict"), "a user task has no kernel: {warned}");
    let printed = text(&report.stdout);
    for name in FUNCTIONS {
        let line = printed.lines().find(|line| line.trim_end().ends_with(&format!(" {name}")));
        let shown = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        ensure!(shown == found.get(name).copied(), "perf report: {name} has {shown:?}:\n{printed}");
    }
    // After the image was rebuilt its functions of then are named: by the copy beside the recording, and by perf's cache alone.
    build_planted(&folder.path().join("planted"), 16_001, true)?;
    let perf = |cache: &str, words: &[&str]| {
        // Its links are wrong where the name is relative.
        let cache = folder.path().join(cache);
        let mut perf = Command::new("perf");
        let done = perf.current_dir(folder.path()).arg("--buildid-dir").arg(cache).args(words).output();
        done.map(|done| text(&done.stdout))
    };
    perf("cache", &["buildid-cache", "--add", "perf.data.image"])?;
    for cache in ["none", "cache"] {
        let listed = perf(cache, &["buildid-list", "-i", "perf.data"])?;
        ensure!(listed.lines().any(|line| line.len() > 40 && line.ends_with("/perf.data.image")), "{listed}");
        let report = perf(cache, &["report", "-i", "perf.data", "--stdio", "--no-children", "-g", "none"])?;
        let script = perf(cache, &["script", "-i", "perf.data", "-F", "ip,sym"])?;
        for name in FUNCTIONS {
            let annotated = perf(cache, &["annotate", "-i", "perf.data", "--stdio", name])?;
            for shown in [&report, &script, &annotated] {
                ensure!(shown.contains(name), "no {name}, {cache}: {shown}");
            }
        }
        std::fs::rename(folder.path().join("perf.data.image"), folder.path().join("away")).ok();
    }
    Ok(())
}

/// The two commands of docs/record.md.
fn viewers() -> Result<()> {
    let folder = planted(3000)?;
    let samples = said_samples(&record(folder.path(), &["-g", "-F", RATE])?)?;
    let line = "perf script -i perf.data | inferno-collapse-perf | inferno-flamegraph > flame.svg && \
                samply import perf.data --save-only -o profile.json";
    let done = Command::new("sh").current_dir(folder.path()).args(["-c", line]).output()?;
    ensure!(done.status.success(), "{}", text(&done.stderr));
    let [flame, profile] = ["flame.svg", "profile.json"].map(|file| std::fs::read_to_string(folder.path().join(file)));
    let (flame, profile) = (flame?, serde_json::from_str::<Value>(&profile?)?);
    ensure!(FUNCTIONS.iter().all(|name| flame.contains(name)), "{flame}");
    let threads = profile["threads"].as_array().context("no threads")?;
    let shown: u64 = threads.iter().filter_map(|thread| thread["samples"]["length"].as_u64()).sum();
    ensure!(shown == samples as u64, "{samples} samples, and samply shows {shown}");
    Ok(())
}

fn levels_and_modes() -> Result<()> {
    let folder = planted(3000)?;
    for level in ["-z=0", "-z", "-z8"] {
        for more in [&[][..], &["--aio=4"]] {
            let output = record(folder.path(), &[&["-g", "-F", RATE, level], more].concat())?;
            let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "perf.data")?.len());
            ensure!(said == shown && said > 0, "{level} {more:?}: {said} samples, and perf script shows {shown}");
        }
    }
    Ok(())
}

fn interrupted() -> Result<()> {
    let folder = planted(50_000_000)?;
    let shown = || perf_script(folder.path(), "perf.data").map_or(0, |stacks| stacks.len());
    let ended = |signal: &str, level: &str| {
        let mut record = vpmu();
        record.current_dir(folder.path()).args(["record", "-g", level, "--", "run", "planted"]);
        ended_by(signal, &mut record, |_| shown() > 0)
    };
    let output = ended("-INT", "-z");
    ensure!(output.status.code() == Some(3), "{}", output.status);
    let said = said_samples(&output)?;
    ensure!(said == shown() && said > 0, "{said} samples, and perf script shows {}", shown());
    // Killed at once: perf reads all that was flushed.
    for level in ["-z=0", "-z"] {
        let _ = std::fs::remove_file(folder.path().join("perf.data"));
        ended("-KILL", level);
        ensure!(shown() > 0, "{level}: a killed recording has no sample");
    }
    Ok(())
}

/// A reader of tables that leaves ends the guest.
fn reader_leaves() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let line = "record --interval 100ms -- payload --samples 1000000 --time-limit 60s";
    let mut child = vpmu();
    child.current_dir(folder.path()).args(line.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    let mut start = [0; 8];
    child.stdout.take().context("no stdout")?.read_exact(&mut start)?;
    ensure!(start == *b"table 1 ", "{start:x?}");
    let output = child.wait_with_output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
    ensure!(!said.contains("error") && (said.contains("recorded ") || said.contains("(stopped)")), "{said}");
    Ok(())
}

/// The number behind a word of a line.
fn behind(line: &str, word: &str) -> Result<u64> {
    let found = line.split_whitespace().skip_while(|part| *part != word).nth(1);
    found.and_then(|part| part.parse().ok()).with_context(|| format!("no number behind {word}: {line}"))
}

/// A payload that is recorded takes all its NMIs, and has whole chains, those of interrupts of its ring 3 included. Tables of functions
/// meanwhile: their form, and totals that are exact.
fn payload() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let line = "record -g -F 2000 -z --interval 200ms -- payload --samples 300 --vcpus 2";
    let output = run(folder.path(), &line.split(' ').collect::<Vec<_>>());
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{}: {said}", output.status);
    let nmis = said.split("NMIs: ").nth(1).and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    ensure!(nmis.is_some_and(|nmis| nmis >= 600), "not all NMIs: {said}");
    ensure!(folder.path().join("perf.data.image").is_file(), "no payload for perf");
    let shares = said.split("complete: ").nth(1).and_then(|text| text.lines().next()).context("no chains")?;
    let complete: Vec<f64> =
        shares.split(' ').filter(|word| word.contains('.')).filter_map(|word| word.parse().ok()).collect();
    ensure!(complete.len() == 2 && complete.iter().all(|share| *share >= 99.0), "{shares}");
    let mut samples = 0;
    for (at, head) in (1..).zip(out.lines().filter(|line| line.starts_with("table "))) {
        samples += behind(head, "samples")?;
        let is_sum = behind(head, "table")? == at && behind(head, "all")? == samples;
        ensure!(is_sum, "{head} is not the sum of those before");
    }
    ensure!(samples > 0 && samples == said_samples(&output)? as u64, "{samples} in all tables: {said}");
    let has = |begin: &str| out.lines().any(|line| line.starts_with(begin));
    ensure!(has("event    cpu-clock") && has("   share  ring") && out.contains("  ring3_ftest\n"), "{out}");
    Ok(())
}

fn table_of_compression() -> Result<()> {
    let output = vpmu().args(["reproduce", "--run", "record-compression", "--rounds", "1", "--json"]).output()?;
    // One round has no interval, so nothing is compared.
    ensure!(output.status.code() == Some(3), "{}: {}", output.status, text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let rows = found["answer"].as_array().context("no rows")?;
    let has_perf = !found["here"]["notes"].to_string().contains("perf: not measured");
    // Five levels, two ways to write, time and bytes.
    ensure!(rows.len() == if has_perf { 40 } else { 20 }, "{} rows: {}", rows.len(), found["here"]);
    for row in rows {
        let is_bytes = row["figure"].as_str().is_some_and(|name| name.contains(".bytes"));
        let measured = row["measured"]["value"].as_f64().with_context(|| row.to_string())?;
        ensure!(measured > if is_bytes { 1.0 } else { 0.0 }, "{row}");
    }
    Ok(())
}

fn refusals() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("empty"), "")?;
    for (options, needle) in [
        (&["-e", "kvm:no_such_event", "--", "run", "empty"][..], "kvm:no_such_event"),
        (&["-o", "no/such/folder/x", "--", "run", "empty"], "no/such/folder/x"),
        (&["-o", "-", "--", "run", "empty"], "pipe"),
    ] {
        let output = vpmu().current_dir(folder.path()).arg("record").args(options).output()?;
        let said = text(&output.stderr);
        ensure!(matches!(output.status.code(), Some(2 | 4)), "{options:?}: {}: {said}", output.status);
        ensure!(said.contains(needle), "{said} lacks {needle}");
        ensure!(!folder.path().join("perf.data").exists(), "{options:?} left a recording");
    }
    // A guest that does not begin leaves no recording, and an earlier one where it was.
    let (file, old) = (folder.path().join("perf.data"), folder.path().join("perf.data.old"));
    std::fs::write(&file, "newer")?;
    for _ in 0..2 {
        let output = vpmu().current_dir(folder.path()).args(["record", "--", "run", "empty"]).output()?;
        ensure!(matches!(output.status.code(), Some(2 | 4)), "{}", output.status);
        ensure!(!old.exists() && std::fs::read_to_string(&file)? == "newer");
    }
    let output =
        vpmu().current_dir(folder.path()).args(["record", "-o", "/dev/null", "--", "run", "empty"]).output()?;
    ensure!(!output.status.success() && std::path::Path::new("/dev/null").exists(), "a device is gone");
    Ok(())
}
