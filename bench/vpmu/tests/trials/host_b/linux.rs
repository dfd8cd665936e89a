//! Debian's own kernel as a guest, with Debian's perf in it: what Linux's PMU driver and stock perf see on the vPMU.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use vmm::devices::oops::Watch;

use super::frames::Finished;
use super::machine::Job;
use super::parts::{PERF, Parts};
use crate::binary::VPMU;

/// As it comes, and unpacked.
const KERNEL: &str = "/guest/vmlinuz";
pub(crate) const UNPACKED: &str = "/guest/vmlinux";
pub(crate) const VIRTIO: [&str; 2] = ["virtio_mmio", "virtio_console"];

/// Host B with the guest's kernel, its virtio modules and perf, which its commands are for.
pub(crate) fn job(parts: &Parts) -> Result<Job> {
    let kernel = std::fs::read(&parts.kernel)?;
    let unpacked = vmm::boot::linux::Kernel::parse(&kernel)?;
    Ok(Job { memory: "2G", ..Job::new(VPMU) }
        .binary(PERF, PERF)
        .file(KERNEL, 0o644, &kernel)
        .file(UNPACKED, 0o644, unpacked.image())
        .modules(&parts.release(), &parts.needed(&VIRTIO)?))
}

/// This runs the same by the instruction clock.
fn by_instructions(parts: &Parts) -> Result<Job> {
    Ok(Job { by_instructions: true, ..job(parts)? })
}

/// `vpmu linux` of `kernel` with these options, as a shell takes them apart, running `script`.
pub(crate) fn linux(kernel: &str, options: &str, script: &str) -> Vec<String> {
    let words = shlex::split(&format!("/vpmu linux {kernel} --modules /guest/lib/modules {options} --run"));
    [words.unwrap_or_default(), vec![script.to_owned()]].concat()
}

/// Counts of perf, and the driver of the generic CPU.
pub(crate) fn stock_perf(parts: &Parts) -> Result<()> {
    const EVENTS: &str = "cycles,instructions,branches,branch-misses,ref-cycles";
    let stat = format!("perf stat -x, -o /tmp/stat -e {EVENTS} -- true && cat /tmp/stat && dmesg");
    let generic = "dmesg | grep 'Performance Events'; echo to stderr >&2; \
                   for to in console kmsg; do echo '[   99.000000] Dazed and confused, but trying' > /dev/$to; done; \
                   echo input: $(wc -c </root/vmlinuz); exit 7";
    let [stat, generic] = by_instructions(parts)?
        .command(linux(KERNEL, "--with /usr/bin/perf", &stat))
        .command(linux(UNPACKED, &format!("--cpu generic --with {KERNEL}"), generic))
        .run(parts)?;
    // Every event has a count, and the kernel found a PMU that it trusts.
    let out = stat.succeeded()?;
    for event in EVENTS.split(',') {
        let line = out.lines().find(|line| line.split(',').nth(2) == Some(event));
        let line = line.with_context(|| format!("no {event} in {out}"))?;
        let count: u64 = line.split(',').next().unwrap_or_default().parse().with_context(|| line.to_owned())?;
        ensure!(count > 0 && line.contains("100.00"), "{line}");
    }
    ensure!(out.contains("full-width counters, Intel PMU driver"), "{out}");
    quiet(out)?;
    ensure!(generic.status == 7 && generic.text()?.contains("generic architected perfmon"), "{generic:?}");
    let bytes = generic.text()?.lines().find_map(|line| line.strip_prefix("input: ")).context("no input")?;
    ensure!(bytes.parse::<u64>()? > 1 << 20, "{generic:?}");
    let said = generic.said();
    ensure!(said.starts_with("to stderr\n") && said.contains("switched itself off"), "{said}");
    ensure!(!said.contains("Dazed"), "the kernel did not say it: {said}");
    Ok(())
}

fn quiet(dmesg: &str) -> Result<()> {
    let mut watch = Watch::default();
    watch.read(dmesg.as_bytes());
    let complaints = watch.finish();
    ensure!(complaints.grave() == 0, "{complaints:?}: {dmesg}");
    Ok(())
}

