//! Makes a trace of what a stock KVM's own tracepoints told perf.
//!
//! KVM says each access that it answers, but neither counts between them nor which counter overflowed. A counter that the guest reads
//! counted what is between that and its last known value; the overflows behind a PMI are those that the guest finds in its handler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arch_pmu::PmuMsr;
use arch_pmu::amd::{PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CTL0, PERF_LEGACY_CTL0};
use arch_pmu::intel::{
    IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_SET, IA32_PERFEVTSEL0, IA32_PMC0,
};
use arch_pmu::msr::{counter_of, is_global_ctrl};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Vendor};
use host_pmu::trace::{Kind, LVTPC, Row, UNKNOWN};
use perf_data::reader::Recording;
use perf_data::record::{Record, Sample};
use perf_data::tracepoint::Tracepoint;
use results::error::Error;

use crate::meta::Meta;
use crate::write::Writer;

/// The command that records what an import needs.
const RECORD: &str = "perf record -a -m 4096 -e kvm:kvm_msr,kvm:kvm_exit,kvm:kvm_entry,kvm:kvm_apic_accept_irq,sched:sched_switch sleep 10";
/// RDPMC as an exit's reason, by instruction set: VMX (1), SVM (2).
const RDPMC: [(u64, u64); 2] = [(1, 15), (2, 0x6f)];
/// Delivery mode NMI of a LAPIC's interrupt, and an LVT entry's.
const NMI: u64 = 0x400;
/// The counters' width on every PMU that KVM shows.
const WIDTH: u32 = 48;
/// Rows of a vCPU that wait for the guest to say which counter was behind a PMI.
const MOST_WAITING: usize = 1024;
/// Samples that are read, whatever a compressed recording claims: so many, and one for each byte of it.
const FREE: usize = 1 << 20;
/// ENABLE of an event select.
const ENABLE: u64 = 1 << 22;

/// An event tells this of a thread by its tracepoint.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An access to a register of the PMU: its kind, register and value.
    Access(Kind, u32, u64),
    /// An exit: RIP, and whether it is RDPMC's.
    Exit(u64, bool),
    /// An entry, of the vCPU of this number.
    Entry(u64),
    /// An NMI for the LAPIC of this number.
    Nmi(u64),
    /// A switch to another thread, and whether it sleeps.
    Out(bool),
    In,
}

/// An event of a thread, and its time.
struct ThreadEvent {
    at: u64,
    pid: u32,
    tid: u32,
    event: Event,
}

/// The tracepoints that a recording must have, with these fields.
const FIELDS: [(&str, &[&str]); 5] = [
    ("kvm:kvm_msr", &["write", "ecx", "data", "exception"]),
    ("kvm:kvm_exit", &["exit_reason", "guest_rip", "isa"]),
    ("kvm:kvm_entry", &["vcpu_id"]),
    ("kvm:kvm_apic_accept_irq", &["apicid", "dm"]),
    ("sched:sched_switch", &["prev_state", "next_pid"]),
];

/// Reads a sample: what it says of its thread, and of the one that follows it. `None`: it says nothing.
fn events_of(point: &Tracepoint, sample: &Sample, to: &mut Vec<ThreadEvent>) -> Option<()> {
    let (name, fields) = FIELDS.iter().find(|(name, _)| *name == point.name)?;
    let values: Option<Vec<u64>> = fields.iter().map(|field| point.read(field, &sample.raw)).collect();
    let mut add = |tid, event| to.push(ThreadEvent { at: sample.time, pid: sample.pid, tid, event });
    let event = match (*name, &values?[..]) {
        ("kvm:kvm_msr", &[_, register, ..]) if PmuMsr::decode(register as u32).is_none() => return None,
        ("kvm:kvm_msr", &[0, register, value, 0]) => Event::Access(Kind::Read, register as u32, value),
        ("kvm:kvm_msr", &[0, register, ..]) => Event::Access(Kind::ReadFault, register as u32, 0),
        ("kvm:kvm_msr", &[_, register, value, 0]) => Event::Access(Kind::Write, register as u32, value),
        ("kvm:kvm_msr", &[_, register, value, _]) => Event::Access(Kind::WriteFault, register as u32, value),
        ("kvm:kvm_exit", &[reason, rip, set]) => Event::Exit(rip, RDPMC.contains(&(set, reason))),
        ("kvm:kvm_entry", &[vcpu]) => Event::Entry(vcpu),
        ("kvm:kvm_apic_accept_irq", &[apic, NMI]) => Event::Nmi(apic),
        ("sched:sched_switch", &[state, next]) => {
            add(next as u32, Event::In);
            // A thread that was preempted would go on; from 0x100 on the states are marks.
            Event::Out(state & 0xff != 0)
        }
        _ => return None,
    };
    add(sample.tid, event);
    Some(())
}

