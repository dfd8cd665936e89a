//! Recordings of a guest whose functions have known shares, as `vpmu record` writes them and stock perf reads them.

mod edges;
mod rig;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use host_pmu::sampler::SampledEvent;
use serde_json::Value;
use trials::Case;

use crate::prerequisites::{guests, kvm, program};

use edges::{at_the_exit, beside, full_disk, last_overflow, programs_of_perf, small_disk};
use rig::{RATE, leaves, perf_script, planted, record, said_samples, vpmu, wait_for_samples};

/// The planted functions, and how many exits each makes in a round.
const EXITS: [(&str, usize); 3] = [("half", 5), ("three_tenths", 3), ("fifth", 2)];

pub(crate) fn cases() -> Vec<Case> {
    let expected = kvm().is_ok();
    let here = guests().err();
    let small = small_disk().err();
    let with_disk = here.clone().or(small);
    let tracepoint = "kvm:kvm_userspace_exit".parse().and_then(|event: SampledEvent| event.probe()).err();
    let with_tracepoint = here.clone().or(tracepoint);
    let with_perf = here.clone().or_else(|| program("perf", "linux-perf").err());
    let case = |name: &str, missing: &Option<String>, run: fn() -> Result<()>| {
        Case::fallible(name, missing.clone(), run).expected(expected)
    };
    vec![
        case("exits_of_a_planted_guest_are_all_there_with_their_chains", &with_perf, exact_shares_and_chains),
        case("samples_of_a_clock_are_all_there", &with_perf, samples_of_a_clock),
        case("each_pmi_is_a_sample", &with_perf, at_each_pmi),
        case("each_level_and_mode_has_all_samples", &with_perf, levels_and_modes),
        case("an_interrupted_recording_is_readable", &with_perf, interrupted),
        case("a_full_disk_leaves_a_readable_recording", &with_perf.clone().or(with_disk), full_disk),
        case("what_came_before_and_beside_a_recording_is_kept_apart", &here, beside),
        case("a_sample_in_the_handling_of_an_exit_is_at_its_instruction", &with_perf, at_the_exit),
        case("the_last_overflow_is_a_sample", &with_tracepoint, last_overflow),
        case("programs_of_one_recording_have_their_own_names", &with_perf, programs_of_perf),
        case("recordings_of_perf_of_all_kinds_are_read", &with_perf, edges::kinds_of_perf),
        case("a_reader_that_leaves_ends_the_recording", &here, reader_leaves),
        case("a_recorded_payload_takes_all_its_nmis", &here, payload),
        case("the_table_of_compression_has_every_level", &here, table_of_compression),
        case("what_cannot_be_recorded_is_refused", &None, refusals),
        case("deep_chains_of_a_stranger_are_cut", &None, edges::deep_chains),
        case("long_names_of_a_stranger_are_no_gigabytes", &None, edges::long_names),
        case("a_compressed_recording_of_a_stranger_is_read_in_part", &None, edges::compressed),
        case("files_that_a_stranger_names_are_not_waited_for", &None, edges::names_of_the_kernels_files),
    ]
}

