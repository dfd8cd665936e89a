//! Runs on stock upstream KVM: host B is QEMU's software emulation of a processor with SVM, Debian's own kernel and
//! its unmodified `kvm-amd`. It needs no virtualization and no KVM on the machine that runs the tests.
//!
//! Without QEMU, the kernel or busybox the boots are listed as ignored and a `SKIP` line says what to install; with
//! `VPMU_REQUIRE_HOST_B=1` that is a failure.

mod corpus;
mod cpus;
mod frames;
pub(crate) mod kernels;
mod linux;
mod machine;
mod measure;
mod monitor;
mod nest;
mod parts;
mod triage;

use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use trials::Case;

use crate::counted;
use crate::prerequisites::is_required;
use machine::Job;
use parts::Parts;
use vmm::boot::elf::Elf;
use vmm::boot::rdpmc;
type Boot = Box<dyn FnOnce(&Parts) -> Result<()> + Send>;
/// A boot by its name.
type Named = (&'static str, fn(&Parts) -> Result<()>);

const BOOTS: [Named; 14] = [
    ("image::a_whole_kernel_has_one_rdpmc", a_whole_kernel_has_one_rdpmc),
    ("boot::commands_come_back_exactly", commands_come_back_exactly),
    ("boot::a_machine_that_dies_is_reported", a_machine_that_dies_is_reported),
    ("boot::a_machine_that_hangs_is_reported", a_machine_that_hangs_is_reported),
    ("measure::stock_kvm", measure::stock_kvm),
    ("conformance::cpu_clock_version_2", |parts| measure::conformance(parts, measure::VERSION_2)),
    ("conformance::cpu_clock_version_4", |parts| measure::conformance(parts, measure::VERSION_4)),
    ("measure::step", |parts| measure::conformance(parts, measure::STEP)),
    ("images::instructions_are_counted", instructions_are_counted),
    ("linux::stock_perf", linux::stock_perf),
    ("linux::host_pmu", linux::host_pmu),
    ("nest::hardware_and_kvm", nest::hardware_and_kvm),
    ("nest::trace_import", nest::trace_import),
    ("cpus::sixteen", cpus::sixteen),
];

/// Boots that take minutes: with VPMU_HOST_B_LONG=1, as in .ci/nightly.
const LONG: [Named; 13] = [
    ("linux::sampling", linux::sampling),
    ("linux::amd", linux::amd),
    ("linux::recorded", linux::recorded),
    ("linux::bad_input", linux::bad_input),
    ("linux::triage", triage::in_a_guest),
    ("corpus::recorded", corpus::recorded),
    ("nest::two_runs_are_equal", nest::two_runs_are_equal),
    ("nest::ten_thousand", nest::ten_thousand),
    ("nest::modes_are_told_apart", nest::modes_are_told_apart),
    ("nest::throttling_is_said", nest::throttling_is_said),
    ("nest::hardware_is_calibrated", nest::hardware_is_calibrated),
    ("nest::series", nest::series),
    ("cpus::ninety_four", cpus::ninety_four),
];

pub(crate) fn cases() -> Vec<Case> {
    let found =
        Parts::find().map_err(|why| format!("host B cannot be booted here: {why:#}; remedy: {}", parts::REMEDY));
    // Where host B is required, a boot without it fails.
    let lacks = found.as_ref().err().filter(|_| !is_required("VPMU_REQUIRE_HOST_B")).cloned();
    let short = (!is_required("VPMU_HOST_B_LONG")).then(|| "takes minutes; remedy: VPMU_HOST_B_LONG=1".to_owned());
    let case = |name: &str, missing: Option<String>, boot: Boot| {
        let found = found.clone();
        Case::fallible(name, lacks.clone().or(missing), move || boot(&found.map_err(Error::msg)?)).expected(false)
    };
    let of = |boots: &[Named], missing: &Option<String>| {
        boots.iter().map(|&(name, boot)| case(name, missing.clone(), Box::new(boot))).collect::<Vec<_>>()
    };
    let mut cases = of(&LONG, &short);
    cases.extend(of(&BOOTS, &None));
    cases.extend(kernels::trials().into_iter().map(|(name, missing, boot)| case(&name, missing, boot)));
    for (name, minutes, absent, boot) in nest::kernel_module::trials(found.as_ref().ok()) {
        cases.push(case(&name, short.clone().filter(|_| minutes).or(absent), boot));
    }
    cases.extend(nest::releases::trials().into_iter().map(|(name, boot)| case(&name, short.clone(), boot)));
    cases
}

fn commands_come_back_exactly(parts: &Parts) -> Result<()> {
    // Longer than any buffer on the way, every byte value, no newline at the end.
    let long: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let talk = r"printf 'é €\n'; printf '\377\000\r\n' >&2; exit 42";
    let report = Job::new()
        .file("/data/long", 0o644, &long)
        .command(["sh", "-c", talk])
        .command(["cat", "/data/long"])
        .command(["printf", "%s|", "it's", "$HOME", "two words", "é", ""])
        .command(["sh", "-c", "kill -9 $$"])
        .command(["/no/such/program"])
        .command(["uname", "-sr"])
        .run(parts)?;
    let [talk, cat, printf, killed, absent, uname] = report.done()?;
    ensure!(talk.status == 42 && talk.text()? == "é €\n" && talk.stderr == b"\xff\x00\r\n", "{talk:?}");
    ensure!(
        cat.status == 0 && cat.stderr.is_empty() && cat.stdout == long,
        "{} of {} bytes came back, or others",
        cat.stdout.len(),
        long.len()
    );
    ensure!(printf.text()? == "it's|$HOME|two words|é||", "{printf:?}");
    ensure!(killed.status == 128 + 9, "{killed:?}");
    ensure!(absent.status == 127 && !absent.stderr.is_empty(), "{absent:?}");
    ensure!(uname.text()?.trim() == format!("Linux {}", parts.release()), "{uname:?}");
    Ok(())
}

/// Returns the error of a machine that does not end well.
fn error(parts: &Parts, job: &Job) -> Result<String> {
    let Err(error) = job.run(parts) else { anyhow::bail!("it passed for whole") };
    Ok(format!("{error:#}"))
}

fn a_machine_that_dies_is_reported(parts: &Parts) -> Result<()> {
    // The kernel panics when its first process ends.
    let killed = error(parts, &Job::new().command(["true"]).command(["sh", "-c", "echo c >/proc/sysrq-trigger"]))?;
    ensure!(killed.contains("ended early in command 1"), "{killed}");
    ensure!(killed.contains("Kernel panic"), "{killed}");
    Ok(())
}

/// Stopped at its limit, a machine says how far its command came; one without a sign of life is tried again.
fn a_machine_that_hangs_is_reported(parts: &Parts) -> Result<()> {
    let started = std::time::Instant::now();
    let command = ["sh", "-c", "echo half a result; echo half a reason >&2; exec sleep 1000000"];
    let stuck = error(parts, &Job::new().command(command).limit(Duration::from_secs(15)))?;
    for needle in ["was stopped after 15 s", "half a result", "half a reason", frames::BEAT] {
        ensure!(stuck.contains(needle), "no {needle:?} in:\n{stuck}");
    }
    eprintln!("# stopped after {:.1} s", started.elapsed().as_secs_f64());
    // Every process is stopped but the shell that waits.
    let command = ["sh", "-c", "kill -STOP -1; sleep 1000000"];
    let hung = error(parts, &Job::new().command(command).silence(Duration::from_secs(15)))?;
    ensure!(hung.contains("host B hung 3 times") && hung.matches("sent nothing for 15 s").count() == 3, "{hung}");
    ensure!(hung.matches("in command 0").count() == 3, "{hung}");
    Ok(())
}

/// Images of known length, by single steps: stock KVM refuses none of them.
fn instructions_are_counted(parts: &Parts) -> Result<()> {
    let vpmu = env!("CARGO_BIN_EXE_vpmu");
    let mut job = Job::new().binary("/vpmu", vpmu.as_ref()).limit(Duration::from_secs(600));
    for image in counted::ALL {
        let path = format!("/images/{}", image.name);
        job = job.file(&path, 0o644, &image.build()?);
        job = job.command(["/vpmu", "run", &path].into_iter().chain(counted::Counted::options()));
    }
    let report = job.run(parts)?;
    ensure!(report.commands.len() == counted::ALL.len(), "{} commands came back", report.commands.len());
    for (image, done) in counted::ALL.iter().zip(&report.commands) {
        image.check(Some(done.status), done.text()?, &done.said(), false)?;
    }
    Ok(())
}

/// The loader's rewriting, on the largest piece of real code at hand.
fn a_whole_kernel_has_one_rdpmc(parts: &Parts) -> Result<()> {
    let before = std::fs::read(parts::bootable(parts))?;
    let elf = Elf::parse(&before).context("the kernel could not be unpacked")?;
    let pairs: usize = elf
        .code
        .iter()
        .map(|code| before[code.file.clone()].windows(2).filter(|pair| *pair == [0x0f, 0x33]).count())
        .sum();
    let mut after = before.clone();
    let sites = rdpmc::rewrite(&mut after)?;
    eprintln!("# {pairs} byte pairs 0F 33, RDPMC at {sites:x?}");
    ensure!(pairs > 10, "{pairs} byte pairs: this kernel does not test anything");
    let [site] = sites[..] else {
        anyhow::bail!("{} sites: {sites:x?}", sites.len());
    };
    ensure!(before[site.offset] == 0x33 && after[site.offset] == 0x32);
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    ensure!(changed == 1, "{changed} bytes have changed");
    Ok(())
}
