//! The kernel module of host-pmu/kernel between the KVM and the perf of a middle host: what it does for each strategy, by formulas.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::machine::{Clock, Job};
use super::super::parts::{Parts, further_kernels};
use super::releases::{self, CONFORMANCE, is_chance};
use super::{
    CALLS, HOST_PERIOD, MARK, Middle, PERIOD, UNTHROTTLED, job, limited, middle, middle_host_with, middle_of, printed,
    probed, script,
};

/// PMIs of a guest.
const SAMPLES: u32 = 20;
const STRATEGIES: [&str; 5] = ["stock", "recreate", "virtual", "direct", "gate"];
/// Strategies of this VMM with the same names. Events of its `virtual` and `gate` go on after an overflow, and are aimed anew if they
/// overflow once more before their guest writes: that depends on time.
const OWN: [&str; 3] = ["recreate", "reuse", "pool"];
/// Counts between two PMIs where there are many: each takes as long to handle.
const SHORT_PERIOD: u32 = 300_000;

type Part = fn(&Below, &Parts) -> Result<()>;

/// A trial: its name, whether it takes minutes, why it cannot run here.
pub(crate) type Trial = (String, bool, Option<String>, releases::Boot);

/// Counts on host B's own kernel, with the module built here; and, where a kernel of .ci/host-b-kernels has a module beside
/// its `boot`, on that, with ten thousand PMIs of each strategy.
pub(crate) fn trials(parts: Option<&Parts>) -> Vec<Trial> {
    let unbuilt = parts.filter(|parts| !headers(parts).exists()).map(|_| {
        "no headers of host B's kernel for nest::kernel_module; remedy: their package, or VPMU_HEADERS".to_owned()
    });
    let own: releases::Boot = Box::new(|parts| Below::built(parts)?.counts(parts, Clock::Host));
    let mut trials = vec![("nest::kernel_module".to_owned(), false, unbuilt, own)];
    for (series, root) in further_kernels() {
        // Its perf cannot be traced.
        if series == "5.10" {
            continue;
        }
        let file = root.join(FILE);
        let absent = (!file.is_file()).then(|| {
            format!(
                "no {} for nest::kernel_module_{series}; remedy: copy there what `make` in host-pmu/kernel makes where that kernel's gcc and headers are",
                file.display()
            )
        });
        let parts: [(&str, Part); 3] = [
            ("", |below, parts| below.counts(parts, Clock::Instructions)),
            ("_conformance", Below::conformance),
            ("_ten_thousand", Below::ten_thousand),
        ];
        for (what, run) in parts {
            let root = root.clone();
            let boot: releases::Boot = Box::new(move |parts| run(&Below::found(parts, &root)?, parts));
            trials.push((format!("nest::kernel_module_{series}{what}"), true, absent.clone(), boot));
        }
    }
    trials
}

/// Headers of the middle host's kernel, in this folder or where its package puts them.
fn headers(parts: &Parts) -> PathBuf {
    let installed = || PathBuf::from(format!("/lib/modules/{}/build", parts.release()));
    std::env::var_os("VPMU_HEADERS").map_or_else(installed, PathBuf::from)
}

/// What `make` in host-pmu/kernel makes.
const FILE: &str = "vpmu_kvm.ko";

/// A middle host's kernel, and the module for it.
struct Below {
    middle: Parts,
    module: Vec<u8>,
}

