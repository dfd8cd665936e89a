//! Runs on stock upstream KVM: host B is QEMU's software emulation of a processor with SVM, Debian's own kernel and
//! its unmodified `kvm-amd`. It needs no virtualization and no KVM on the machine that runs the tests.
//!
//! The boots are listed as ignored, and a `SKIP` line says why, unless `VPMU_REQUIRE_HOST_B=1` asks for those that `.ci/run` does, or
//! `VPMU_HOST_B_LONG=1` for all. The former fails without QEMU, the kernel or busybox.

mod corpus;
mod cpus;
mod frames;
mod kernels;
mod linux;
mod machine;
mod measure;
mod nest;
mod parts;
mod triage;

use anyhow::{Context as _, Error, Result, ensure};
use trials::Case;

use crate::binary::VPMU;
use crate::counted::{ALL, Counted};
use crate::prerequisites::is_required;
use machine::Job;
use parts::Parts;
use vmm::boot::elf::Elf;
use vmm::boot::rdpmc;

type Boot = Box<dyn FnOnce(&Parts) -> Result<()> + Send>;
/// A trial: its name, whether it is for VPMU_HOST_B_LONG=1 (.ci/nightly), why it cannot run here.
type Trial = (String, bool, Option<String>, Boot);

/// Exact counts. A guest instruction is several exits there, a quarter of a millisecond each: two strategies only.
const STEP: &str = "--backend step --strategy recreate,deferred --pmu-version 4";

type Named = (&'static str, bool, fn(&Parts) -> Result<()>);
const BOOTS: [Named; 21] = [
    ("linux::samples", true, linux::samples),
    ("linux::recorded", true, linux::recorded),
    ("linux::bad_input", true, linux::bad_input),
    ("linux::triage", true, triage::in_a_guest),
    ("corpus::recorded", true, corpus::recorded),
    ("nest::ten_thousand", true, nest::ten_thousand),
    ("nest::modes_are_told_apart", true, nest::modes_are_told_apart),
    ("nest::throttling_is_said", true, nest::throttling_is_said),
    ("nest::series", true, nest::series),
    ("cpus::ninety_four", true, |parts| cpus::trial(parts, 94, 70)),
    ("image::a_whole_kernel_has_one_rdpmc", false, a_whole_kernel_has_one_rdpmc),
    ("measure::stock_kvm", false, measure::stock_kvm),
    // A boot per version: less is lost with one that hangs.
    ("conformance::cpu_clock_version_2", false, |parts| {
        measure::conformance(parts, "--backend cpu-clock --pmu-version 2")
    }),
    ("conformance::cpu_clock_version_4", false, |parts| {
        measure::conformance(parts, "--backend cpu-clock --pmu-version 4")
    }),
    ("measure::step", false, |parts| measure::conformance(parts, STEP)),
    ("images::instructions_are_counted", false, instructions_are_counted),
    ("linux::stock_perf", false, linux::stock_perf),
    ("linux::host_pmu", false, linux::host_pmu),
    ("nest::hardware_and_kvm", false, nest::hardware_and_kvm),
    ("nest::trace_import", false, nest::trace_import),
    ("cpus::sixteen", false, |parts| cpus::trial(parts, 16, 40)),
];

pub(crate) fn cases() -> Vec<Case> {
    let found =
        Parts::find().map_err(|why| format!("host B cannot be booted here: {why:#}; remedy: {}", parts::REMEDY));
    let [required, long] = ["VPMU_REQUIRE_HOST_B", "VPMU_HOST_B_LONG"].map(is_required);
    let not = |wanted: bool, variable: &str| (!wanted).then(|| format!("takes minutes; remedy: {variable}=1"));
    let unasked = not(required || long, "VPMU_REQUIRE_HOST_B");
    // Where host B is required, a boot without it fails.
    let lacks = unasked.or_else(|| found.as_ref().err().filter(|_| !required).cloned());
    let case = |(name, is_long, missing, boot): Trial| {
        let found = found.clone();
        let missing = lacks.clone().or_else(|| not(long || !is_long, "VPMU_HOST_B_LONG")).or(missing);
        Case::fallible(name, missing, move || boot(&found.map_err(Error::msg)?)).expected(false).beside(4)
    };
    let boots = BOOTS.iter().map(|&(name, is_long, boot)| (name.to_owned(), is_long, None, Box::new(boot) as Boot));
    boots.chain(kernels::trials()).chain(nest::trials(found.as_ref().ok())).map(case).collect()
}

/// Images of known length, by single steps: stock KVM refuses none of them.
fn instructions_are_counted(parts: &Parts) -> Result<()> {
    let mut job = Job::new(VPMU);
    for image in ALL {
        let path = format!("/images/{}", image.name);
        job = job.file(&path, 0o644, &image.build()?);
        job = job.command(["/vpmu", "run", &path].into_iter().chain(Counted::options()));
    }
    let done = job.run::<{ ALL.len() }>(parts)?;
    ALL.iter()
        .zip(&done)
        .try_for_each(|(image, done)| image.check(Some(done.status), done.text()?, &done.said(), false))
}

/// The loader's rewriting, on the largest piece of real code at hand.
fn a_whole_kernel_has_one_rdpmc(parts: &Parts) -> Result<()> {
    let before = std::fs::read(parts.bootable()?)?;
    let elf = Elf::parse(&before).context("the kernel could not be unpacked")?;
    let pairs = |code: &[u8]| code.windows(2).filter(|pair| *pair == [0x0f, 0x33]).count();
    let pairs: usize = elf.code.iter().map(|code| pairs(&before[code.file.clone()])).sum();
    let mut after = before.clone();
    let sites = rdpmc::rewrite(&mut after)?;
    eprintln!("# {pairs} byte pairs 0F 33, RDPMC at {sites:x?}");
    ensure!(pairs > 10, "{pairs} byte pairs: this kernel does not test anything");
    let [site] = &sites[..] else { anyhow::bail!("{} sites: {sites:x?}", sites.len()) };
    let changed: Vec<_> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
    ensure!(changed == [site.offset] && before[site.offset] == 0x33 && after[site.offset] == 0x32, "{changed:?}");
    Ok(())
}
