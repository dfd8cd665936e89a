//! The static binary (tools/packaging/static) on kernels of several series, as root and as an ordinary user in group
//! kvm, with CAP_PERFMON on the file or with a lowered kernel.perf_event_paranoid.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::frames::Finished;
use super::machine::{Job, Report};
use super::measure::whole;
use super::parts::{Parts, further_kernels};

/// A boot of one kernel.
type Boot = Box<dyn FnOnce(&Parts) -> Result<()> + Send>;

const CONFORMANCE: &str = "/vpmu conformance --backend cpu-clock --strategy reuse-lazy,gate --json";
/// 20 ms of cycles: an exit takes a quarter of a millisecond there.
const LATENCY: &str = "/vpmu nmi-latency --backend cpu-clock --strategy recreate,reuse-lazy,deferred,gate --period 40000000 \
     --rounds 1 --warmup 0 --samples 15 --time-limit 10s --no-save --quiet --json";
const DOCTOR: &str = "/vpmu doctor --json";

/// A trial for each kernel of .ci/host-b-kernels and for the usual one: its name, why it cannot run, and its boot. They are for the binary that `VPMU_STATIC` names: an older one left in target/ would pass for this tree's.
pub(crate) fn trials() -> Vec<(String, Option<String>, Boot)> {
    let binary = std::env::var_os("VPMU_STATIC").map(PathBuf::from);
    let missing = binary.is_none().then(|| "no static binary (VPMU_STATIC); remedy: tools/packaging/static".to_owned());
    let binary = binary.unwrap_or_default();
    let usual: Boot = {
        let binary = binary.clone();
        Box::new(move |parts| root_and_users(parts, &binary))
    };
    let mut trials = vec![("static::usual_kernel".to_owned(), missing.clone(), usual)];
    trials.extend(further_kernels().into_iter().map(|(series, root)| {
        let name = format!("static::kernel_{series}");
        let binary = binary.clone();
        let boot: Boot = Box::new(move |parts| root_and_users(&parts.with_kernel_of(&root)?, &binary));
        (name, missing.clone(), boot)
    }));
    trials
}

/// Users by what they have, the state of the machine before, and what `doctor` is to find missing.
const USERS: [(&str, &str, &str, &[&str]); 5] = [
    ("nothing", "outsider", "echo 2 >/proc/sys/kernel/perf_event_paranoid", &["/dev/kvm", "event backend"]),
    ("group kvm", "member", "true", &["event backend"]),
    ("CAP_PERFMON", "outsider", "/probe --perfmon-inside-host-b /vpmu", &["/dev/kvm"]),
    ("group kvm and CAP_PERFMON", "member", "true", &[]),
    (
        "group kvm and perf_event_paranoid 1",
        "member",
        // A copy without the capability.
        "cp /vpmu /plain && mv /plain /vpmu && echo 1 >/proc/sys/kernel/perf_event_paranoid",
        &[],
    ),
];

fn root_and_users(parts: &Parts, binary: &Path) -> Result<()> {
    let me = std::env::current_exe().context("cannot find this binary")?;
    let mut job = Job::new()
        .binary("/vpmu", binary)
        .binary("/probe", &me)
        .file(
            "/etc/passwd",
            0o644,
            b"root:x:0:0::/:/bin/sh\noutsider:x:1000:1000::/tmp:/bin/sh\nmember:x:1001:1001::/tmp:/bin/sh\n",
        )
        .file("/etc/group", 0o644, b"root:x:0:\nkvm:x:101:member\n")
        .limit(Duration::from_secs(600));
    ensure!(USERS[2].2.contains(PERFMON));
    for command in [DOCTOR, CONFORMANCE, LATENCY, "chgrp kvm /dev/kvm && chmod 660 /dev/kvm"] {
        job = job.command(["sh", "-c", command]);
    }
    for (_, user, before, missing) in USERS {
        job = job.command(["sh", "-c", before]).command(["su", user, "-c", DOCTOR]);
        if missing.is_empty() {
            job = job.command(["su", user, "-c", CONFORMANCE]).command(["su", user, "-c", LATENCY]);
        }
    }
    let report = job.run(parts)?;
    report.say("boot to power-off");
    judge(&parts.release(), &report)
}