/// Samples of exits are as many as the guest made, in each reader and with their chains.
fn exact_shares_and_chains() -> Result<()> {
    const ROUNDS: usize = 400;
    let folder = tempfile::tempdir()?;
    rig::build_planted(&folder.path().join("planted"), ROUNDS as u32, true)?;
    let output = record(folder.path(), &["-g", "-e", "exit:io,exit:mmio"])?;
    let wanted: BTreeMap<&str, usize> = EXITS.into_iter().map(|(name, exits)| (name, exits * ROUNDS)).collect();
    // And the guest's way out.
    let all = wanted.values().sum::<usize>() + 1;
    ensure!(said_samples(&output)? == all, "{} samples, not {all}", said_samples(&output)?);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains(" samples of exit:io (") && said.contains("), exit:mmio (0) on"), "{said}");
    ensure!(said.contains("no sample of exit:mmio") && said.matches("warning").count() == 1, "{said}");

    let stacks = perf_script(folder.path(), "perf.data")?;
    ensure!(stacks.len() == all, "{all} samples, and perf script shows {}", stacks.len());
    let planted = |name: &str| wanted.contains_key(name);
    let in_work: Vec<_> = stacks.iter().filter(|stack| planted(&stack[0])).collect();
    let found = leaves(in_work.iter().map(|stack| stack[0].as_str()));
    ensure!(found == wanted, "perf script: {found:?}, not {wanted:?}");
    for stack in in_work {
        ensure!(stack[1..] == ["round_of_work", "guest_main", "ring_3"], "{stack:?}");
    }

    let report = Command::new("perf")
        .current_dir(folder.path())
        .args(["report", "-i", "perf.data", "--stdio", "--no-children", "-g", "none", "-F", "sample,sym"])
        .output()?;
    let warned = String::from_utf8_lossy(&report.stderr);
    ensure!(!warned.contains("kptr_restrict"), "a user task has no kernel: {warned}");
    let text = String::from_utf8_lossy(&report.stdout);
    for (name, count) in &wanted {
        let line = text.lines().find(|line| line.trim_end().ends_with(&format!(" {name}")));
        let shown = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        ensure!(shown == Some(*count), "perf report: {name} has {shown:?}, not {count}:\n{text}");
    }

    let printed = vpmu().current_dir(folder.path()).args(["report", "perf.data", "--format", "folded"]).output()?;
    let text = String::from_utf8_lossy(&printed.stdout);
    for (name, count) in &wanted {
        let line = format!("CPU 0/KVM;ring_3;guest_main;round_of_work;{name} {count}");
        ensure!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
    }
    let page = vpmu().current_dir(folder.path()).args(["report", "perf.data", "-o", "page.html"]).output()?;
    let text = std::fs::read_to_string(folder.path().join("page.html"))?;
    ensure!(page.status.success() && text.contains("\"three_tenths\""), "the page lacks a function");
    from_stdin(folder.path())?;
    firefox(folder.path(), all)?;

    // One in seven.
    let output = record(folder.path(), &["-e", "exit:io", "-c", "7"])?;
    ensure!(said_samples(&output)? == all / 7, "{} samples, not {}", said_samples(&output)?, all / 7);
    let shown = perf_script(folder.path(), "perf.data")?.len();
    ensure!(shown == all / 7, "perf script shows {shown}");
    Ok(())
}

/// A recording on stdin is read as a file, and one of its events is shown.
fn from_stdin(folder: &Path) -> Result<()> {
    let of = |event: &str| {
        let stdin = std::fs::File::open(folder.join("perf.data"))?;
        let options = ["report", "-", "--format", "folded", "--event", event];
        Ok::<_, anyhow::Error>(vpmu().current_dir(folder).args(options).stdin(stdin).output()?)
    };
    let shown = of("exit:io")?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    ensure!(shown.status.success() && text.contains(";round_of_work;fifth "), "{text}");
    let none = of("exit:mmio")?;
    ensure!(none.status.code() == Some(3) && none.stdout.is_empty(), "{none:?}");
    let wrong = of("exit:oi")?;
    let said = String::from_utf8_lossy(&wrong.stderr);
    ensure!(wrong.status.code() == Some(2) && said.contains("did you mean exit:io?"), "{said}");
    Ok(())
}

/// Samples of a clock: what the summary says, perf shows; the functions are there.
fn samples_of_a_clock() -> Result<()> {
    let folder = planted(16_000)?;
    let output = record(folder.path(), &["-g", "-F", RATE])?;
    let samples = said_samples(&output)?;
    let stacks = perf_script(folder.path(), "perf.data")?;
    ensure!(samples > 0 && stacks.len() == samples, "{samples} samples, and perf script shows {}", stacks.len());
    let found = leaves(stacks.iter().filter_map(|stack| Some(stack.first()?.as_str())));
    ensure!(EXITS.iter().all(|(name, _)| found.contains_key(name)), "{found:?}");
    Ok(())
}

