//! A recording of a stock KVM, and what perf itself counted in it: an import has the same accesses.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arch_pmu::PmuMsr;
use host_pmu::trace::Kind;
use serde_json::Value;
use trace::read::Trace;

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
    ensure!(code == Some(2) && vms.keys().all(|pid| said.contains(&format!("{pid} (1 vCPU"))), "{said}");
    for (pid, expected) in vms {
        let (code, _, said) = vpmu(&["trace", "import", "-q", recording, "--pid", pid, "-o", pid]);
        ensure!(code == Some(0), "{code:?}: {said}");
        let trace = Trace::open(&to.join(pid)).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut found = BTreeMap::new();
        for batch in trace.batches() {
            let rows = batch.map_err(|error| anyhow::anyhow!("{error}"))?;
            for row in rows.iter().filter(|row| matches!(row.kind, Kind::Read | Kind::Write)) {
                *found.entry((row.kind.key().to_owned(), row.register.into())).or_default() += 1;
            }
        }
        ensure!(found == expected, "process {pid}: {found:x?}, and perf counted {expected:x?}");
        // KVM is no strategy of ours, and nearly all that its guest read and met comes again.
        let (_, replay, _) = vpmu(&["sim", "--trace", pid, "--strategy", "reuse", "--json"]);
        let arm = &serde_json::from_slice::<Value>(&replay)?["arms"][0];
        let of = |key: &str| arm[key].as_u64().with_context(|| key.to_owned());
        let (accesses, pmis) = (of("accesses")?, of("trace_pmis")?);
        eprintln!(
            "# process {pid}: {accesses} accesses, {} differ; {pmis} PMIs, {} differ",
            of("divergences")?,
            of("pmi_divergences")?
        );
        ensure!(trace.meta.pmis == Some(pmis) && pmis >= 6, "{arm}");
        ensure!(of("divergences")? == of("counter_divergences")?, "{arm}");
        // KVM brings PMIs of which no counter that the guest reads tells, as pitfall 8; on a slow host PMIs overlap.
        let differ = of("pmi_divergences")?.saturating_sub(of("pmis_missing")?);
        ensure!(10 * of("divergences")? <= accesses && 3 * differ <= pmis, "{arm}");
    }
    Ok(())
}
