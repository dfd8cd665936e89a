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
use super::runner::{Arm, ArmRunner, LiveGuest, Opened, TurnOutcome};
use crate::engine::Turn;
use crate::terminal::console::internal;

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
        let name = self.trace.name();
        match (self.samples, self.of_pmis) {
            (_, false) if here => {
                Some(format!("trace {name} is left out on this host: it has no PMIs, whose handlers would be timed"))
            }
            (0..LEAST, true) => {
                Some(format!("trace {name} is left out: it has {}", plural(self.samples as usize, "PMI")))
            }
            (0..LEAST, false) => {
                Some(format!("trace {name} is left out: it has no PMIs, and counters start {} times", self.samples))
            }
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

/// Replays the arms of a trace.
#[derive(Debug)]
pub struct ReplayRunner {
    parts: Parts,
    model: Rc<Model>,
    seed: u64,
}

impl ReplayRunner {
    /// Creates a runner of this trace, on hosts of the model.
    pub fn new(parts: &Parts, model: Model, seed: u64) -> Self {
        Self { parts: parts.clone(), model: Rc::new(model), seed }
    }
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
            let named = Strategy::named(&arm.strategy, arm.definition.as_deref()).map_err(|error| error.to_string())?;
            if named.pause == Pause::Virtual { Err(IN_NO_TRACE.to_owned()) } else { Ok(Some(named)) }
        }
    }
}

impl ArmRunner for ReplayRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        strategy(arm).map(|_| ())
    }

    fn run(&mut self, arm: &Arm, _: Turn, _: u64) -> Result<TurnOutcome, Error> {
        Err(internal("cannot replay", format!("{}: a part of a trace follows the one before", arm.strategy)))
    }

    fn open(&mut self, arm: &Arm, _: u64, _: u64) -> Result<Opened, Error> {
        let strategy = strategy(arm).map_err(|why| Error::usage(format!("strategy {}", arm.strategy), why, ""))?;
        let guest = Live::new(&self.parts, &self.model, strategy.as_ref(), self.seed);
        Ok(Opened { guest: Box::new(guest), opening: None })
    }
}

/// Replays a whole trace under a strategy, or on the floor: its outcome has the host's work of each sample.
///
/// # Errors
/// The trace cannot be read.
pub fn whole(parts: &Parts, model: &Model, strategy: Option<&Strategy>, seed: u64) -> Result<TurnOutcome, Error> {
    Live::new(&Parts { rounds: 1, ..parts.clone() }, &Rc::new(model.clone()), strategy, seed).part()
}

/// A trace on its way through a strategy.
struct Live {
    parts: Parts,
    model: Rc<Model>,
    batches: Box<dyn Iterator<Item = Result<Vec<Row>, Error>>>,
    batch: Vec<Row>,
    at: usize,
    /// Its vCPUs; none of the floor, which has no host events.
    replays: Vec<Replay>,
    /// Parts and samples so far.
    done: u64,
    samples: u64,
    /// The host's work since the last sample, ns.
    work: f64,
}

impl Live {
    fn new(parts: &Parts, model: &Rc<Model>, strategy: Option<&Strategy>, seed: u64) -> Self {
        let vcpus = 0..parts.trace.meta.vcpus as u16;
        let replays = strategy
            .map(|strategy| vcpus.map(|vcpu| Replay::new(model, parts.pmu, strategy, seed, vcpu)).collect())
            .unwrap_or_default();
        Self {
            parts: parts.clone(),
            model: Rc::clone(model),
            batches: Box::new(parts.trace.batches()),
            batch: Vec::new(),
            at: 0,
            replays,
            done: 0,
            samples: 0,
            work: 0.0,
        }
    }

    /// Replays the next part.
    fn part(&mut self) -> Result<TurnOutcome, Error> {
        self.done += 1;
        let all = u128::from(self.parts.samples) * u128::from(self.done) / u128::from(self.parts.rounds);
        let is_last = self.done >= self.parts.rounds;
        let (mut host_work, mut counts) = (Vec::new(), Counts::default());
        let mut exits: BTreeMap<u32, MsrExits> = BTreeMap::new();
        while is_last || u128::from(self.samples) < all {
            if self.at >= self.batch.len() {
                let Some(batch) = self.batches.next() else { break };
                (self.batch, self.at) = (batch?, 0);
                continue;
            }
            let (until, is_sample) = self.parts.sample(&self.batch, self.at);
            self.feed(until, &mut counts, &mut exits);
            if exits.len() > MOST_REGISTERS {
                return Err(Error::usage(
                    format!("cannot replay the trace {}", self.parts.trace.name()),
                    format!("its guest accesses more than {MOST_REGISTERS} registers"),
                    "record it again; a file of it is damaged",
                ));
            }
            if is_sample {
                self.samples += 1;
                host_work.push(std::mem::take(&mut self.work));
            }
        }
        // What follows the last sample is the trace's as well.
        if let (true, Some(last)) = (is_last, host_work.last_mut()) {
            *last += std::mem::take(&mut self.work);
        }
        let found = if is_last {
            std::mem::take(&mut self.replays).into_iter().map(Replay::finish).collect()
        } else {
            self.replays.iter_mut().map(Replay::take).collect()
        };
        let run = self.outcome(counts, exits.into_values().collect(), found);
        #[expect(clippy::cast_sign_loss, reason = "no work is negative")]
        let host_work = host_work.into_iter().map(|ns| ns.round() as u64).collect();
        Ok(TurnOutcome { host_work, ..run.into() })
    }

