//! The steps by which the payload plays a trace's vCPU back on KVM.

use std::collections::BTreeMap;
use std::sync::Arc;

use arch_pmu::Vpmu;
use arch_pmu::amd::{PERF_CNTR_GLOBAL_STATUS_CLR, PERF_CTL0, PERF_LEGACY_CTL0};
use arch_pmu::caps::PmuCaps;
use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::intel::IA32_PERF_GLOBAL_OVF_CTRL;
use arch_pmu::msr::{self, counter_of, is_global_ctrl};
use arch_pmu::pmi::{Delivery, Lvtpc};
use arch_pmu::spec::{CounterId, CounterSet, Spec};
use guest::abi::{STEP_COUNTER, STEP_ENABLE, STEP_LAST, STEP_PMI, STEP_WRITE, Step};
use host_pmu::trace::{Kind, LVTPC, Row, UNKNOWN, counter};
use results::error::Error;
use results::table::layout::plural;
use trace::meta::Meta;
use trace::read::Trace;
use vmm::boot::layout::MAX_STEPS;
use vmm::machine::Cpu;

/// Fewest PMIs of a trace whose handlers are a figure.
pub(crate) const LEAST_PLAYED: u64 = 5;

/// Longest time that is played while no counter counts, ns: nobody waits for a guest that boots.
const LONGEST_REST: u64 = 1_000_000;
/// An access so long after the one before it is no more of a PMI's handler, ns. Where a guest has a global control, the handler ends
/// with it.
const AFTER_HANDLER: u64 = 200_000;
/// LVTPC in NMI mode.
const NMI_MODE: u64 = 0b100 << 8;
/// The step that unmasks it.
const UNMASK: u64 = STEP_WRITE | LVTPC as u64;

/// Returns the processor of a trace's guest, and its PMU.
///
/// # Errors
/// Exit 2: this program knows no such processor.
pub(super) fn processor(meta: &Meta) -> Result<(Cpu, PmuCaps), Error> {
    let known = Cpu::ALL.iter().find(|(name, _)| *name == meta.cpu);
    match (known, u8::try_from(meta.pmu_version)) {
        (Some((_, cpu)), Ok(version @ (2 | 4))) => Ok((*cpu, cpu.pmu_of_version(version))),
        _ => Err(Error::usage(
            "cannot replay the trace",
            format!("its guest had processor '{}' with a PMU of version {}", meta.cpu, meta.pmu_version),
            "give a trace of a processor that --cpu names, and version 2 or 4",
        )),
    }
}

/// Returns whether counters of such a PMU may run by this register alone.
pub(super) fn enables(pmu: PmuCaps, register: u32) -> bool {
    match pmu {
        PmuCaps::Amd(caps) if caps.version() == 1 => {
            matches!(register, PERF_CTL0..=0xc001_020a | PERF_LEGACY_CTL0..=0xc001_0003)
                && counter_of(register).is_none()
        }
        _ => is_global_ctrl(register),
    }
}

/// Makes the steps of a trace's vCPU with the most PMIs, their times in ns. The first ones reset the registers that the others write;
/// accesses that were #GP, or RDPMC of an unknown counter, are left out.
///
/// # Errors
/// Exit 2: the trace cannot be read, or its guest has another PMU than a payload.
pub fn played(trace: &Trace) -> Result<(Cpu, PmuCaps, Arc<[Step]>), Error> {
    let (cpu, pmu) = processor(&trace.meta)?;
    let mut pmis: BTreeMap<u16, u64> = BTreeMap::new();
    for batch in trace.batches() {
        for row in batch? {
            *pmis.entry(row.vcpu).or_default() += u64::from(row.brings_pmi());
        }
    }
    let (vcpu, pmis) = pmis.into_iter().max_by_key(|(vcpu, pmis)| (*pmis, u16::MAX - vcpu)).unwrap_or_default();
    let mut maker = Maker::new(pmu);
    for batch in trace.batches() {
        batch?.into_iter().filter(|row| row.vcpu == vcpu).try_for_each(|row| maker.row(row))?;
    }
    let steps = maker.finish()?;
    if pmis < LEAST_PLAYED {
        let why = format!("it has {}, whose handlers would be timed", plural(pmis as usize, "PMI"));
        return Err(Error::usage("cannot play the trace back", why, "vpmu sim --trace counts its operations"));
    }
    Ok((cpu, pmu, steps))
}

/// A host side without counts: the counters that count.
#[derive(Debug, Default)]
struct Told(CounterSet);

impl HostCounters for Told {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    fn overflowed(&mut self, _counter: CounterId, _near: bool) -> AfterOverflow {
        AfterOverflow::Leave
    }

    fn take(&mut self, _counter: CounterId) -> u64 {
        0
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        self.0.remove(counter);
        0
    }

