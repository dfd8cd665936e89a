//! The kernel module of host-pmu/kernel between the KVM and the perf of a middle host: what it does for each strategy, by formulas.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::machine::Job;
use super::super::parts::{Parts, further_kernels};
use super::super::{Boot, Trial};
use super::releases::{CONFORMANCE, outcomes};
use super::{CALLS, HOST_PERIOD, MARK, Middle, PERIOD, job, latency, middle_host, probed};

/// PMIs of a guest.
const SAMPLES: u32 = 20;
/// Strategies of the module, and those of this VMM with the same names. Events of its `virtual` and `gate` go on after an overflow, and
/// are aimed anew if they overflow once more before their guest writes: that depends on time.
const BELOW: &str = "kvm:stock,kvm:recreate,kvm:virtual,kvm:direct,kvm:gate";
const OWN: &str = "recreate,reuse,pool";

type Part = fn(&Below, &Parts) -> Result<()>;

/// Counts on host B's own kernel, with the module built here; and, where a kernel of .ci/host-b-kernels has a module beside
/// its `boot`, on that, with ten thousand PMIs of each strategy.
pub(super) fn trials(parts: Option<&Parts>) -> Vec<Trial> {
    let name = "nest::kernel_module".to_owned();
    let unbuilt = parts
        .filter(|parts| !Path::new(&headers(parts)).exists())
        .map(|_| format!("no headers of host B's kernel for {name}; remedy: .ci/host-b-packages"));
    let own: Boot = Box::new(|parts| Below::built(parts)?.counts(parts, false));
    let mut trials = vec![(name.clone(), false, unbuilt, own)];
    // The perf of 5.10 cannot be traced.
    for (series, root) in further_kernels().into_iter().filter(|(series, _)| series != "5.10") {
        let file = root.join(FILE);
        let absent = (!file.is_file()).then(|| {
            let file = file.display();
            format!(
                "no {file} for {name}_{series}; remedy: copy there what `make` in host-pmu/kernel makes where that kernel's gcc and headers are"
            )
        });
        let parts: [(&str, Part); 3] = [
            ("", |below, parts| below.counts(parts, true)),
            ("_conformance", Below::conformance),
            ("_ten_thousand", Below::ten_thousand),
        ];
        for (what, run) in parts {
            let root = root.clone();
            let boot: Boot = Box::new(move |parts| {
                run(&Below { middle: Parts::of(&root)?, module: std::fs::read(root.join(FILE))? }, parts)
            });
            trials.push((format!("{name}_{series}{what}"), true, absent.clone(), boot));
        }
    }
    trials
}

