//! Arms on a trace: each strategy's host is replayed on a model, and its work is the figure.
//!
//! A turn is a part of the trace: so many of its PMIs, or starts of counters where it has none. All parts are one guest's.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use arch_pmu::amd::PerfCtl;
use arch_pmu::caps::PmuCaps;
use arch_pmu::msr::MsrExits;
use guest::abi::{MAGIC, Report};
use host_pmu::stats::HostSide;
use host_pmu::strategy::{Pause, Strategy};
use host_pmu::trace::{Kind, Row};
use results::document::ArmKind;
use results::error::Error;
use results::paired::MIN_ROUNDS;
use results::table::layout::plural;
use sim::mediated::Mediated;
use sim::model::Model;
use sim::replay::{Replay, Replayed};
use trace::read::Trace;
use vmm::machine::Cpu;
use vmm::outcome::{Account, Counts, End, PayloadLeft, RunOutcome, TscMap, VcpuOutcome};

use super::play::{enables, processor};
use super::runner::{Arm, ArmGuests, Runner, TurnOutcome, nothing};
use crate::engine::Turn;
use crate::sys;

/// Why strategies with `pause = "virtual"` cannot be replayed.
pub(crate) const IN_NO_TRACE: &str =
    "its events run on while their counters are off, and what they count then is in no trace";
/// Parts of a trace, unless others are asked for.
pub const PARTS: u64 = 40;
/// Most registers that the vCPUs of a part access: a PMU has a few hundred.
const MOST_REGISTERS: usize = 4096;
/// Fewest samples that have an interval.
const LEAST: u64 = MIN_ROUNDS as u64;

/// A trace in parts.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The trace.
    pub trace: Trace,
    /// Its guest's processor.
    pub cpu: Cpu,
    /// Its PMU.
    pub pmu: PmuCaps,
    /// Samples are PMIs, not starts of counters.
    of_pmis: bool,
    /// Samples: entries with a PMI or a start.
    pub samples: u64,
    /// Parts, each with as many samples.
    pub rounds: u64,
}

impl Parts {
    /// Reads a trace for its samples, which are put into `rounds` parts at most.
    ///
    /// # Errors
    /// Exit 2: it cannot be read, or this program knows no such PMU.
    pub fn of(trace: &Trace, rounds: u64) -> Result<Self, Error> {
        let (cpu, pmu) = processor(&trace.meta)?;
        let mut parts = Self { trace: trace.clone(), cpu, pmu, of_pmis: true, samples: 0, rounds: 0 };
        let mut starts = 0;
        for batch in trace.batches() {
            let batch = batch?;
            let mut count = |of_pmis: bool| {
                parts.of_pmis = of_pmis;
                let (mut at, mut samples) = (0, 0);
                while at < batch.len() {
                    let (until, is_sample) = parts.sample(&batch, at);
                    (at, samples) = (until, samples + u64::from(is_sample));
                }
                samples
            };
            starts += count(false);
            parts.samples += count(true);
        }
        if parts.samples == 0 {
            (parts.of_pmis, parts.samples) = (false, starts);
        }
        parts.rounds = rounds.min(parts.samples).max(1);
        Ok(parts)
    }

    /// Returns why no strategy can be judged by it, on this host or a model.
    pub fn tells_nothing(&self, here: bool) -> Option<String> {
        match (self.samples, self.of_pmis) {
            (_, false) if here => Some("on this host handlers of PMIs are timed, and it has none".to_owned()),
            (0..LEAST, true) => Some(format!("it has {}", plural(self.samples as usize, "PMI"))),
            (0..LEAST, false) => Some(format!("it has no PMIs, and counters start {} times", self.samples)),
            _ => None,
        }
    }

    /// Returns where the next sample of a batch ends, with the entry that brings it, and whether there is one.
    fn sample(&self, batch: &[Row], from: usize) -> (usize, bool) {
        let mut is_sample = false;
        for (at, row) in batch.iter().enumerate().skip(from) {
            is_sample |= if self.of_pmis { row.brings_pmi() } else { self.starts(row) };
            if is_sample && row.kind == Kind::Entry {
                return (at + 1, true);
            }
        }
        (batch.len(), is_sample)
    }

    /// Returns whether counters may begin to count here.
    fn starts(&self, row: &Row) -> bool {
        let is_on = match self.pmu {
            PmuCaps::Amd(caps) if caps.version() == 1 => PerfCtl::from_bits(row.value).en(),
            _ => row.value != 0,
        };
        row.kind == Kind::Write && is_on && enables(self.pmu, row.register)
    }
}