/// A thread that enters a guest, as the whole recording tells of it before any row is written.
#[derive(Clone, Debug, Default)]
struct Thread {
    tid: u32,
    pid: u32,
    vcpu: Option<u64>,
    registers: BTreeSet<u32>,
    rdpmc: bool,
    begin: u64,
}

impl Thread {
    fn see(&mut self, event: &Event) {
        match *event {
            Event::Access(_, register, _) => _ = self.registers.insert(register),
            Event::Exit(_, rdpmc) => self.rdpmc |= rdpmc,
            Event::Entry(vcpu) => self.vcpu = self.vcpu.or(Some(vcpu)),
            _ => {}
        }
    }
}

/// Returns the counter of an event select.
fn select_of(register: u32) -> Option<usize> {
    let at = |first: u32, count: u32, step: u32| {
        let n = register.checked_sub(first).filter(|n| *n < count * step && n.is_multiple_of(step))?;
        Some((n / step) as usize)
    };
    at(IA32_PERFEVTSEL0, 8, 1).or(at(PERF_LEGACY_CTL0, 4, 1)).or(at(PERF_CTL0, 6, 2))
}

const fn is_status(register: u32) -> bool {
    matches!(register, IA32_PERF_GLOBAL_STATUS | PERF_CNTR_GLOBAL_STATUS)
}

/// Returns whether a counter with this value is on its way to an overflow.
const fn is_negative(value: u64) -> bool {
    value >> (WIDTH - 1) != 0
}

/// A vCPU on its way into the trace.
#[derive(Debug, Default)]
struct Vcpu {
    number: u16,
    id: Option<u64>,
    /// Without a status register the handler looks at counters.
    has_status: bool,
    begin: u64,
    /// Rows that wait: what the guest finds later may belong between them.
    rows: Vec<Row>,
    /// Places of PMIs whose counters are not told yet, and of the last one; and whether that one has one.
    pmis: Vec<usize>,
    is_told: bool,
    /// Places of the rows that stopped the counters that are off, their own enables and those of all.
    stops: [Option<usize>; MAX_COUNTERS],
    own: [bool; MAX_COUNTERS],
    global: u64,
    /// The last known value of each counter, and the place behind the row that told it.
    values: [Option<(u64, usize)>; MAX_COUNTERS],
    seen: BTreeSet<u32>,
    /// Time and RIP of the exit that goes on.
    exit: Option<(u64, u64)>,
    is_open: bool,
    passed: u64,
    sleeps: bool,
    switched: [bool; 2],
    brought: u64,
}

impl Vcpu {
    fn new(number: usize, thread: &Thread) -> Self {
        let has_status = thread.registers.iter().any(|register| is_status(*register));
        let own = [true; MAX_COUNTERS];
        Self { number: number as u16, id: thread.vcpu, has_status, own, global: u64::MAX, ..Self::default() }
    }

    /// Adds a row of the time of the exit: what KVM did before it told is not the guest's time.
    fn push(&mut self, now: u64, kind: Kind, register: u32, value: u64) {
        let (at, rip) = self.exit.filter(|_| kind != Kind::Entry).unwrap_or((now, 0));
        let rip = if kind.is_access() { rip } else { 0 };
        self.rows.push(Row { at: at.saturating_sub(self.begin), vcpu: self.number, kind, register, value, rip });
        self.is_open = true;
    }

