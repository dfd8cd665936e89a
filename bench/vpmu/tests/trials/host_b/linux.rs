//! Debian's own kernel as a guest, with Debian's perf in it: what Linux's PMU driver and stock perf see on the vPMU.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vmm::devices::oops::Watch;

use super::frames::Finished;
use super::machine::{Clock, Job};
use super::parts::Parts;

const VPMU: &str = env!("CARGO_BIN_EXE_vpmu");
/// As it comes, and unpacked.
const KERNEL: &str = "/guest/vmlinuz";
pub(crate) const UNPACKED: &str = "/guest/vmlinux";
/// Ten events on four programmable and three fixed counters: they take turns.
const TEN: &str = "branches,branch-misses,bus-cycles,cache-misses,cache-references,cycles,instructions,ref-cycles,\
     L1-dcache-load-misses,L1-dcache-loads";

/// Host B with the guest's kernel, its virtio modules and perf, which `commands` are for.
pub(crate) fn job(parts: &Parts) -> Result<Job> {
    let perf = Path::new("/usr/bin/perf");
    ensure!(perf.is_file(), "no perf at {}; install linux-perf", perf.display());
    let kernel = std::fs::read(&parts.kernel)?;
    let unpacked = vmm::boot::linux::Kernel::parse(&kernel)?;
    Ok(Job::new()
        .binary("/vpmu", VPMU.as_ref())
        .binary("/usr/bin/perf", perf)
        .file(KERNEL, 0o644, &kernel)
        .file(UNPACKED, 0o644, unpacked.image())
        .memory("2G")
        .limit(Duration::from_secs(900))
        // An exit of a nested guest is slow here, and a sign of life comes after five seconds of the machine's own
        // time: 30 s were seen.
        .silence(Duration::from_secs(200))
        .modules(&parts.release(), &parts.virtio()?))
}

/// `vpmu linux` of `kernel` with these options, running `script`.
pub(crate) fn linux(kernel: &str, options: &[&str], script: &str) -> Vec<String> {
    let fixed = ["/vpmu", "linux", kernel, "--modules", "/guest/lib/modules"];
    let command = ["--run", script];
    let words = fixed.iter().chain(options).chain(&command);
    words.map(|word| (*word).to_owned()).collect()
}

/// A field of a line `name=value` that a script printed.
fn number(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.with_context(|| format!("no {name} in {text}"))?.trim().parse().with_context(|| format!("{name} in {text}"))
}

/// Counts of perf, and the driver of the generic CPU.
pub(crate) fn stock_perf(parts: &Parts) -> Result<()> {
    let stat = "perf stat -x, -o /tmp/stat -e cycles,instructions,branches,branch-misses,ref-cycles -- true && cat /tmp/stat && \
                dmesg";
    let generic = "dmesg | grep 'Performance Events'; echo to stderr >&2; \
                   for to in console kmsg; do echo '[   99.000000] Dazed and confused, but trying' > /dev/$to; done; \
                   echo input: $(wc -c </root/vmlinuz); exit 7";
    let report = job(parts)?
        .clock(Clock::Instructions)
        .command(linux(KERNEL, &["--with", "/usr/bin/perf"], stat))
        .command(linux(UNPACKED, &["--cpu", "generic", "--with", KERNEL], generic))
        .run(parts)?;
    let [stat, generic] = report.done()?;
    counted(stat.succeeded()?)?;
    ensure!(generic.status == 7 && generic.text()?.contains("generic architected perfmon"), "{generic:?}");
    let bytes = generic.text()?.lines().find_map(|line| line.strip_prefix("input: ")).context("no input")?;
    ensure!(bytes.parse::<u64>()? > 1 << 20, "{generic:?}");
    let said = generic.said();
    ensure!(said.starts_with("to stderr\n") && said.contains("switched itself off"), "{said}");
    ensure!(!said.contains("Dazed"), "the kernel did not say it: {said}");
    Ok(())
}

/// A script that records what counts so far, and prints perf's statistics, the NMIs and the kernel's log.
fn recording(options: &str, turns: u32) -> String {
    format!(
        "echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent; \
         perf record -q {options} -o /tmp/perf.data -- sh -c 'i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done' && \
         perf report -i /tmp/perf.data --stats >/tmp/stats && cat /tmp/stats && \
         echo nmis=$(sed -n 's/^ *NMI: *\\([0-9]*\\).*/\\1/p' /proc/interrupts) && dmesg"
    )
}

