//! Makes traces of traces: parts, sums, anonymous copies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::msr::table;
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use host_pmu::trace::{Kind, Row, counter};
use results::error::Error;

use crate::meta::Meta;
use crate::read::Trace;
use crate::write::Writer;

/// Copies a trace without what tells whose it is: addresses of code, the guest's name, the host.
///
/// # Errors
/// As of [`Trace::batches`] and [`Writer::add`].
pub fn anonymize(trace: &Trace, to: &Path) -> Result<Meta, Error> {
    let bare = |meta: &Meta| Meta { guest: String::new(), host: String::new(), ..meta.clone() };
    let meta = Meta { parts: trace.meta.parts.iter().map(bare).collect(), ..bare(&trace.meta) };
    let mut writer = Writer::begin(to, meta)?;
    for batch in trace.batches() {
        for row in batch? {
            writer.add(Row { rip: 0, ..row })?;
        }
    }
    writer.finish()
}

/// Puts traces side by side: the vCPUs of each follow those of the one before. The JSON keeps what each was of.
///
/// # Errors
/// Exit 2 for traces of different PMUs; else as of [`Trace::batches`] and [`Writer::add`].
pub fn merge(traces: &[Trace], to: &Path) -> Result<Meta, Error> {
    let Some(first) = traces.first() else { return Err(Error::usage("no trace to merge", "", "give two or more")) };
    let mut meta = Meta { vcpus: 0, lost: 0, pmis: Some(0), ops: vec![0; first.meta.ops.len()], ..first.meta.clone() };
    meta.parts.clear();
    for Trace { meta: other, .. } in traces {
        let alone = || vec![Meta { columns: BTreeMap::new(), duckdb: String::new(), ..other.clone() }];
        meta.parts.extend(if other.parts.is_empty() { alone() } else { other.parts.clone() });
        for (all, own) in
            [(&mut meta.host, &other.host), (&mut meta.guest, &other.guest), (&mut meta.backend, &other.backend)]
        {
            if all != own {
                "several".clone_into(all);
            }
        }
        if (&other.cpu, other.pmu_version) != (&meta.cpu, meta.pmu_version) {
            let why = format!("one is of {} and one of {}, or their versions differ", meta.cpu, other.cpu);
            return Err(Error::usage("cannot merge traces of different PMUs", why, "merge those of one PMU"));
        }
        (meta.vcpus, meta.lost) = (meta.vcpus + other.vcpus, meta.lost + other.lost);
        meta.pmis = meta.pmis.zip(other.pmis).map(|(sum, pmis)| sum + pmis);
        if other.definition != meta.definition || other.ops.len() != meta.ops.len() {
            // Of several strategies no replay has the operations.
            (meta.strategy, meta.definition) = ("several".to_owned(), String::new());
            meta.ops.clear();
        }
        meta.ops.iter_mut().zip(&other.ops).for_each(|(sum, ops)| *sum += ops);
    }
    let mut writer = Writer::begin(to, meta)?;
    let mut before = 0;
    for trace in traces {
        for batch in trace.batches() {
            for row in batch? {
                writer.add(Row { vcpu: before + row.vcpu, ..row })?;
            }
        }
        before += trace.meta.vcpus as u16;
    }
    writer.finish()
}