    fn take(&mut self, now: u64, event: Event) {
        match event {
            Event::Access(kind, register, value) => self.access(now, kind, register, value),
            Event::Exit(rip, rdpmc) => {
                self.exit = Some((now, rip));
                if rdpmc {
                    self.push(now, Kind::Rdpmc, UNKNOWN, 0);
                }
            }
            Event::Nmi(apic) if self.id.is_none_or(|id| id == apic) => self.pmi(now),
            Event::Nmi(_) => {}
            Event::Entry(_) => {
                for (happened, kind) in std::mem::take(&mut self.switched).into_iter().zip([Kind::Slice, Kind::Sleep]) {
                    if happened {
                        self.push(now, kind, 0, 0);
                    }
                }
                if std::mem::take(&mut self.is_open) {
                    let passed = std::mem::take(&mut self.passed);
                    self.push(now, Kind::Entry, 0, passed);
                    self.is_open = false;
                } else {
                    self.passed += 1;
                }
                self.exit = None;
            }
            Event::Out(sleeps) => self.sleeps = sleeps,
            Event::In => self.switched = [true, self.switched[1] || self.sleeps],
        }
    }

    fn pmi(&mut self, now: u64) {
        if std::mem::take(&mut self.is_told) {
            self.pmis.clear();
        }
        self.pmis.push(self.rows.len());
        self.push(now, Kind::Pmi, LVTPC, NMI);
        self.brought += 1;
    }

    fn access(&mut self, now: u64, kind: Kind, register: u32, value: u64) {
        let is_first = self.seen.insert(register);
        let counter = if matches!(kind, Kind::Read | Kind::Write) { counter_of(register) } else { None };
        let before = counter.and_then(|counter| self.values[counter.index()]).map(|(value, _)| value);
        let jumps = before.is_some_and(|before| value < before && !is_negative(before));
        if kind == Kind::Read && (is_first && !is_status(register) || counter.is_some() && before.is_none() || jumps) {
            self.push(now, Kind::State, register, value);
        }
        self.push(now, kind, register, value);
        if let Some(counter) = counter {
            let before = before.filter(|_| !jumps);
            let wrote = kind == Kind::Write;
            let wrapped = before.is_some_and(|before| is_negative(before) && value < before);
            // Without a status register the handler writes the counters that overflowed; one that it has read since had not.
            let known = self.values[counter.index()].map_or(usize::MAX, |(_, known)| known);
            let is_open = || !self.has_status && self.pmis.iter().any(|pmi| *pmi >= known);
            if wrapped && !wrote || wrote && before.is_some_and(is_negative) && is_open() {
                self.overflow(now, counter);
            }
            let since = value.saturating_sub(self.values[counter.index()].map_or(value, |(before, _)| before));
            if !wrote && since > 0 {
                self.count(now, Kind::Count, counter, since);
            }
            // A legacy write has 32 bits and a sign.
            let is_legacy = wrote && matches!(register.wrapping_sub(IA32_PMC0), 0..8);
            let value = if is_legacy { i64::from((value as u32).cast_signed()).cast_unsigned() } else { value };
            self.values[counter.index()] = Some((value & ((1 << WIDTH) - 1), self.rows.len()));
        } else if kind == Kind::Read && is_status(register) {
            for counter in (0..64).filter(|bit| value >> bit & 1 != 0) {
                let counter = if counter < 32 { CounterId::gp(counter) } else { CounterId::fixed(counter - 32) };
                if let Some(counter) =
                    counter.filter(|of| self.values[of.index()].is_some_and(|(value, _)| is_negative(value)))
                {
                    self.overflow(now, counter);
                }
            }
        }
        if kind == Kind::Write {
            self.switch(register, value);
        }
    }

    /// Notes which counters a write stops and starts.
    fn switch(&mut self, register: u32, value: u64) {
        let (place, select) = (self.rows.len() - 1, select_of(register));
        let mut starts = value != 0;
        if let Some(n) = select {
            starts = value & ENABLE != 0;
            self.own[n] = starts;
        } else if is_global_ctrl(register) {
            self.global = value;
        }
        for counter in CounterSet::ALL {
            let (n, fixed) = (counter.index(), counter.as_fixed());
            if let Some(fixed) = fixed.filter(|_| register == IA32_FIXED_CTR_CTRL) {
                self.own[n] = value >> (4 * fixed) & 3 != 0;
            }
            let runs = self.own[n] && self.global >> fixed.map_or(n, |fixed| 32 + fixed) & 1 != 0;
            self.stops[n] = if runs { None } else { self.stops[n].or(Some(place)) };
        }
        if starts && self.is_told && (select.is_some() || is_global_ctrl(register)) {
            self.pmis.clear();
        }
    }