/// Returns a runner that replays this trace on hosts of the model.
pub fn runner(parts: &Parts, model: Model, seed: u64) -> Runner {
    let (parts, model) = (Rc::new(parts.clone()), Rc::new(model));
    Box::new(move |arm| {
        let (strategy, parts, model) = (strategy(arm)?, Rc::clone(&parts), Rc::clone(&model));
        let replay = |vcpu| Some(Replay::new(&model, parts.pmu, strategy.as_ref()?, seed, vcpu));
        let replays = (0..parts.trace.meta.vcpus as u16).filter_map(replay).collect();
        let rest = Box::new(parts.trace.batches());
        Ok(Box::new(Live { parts, model, replays, rest, batch: Vec::new(), at: 0, samples: 0, done: 0, work: 0.0 }))
    })
}

/// Returns an arm's strategy, none of the floor; or why it cannot be replayed.
fn strategy(arm: &Arm) -> Result<Option<Strategy>, String> {
    match arm.kind {
        ArmKind::Floor => Ok(None),
        ArmKind::Kvm => Err("a simulated host has no KVM of its own".to_owned()),
        ArmKind::Strategy if Mediated::named(&arm.strategy).is_some() => {
            Err("no access of a PMU that the guest owns is in a trace".to_owned())
        }
        ArmKind::Strategy => {
            let named = arm.strategy().map_err(|error| error.to_string())?;
            if named.pause == Pause::Virtual { Err(IN_NO_TRACE.to_owned()) } else { Ok(Some(named)) }
        }
    }
}

/// A trace that is replayed under a strategy part by part, or on the floor, which has no host events.
struct Live {
    parts: Rc<Parts>,
    model: Rc<Model>,
    /// The state of each vCPU; there is none on the floor.
    replays: Vec<Replay>,
    rest: Box<dyn Iterator<Item = Result<Vec<Row>, Error>>>,
    /// The rows that were read last, and the first of them that is yet to be replayed.
    batch: Vec<Row>,
    at: usize,
    samples: u64,
    done: u64,
    /// The host's work since the last sample, ns.
    work: f64,
}

impl ArmGuests for Live {
    fn turn(&mut self, _: Turn, _: u64) -> Result<TurnOutcome, Error> {
        let (parts, model) = (&*self.parts, &*self.model);
        let mut part = Part::default();
        if self.done == parts.rounds {
            return Ok(nothing(End::Stopped).into());
        }
        loop {
            if self.at == self.batch.len() {
                let Some(batch) = self.rest.next() else { break };
                (self.batch, self.at) = (batch?, 0);
                if sys::stopped() {
                    return Ok(nothing(End::Stopped).into());
                }
                continue;
            }
            let (until, is_sample) = parts.sample(&self.batch, self.at);
            let rows = &self.batch[self.at..until];
            self.at = until;
            let replay = rows.first().and_then(|row| self.replays.get_mut(usize::from(row.vcpu)));
            self.work += part.feed(rows, model, replay);
            if part.exits.len() > MOST_REGISTERS {
                return Err(Error::usage(
                    format!("cannot replay the trace {}", parts.trace.name()),
                    format!("its guest accesses more than {MOST_REGISTERS} registers"),
                    "record it again; a file of it is damaged",
                ));
            }
            if is_sample {
                self.samples += 1;
                part.host_work.push(std::mem::take(&mut self.work));
                let (done, rounds) = (self.done + 1, parts.rounds);
                let until = u128::from(parts.samples) * u128::from(done) / u128::from(rounds);
                if done < rounds && u128::from(self.samples) >= until {
                    self.done = done;
                    return Ok(part.outcome(model, self.replays.iter_mut().map(Replay::take).collect()));
                }
            }
        }
        // What follows the last sample is the trace's as well.
        if let Some(last) = part.host_work.last_mut() {
            *last += self.work;
        }
        self.done = parts.rounds;
        Ok(part.outcome(model, self.replays.drain(..).map(Replay::finish).collect()))
    }
}

/// A part of a trace that is replayed.
#[derive(Default)]
struct Part {
    host_work: Vec<f64>,
    counts: Counts,
    exits: BTreeMap<u32, MsrExits>,
}

