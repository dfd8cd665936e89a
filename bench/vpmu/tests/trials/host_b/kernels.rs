//! The static binary (tools/packaging/static) on kernels of several series, as root and as an ordinary user in group
//! kvm, with CAP_PERFMON on the file or with a lowered kernel.perf_event_paranoid.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::frames::Finished;
use super::machine::Job;
use super::measure::{SHORT, passes, whole};
use super::parts::{Parts, further_kernels};
use super::{Boot, Trial};

const CONFORMANCE: &str = "/vpmu conformance --backend cpu-clock --strategy reuse-lazy,gate";
const DOCTOR: &str = "/vpmu doctor --json";
const SETCAP: &str = "/usr/sbin/setcap";

/// A trial for each kernel of .ci/host-b-kernels and for the usual one. They are for the binary that `VPMU_STATIC` names: an older one
/// left in target/ would pass for this tree's.
pub(crate) fn trials() -> Vec<Trial> {
    let binary = std::env::var_os("VPMU_STATIC").map(PathBuf::from);
    let missing = binary.is_none().then(|| "no static binary (VPMU_STATIC); remedy: tools/packaging/static".to_owned());
    let trial = |name: String, root: Option<PathBuf>| {
        let binary = binary.clone().unwrap_or_default();
        let boot: Boot = Box::new(move |parts| {
            root_and_users(&root.map_or_else(|| Ok(parts.clone()), |root| Parts::of(&root))?, &binary)
        });
        (format!("static::{name}"), false, missing.clone(), boot)
    };
    let further = further_kernels().into_iter().map(|(series, root)| trial(format!("kernel_{series}"), Some(root)));
    [trial("usual_kernel".to_owned(), None)].into_iter().chain(further).collect()
}

/// Users by what they have, the state of the machine before, and what `doctor` is to find missing.
const USERS: [(&str, &str, &str, &[&str]); 6] = [
    ("all", "root", "true", &[]),
    (
        "nothing",
        "outsider",
        "chgrp kvm /dev/kvm && chmod 660 /dev/kvm && echo 2 >/proc/sys/kernel/perf_event_paranoid",
        &["/dev/kvm", "event backend"],
    ),
    ("group kvm", "member", "true", &["event backend"]),
    ("CAP_PERFMON", "outsider", "/usr/sbin/setcap cap_perfmon=ep /vpmu", &["/dev/kvm"]),
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
    let users = b"root:x:0:0::/:/bin/sh\noutsider:x:1000:1000::/tmp:/bin/sh\nmember:x:1001:1001::/tmp:/bin/sh\n";
    let mut job = Job::new(binary).binary(SETCAP, SETCAP).file("/etc/passwd", 0o644, users).file(
        "/etc/group",
        0o644,
        b"root:x:0:\nkvm:x:101:member\n",
    );
    let latency = format!("{SHORT} --strategy recreate,reuse-lazy,deferred,gate");
    for (_, user, before, missing) in USERS {
        job = job.script(before);
        let commands = [DOCTOR, CONFORMANCE, &latency].into_iter().take(if missing.is_empty() { 3 } else { 1 });
        job = commands.fold(job, |job, command| job.command(["su", user, "-c", command]));
    }
    let done = job.run_all(parts)?;
    let mut done = done.iter();
    let mut next = || done.next().context("no such command");
    for (has, _, _, missing) in USERS {
        let what = format!("{}, a user with {has}", parts.release());
        next()?.succeeded().context(what.clone())?;
        doctor(next()?, missing).context(what.clone())?;
        if missing.is_empty() {
            passes(next()?).context(what.clone())?;
            next()?.succeeded().and_then(|document| {
                let document: serde_json::Value = serde_json::from_str(document)?;
                ensure!(document["status"] == "complete", "{what}: {}", document["warnings"]);
                whole(&what, &document, ["recreate", "reuse-lazy", "deferred", "gate", "floor"], 15)
            })?;
        }
    }
    Ok(())
}

/// Exactly `missing` is missing, and each has a remedy.
fn doctor(done: &Finished, missing: &[&str]) -> Result<()> {
    let diagnosis = done.json()?;
    let findings = diagnosis["findings"].as_array().context("findings")?;
    // Capabilities cannot be asked for where /dev/kvm does not open.
    let found = findings.iter().filter(|found| found["status"] == "missing" && found["check"] != "KVM capabilities");
    let names: Vec<_> = found.clone().filter_map(|found| found["check"].as_str()).collect();
    let is_right = names == missing && done.status == if missing.is_empty() { 0 } else { 4 };
    ensure!(is_right, "exit {}, missing {names:?} and not {missing:?}: {findings:#?}", done.status);
    for finding in found {
        let words = if finding["check"] == "/dev/kvm" { "usermod -aG kvm" } else { "setcap cap_perfmon" };
        ensure!(finding["remedy"].as_str().is_some_and(|remedy| remedy.contains(words)), "{finding}");
    }
    Ok(())
}