/// Samples of perf: of ten events that take turns on four programmable and three fixed counters, at a frequency; and on AMD's PMU of four
/// events at a period, under strategies that open events anew, park them and stop them together. Each overflow is a sample, and on AMD
/// each NMI one of /proc/interrupts. The guest's file comes out.
pub(crate) fn samples(parts: &Parts) -> Result<()> {
    const TEN: &str = "branches,branch-misses,bus-cycles,cache-misses,cache-references,cycles,instructions,ref-cycles,\
         L1-dcache-load-misses,L1-dcache-loads";
    let amd = ["milan", "genoa"].map(|cpu| ["recreate", "reuse-lazy", "gate"].map(|strategy| (cpu, strategy))).concat();
    let mut job = by_instructions(parts)?;
    for (cpu, strategy) in [&[("clx", "reuse-lazy")], &amd[..]].concat() {
        let (events, turns) = match cpu {
            "clx" => (format!("-e {TEN} -F 250"), 5000),
            _ => ("-e cycles,instructions,branches,branch-misses -c 4000000".to_owned(), 6000),
        };
        let record = format!(
            "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; \
             perf record -q {events} -o /tmp/perf.data -- sh -c 'i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done' && \
             perf report -i /tmp/perf.data --stats >/tmp/stats && cat /tmp/stats && \
             echo NMI events: $(sed -n 's/^ *NMI: *\\([0-9]*\\).*/\\1/p' /proc/interrupts) && dmesg"
        );
        let options = format!(
            "--cpu {cpu} --strategy {strategy} --with /usr/bin/perf --get /tmp/perf.data --output /tmp/{cpu}-{strategy}"
        );
        job = job.command(linux(UNPACKED, &options, &record));
    }
    let done = job.script("head -c 8 /tmp/clx-*/perf.data").run::<8>(parts)?;
    let [overflows, _, _, seen] = sampled("ten events", &done[0], 100)?;
    ensure!(overflows > 0 && seen > 0 && done[7].stdout == b"PERFILE2", "{:?}", done[7]);
    for ((cpu, strategy), done) in amd.iter().zip(&done[1..]) {
        let [overflows, nmis, merged, seen] = sampled(&format!("{cpu}, {strategy}"), done, 30)?;
        let is_amds = done.text()?.contains("AMD PMU driver");
        // Counters that overflow together have one PMI, and PMIs that come while one is pending one NMI.
        ensure!(is_amds && seen == nmis && nmis + merged <= overflows, "{cpu}, {strategy}: {}", done.said());
    }
    Ok(())
}