    /// Replays the rows of the batch up to a place.
    fn feed(&mut self, until: usize, counts: &mut Counts, exits: &mut BTreeMap<u32, MsrExits>) {
        let rows = &self.batch[self.at..until];
        self.at = until;
        let costs = &self.model.costs;
        let mut accesses = 0_u64;
        for row in rows {
            counts.nmis_injected += u64::from(row.brings_pmi());
            if !row.kind.is_access() {
                continue;
            }
            accesses += 1;
            let line = exits.entry(row.register).or_insert(MsrExits { msr: row.register, ..MsrExits::default() });
            match row.kind {
                Kind::Read | Kind::ReadFault => line.reads += 1,
                Kind::Write | Kind::WriteFault => line.writes += 1,
                _ => {}
            }
            line.faults += u64::from(matches!(row.kind, Kind::ReadFault | Kind::WriteFault));
        }
        let replay = rows.first().and_then(|row| self.replays.get_mut(usize::from(row.vcpu)));
        let own = match replay {
            Some(replay) => {
                let before = replay.host_ns();
                replay.feed(rows);
                (replay.host_ns() - before) as f64
            }
            None => costs.vmm.mean() * accesses as f64,
        };
        self.work += own + costs.exit.mean() * accesses as f64;
    }

    /// Returns what a part left, of all vCPUs together.
    fn outcome(&self, mut counts: Counts, msr_exits: Vec<MsrExits>, found: Vec<Replayed>) -> RunOutcome {
        let mut account = Account {
            counts: Counts::default(),
            host: HostSide::default(),
            msr_exits: msr_exits.into_iter().filter(|line| line.reads + line.writes > 0).collect(),
            deliveries: Vec::new(),
            exit_path_ns: results::document::latency_histogram(),
            phases: <_>::default(),
            held_back: None,
            turned_on: 0,
        };
        let mut report = Report { magic: MAGIC, nmis: counts.nmis_injected, ..Report::default() };
        let mut wall = 0;
        for part in found {
            wall = wall.max(part.counts.time_ns);
            counts.merge(&part.counts);
            account.host.ops.merge(&part.host.ops);
            account.host.last_error = part.host.last_error.or(account.host.last_error);
            report.played += part.accesses;
            report.absent += part.pmis_missing;
            report.otherwise[0] += part.counter_divergences;
            report.otherwise[1] += part.divergences - part.counter_divergences;
        }
        account.counts = counts;
        let tsc = TscMap { khz: self.model.tsc_khz, ..TscMap::default() };
        let left = PayloadLeft {
            booted: None,
            report: Some(Box::new(report)),
            log: Vec::new(),
            tsc,
            held_at_tail_tick: Vec::new(),
        };
        let vcpu = VcpuOutcome { end: End::Done, left, account, steps: None };
        RunOutcome { end: End::Done, vcpus: vec![vcpu], wall: Duration::from_nanos(wall), start: Duration::ZERO }
    }
}

impl LiveGuest for Live {
    fn turn(&mut self, _: u64) -> Result<TurnOutcome, Error> {
        self.part()
    }

    fn close(self: Box<Self>) -> Result<RunOutcome, Error> {
        Ok(RunOutcome { end: End::Stopped, vcpus: Vec::new(), wall: Duration::ZERO, start: Duration::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use host_pmu::stats::OpKind;

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
            trace.read_beside(|rows| replay.feed(rows)).unwrap();
            let found = replay.finish();
            let differ = [found.divergences, found.pmis_differ, found.masked_differ, found.missing];
            assert_eq!((differ, found.accesses), ([0; 4], trace.meta.accesses), "{folder:?}: {:?}", found.first);
            let ops = OpKind::ALL.map(|kind| found.host.ops.count(kind));
            assert!(trace.meta.ops.is_empty() || trace.meta.ops == ops, "{folder:?}: {ops:?} of {:?}", trace.meta.ops);
            if found.pmis < play::LEAST_PLAYED {
                assert!(play::played(&trace).is_err(), "{folder:?}: a handler is timed there");
                continue;
            }
            let (_, _, played) = play::played(&trace).unwrap();
            assert_eq!((played.pmis, played.cut), (found.pmis, 0), "{folder:?}");
            let steps = played.rows.iter().flatten().count() as u64;
            assert_eq!(steps + played.faults, trace.meta.accesses + played.pmis, "{folder:?}");
        }
    }
}