    /// Puts a row ahead of the one at `place`.
    fn insert(&mut self, place: usize, row: Row) {
        self.rows.insert(place, row);
        let places = self.pmis.iter_mut().chain(self.stops.iter_mut().flatten());
        let known = self.values.iter_mut().flatten().map(|(_, at)| at);
        places.chain(known).for_each(|at| *at += usize::from(*at >= place));
    }

    /// Adds counts: of a counter that is off to what stopped it.
    fn count(&mut self, now: u64, kind: Kind, counter: CounterId, count: u64) {
        let number = counter.index() as u32;
        match self.stops[counter.index()] {
            Some(place) => {
                self.insert(place + 1, Row { kind, register: number, value: count, rip: 0, ..self.rows[place] });
            }
            None => self.push(now, kind, number, count),
        }
    }

    /// Has the counter overflow: ahead of the PMI whose handler found it, or here. Of several PMIs each has one, as far as they go.
    fn overflow(&mut self, now: u64, counter: CounterId) {
        let Some((before, known)) = self.values[counter.index()] else { return };
        self.values[counter.index()] = Some((0, known));
        let (number, count) = (counter.index(), (1 << WIDTH) - before);
        // What the guest has set or read since the PMI is not what overflowed then.
        let found = self.pmis.iter().position(|place| *place >= known);
        let Some(nth) = found else { return self.count(now, Kind::Overflow, counter, count) };
        let pmi = self.pmis[nth];
        let at = self.rows[pmi];
        let told = self.rows[..pmi].iter().rev().take_while(|row| row.kind == Kind::Overflow).count();
        let signal = (pmi - told).checked_sub(1).filter(|place| self.rows[*place].kind == Kind::Signal).unwrap_or(pmi);
        if signal == pmi {
            self.insert(pmi, Row { kind: Kind::Signal, register: 0, value: 0, ..at });
        }
        self.rows[signal].value |= 1 << number;
        self.insert(signal + 1, Row { kind: Kind::Overflow, register: number as u32, value: count, ..at });
        if nth + 1 < self.pmis.len() {
            self.pmis.remove(nth);
        } else {
            self.is_told = true;
        }
    }

    /// Hands over the rows that no longer wait.
    fn flush(&mut self, writer: &mut Writer, all: bool) -> Result<(), Error> {
        let ready = match self.rows.len() {
            rows if all => rows,
            MOST_WAITING.. => MOST_WAITING / 2,
            _ => 0,
        };
        self.pmis.retain_mut(|at| at.checked_sub(ready).map(|left| *at = left).is_some());
        self.stops.iter_mut().for_each(|at| *at = at.and_then(|at| at.checked_sub(ready)));
        self.values.iter_mut().flatten().for_each(|(_, at)| *at = at.saturating_sub(ready));
        self.rows.drain(..ready).try_for_each(|row| writer.add(row))
    }
}