/// Copies what happened in `range`, ns. Each vCPU begins with its registers as they were, in an entry of their own; a vCPU whose overflow is not acknowledged at that time begins later, where none is.
///
/// # Errors
/// As of [`Trace::batches`] and [`Writer::add`]; no vCPU entered its guest in `range`: then no folder is left.
pub fn cut(trace: &Trace, pmu: PmuCaps, range: &Range<u64>, to: &Path) -> Result<Meta, Error> {
    if range.is_empty() {
        return Err(Error::usage("the part has no time in it", "its begin is not before its end", "give a later --to"));
    }
    let mut writer = Writer::begin(to, Meta { ops: Vec::new(), pmis: None, ..trace.meta.clone() })?;
    let mut latest = 0;
    let mut vcpus: Vec<Cut> = (0..trace.meta.vcpus).map(|_| Cut::new(pmu)).collect();
    for batch in trace.batches() {
        for row in batch? {
            if let Some(vcpu) = vcpus.get_mut(usize::from(row.vcpu)) {
                latest = latest.max(row.at);
                vcpu.row(row, range, &mut writer)?;
            }
        }
    }
    if !vcpus.iter().any(|vcpu| vcpu.began) {
        drop(writer);
        let _ = std::fs::remove_dir_all(to);
        let why = format!("the guest was not entered in it; the trace is {:.3} ms long", latest as f64 / 1e6);
        return Err(Error::usage("nothing happened in the part", why, "give a longer one: --from, --to"));
    }
    writer.finish()
}

/// A vCPU before and in the part.
struct Cut {
    pmu: Vpmu<Told>,
    /// The last row but those of counts, which belong before its effect.
    head: Row,
    began: bool,
}

impl Cut {
    fn new(pmu: PmuCaps) -> Self {
        Self { pmu: Vpmu::new(pmu.bounded(), Told::default()), head: Row::default(), began: false }
    }

    fn row(&mut self, row: Row, range: &Range<u64>, writer: &mut Writer) -> Result<(), Error> {
        if self.began {
            return if row.at < range.end { writer.add(row) } else { Ok(()) };
        }
        if row.kind.is_count() {
            if let Some(told) = self.pmu.host().counts.get_mut(row.register as usize) {
                *told = told.saturating_add(row.value);
            }
            return Ok(());
        }
        let head = std::mem::replace(&mut self.head, row);
        match head.kind {
            // One that was #GP has another kind.
            Kind::Write | Kind::State => self.pmu.wrmsr(head.register, head.value).unwrap_or_default(),
            Kind::Read => _ = self.pmu.rdmsr(head.register),
            _ => _ = self.pmu.kick(),
        }
        let is_over = row.kind == Kind::Entry && row.at >= range.start && row.at < range.end;
        if is_over && !self.pmu.pmi_unacknowledged() {
            self.began = true;
            self.registers(row, writer)?;
        }
        Ok(())
    }

    /// Adds the registers: counters first, so that none counts before it is set.
    fn registers(&mut self, at: Row, writer: &mut Writer) -> Result<(), Error> {
        let indices = table(self.pmu.caps().vendor()).iter().flat_map(arch_pmu::msr::Row::indices);
        let mut found: Vec<(u32, u64)> =
            indices.filter_map(|index| self.pmu.rdmsr(index).ok().map(|value| (index, value))).collect();
        found.sort_by_key(|(index, _)| counter(Kind::Write, *index).is_none());
        // The registers that take no value are those that a guest does not set.
        found.retain(|(index, value)| self.pmu.wrmsr(*index, *value).is_ok());
        let rows = found.into_iter().map(|(register, value)| Row { kind: Kind::State, register, value, rip: 0, ..at });
        rows.chain([Row { value: 0, ..at }]).try_for_each(|row| writer.add(row))
    }
}

/// A host side that hands over what a trace tells.
#[derive(Debug, Default)]
pub struct Told {
    counts: [u64; MAX_COUNTERS],
    /// Counters that count.
    pub running: CounterSet,
}

impl HostCounters for Told {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, _counter: CounterId, _near: bool) -> AfterOverflow {
        AfterOverflow::Leave
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        std::mem::take(&mut self.counts[counter.index()])
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        self.running.remove(counter);
        self.take(counter)
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, _period: u64) {
        self.running.insert(counter);
    }

    fn stop(&mut self, _counter: CounterId, _own_enable: bool) {}

    fn set_period(&mut self, _counter: CounterId, _period: u64) {}

    fn touch(&mut self, _counter: CounterId) {}

    fn due(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }

    fn on_entry(&mut self, _enabled: CounterSet) {}
}