/// As many samples as counters overflowed, more than so many, and none lost or throttled. Returns the overflows, the NMIs that were
/// sent, the PMIs that merged with one, and the NMIs that the guest saw.
fn sampled(what: &str, record: &Finished, least: u64) -> Result<[u64; 4]> {
    let out = record.succeeded()?;
    quiet(out)?;
    let said = record.said();
    let pmu = said.lines().find(|line| line.contains(" overflows, PMIs:")).context("no counts of PMIs")?;
    let before = |word: &str| {
        let (counts, _) = pmu.split_once(word)?;
        counts.rsplit([' ', ':']).next()?.parse::<u64>().ok()
    };
    let (overflows, nmis) = (before(" overflows").context("overflows")?, before(" NMI").context("NMIs")?);
    let (merged, seen) = (before(" merged").unwrap_or(0), number(out, "nmis")?);
    let [samples, lost, throttled] = ["SAMPLE events", "LOST", "THROTTLE events"].map(|kind| {
        let line = out.lines().find(|line| line.trim_start().starts_with(kind));
        line.and_then(|line| line.split(':').nth(1)?.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    });
    eprintln!(
        "# {what}: {overflows} overflows, {samples} samples, {nmis} NMIs, {merged} merged, {seen} seen by the guest"
    );
    let whole = samples == overflows && samples > least && lost == 0 && throttled == 0;
    ensure!(whole, "{what}: {samples} samples, {lost} lost, {throttled} throttled: {said}{out}");
    Ok([overflows, nmis, merged, seen])
}

/// Samples of perf, and a file that comes out.
pub(crate) fn sampling(parts: &Parts) -> Result<()> {
    let options = ["--with", "/usr/bin/perf", "--get", "/tmp/perf.data", "--output", "/tmp/out"];
    let report = job(parts)?
        .clock(Clock::Instructions)
        .command(linux(UNPACKED, &options, &recording(&format!("-e {TEN} -F 250"), 5000)))
        .command(["sh", "-c", "head -c 8 /tmp/out/perf.data"])
        .run(parts)?;
    let [record, brought] = report.done()?;
    let [.., seen] = sampled("ten events", record, 100)?;
    ensure!(seen > 0 && brought.stdout == b"PERFILE2", "{brought:?}");
    Ok(())
}

/// Every event of `perf stat -x,` has a count, and the kernel found a PMU that it trusts.
fn counted(out: &str) -> Result<()> {
    for event in ["cycles", "instructions", "branches", "branch-misses", "ref-cycles"] {
        let line = out.lines().find(|line| line.split(',').nth(2) == Some(event));
        let line = line.with_context(|| format!("no {event} in {out}"))?;
        let count: u64 = line.split(',').next().unwrap_or_default().parse().with_context(|| line.to_owned())?;
        ensure!(count > 0 && line.contains("100.00"), "{line}");
    }
    let driver = out.lines().find(|line| line.contains("Performance Events:")).context("no PMU driver")?;
    ensure!(driver.contains("full-width counters, Intel PMU driver"), "{driver}");
    quiet(out)
}

fn quiet(dmesg: &str) -> Result<()> {
    let mut watch = Watch::default();
    watch.read(dmesg.as_bytes());
    let complaints = watch.finish();
    ensure!(complaints.grave() == 0, "{complaints:?}: {dmesg}");
    Ok(())
}

/// perf on AMD's PMU: each overflow of four events is a sample, and each NMI one of /proc/interrupts, under strategies that open events
/// anew, park them and stop them together.
pub(crate) fn amd(parts: &Parts) -> Result<()> {
    let record = recording("-e cycles,instructions,branches,branch-misses -c 4000000", 6000);
    let cases =
        ["milan", "genoa"].map(|cpu| ["recreate", "reuse-lazy", "gate"].map(|strategy| (cpu, strategy))).concat();
    let mut job = job(parts)?.clock(Clock::Instructions);
    for (cpu, strategy) in &cases {
        let options = ["--cpu", cpu, "--strategy", strategy, "--with", "/usr/bin/perf"];
        job = job.command(linux(UNPACKED, &options, &record));
    }
    let report = job.run(parts)?;
    report.say("boot to power-off");
    for ((cpu, strategy), done) in cases.iter().zip(&report.commands) {
        let [overflows, nmis, merged, seen] = sampled(&format!("{cpu}, {strategy}"), done, 30)?;
        let is_amds = done.text()?.contains("AMD PMU driver");
        // Counters that overflow together have one PMI, and PMIs that come while one is pending one NMI.
        ensure!(is_amds && seen == nmis && nmis + merged <= overflows, "{cpu}, {strategy}: {}", done.said());
    }
    Ok(())
}

/// A recording of a guest knows its kernel: mapping, build-id, and names of its modules' functions as well.
pub(crate) fn recorded(parts: &Parts) -> Result<()> {
    // The output passes through virtio_console and virtio_ring.
    let work = "for i in 1 2 3 4; do head -c 1000000 /dev/zero; done";
    // In this machine an NMI of the guest's that meets a sample can reach the host's kernel, which panics.
    let guest = linux(UNPACKED, &["--append", "nmi_watchdog=0"], work);
    let record = ["/vpmu", "record", "-g", "-o", "/tmp/perf.data", "--"].map(str::to_owned);
    let script = ["/usr/bin/perf", "script", "-i", "/tmp/perf.data", "--kallsyms", "/tmp/perf.data.kallsyms"];
    let report = job(parts)?
        .command(record.into_iter().chain(guest.into_iter().skip(1)))
        .command(script.into_iter().chain(["-F", "comm,ip,sym", "--show-mmap-events"]))
        .command(["/usr/bin/perf", "buildid-list", "-i", "/tmp/perf.data"])
        .run(parts)?;
    let [record, script, ids] = report.done()?;
    let said = record.said();
    ensure!(record.status == 0 && record.stdout.len() == 4_000_000, "exit {}: {said}", record.status);
    ensure!(said.contains("chains at level 0"), "{said}");
    eprintln!("# {}", said.lines().filter(|line| line.contains("chains")).collect::<Vec<_>>().join("; "));
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
    let tests = host_pmu_tests()?;
    let options = ["--with", "/perf-tests"];
    let report = job(parts)?
        .clock(Clock::Instructions)
        .binary("/perf-tests", &tests)
        .command(linux(UNPACKED, &options, "/bin/perf-tests hardware"))
        .run(parts)?;
    let [ran] = report.done()?;
    let (out, said) = (ran.succeeded()?, ran.said());
    let passed = out.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(passed == 6 && out.contains("; 0 failed; 0 ignored"), "{out}{said}");
    eprintln!("# {passed} tests of hardware events passed in a guest");
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
    let plain =
        |options: &[&str]| ["/vpmu", "linux"].iter().chain(options).map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let report = job(parts)?
        .file("/other/lib/modules/1.2.3/kernel/virtio_mmio.ko", 0o644, b"no module")
        .command(plain(&[UNPACKED, "--modules", "/other"]))
        .command(plain(&[UNPACKED, "--modules", "/guest/lib/modules", "--with", "/no/such"]))
        .command(linux(UNPACKED, &["--memory", "64M", "--with", "/usr/bin/perf"], "true"))
        .command(linux(UNPACKED, &["--append", "rdinit=/nothing root=/dev/nothing"], "true"))
        .command(linux(UNPACKED, &[], "reboot -f; sleep 9"))
        .command(linux(UNPACKED, &["--time-limit", "20s"], "sleep 600"))
        .command(linux(UNPACKED, &["--append", "acpi=off"], "true"))
        .command(linux(UNPACKED, &[], "kill -9 $$"))
        .run(parts)?;
    report.say("boot to power-off");
    let expected: [(&str, i32, &[&str]); 8] = [
        ("another version's module", 2, &["module"]),
        ("an absent file", 2, &["/no/such"]),
        ("too little memory", 2, &["--memory"]),
        ("a panic", 3, &["panicked"]),
        ("a reboot", 3, &["reset"]),
        ("a hang", 3, &["time limit"]),
        ("no port", 3, &["no virtio port named vpmu", "reset"]),
        ("a signal", 137, &["switched itself off"]),
    ];
    ensure!(report.commands.len() == expected.len());
    for ((what, status, needles), command) in expected.into_iter().zip(&report.commands) {
        let said = command.said();
        eprintln!("# {what}: exit {}: {}", command.status, said.trim());
        ensure!(command.status == status, "{what}: exit {}, not {status}: {said}", command.status);
        for needle in needles {
            ensure!(said.contains(needle), "{what}: {said} lacks {needle}");
        }
        let clear = said.lines().filter(|line| line.contains(": error: ") || line.contains(": warning: ")).count();
        ensure!(clear == usize::from(status != 137), "{what}: not one clear line: {said}");
    }
    Ok(())
}