    fn start(&mut self, counter: CounterId, _spec: Spec, _period: u64) {
        self.0.insert(counter);
    }

    fn set_period(&mut self, _counter: CounterId, _period: u64) {}

    fn on_entry(&mut self, _enabled: CounterSet) {}
}

/// Steps in the making.
struct Maker {
    pmu: Vpmu<Told>,
    steps: Vec<Step>,
    /// Values written by register, or-ed.
    written: BTreeMap<u32, u64>,
    /// Time of the last entry, if there was none since, and the guest's own since the last step.
    entered: Option<u64>,
    think: u64,
    /// A PMI's handler is not over.
    handles: bool,
}

impl Maker {
    fn new(pmu: PmuCaps) -> Self {
        let pmu = Vpmu::new(pmu.bounded(), Told::default());
        Self { pmu, steps: Vec::new(), written: BTreeMap::new(), entered: None, think: 0, handles: false }
    }

    fn row(&mut self, row: Row) -> Result<(), Error> {
        if let Some(entered) = self.entered.take() {
            let own = row.at.saturating_sub(entered);
            let rests = self.pmu.host().0.is_empty();
            self.think = self.think.saturating_add(if rests { own.min(LONGEST_REST) } else { own });
        }
        if row.kind == Kind::Entry {
            self.entered = Some(row.at);
        }
        if self.steps.len() > MAX_STEPS - ROOM {
            return Ok(());
        }
        match row.kind {
            Kind::Rdpmc if row.register == UNKNOWN => {}
            Kind::Read | Kind::Rdpmc | Kind::Write => self.access(row),
            // What the guest had before, the payload has to write.
            Kind::State if self.pmu.wrmsr(row.register, row.value).is_ok() => {
                self.access(Row { kind: Kind::Write, ..row });
            }
            Kind::Pmi | Kind::LatePmi if row.brings_pmi() => {
                if matches!(Lvtpc::from_bits(row.value as u32).delivery(), Delivery::Fixed(_)) {
                    let why = "its guest takes PMIs as fixed interrupts, and the payload plays NMIs";
                    return Err(Error::usage("cannot play the trace back", why, "vpmu sim --trace replays it"));
                }
                self.end_handler();
                self.push(STEP_PMI, 0);
                self.handles = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn access(&mut self, row: Row) {
        if self.think > AFTER_HANDLER {
            self.end_handler();
        }
        if row.kind == Kind::Write {
            // It was no #GP in the trace; one that is here changes nothing.
            let _ = self.pmu.wrmsr(row.register, row.value);
            *self.written.entry(row.register).or_default() |= row.value;
            // LVTPC is unmasked before the counters run again, so that no overflow meets the mask.
            if is_global_ctrl(row.register) && row.value != 0 {
                self.unmask();
            }
            self.push(self.write(row.register), row.value);
            if is_global_ctrl(row.register) && row.value != 0 {
                self.last_of_handler();
            }
            return;
        }
        let read = counter(Kind::Read, row.register).or_else(|| counter(row.kind, row.register));
        let register = match read {
            // RDPMC reaches no vPMU in userspace.
            Some(of) if row.kind == Kind::Rdpmc => {
                let mut all = msr::table(self.pmu.caps().vendor()).iter().flat_map(arch_pmu::msr::Row::indices);
                all.find(|index| counter_of(*index) == Some(of)).unwrap_or(row.register)
            }
            _ => row.register,
        };
        let what = u64::from(register) | if read.is_some() { STEP_COUNTER } else { 0 };
        self.push(what, row.value);
    }

    /// Returns the step of a write.
    fn write(&self, register: u32) -> u64 {
        let enables = if enables(self.pmu.caps(), register) { STEP_ENABLE } else { 0 };
        STEP_WRITE | enables | u64::from(register)
    }

    fn push(&mut self, what: u64, value: u64) {
        self.steps.push(Step { what, value, think: std::mem::take(&mut self.think) });
    }

    /// Unmasks LVTPC, of which no trace has rows.
    fn unmask(&mut self) {
        if self.handles {
            self.steps.push(Step { what: UNMASK, value: NMI_MODE, think: 0 });
        }
    }

    fn last_of_handler(&mut self) {
        if std::mem::take(&mut self.handles)
            && let Some(last) = self.steps.last_mut()
        {
            last.what |= STEP_LAST;
        }
    }

    /// Ends a handler that no global control has ended.
    fn end_handler(&mut self) {
        self.unmask();
        self.last_of_handler();
    }

    fn finish(mut self) -> Result<Arc<[Step]>, Error> {
        self.end_handler();
        if self.steps.is_empty() {
            let remedy = "record a guest that uses its PMU";
            return Err(Error::usage("cannot play the trace back", "it has no accesses", remedy));
        }
        // What an access takes at least is its exit, of which this host has its own.
        let exit = self.steps.iter().filter(|step| step.what & STEP_PMI == 0 && step.what != UNMASK);
        let exit = exit.map(|step| step.think).filter(|think| *think > 0).min().unwrap_or(0);
        for step in &mut self.steps {
            step.think = step.think.saturating_sub(exit);
        }
        let mut fresh = Vpmu::new(self.pmu.caps(), Told::default());
        let mut reset = |register: u32, values: u64| match register {
            // All that was acknowledged is acknowledged.
            IA32_PERF_GLOBAL_OVF_CTRL | PERF_CNTR_GLOBAL_STATUS_CLR => values,
            _ => fresh.rdmsr(register).unwrap_or(0),
        };
        // The global controls are off meanwhile.
        let (globals, others): (Vec<_>, Vec<_>) = self.written.iter().partition(|(at, _)| is_global_ctrl(**at));
        let mut resets: Vec<(u32, u64)> = globals.iter().map(|(at, _)| (**at, 0)).collect();
        resets.extend(others.into_iter().chain(globals).map(|(at, values)| (*at, reset(*at, *values))));
        let resets = resets.into_iter().map(|(at, value)| Step { what: self.write(at), value, think: 0 });
        Ok(resets.chain(self.steps.iter().copied()).collect())
    }
}

/// Room for the resets.
const ROOM: usize = 256;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use arch_pmu::intel::{IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PERFEVTSEL0, IA32_PMC0};

    use super::*;

    /// Accesses of a guest that takes one PMI, each after the guest's own time: 3 µs, and 2 ms between two parts.
    const INTEL: [(u64, Kind, u32, u64); 11] = [
        (2_000_000, Kind::WriteFault, 0x1d9, 1 << 14),
        (4_000_000, Kind::Write, IA32_PERFEVTSEL0, 0x43_003c | 1 << 20),
        (3_000, Kind::Write, IA32_PMC0, 0xffff_0000),
        (3_500, Kind::Write, IA32_PERF_GLOBAL_CTRL, 1),
        (2_000_000, Kind::Pmi, LVTPC, NMI_MODE),
        (3_000, Kind::Write, IA32_PERF_GLOBAL_CTRL, 0),
        (3_000, Kind::Read, IA32_PERF_GLOBAL_STATUS, 1),
        (3_000, Kind::Write, IA32_PERF_GLOBAL_OVF_CTRL, 1),
        (4_000, Kind::Rdpmc, 0, 7),
        (3_000, Kind::Write, IA32_PERF_GLOBAL_CTRL, 1),
        (2_000_000, Kind::Read, IA32_PERFEVTSEL0, 0x43_003c | 1 << 20),
    ];

    /// Steps of the payload: registers are as at RESET at first, all that was acknowledged acknowledged. Without a counter nobody waits
    /// longer than 1 ms; LVTPC is unmasked before the handler's end, which a PMU without global control has by its time.
    #[test]
    fn a_handler_is_played_from_its_pmi_to_its_end_with_lvtpc_unmasked_before_it() {
        let milan = [(3_000, Kind::Write, PERF_CTL0), (9_000, Kind::Pmi, LVTPC), (3_000, Kind::Write, PERF_CTL0 + 1)];
        let milan = milan.into_iter().chain([(900_000, Kind::Write, PERF_CTL0)]);
        let milan: Vec<_> = milan.map(|(think, kind, register)| (think, kind, register, NMI_MODE)).collect();
        let mut text = String::new();
        for (cpu, accesses) in [(Cpu::CascadeLake, &INTEL[..]), (Cpu::Milan, &milan)] {
            let (mut maker, mut at) = (Maker::new(cpu.pmu()), 0);
            for &(think, kind, register, value) in accesses {
                at += think;
                maker.row(Row { at, kind, register, value, ..Row::default() }).unwrap();
                maker.row(Row { at, kind: Kind::Entry, ..Row::default() }).unwrap();
            }
            writeln!(text, "# {}", cpu.name()).unwrap();
            let flags = [(STEP_WRITE, "write"), (STEP_COUNTER, "counter"), (STEP_ENABLE, "enable"), (STEP_PMI, "PMI")];
            let flags = flags.into_iter().chain([(STEP_LAST, "last")]);
            for Step { what, value, think } in maker.finish().unwrap().iter() {
                let named: Vec<_> = flags.clone().filter(|(bit, _)| what & bit != 0).map(|(_, name)| name).collect();
                writeln!(text, "{:#x} {value:#x} after {think} ns: {}", *what as u32, named.join(" ")).unwrap();
            }
        }
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arms/arm/steps.txt"), &text);
    }
}