/// Each PMI of the payload is a sample.
fn at_each_pmi() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = ["record", "--at-pmi", "--", "payload", "--samples", "200"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let nmis = said.split(" NMIs").next().and_then(|text| text.split_whitespace().last()?.parse::<usize>().ok());
    let nmis = nmis.with_context(|| format!("no number of NMIs: {said}"))?;
    let samples = said_samples(&output)?;
    ensure!(samples == nmis && nmis >= 200, "{samples} samples at {nmis} NMIs: {said}");
    let shown = perf_script(folder.path(), "perf.data")?.len();
    ensure!(shown == samples, "{samples} samples, and perf script shows {shown}");
    // Each is in the page with the latency of the guest's handler, but for those before the first sample and after the last.
    let page = vpmu().current_dir(folder.path()).args(["report", "perf.data", "-o", "page.html"]).output()?;
    let text = std::fs::read_to_string(folder.path().join("page.html"))?;
    ensure!(page.status.success() && text.contains("\"latency\":{\"nmis\":[["), "the page has no NMIs");
    let kept: Value = serde_json::from_slice(&std::fs::read(folder.path().join("perf.data.nmis"))?)?;
    let kept = kept["nmis"].as_array().map_or(0, Vec::len);
    ensure!(kept > 0 && kept <= nmis, "{kept} of {nmis} NMIs beside the recording");
    Ok(())
}

/// A profile for the Firefox profiler has all samples and functions, and is no result.
fn firefox(folder: &Path, samples: usize) -> Result<()> {
    let options = ["report", "perf.data", "--format", "firefox", "-o", "profile.json"];
    let made = vpmu().current_dir(folder).args(options).output()?;
    ensure!(made.status.success(), "{}: {}", made.status, String::from_utf8_lossy(&made.stderr));
    let profile: Value = serde_json::from_slice(&std::fs::read(folder.join("profile.json"))?)?;
    let threads = profile["threads"].as_array().context("no threads")?;
    ensure!(threads.len() == 1 && threads[0]["name"] == "CPU 0/KVM", "{} threads", threads.len());
    let of = &threads[0]["samples"];
    let weight: u64 = of["weight"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum();
    ensure!(of["length"] == samples && weight == samples as u64, "{samples} samples, not {}", of["length"]);
    let strings = threads[0]["stringArray"].as_array().context("no strings")?;
    for (name, _) in EXITS {
        ensure!(strings.iter().any(|string| string == name), "the profile lacks {name}");
    }
    let used = vpmu().current_dir(folder).args(["export", "--format", "csv", "."]).output()?;
    let said = String::from_utf8_lossy(&used.stderr);
    ensure!(used.status.code() == Some(2) && said.contains("profile.json: it is a Firefox profile"), "{said}");
    Ok(())
}

fn levels_and_modes() -> Result<()> {
    let folder = planted(3000)?;
    for level in ["-z=0", "-z", "-z2", "-z3", "-z5", "-z8"] {
        let output = record(folder.path(), &["-g", "-F", RATE, level])?;
        let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "perf.data")?.len());
        ensure!(said == shown && said > 0, "{level}: {said} samples, and perf script shows {shown}");
        for way in [&["--aio"][..], &["--aio=4", "--mmap-flush", "16K"]] {
            let threads: &[&str] = if level == "-z=0" { &[] } else { &["--compress-threads", "2"] };
            let output = record(folder.path(), &[&["-g", "-F", RATE, level], way, threads].concat())?;
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(text.contains(", written by "), "the summary does not say how it was written: {text}");
            let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "perf.data")?.len());
            ensure!(said == shown && said > 0, "{level}, {way:?}: {said} samples, and perf script shows {shown}");
        }
        let output = record(folder.path(), &["-g", "-F", RATE, level, "-o", "-"])?;
        std::fs::write(folder.path().join("piped"), &output.stdout)?;
        let (said, shown) = (said_samples(&output)?, perf_script(folder.path(), "piped")?.len());
        ensure!(said == shown && said > 0, "{level}, pipe: {said} samples, and perf script shows {shown}");
    }
    Ok(())
}

fn interrupted() -> Result<()> {
    let folder = planted(50_000_000)?;
    let mut child = vpmu();
    child.current_dir(folder.path()).args(["record", "-g", "-z", "--", "run", "planted"]);
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    wait_for_samples(folder.path())?;
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
        let _ = std::fs::remove_file(folder.path().join("perf.data"));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let waited = wait_for_samples(folder.path());
        child.kill()?;
        child.wait()?;
        waited?;
        ensure!(!perf_script(folder.path(), "perf.data")?.is_empty(), "{level}: a killed recording has no sample");
        let output = vpmu().current_dir(folder.path()).args(["report", "perf.data", "--format", "folded"]).output()?;
        let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
        ensure!(code == Some(3) && said.contains("its recorder was killed"), "{level}: {code:?}, {said}");
        ensure!(!output.stdout.is_empty(), "{level}: its samples are not shown");
    }
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
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
    ensure!(!said.contains("error") && said.contains("recorded "), "{said}");
    std::io::stderr().flush()?;
    Ok(())
}