/// Imports a recording by its name and its bytes. `pid` chooses the VM.
///
/// # Errors
/// Exit 2: it is none, is not whole, has no such accesses or several VMs, or its PMU is not KVM's to tell of; else as of [`Writer::add`].
pub fn import((name, bytes): (&Path, &[u8]), pid: Option<u32>, to: &Path) -> Result<Meta, Error> {
    let what = format!("cannot import {}", name.display());
    let refuse = |why: String| Error::usage(&what, why, format!("record it by: {RECORD}"));
    let mut recording = Recording::open(bytes).map_err(|error| refuse(error.to_string()))?;
    let (mut events, mut lost, most) = (Vec::new(), 0_u64, FREE + bytes.len());
    let read = recording.records(|points, record| match record {
        Record::Sample(sample) => {
            let id = sample.raw.first_chunk().map(|id| u16::from_le_bytes(*id));
            let point = id.and_then(|id| points.get(&id)).filter(|_| events.len() <= most);
            point.and_then(|point| events_of(point, &sample, &mut events));
        }
        Record::Lost { count, .. } | Record::LostSamples(count) => lost = lost.saturating_add(count),
        _ => {}
    });
    read.map_err(|error| refuse(error.to_string()))?;
    if events.len() > most {
        return Err(refuse("it has more samples than a recording of its size".to_owned()));
    }
    if lost > 0 {
        return Err(refuse("perf lost records: give it a larger buffer (-m)".to_owned()));
    }
    for (name, fields) in FIELDS {
        let point = recording.tracepoints.values().find(|point| point.name == name);
        let point = point.ok_or_else(|| refuse(format!("it has no {name}")))?;
        if let Some(field) = fields.iter().find(|field| !point.has(field)) {
            return Err(refuse(format!("{name} has no field {field}")));
        }
    }
    // perf writes them by CPU.
    events.sort_by_key(|one| one.at);
    let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
    for ThreadEvent { at, pid, tid, event } in &events {
        if matches!(event, Event::Access(..) | Event::Exit(..) | Event::Entry(_)) {
            let new = || Thread { tid: *tid, pid: *pid, begin: *at, ..Thread::default() };
            threads.entry(*tid).or_insert_with(new).see(event);
        }
    }
    let mut threads: Vec<_> = threads.into_values().filter(|thread| !thread.registers.is_empty()).collect();
    let vms: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
    let vm = pid.or(vms.first().copied().filter(|_| vms.len() == 1));
    threads.retain(|thread| Some(thread.pid) == vm);
    if vms.is_empty() {
        let why = "no guest in it had an access to its PMU answered by KVM: none has a vPMU, or userspace answers (vpmu trace record)";
        return Err(refuse(why.to_owned()));
    }
    if threads.is_empty() {
        let pids: Vec<String> = vms.iter().map(ToString::to_string).collect();
        return Err(Error::usage(
            what,
            "it has VMs of other processes",
            format!("give --pid one of {}", pids.join(", ")),
        ));
    }
    if !threads.iter().any(tells_of_counters) {
        let why = "the guest uses no counter, or KVM's vPMU is mediated, and nobody sees what the guest does";
        return Err(Error::usage(what, why, "record with enable_mediated_pmu=0 of kvm_intel or kvm_amd"));
    }
    threads.sort_by_key(|thread| (thread.vcpu, thread.tid));
    let begin = threads.iter().map(|thread| thread.begin).min().unwrap_or(0);
    let (cpu, release) = (recording.cpu.unwrap_or_default(), recording.os_release.unwrap_or_default());
    let mut writer = Writer::begin(to, Meta { host: format!("processor {cpu}, Linux {release}"), ..meta(&threads) })?;
    let vcpu = |(number, thread): (usize, &Thread)| (thread.tid, Vcpu { begin, ..Vcpu::new(number, thread) });
    let mut vcpus: BTreeMap<u32, Vcpu> = threads.iter().enumerate().map(vcpu).collect();
    for ThreadEvent { at, tid, event, .. } in events {
        if let Some(vcpu) = vcpus.get_mut(&tid) {
            vcpu.take(at, event);
            vcpu.flush(&mut writer, false)?;
        }
    }
    vcpus.values_mut().try_for_each(|vcpu| vcpu.flush(&mut writer, true))?;
    writer.meta().pmis = Some(vcpus.values().map(|vcpu| vcpu.brought).sum());
    writer.finish()
}

/// Returns whether accesses to counters exit: where a mediated guest has the PMU to itself, those to its event selects alone do.
fn tells_of_counters(thread: &Thread) -> bool {
    let tells = |&register: &u32| counter_of(register).is_some() || is_status(register) || is_global_ctrl(register);
    thread.rdpmc || thread.registers.iter().any(tells)
}