/// Headers of the middle host's kernel, where its package puts them.
fn headers(parts: &Parts) -> String {
    format!("/lib/modules/{}/build", parts.release())
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
        let folder = tempfile::tempdir()?;
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host-pmu/kernel"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.path().join(entry.file_name()))?;
        }
        let headers = format!("KDIR={}", headers(parts));
        let made = Command::new("make").arg("-C").arg(folder.path()).arg(headers).env_remove("MAKEFLAGS").output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { middle: parts.clone(), module: std::fs::read(folder.path().join(FILE))? })
    }

    /// Host B with a middle host that loads the module before the script, as `make load` does.
    fn job(&self, script: &str) -> Result<Job> {
        let with = format!("--with /{FILE}:/{FILE}");
        let job = job(&self.middle)?.file(&format!("/{FILE}"), 0o644, &self.module);
        Ok(job.command(middle_host("milan", &with, &format!("insmod /{FILE}; {script}"))))
    }

    /// KVM's calls become those of each strategy, exactly, and KVM's own beside them stay as they are; the module is unloaded but while
    /// it is held, and a VMM that is killed leaves nothing.
    fn counts(&self, parts: &Parts, by_instructions: bool) -> Result<()> {
        let period = if by_instructions { PERIOD } else { HOST_PERIOD };
        let run = |arms: &str| latency("milan", &format!("--strategy {arms} --samples {SAMPLES} {period}"));
        let unload = format!(
            "alone=$(cat /sys/module/vpmu_kvm/refcnt); for arm in kvm:recreate kvm:gate; do \
             vpmu nmi-latency --backend hardware --cpu milan --strategy $arm --rounds 1000 --samples 6 {period} --no-save --quiet & \
             while kill -0 $! && [ $(cat /sys/module/vpmu_kvm/refcnt) -lt $((alone + 2)) ]; do sleep 0.1; done; \
             kill -9 $!; wait $!; echo $arm killed $?; done; \
             exec 3<>/dev/vpmu_kvm; rmmod vpmu_kvm; echo held $?; exec 3>&-; printf 'gate\\0' >/dev/vpmu_kvm || echo refused; \
             rmmod vpmu_kvm; echo unloaded $?; test -d /sys/module/kvm_amd; echo kvm $?; \
             vpmu nmi-latency --cpu milan --strategy kvm:stock --no-save; echo absent $?; \
             dmesg | grep -E 'Oops|WARNING: .*CPU(#|:)|BUG: (unable|s[cl])'; echo complained $?"
        );
        let (strategies, probed, control) = (run(&format!("{BELOW},{OWN}")), probed(), run("kvm:stock"));
        // Three guests, one after the other, of a process that wrote.
        let guests = format!(
            "echo 1 >/sys/module/vpmu_kvm/parameters/timed; exec 3<>/dev/vpmu_kvm; (echo gate >&3; exec vpmu nmi-latency \
             --backend hardware --cpu milan --strategy reuse --rounds 3 --warmup 0 --samples 6 {period} --no-save --quiet \
             >/dev/null); cat <&3; exec 3>&-;"
        );
        let end = format!("echo '{MARK}end';");
        let script = format!("{strategies} {end} {probed} {control} {end} {guests} {end} {unload}");
        let [done] = Job { by_instructions, ..self.job(&script)? }.run(parts)?;
        let [strategies, control, guests, ends] =
            done.succeeded()?.split(&format!("{MARK}end\n")).collect::<Vec<_>>()[..]
        else {
            anyhow::bail!("{done:?}")
        };
        // A thread that ended leaves its line to the next.
        let created = guests.split_once(" open=3/3/").and_then(|(_, rest)| rest.split(' ').next());
        let ns = created.and_then(|ns| ns.parse::<u64>().ok());
        ensure!(guests.matches("tid=").count() == 1 && ns.is_some_and(|ns| ns > 0), "{guests}");
        let wanted =
            "kvm:recreate killed 137; kvm:gate killed 137; held 1; refused; unloaded 0; kvm 0; absent 4; complained 1";
        ensure!(wanted.split("; ").all(|line| ends.lines().any(|found| found == line)), "{ends}");
        let found = Middle::of(strategies)?;
        BELOW.split(',').chain(OWN.split(',')).try_for_each(|name| self.arm(&found, name, SAMPLES))?;
        let untimed = found.arm("kvm:gate")?.pointer("/host_ops/open/total_ns");
        ensure!(untimed == Some(&0.into()), "times were not asked for: {untimed:?}");
        let kvm = found.arm("kvm")?;
        ensure!(kvm["host_ops"].as_object().is_some_and(serde_json::Map::is_empty), "nothing counts KVM as it is");
        let control = Middle::of(control)?;
        // Calls for the control meet the probes twice, as KVM makes them and as the module does; creations for all guests do, as the
        // module looks at each.
        let (stock, kvms) = (control.arm("kvm:stock")?, control.arm("kvm")?["nmis"].as_u64().context("nmis")?);
        let calls = control.calls.iter().zip(done_for(stock));
        let calls: Vec<u64> = calls.filter_map(|(all, done)| all.as_ref()?.checked_sub(2 * done)).collect();
        let after = kvms.saturating_sub(SAMPLES.into());
        eprintln!("# {}, kvm: {kvms} PMIs, creates, pauses, periods, enables {calls:?}", self.middle.release());
        let formula = [2, kvms + 1, 2 * kvms - after, kvms];
        ensure!(calls == formula, "{calls:?} for {kvms} PMIs; {:?}: {stock}", control.calls);
        Ok(())
    }

    /// An arm's one guest takes its PMIs, after so many of which it aims its counter anew; none is lost, and what is done for them
    /// is its strategy's formula.
    fn arm(&self, found: &Middle, name: &str, aimed: u32) -> Result<()> {
        let arm = found.arm(name)?;
        let n = arm["nmis"].as_u64().context("nmis")?;
        // One that comes after the last sample is not aimed anew by the guest: a period fewer.
        let after = n.saturating_sub(aimed.into());
        let done = done_for(arm);
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
        let [done] = self.job(&run)?.run(parts)?;
        let [plain, stock, counts] = done.succeeded()?.split(MARK).collect::<Vec<_>>()[..] else {
            anyhow::bail!("{done:?}")
        };
        let release = self.middle.release();
        let (plain, stock) = (outcomes(&release, plain)?, outcomes(&release, stock)?);
        eprintln!("# {release}: {} cases; through the module: {counts}", plain.len());
        ensure!(counts.contains(" open=") && !counts.contains(" open=0/"), "not through the module: {counts}");
        ensure!(plain.len() > 30 && plain == stock, "KVM {plain:?}, through the module {stock:?}");
        Ok(())
    }

    /// Ten thousand PMIs of one guest with each strategy: none is lost, and the counts are the formula's.
    fn ten_thousand(&self, parts: &Parts) -> Result<()> {
        const SAMPLES: u32 = 10_000;
        // Each takes as long to handle.
        let options = format!("--strategy {BELOW} --samples {SAMPLES} --period 300000 --time-limit 600s");
        let job = Job { limit: 3 * 3600, silence: 900, ..self.job(&latency("milan", &options))? };
        let [done] = job.run(parts)?;
        let found = Middle::after(&done)?;
        BELOW.split(',').try_for_each(|name| self.arm(&found, name, SAMPLES))
    }
}

/// Returns what the module, or this VMM, did for an arm, in the order of [`CALLS`].
fn done_for(arm: &Value) -> [u64; CALLS.len()] {
    ["open", "pause", "period", "resume"].map(|kind| arm["host_ops"][kind]["count"].as_u64().unwrap_or(0))
}