impl Part {
    /// Replays rows of a vCPU, or none on the floor; returns the host's work.
    fn feed(&mut self, rows: &[Row], model: &Model, replay: Option<&mut Replay>) -> f64 {
        let mut accesses = 0_u64;
        for row in rows {
            self.counts.nmis_injected += u64::from(row.brings_pmi());
            if !row.kind.is_access() {
                continue;
            }
            accesses += 1;
            let line = self.exits.entry(row.register).or_insert(MsrExits { msr: row.register, ..MsrExits::default() });
            match row.kind {
                Kind::Read | Kind::ReadFault => line.reads += 1,
                Kind::Write | Kind::WriteFault => line.writes += 1,
                _ => {}
            }
            line.faults += u64::from(matches!(row.kind, Kind::ReadFault | Kind::WriteFault));
        }
        let own = match replay {
            Some(replay) => {
                let before = replay.host_ns();
                replay.feed(rows);
                (replay.host_ns() - before) as f64
            }
            None => model.costs.vmm.mean() * accesses as f64,
        };
        own + model.costs.exit.mean() * accesses as f64
    }

    /// Returns what it left, of all vCPUs together.
    fn outcome(self, model: &Model, of_vcpus: Vec<Replayed>) -> TurnOutcome {
        let Self { host_work, mut counts, exits } = self;
        let mut host = HostSide::default();
        let mut report = Report { magic: MAGIC, nmis: counts.nmis_injected, ..Report::default() };
        let mut wall = 0;
        for part in of_vcpus {
            wall = wall.max(part.counts.time_ns);
            counts.merge(&part.counts);
            host.ops.merge(&part.host.ops);
            host.last_error = part.host.last_error.or(host.last_error);
            report.played += part.accesses;
            report.absent += part.pmis_missing;
            report.otherwise[0] += part.counter_divergences;
            report.otherwise[1] += part.divergences - part.counter_divergences;
        }
        let account = Account {
            counts,
            host,
            msr_exits: exits.into_values().filter(|line| line.reads + line.writes > 0).collect(),
            deliveries: Vec::new(),
            exit_path_ns: results::document::latency_histogram(),
            phases: <_>::default(),
            turned_on: 0,
        };
        let tsc = TscMap { khz: model.tsc_khz, ..TscMap::default() };
        let left = PayloadLeft { report: Some(Box::new(report)), tsc, ..PayloadLeft::default() };
        let vcpus = vec![VcpuOutcome { end: End::Done, left, account, steps: None }];
        let run = RunOutcome { vcpus, wall: Duration::from_nanos(wall), ..nothing(End::Done) };
        #[expect(clippy::cast_sign_loss, reason = "no work is negative")]
        let host_work = host_work.into_iter().map(|ns| ns.round() as u64).collect();
        TurnOutcome { host_work, ..run.into() }
    }
}

#[cfg(test)]
mod tests {
    use guest::abi::STEP_PMI;
    use host_pmu::stats::OpKind;
    use host_pmu::trace::UNKNOWN;

    use super::*;
    use crate::arms::arm::{play, sim};

    /// Under its own strategy a trace gives the registers, PMIs and host operations of its run; and each with some PMIs can be played
    /// back on KVM.
    #[test]
    fn the_corpus_is_replayed_exactly() {
        let model = Rc::new(sim::model("development-host").unwrap());
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/traces");
        let entries = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
        let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        assert!(folders.len() >= 17, "{folders:?}");
        for folder in folders {
            let trace = Trace::open(&folder).unwrap();
            let (own, (_, pmu)) =
                (Strategy::from_toml(&trace.meta.definition).unwrap(), processor(&trace.meta).unwrap());
            let mut replay = Replay::new(&model, pmu, &own, 1, 0);
            trace.batches().for_each(|rows| replay.feed(&rows.unwrap()));
            let found = replay.finish();
            let differ = [found.divergences, found.pmis_differ, found.masked_differ, found.missing];
            assert_eq!((differ, found.accesses), ([0; 4], trace.meta.accesses), "{folder:?}: {:?}", found.first);
            let ops = OpKind::ALL.map(|kind| found.host.ops.count(kind));
            assert!(trace.meta.ops.is_empty() || trace.meta.ops == ops, "{folder:?}: {ops:?} of {:?}", trace.meta.ops);
            if found.pmis < play::LEAST_PLAYED {
                assert!(play::played(&trace).is_err(), "{folder:?}: a handler is timed there");
                continue;
            }
            let (_, _, steps) = play::played(&trace).unwrap();
            let pmis = steps.iter().filter(|step| step.what & STEP_PMI != 0).count() as u64;
            let left_out = |row: &Row| {
                matches!(row.kind, Kind::ReadFault | Kind::WriteFault | Kind::RdpmcFault)
                    || row.kind == Kind::Rdpmc && row.register == UNKNOWN
            };
            let faults = trace.batches().flat_map(Result::unwrap).filter(left_out).count() as u64;
            assert_eq!(pmis, found.pmis, "{folder:?}");
            assert!(steps.len() as u64 + faults >= trace.meta.accesses + pmis, "{folder:?}");
        }
    }
}
