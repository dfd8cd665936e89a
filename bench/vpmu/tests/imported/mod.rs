//! A recording of a stock KVM, and what perf itself counted in it: an import has the same accesses.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use arch_pmu::PmuMsr;
use host_pmu::strategy::Strategy;
use host_pmu::trace::Kind;
use sim::model::Model;
use sim::replay::{Replay, Replayed};
use trace::read::Trace;
use vpmu::arms::arm::replay::Parts;

use crate::binary::text;

/// Imports `stock-kvm.data` of `from`, VM by VM, and compares accesses by register with `stock-kvm.counts`, which
/// `perf script | sort | uniq -c` printed.
pub(crate) fn check(from: &Path, to: &Path) -> Result<()> {
    let counts = std::fs::read_to_string(from.join("stock-kvm.counts"))?;
    let mut vms: BTreeMap<&str, BTreeMap<(String, u64), u64>> = BTreeMap::new();
    for line in counts.lines() {
        let [count, pid, kind, register] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            anyhow::bail!("{line}")
        };
        let register = u32::from_str_radix(register, 16)?;
        if PmuMsr::decode(register).is_some() {
            vms.entry(pid).or_default().insert((kind.to_owned(), register.into()), count.parse()?);
        }
    }
    ensure!(vms.len() == 2, "{counts}");
    let vpmu = |words: &[&str]| {
        let done = crate::binary::run(to, words);
        (done.status.code(), done.stdout, text(&done.stderr))
    };
    let recording = from.canonicalize()?.join("stock-kvm.data");
    let recording = recording.to_str().context("a name")?;
    let (code, _, said) = vpmu(&["trace", "import", recording, "-o", "both"]);
    ensure!(code == Some(2) && vms.keys().all(|pid| said.contains(pid)), "{said}");
    let model = Rc::new(Model::embedded("development-host")?);
    let reuse = Strategy::preset("reuse").context("a preset")?;
    for (pid, expected) in vms {
        let (code, _, said) = vpmu(&["trace", "import", "-q", recording, "--pid", pid, "-o", pid]);
        ensure!(code == Some(0), "{code:?}: {said}");
        let trace = Trace::open(&to.join(pid))?;
        let parts = Parts::of(&trace, 1)?;
        let mut replay = Replay::new(&model, parts.pmu, &reuse, 1, 0);
        let mut found = BTreeMap::new();
        for batch in trace.batches() {
            let rows = batch?;
            replay.feed(&rows);
            for row in rows.iter().filter(|row| matches!(row.kind, Kind::Read | Kind::Write)) {
                *found.entry((row.kind.key().to_owned(), row.register.into())).or_default() += 1;
            }
        }
        ensure!(found == expected, "process {pid}: {found:x?}, and perf counted {expected:x?}");
        // KVM is no strategy of ours, and nearly all that its guest read and met comes again.
        let Replayed { accesses, pmis, divergences, counter_divergences, pmis_differ, pmis_missing, .. } =
            replay.finish();
        eprintln!("# process {pid}: {accesses} accesses, {divergences} differ; {pmis} PMIs, {pmis_differ} differ");
        ensure!(trace.meta.pmis == Some(pmis) && pmis >= 6, "{pmis} PMIs of {:?}", trace.meta.pmis);
        ensure!(divergences == counter_divergences, "{divergences} differ, {counter_divergences} of counters");
        // KVM brings PMIs of which no counter that the guest reads tells, as pitfall 8; on a slow host PMIs overlap.
        let differ = pmis_differ.saturating_sub(pmis_missing);
        ensure!(10 * divergences <= accesses && 3 * differ <= pmis, "{divergences} of {accesses}, {differ} of {pmis}");
    }
    Ok(())
}