fn judge(release: &str, report: &Report) -> Result<()> {
    let mut commands = report.commands.iter();
    let mut next = |what: &str| commands.next().with_context(|| format!("no {what}"));
    doctor(next("doctor")?, &[]).context("root")?;
    let figures = [conformance(next("conformance")?)?, latency(next("nmi-latency")?)?];
    eprintln!("# {release}, root: {}", figures.join("; "));
    next("chgrp")?.succeeded()?;
    for (has, _, _, missing) in USERS {
        next("preparation")?.succeeded().context(has)?;
        doctor(next("doctor")?, missing).context(has)?;
        if missing.is_empty() {
            let figures =
                [conformance(next("conformance")?).context(has)?, latency(next("nmi-latency")?).context(has)?];
            eprintln!("# {release}, a user with {has}: {}", figures.join("; "));
        }
    }
    ensure!(next("").is_err(), "more commands than expected");
    Ok(())
}

/// Exactly `missing` is missing, and each has a remedy.
fn doctor(done: &Finished, missing: &[&str]) -> Result<()> {
    let diagnosis = done.json()?;
    let findings = diagnosis["findings"].as_array().context("findings")?;
    let found: Vec<_> = findings.iter().filter(|finding| finding["status"] == "missing").collect();
    let names: Vec<_> = found.iter().filter_map(|finding| finding["check"].as_str()).collect();
    // Capabilities cannot be asked for where /dev/kvm does not open.
    let names: Vec<_> = names.into_iter().filter(|&name| name != "KVM capabilities").collect();
    ensure!(names == missing, "missing {names:?} and not {missing:?}: {found:#?}");
    ensure!(done.status == if missing.is_empty() { 0 } else { 4 }, "exit {}", done.status);
    for (name, words) in [("/dev/kvm", "usermod -aG kvm"), ("event backend", "setcap cap_perfmon")] {
        for finding in found.iter().filter(|finding| finding["check"] == name) {
            let remedy = finding["remedy"].as_str().unwrap_or_default();
            ensure!(remedy.contains(words), "{name}: {remedy}");
        }
    }
    Ok(())
}

fn conformance(done: &Finished) -> Result<String> {
    let result = done.json()?;
    let runs = result["runs"].as_array().context("runs")?;
    let cases: Vec<_> = runs.iter().filter_map(|run| run["cases"].as_array()).flatten().collect();
    let count = |outcome: &str| cases.iter().filter(|case| case["outcome"] == outcome).count();
    let (passed, skipped) = (count("pass"), count("skip"));
    let failed: Vec<_> = cases.iter().filter(|case| case["outcome"] != "pass" && case["outcome"] != "skip").collect();
    ensure!(
        failed.is_empty() && done.status == 0 && passed > 200,
        "{passed} passed, exit {}: {failed:#?}",
        done.status
    );
    Ok(format!("{passed} cases passed, 0 failed, {skipped} skipped"))
}

fn latency(done: &Finished) -> Result<String> {
    done.succeeded()?;
    let document = done.json()?;
    ensure!(document["status"] == "complete", "{}", document["warnings"]);
    let arms = ["recreate", "reuse-lazy", "deferred", "gate", "floor"];
    let nmis = arms.map(|name| whole("the static binary", &document, name, 15));
    let nmis = nmis.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(format!("{nmis:?} NMIs of {arms:?}, 0 lost"))
}

/// First argument of this binary in host B: it gives the file that follows CAP_PERFMON, as `setcap cap_perfmon=ep FILE` does.
const PERFMON: &str = "--perfmon-inside-host-b";

/// Does what the command line says, if this process is in host B.
pub(crate) fn inside() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    words.next().filter(|word| word == PERFMON)?;
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(words.next().unwrap_or_default(), "security.capability", &perfmon(), flags);
    Some(if set.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// CAP_PERFMON (38), permitted and effective: `struct vfs_cap_data` of revision 2, little-endian words.
fn perfmon() -> Vec<u8> {
    let (revision, effective, high) = (0x0200_0000_u32, 1, 1_u32 << (38 - 32));
    [revision | effective, 0, 0, high, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}