fn payload() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = ["record", "-g", "-F", "2000", "-z", "--", "payload", "--samples", "300", "--vcpus", "2"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let nmis = said.split(" NMIs").next().and_then(|text| text.split_whitespace().last()?.parse::<u64>().ok());
    ensure!(nmis.is_some_and(|nmis| nmis >= 600), "not all NMIs: {said}");
    ensure!(said_samples(&output)? > 0, "{said}");
    ensure!(folder.path().join("perf.data.payload").is_file(), "no payload for perf");
    // Interrupts of its ring 3 included.
    let shares = said.split("complete: ").nth(1).and_then(|text| text.lines().next()).context("no chains")?;
    let complete: Vec<f64> =
        shares.split(' ').filter(|word| word.contains('.')).filter_map(|word| word.parse().ok()).collect();
    ensure!(complete.len() == 2 && complete.iter().all(|share| *share >= 99.0), "{shares}");
    std::fs::copy(folder.path().join("perf.data"), folder.path().join("b.data"))?;
    let report = |sources: [&str; 2]| vpmu().current_dir(folder.path()).arg("report").args(sources).output();
    let output = report(["perf.data", "b.data"])?;
    let page = std::fs::read_to_string(folder.path().join("b.data.difference.html"))?;
    ensure!(output.status.success() && page.contains("ring3_ftest"), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(report(["perf.data", "perf.data.payload"])?.status.code() == Some(2), "a program is no recording");
    Ok(())
}

fn table_of_compression() -> Result<()> {
    let options = ["reproduce", "--run", "record-compression", "--rounds", "1", "--products", "40", "--json"];
    let output = vpmu().args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let rows = found["rows"].as_array().context("no rows")?;
    let of: Vec<_> = rows.iter().map(|row| (row["level"].as_u64(), row["mode"].as_str())).collect();
    let expected = [0, 1, 2, 3, 5, 8].map(|level| ["serial", "aio"].map(|mode| (Some(level), Some(mode)))).concat();
    ensure!(of == expected, "{of:?}");
    let perf = found["perf"].as_str().context("perf is neither there nor missing")?;
    for row in rows {
        let (vpmu, compressed) = (&row["vpmu"], row["level"] != 0);
        ensure!(vpmu["samples"].is_u64() && vpmu["overhead"]["ratio"].is_f64() && vpmu["ratio"].is_f64(), "{row}");
        ensure!((vpmu["compressed"].as_u64() > Some(0)) == compressed, "{row}");
        ensure!(row["perf"].is_null() == perf.starts_with("not measured: "), "{perf}, and {row}");
        ensure!(row["published"]["ratio"].is_f64(), "{row}");
    }
    Ok(())
}

fn refusals() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("empty"), "")?;
    for (options, needle) in [
        (&["-e", "kvm:no_such_event", "--", "run", "empty"][..], "kvm:no_such_event"),
        (&["-e", "exit,pmi,pmi", "--", "run", "empty"], "duplicate event pmi"),
        (&["--", "run", "no-such-image"], "no-such-image"),
        (&["-o", "no/such/folder/x", "--", "run", "empty"], "no/such/folder/x"),
        (&["--", "payload", "--backend", "sim:hots"], "simulated"),
        (&["--aio", "-o", "-", "--", "run", "empty"], "pipe"),
        (&["--compress-threads", "2", "--", "run", "empty"], "--compression-level"),
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
        ensure!(std::fs::read_to_string(&old)? == "older", "{before:?}: the one before it is gone");
    }
    let output =
        vpmu().current_dir(folder.path()).args(["record", "-o", "/dev/null", "--", "run", "empty"]).output()?;
    ensure!(!output.status.success() && std::path::Path::new("/dev/null").exists(), "a device is gone");
    Ok(())
}