impl Below {
    fn built(parts: &Parts) -> Result<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host-pmu/kernel");
        let folder = tempfile::tempdir()?;
        for entry in std::fs::read_dir(sources)? {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.path().join(entry.file_name()))?;
        }
        let headers = format!("KDIR={}", headers(parts).display());
        let made = Command::new("make").arg("-C").arg(folder.path()).arg(headers).env_remove("MAKEFLAGS").output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { middle: parts.clone(), module: std::fs::read(folder.path().join(FILE))? })
    }

    fn found(parts: &Parts, root: &Path) -> Result<Self> {
        Ok(Self { middle: parts.with_kernel_of(root)?, module: std::fs::read(root.join(FILE))? })
    }

    fn job(&self) -> Result<Job> {
        Ok(job(&self.middle)?.file(&format!("/{FILE}"), 0o644, &self.module))
    }

    /// A middle host that loads the module before the script, as `make load` does.
    fn host(script: &str) -> Vec<String> {
        middle_host_with("milan", &["--with", &format!("/{FILE}:/{FILE}")], &format!("insmod /{FILE}; {script}"))
    }

    /// KVM's calls become those of each strategy, exactly, and KVM's own beside them stay as they are; the module is unloaded but while
    /// it is held, and a VMM that is killed leaves nothing.
    fn counts(&self, parts: &Parts, clock: Clock) -> Result<()> {
        let period = if clock == Clock::Host { HOST_PERIOD } else { PERIOD };
        let below = STRATEGIES.map(|name| format!("kvm:{name}"));
        let arms: Vec<_> = below.iter().map(String::as_str).chain(OWN).collect();
        let control = script(&probed(), "kvm:stock", 1, SAMPLES, period, "");
        let unload = format!(
            "alone=$(cat /sys/module/vpmu_kvm/refcnt); for arm in kvm:recreate kvm:gate; do \
             vpmu nmi-latency --backend hardware --cpu milan --strategy $arm --rounds 1000 --samples 6 --period {period} --time-limit 9s --no-save --quiet & \
             while kill -0 $! && [ $(cat /sys/module/vpmu_kvm/refcnt) -lt $((alone + 2)) ]; do sleep 0.1; done; \
             kill -9 $!; wait $!; echo $arm killed $?; done; \
             exec 3<>/dev/vpmu_kvm; rmmod vpmu_kvm; echo held $?; exec 3>&-; printf 'gate\\0' >/dev/vpmu_kvm || echo refused; \
             rmmod vpmu_kvm; echo unloaded $?; test -d /sys/module/kvm_amd; echo kvm $?; \
             vpmu nmi-latency --cpu milan --strategy kvm:stock --no-save; echo absent $?; \
             dmesg | grep -E 'Oops|WARNING: .*CPU(#|:)|BUG: (unable|s[cl])'; echo complained $?"
        );
        // Three guests, one after the other, of a process that wrote.
        let guests = format!(
            "echo 1 >/sys/module/vpmu_kvm/parameters/timed; exec 3<>/dev/vpmu_kvm; (echo gate >&3; exec vpmu nmi-latency \
             --backend hardware --cpu milan --strategy reuse --rounds 3 --warmup 0 --samples 6 --period {period} --time-limit 60s \
             --no-save --quiet >/dev/null); cat <&3; exec 3>&-;"
        );
        let more = format!("echo '{MARK}end'; {control} echo '{MARK}end'; {guests} echo '{MARK}end'; {unload}");
        let run = script("", &arms.join(","), 1, SAMPLES, period, &more);
        let report = self.job()?.clock(clock).command(Self::host(&run)).run(parts)?;
        report.say("power-on to power-off");
        let [strategies, control, guests, ends] =
            printed(&report, 0)?.split(&format!("{MARK}end\n")).collect::<Vec<_>>()[..]
        else {
            anyhow::bail!("{}", printed(&report, 0)?)
        };
        let found = middle_of(strategies)?;
        // A thread that ended leaves its line to the next.
        eprintln!("# three guests in turn: {guests}");
        let created = guests.split_once(" create=3/3/").and_then(|(_, rest)| rest.split(' ').next());
        let ns = created.and_then(|ns| ns.parse::<u64>().ok());
        ensure!(guests.matches("tid=").count() == 1 && ns.is_some_and(|ns| ns > 0), "{guests}");
        let wanted = [
            "kvm:recreate killed 137",
            "kvm:gate killed 137",
            "held 1",
            "refused",
            "unloaded 0",
            "kvm 0",
            "absent 4",
            "complained 1",
        ];
        ensure!(wanted.iter().all(|line| ends.lines().any(|found| found == *line)), "{ends}");
        for name in arms {
            self.arm(&found, name, SAMPLES)?;
        }
        let untimed = found.arm("kvm:gate")?.pointer("/host_ops/open/total_ns");
        ensure!(untimed == Some(&0.into()), "times were not asked for: {untimed:?}");
        let kvm = found.arm("kvm")?;
        ensure!(kvm["host_ops"].as_object().is_some_and(serde_json::Map::is_empty), "nothing counts KVM as it is");
        let control = middle_of(control)?;
        // Calls for the control meet the probes twice, as KVM makes them and as the module does; creations for all guests do, as the
        // module looks at each.
        let (stock, kvms) = (control.arm("kvm:stock")?, control.arm("kvm")?["nmis"].as_u64().context("nmis")?);
        let calls: Vec<u64> = control
            .calls
            .iter()
            .zip(done(stock))
            .filter_map(|(all, done)| all.as_ref()?.checked_sub(2 * done))
            .collect();
        let after = kvms.saturating_sub(SAMPLES.into());
        eprintln!("# {}, kvm: {kvms} PMIs, creates, pauses, periods, enables {calls:?}", self.middle.release());
        ensure!(
            calls == [2, kvms + 1, 2 * kvms - after, kvms],
            "{calls:?} for {kvms} PMIs; {:?}: {stock}",
            control.calls
        );
        Ok(())
    }

    /// An arm's one guest takes its PMIs, after so many of which it aims its counter anew; none is lost, and what is done for them
    /// is its strategy's formula.
    fn arm(&self, found: &Middle, name: &str, aimed: u32) -> Result<()> {
        let arm = found.arm(name)?;
        let n = arm["nmis"].as_u64().context("nmis")?;
        // One that comes after the last sample is not aimed anew by the guest: a period fewer.
        let after = n.saturating_sub(aimed.into());
        let done = done(arm);
        eprintln!("# {}, {name}: {n} PMIs, opens, pauses, periods, resumes {done:?}", self.middle.release());
        // Of KVM's own deliveries nothing is known but that each overflow is one.
        let lost = if name.starts_with("kvm:") { Value::Null } else { 0.into() };
        ensure!(n >= aimed.into() && arm["overflows"] == n && arm["failed_opens"] == 0 && arm["lost"] == lost, "{arm}");
        let formula = match name {
            "kvm:recreate" | "recreate" => [n + 1, 0, n - after, 0],
            "kvm:virtual" => [1, 0, 2 * n - after, 0],
            // Its start sets the period.
            "kvm:direct" => [1, n + 1, n - after, n],
            // Nor does it pause in one exit what that resumes: one start at the entry does both.
            "kvm:gate" => [1, done[1].min(n + 1), n - after, n],
            _ => [1, n + 1, 2 * n - after, n],
        };
        ensure!(done == formula, "{name}: {done:?} for {n} PMIs, {formula:?} wanted: {arm}");
        Ok(())
    }

    /// KVM's vPMU passes the same cases through the module as it does without.
    fn conformance(&self, parts: &Parts) -> Result<()> {
        // By the words of a process, whose counts are left to be read.
        let run = format!(
            "{CONFORMANCE}; echo '{MARK}'; exec 3<>/dev/vpmu_kvm; (echo >&3; exec {CONFORMANCE}); echo '{MARK}'; cat <&3"
        );
        let report = self.job()?.command(Self::host(&run)).run(parts)?;
        report.say("power-on to power-off");
        let [plain, stock, counts] = printed(&report, 0)?.split(MARK).collect::<Vec<_>>()[..] else {
            anyhow::bail!("{}", printed(&report, 0)?)
        };
        let release = self.middle.release();
        let cases = |text: &str| -> Result<Vec<(String, String)>> {
            let document: Value = serde_json::from_str(text).with_context(|| text.to_owned())?;
            let cases = document["runs"][0]["cases"].as_array().context("cases")?;
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let cases = cases.iter().map(|case| (word(&case["case"]), word(&case["outcome"])));
            Ok(cases.filter(|(case, _)| !is_chance(&release, case)).collect())
        };
        let (plain, stock) = (cases(plain)?, cases(stock)?);
        let failed: Vec<_> = plain.iter().filter(|(_, outcome)| outcome == "fail").map(|(case, _)| case).collect();
        eprintln!("# {release}: {} cases, {failed:?} fail; through the module: {counts}", plain.len());
        ensure!(counts.contains("create=") && !counts.contains("create=0/"), "not through the module: {counts}");
        ensure!(plain.len() > 30 && plain == stock, "KVM {plain:?}, through the module {stock:?}");
        Ok(())
    }

    /// Ten thousand PMIs of one guest with each strategy: none is lost, and the counts are the formula's.
    fn ten_thousand(&self, parts: &Parts) -> Result<()> {
        const SAMPLES: u32 = 10_000;
        let arms = STRATEGIES.map(|name| format!("kvm:{name}"));
        let options = format!("--strategy {} --samples {SAMPLES} --period {SHORT_PERIOD}", arms.join(","));
        let run = format!("{UNTHROTTLED}; {}; echo '{MARK}status' $?; echo '{MARK}calls'", limited("600s", &options));
        let (limit, silence) = (Duration::from_secs(3 * 3600), Duration::from_secs(900));
        let report = self.job()?.limit(limit).silence(silence).command(Self::host(&run)).run(parts)?;
        report.say("power-on to power-off");
        let found = middle(&report, 0)?;
        arms.iter().try_for_each(|name| self.arm(&found, name, SAMPLES))
    }
}

/// Returns what the module, or this VMM, did for an arm, in the order of [`CALLS`].
fn done(arm: &Value) -> [u64; CALLS.len()] {
    ["open", "pause", "period", "resume"]
        .map(|kind| arm.pointer(&format!("/host_ops/{kind}/count")).and_then(Value::as_u64).unwrap_or(0))
}