/// As many samples as counters overflowed, more than so many, and none lost or throttled. Returns the overflows, the NMIs that were
/// sent, the PMIs that merged with one, and the NMIs that the guest saw.
fn sampled(what: &str, record: &Finished, least: u64) -> Result<[u64; 4]> {
    let (out, said) = (record.succeeded()?, record.said());
    quiet(out)?;
    let pmu = said.lines().find(|line| line.contains(" overflows, PMIs:")).context("no counts of PMIs")?;
    let [overflows, nmis, merged] = [" overflows", " NMI", " merged"].map(|word| {
        let counts = pmu.split_once(word)?.0;
        counts.rsplit([' ', ':']).next()?.parse::<u64>().ok()
    });
    let (overflows, nmis, merged) = (overflows.context("overflows")?, nmis.context("NMIs")?, merged.unwrap_or(0));
    let [samples, lost, throttled, seen] = ["SAMPLE events", "LOST", "THROTTLE events", "NMI events"].map(|kind| {
        let line = out.lines().find(|line| line.trim_start().starts_with(kind));
        line.and_then(|line| line.split(':').nth(1)?.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    });
    eprintln!(
        "# {what}: {overflows} overflows, {samples} samples, {nmis} NMIs, {merged} merged, {seen} seen by the guest"
    );
    let is_whole = samples == overflows && samples > least && lost == 0 && throttled == 0;
    ensure!(is_whole, "{what}: {samples} samples, {lost} lost, {throttled} throttled: {said}{out}");
    Ok([overflows, nmis, merged, seen])
}

/// A recording of a guest knows its kernel: mapping, build-id, and names of its modules' functions as well.
pub(crate) fn recorded(parts: &Parts) -> Result<()> {
    // The output passes through virtio_console and virtio_ring.
    let work = "for i in 1 2 3 4; do head -c 1000000 /dev/zero; done";
    // In this machine an NMI of the guest's that meets a sample can reach the host's kernel, which panics.
    let guest = linux(UNPACKED, "--append nmi_watchdog=0", work);
    let record = ["/vpmu", "record", "-g", "-o", "/tmp/perf.data", "--"].map(str::to_owned);
    let [record, script, ids] = job(parts)?
        .command(record.into_iter().chain(guest.into_iter().skip(1)))
        .script(
            "/usr/bin/perf script -i /tmp/perf.data --kallsyms /tmp/perf.data.kallsyms -F comm,ip,sym --show-mmap-events",
        )
        .script("/usr/bin/perf buildid-list -i /tmp/perf.data")
        .run(parts)?;
    let said = record.said();
    ensure!(record.status == 0 && record.stdout.len() == 4_000_000, "exit {}: {said}", record.status);
    ensure!(said.contains("chains at level 0"), "{said}");
    let script = script.succeeded()?;
    for needle in ["[kernel.kallsyms]", " [virtio_ring]"] {
        ensure!(script.contains(needle), "no {needle}: {script}");
    }
    let id = ids.succeeded()?.lines().find_map(|line| line.trim().strip_suffix("[kernel.kallsyms]"));
    ensure!(id.is_some_and(|id| id.trim().len() == 40), "no build-id of the kernel");
    Ok(())
}

/// host-pmu's tests of hardware events, on the PMU of a guest.
pub(crate) fn host_pmu(parts: &Parts) -> Result<()> {
    let [ran] = by_instructions(parts)?
        .binary("/perf-tests", host_pmu_tests()?)
        .command(linux(UNPACKED, "--with /perf-tests", "/bin/perf-tests hardware"))
        .run(parts)?;
    let (out, said) = (ran.succeeded()?, ran.said());
    let passed = out.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(passed == 6 && out.contains("; 0 failed; 0 ignored"), "{out}{said}");
    Ok(())
}

/// Finds that test binary, as cargo has built it.
fn host_pmu_tests() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").context("no CARGO: run this by cargo test")?;
    let words = ["test", "--locked", "--no-run", "-p", "host-pmu", "--test", "perf", "--message-format=json"];
    let built = std::process::Command::new(cargo).args(words).output().context("cannot run cargo")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let lines = String::from_utf8(built.stdout)?;
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut found = messages.filter(|message| message["target"]["name"] == "perf");
    let path = found.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.context("cargo names no binary of host-pmu's tests")
}

/// Inputs that cannot be booted, and guests that end badly: one line each, with its exit code.
pub(crate) fn bad_input(parts: &Parts) -> Result<()> {
    let cases: [(&str, &str, i32, &[&str]); 7] = [
        ("--with /no/such", "true", 2, &["/no/such"]),
        ("--memory 64M --with /usr/bin/perf", "true", 2, &["--memory"]),
        ("--append 'rdinit=/nothing root=/dev/nothing'", "true", 3, &["panicked"]),
        ("", "reboot -f; sleep 9", 3, &["reset"]),
        ("--time-limit 20s", "sleep 600", 3, &["time limit"]),
        ("--append acpi=off", "true", 3, &["no virtio port named vpmu", "reset"]),
        ("", "kill -9 $$", 137, &["switched itself off"]),
    ];
    let of_another_version = ("/other/lib/modules/1.2.3/kernel/virtio_mmio.ko", b"no module");
    let mut job = job(parts)?.file(of_another_version.0, 0o644, of_another_version.1);
    for (options, script, ..) in cases {
        job = job.command(linux(UNPACKED, options, script));
    }
    let done = job.command(["/vpmu", "linux", UNPACKED, "--modules", "/other"]).run::<8>(parts)?;
    let cases = cases.into_iter().chain([("another version's module", "", 2, &["module"][..])]);
    for ((options, script, status, needles), command) in cases.zip(&done) {
        let said = command.said();
        let clear = said.lines().filter(|line| line.contains(": error: ") || line.contains(": warning: ")).count();
        let is_right = command.status == status
            && needles.iter().all(|needle| said.contains(needle))
            && clear == usize::from(status != 137);
        ensure!(is_right, "{options} {script}: exit {}, not {status}, {needles:?}: {said}", command.status);
    }
    Ok(())
}
