//! A guest's kernel in other people's tools: each shows the same samples by function.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::linux::{UNPACKED, job, linux};
use super::parts::Parts;

/// Kernel-heavy, in several functions: zeros are made and thrown away, and symbols are printed.
const WORK: &str = "for i in 1 2 3 4 5; do dd if=/dev/zero of=/dev/null bs=64k count=5000 2>/dev/null; cat /proc/kallsyms >/dev/null; done";
/// A share may be read differently by so many points.
const POINTS: f64 = 2.0;

/// Samples by the function they are in.
type Shares = BTreeMap<String, usize>;

/// `perf report`'s lines: samples, mode in brackets, function.
fn of_report(text: &str) -> Shares {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let count = words.next()?.parse().ok()?;
        let _mode = words.next().filter(|word| word.starts_with('['))?;
        Some((words.next()?.to_owned(), count))
    };
    lines.filter_map(of).fold(Shares::new(), add)
}

/// `perf script -F ip,sym`: a line each.
fn of_script(text: &str) -> Shares {
    let of = |line: &str| Some((line.split_whitespace().nth(1)?.to_owned(), 1));
    text.lines().filter_map(of).fold(Shares::new(), add)
}

fn add(mut shares: Shares, (name, count): (String, usize)) -> Shares {
    *shares.entry(name).or_default() += count;
    shares
}

/// Functions of the kernel with 2 % and more in one are within [`POINTS`] in the other, and both have all samples.
fn agree(what: &str, ours: &Shares, theirs: &Shares) -> Result<()> {
    let total = |shares: &Shares| shares.values().sum::<usize>();
    ensure!(total(ours) == total(theirs), "{what}: {} samples, not {}", total(theirs), total(ours));
    let percent = |shares: &Shares, name: &str| {
        100.0 * shares.get(name).copied().unwrap_or(0) as f64 / total(shares).max(1) as f64
    };
    // Functions without a name are named differently by each.
    let named = ours.keys().filter(|name| !name.starts_with('[') && percent(ours, name) >= 2.0);
    let mut compared = 0;
    for name in named {
        let (one, other) = (percent(ours, name), percent(theirs, name));
        ensure!((one - other).abs() <= POINTS, "{what}: {name} has {other:.2} %, not {one:.2} %: {theirs:?}");
        compared += 1;
    }
    ensure!(compared >= 2, "{what}: {compared} functions with a name: {ours:?}");
    eprintln!("# {what}: {compared} functions of 2 % and more agree, {} samples", total(ours));
    Ok(())
}

/// A guest's kernel by `perf kvm --guest report` and `perf script`, and, as a host's, by `perf report` and `perf script`.
pub(crate) fn a_guests_kernel(parts: &Parts) -> Result<()> {
    let guest = || linux(UNPACKED, &["--append", "nmi_watchdog=0"], WORK).into_iter().skip(1);
    let record = |options: &[&str]| {
        let words = ["/vpmu", "record", "-F", "499"].iter().chain(options).chain(&["--"]);
        words.map(|word| (*word).to_owned()).chain(guest()).collect::<Vec<_>>()
    };
    let symbols = "--guestkallsyms /tmp/g.data.kallsyms --guestmodules /tmp/g.data.modules";
    let perf = [
        format!("perf kvm --guest {symbols} report -i /tmp/g.data --stdio -F sample,sym"),
        format!("perf script {symbols} -i /tmp/g.data -F ip,sym"),
        "perf report --kallsyms /tmp/h.data.kallsyms -i /tmp/h.data --stdio --no-children -g none -F sample,sym"
            .to_owned(),
        "perf script --kallsyms /tmp/h.data.kallsyms -i /tmp/h.data -G -F ip,sym".to_owned(),
    ];
    let [kvm, script, as_host, host_script] = perf.map(|line| {
        line.split(' ').map(|word| if word == "perf" { "/usr/bin/perf" } else { word }.to_owned()).collect::<Vec<_>>()
    });
    let report = job(parts)?
        .command(record(&["-o", "/tmp/g.data"]))
        .command(kvm)
        .command(script)
        .command(record(&["-g", "-o", "/tmp/h.data"]))
        .command(as_host)
        .command(host_script)
        .run(parts)?;
    let [recorded, kvm, script, with_chains, as_host, host_script] = report.done()?;
    for recorded in [recorded, with_chains] {
        let said = recorded.said();
        ensure!(recorded.status == 0 && said.contains("recorded "), "exit {}: {said}", recorded.status);
        eprintln!(
            "# {}",
            said.lines()
                .filter(|line| line.contains("complete") || line.contains("recorded"))
                .collect::<Vec<_>>()
                .join("; ")
        );
    }
    agree("perf kvm --guest report", &of_script(script.succeeded()?), &of_report(kvm.succeeded()?))?;
    agree("perf report --kallsyms", &of_script(host_script.succeeded()?), &of_report(as_host.succeeded()?))
}

// The workloads of triage in a Linux guest, whose vPMU has hardware events.

/// Between two documents.
const MARK: &str = "== next\n";

/// `vpmu triage` in a guest counts hardware events, samples by them, and takes the clock that stands in their place for
/// what it is. Two rounds have no interval, so that each ends inconclusive.
pub(crate) fn in_a_guest(parts: &Parts) -> Result<()> {
    let line = "--threads 2 --rounds 2 --turn 500ms -F 20 -q --json";
    let script = format!(
        "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; uname -r; echo '{mark}'; vpmu triage context-switch {line}; s=$?; echo '{mark}'; \
         vpmu triage rand {line}; t=$?; echo '{mark}'; echo status $s $t",
        mark = MARK.trim_end()
    );
    let options =
        ["--memory", "1G", "--append", "nmi_watchdog=0", "--backend", "cpu-clock:20MHz", "--with", "/vpmu:/bin/vpmu"];
    let report = job(parts)?.memory("3G").command(linux(UNPACKED, &options, &script)).run(parts)?;
    report.say("boot to power-off");
    let said = report.commands[0].said();
    let out = report.commands[0].succeeded()?;
    let parts_of: Vec<&str> = out.split(MARK).collect();
    let [release, switches, rand, status] = parts_of[..] else { anyhow::bail!("{out} {said}") };
    ensure!(status.trim() == "status 3 3", "{status}: {said}");
    let [switches, rand] = [switches, rand].map(serde_json::from_str::<Value>);
    let (switches, rand) = (switches.context("JSON")?, rand.context("JSON")?);
    for document in [&switches, &rand] {
        ensure!(document["host"]["kernel"].as_str() == Some(release.trim()), "{}", document["host"]);
        ensure!(document["status"] == "complete" && document["parameters"]["rounds"] == 2, "{document}");
        let arms = document["arms"].as_array().context("no arms")?;
        let rate = |event: &str| arms[3]["metrics"][format!("events/{event}/per_s")]["max"].as_u64();
        for event in ["cycles", "instructions", "branches", "branch-misses", "task-clock"] {
            ensure!(rate(event) > Some(0), "{event}: {}", arms[3]);
        }
        let notes = arms[0]["notes"].to_string();
        ensure!(notes.contains("in the place of hardware events"), "{notes}");
        // Which event it chooses depends on how often this machine lets the guest switch; it is one that was counted.
        let chosen = document["parameters"]["sampled_by"].as_str().context("no choice")?;
        ensure!(rate(chosen).is_some(), "{chosen}: {}", arms[3]);
        ensure!(arms[5]["metrics"]["samples"]["max"].as_u64() > Some(0), "{notes}");
        eprintln!("# {} in a guest: {}", arms[0]["strategy"], arms[5]["notes"]);
    }
    Ok(())
}