/// Returns the guest, as far as its registers tell.
fn meta(threads: &[Thread]) -> Meta {
    let has = |register: u32| threads.iter().any(|thread| thread.registers.contains(&register));
    let registers = threads.iter().flat_map(|thread| &thread.registers).filter_map(|index| PmuMsr::decode(*index));
    let (intel, amd): (Vec<_>, Vec<_>) = registers.partition(|register| register.vendor() == Vendor::Intel);
    let of_amd = if has(PERF_CNTR_GLOBAL_CTL) { "genoa" } else { "milan" };
    Meta {
        vcpus: threads.len(),
        cpu: if amd.len() <= intel.len() { "clx" } else { of_amd }.to_owned(),
        pmu_version: if has(IA32_PERF_GLOBAL_STATUS_SET) { 4 } else { 2 },
        backend: "kvm".to_owned(),
        strategy: "kvm".to_owned(),
        guest: format!("process {}", threads[0].pid),
        ..Meta::default()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::write::put_together;

    fn thread(registers: &[u32]) -> Thread {
        Thread { registers: registers.iter().copied().collect(), ..Thread::default() }
    }

    fn hex(digits: &str) -> u64 {
        u64::from_str_radix(digits, 16).unwrap()
    }

    fn event(words: &[&str]) -> Event {
        match *words {
            ["entry"] => Event::Entry(0),
            ["nmi", apic] => Event::Nmi(hex(apic)),
            ["rdpmc"] => Event::Exit(77, true),
            ["out"] => Event::Out(false),
            ["sleep"] => Event::Out(true),
            ["in"] => Event::In,
            _ => row(words).map(|row| Event::Access(row.kind, row.register, row.value)).unwrap(),
        }
    }

    fn row(words: &[&str]) -> Option<Row> {
        let [kind, register, value] = *words else { return None };
        let (kind, register) = (Kind::from_key(kind.as_bytes())?, hex(register) as u32);
        Some(Row { kind, register, value: hex(value), ..Row::default() })
    }

    /// Returns the rows of a vCPU with these registers that meets the events a microsecond apart. An access has its exit 900 ns before it.
    fn rows_of(registers: &[u32], events: impl Iterator<Item = Event>) -> Vec<Row> {
        let mut vcpu = Vcpu::new(0, &Thread { vcpu: Some(0), ..thread(registers) });
        for (at, event) in (1..).zip(events) {
            if matches!(event, Event::Access(..)) {
                vcpu.take(at * 1000 - 900, Event::Exit(77, false));
            }
            vcpu.take(at * 1000, event);
        }
        // A row of an access has the time of its exit, because the guest does not run from there until KVM tells of the access.
        let mut accesses = vcpu.rows.iter().filter(|row| row.kind.is_access() && row.register != UNKNOWN);
        assert!(accesses.all(|row| (row.at % 1000, row.rip) == (100, 77)));
        vcpu.rows
    }

    /// `rows.txt` has the rows that are made of what perf told of a vCPU, whose first register is named, and of those that are written.
    #[test]
    fn rows_are_what_the_guest_could_tell() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rows.txt");
        let mut found = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let given = line.split(" -> ").next().unwrap_or_default();
            found.push_str(given);
            if let Some((of, events)) = given.split_once(": ").filter(|_| !given.starts_with('#')) {
                let events = events.split(", ").map(|event| event.split(' ').collect::<Vec<_>>());
                let rows = if of == "put together" {
                    let mut rows = events.map(|words| row(&words).unwrap()).collect();
                    put_together(&mut rows);
                    rows
                } else {
                    let registers: Vec<_> = u32::from_str_radix(of, 16).into_iter().collect();
                    rows_of(&registers, events.map(|words| event(&words)))
                };
                let text = |row: &Row| format!("{} {:x} {:x}", row.kind.key(), row.register, row.value);
                write!(found, " -> {}", rows.iter().map(text).collect::<Vec<_>>().join(", ")).unwrap();
            }
            found.push('\n');
        }
        trials::golden(&path, &found);
    }

    #[test]
    fn a_mediated_guest_is_told_from_one_that_exits() {
        let selects = [IA32_PERFEVTSEL0, IA32_FIXED_CTR_CTRL];
        assert!(!tells_of_counters(&thread(&selects)));
        assert!(tells_of_counters(&thread(&[selects[0], IA32_PMC0])));
        assert!(tells_of_counters(&Thread { rdpmc: true, ..thread(&selects) }));
    }
}
