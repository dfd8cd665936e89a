//! The vPMU and the ideal one, side by side, and what can happen to them.

use std::rc::Rc;

use arch_pmu::Vpmu;
use host_pmu::backend::scheduling::SHORTEST_PERIOD;
use host_pmu::bank::{Bank, BankStats};
use host_pmu::side::HostPmu as _;
use host_pmu::strategy::{OnOverflow, Pause, Reuse, Strategy};

use super::host::{self, Failing, Rules, Script, ScriptedHost};
use super::{Armed, Burst, Line, Model, Shape};

/// Events that the sequences select.
pub(crate) const EVENTS: [u64; 4] = [0xc0, 0x3c, 0x13c, 0xc4];
/// Events of an AMD; bits 11:8 of the select are 19:16 here. Two differ in those alone.
pub(crate) const AMD_EVENTS: [u64; 4] = [0xc0, 0x76, 0x1_00c0, 0x02c2];

/// Records of overflows that the host makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// Nothing: every event must be read.
    None,
    /// Each overflow.
    Exact,
    /// Exact counts; an event signals a little before the counter overflows, as a clock may.
    Early,
}

/// When the signal of a host event arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    OnTime,
    /// With some later one, or never.
    Held,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Read(u32),
    Write(u32, u64),
    /// Programs a counter to overflow after at most 2^bits, and lets it run.
    Arm {
        n: u32,
        selector: u64,
        bits: u32,
        back: u64,
    },
    Run {
        seed: u64,
        bits: u32,
        signal: Signal,
        take_pmi: bool,
    },
    /// Turns all counters off for some work, gives one a new distance to its overflow, and turns all on.
    Handler {
        seed: u64,
        bits: u32,
        n: u32,
        back: u64,
    },
    Kick,
    Enter,
    Pmi,
    Slice,
    Reset,
    Fail(Failing),
    Lose,
    /// Records of overflows are lost.
    LoseRecords,
    Heal,
}

/// Entries after which a host that is sound again must have been asked again.
const MOST_ENTRIES: u32 = 1100;

/// Entries in a row that a signal ends before the guest runs.
const MOST_ENTRIES_WITHOUT_GUEST: u32 = 24;

/// Both sides.
pub(crate) struct Pair {
    model: Model,
    vpmu: Vpmu<Bank<ScriptedHost>>,
    /// An event that went on with its old period signals before its counter overflows.
    early: bool,
    shape: Shape,
    most_held: u64,
    /// The host fails, or an event may still be aimed wrongly, as after a refused period until a retry.
    failing: bool,
    /// A signal was given and no kick followed.
    signal_held: bool,
    /// Nothing happened since the entry.
    entered: bool,
    pmis: u64,
    /// Counters of the host that other users have in quiet times.
    others: usize,
    /// A counter was one count before its overflow, which its event signals one count late.
    late: bool,
}

/// Returns the failed opens, the refused periods, and the losses of pinned events that a bank reports.
pub(crate) fn failures(stats: &BankStats) -> [u64; 3] {
    [stats.counts.failed_opens, stats.counts.refused_periods, stats.counts.pinned_errors]
}

/// Overflows, PMIs, events that served again, slices, failures and losses of records in a sequence.
pub(crate) type Activity = [u64; 6];

impl Pair {
    pub(crate) fn new(shape: Shape, strategy: Strategy, records: Records) -> Self {
        let (records, early) = (records != Records::None, records == Records::Early);
        Self::with_host(shape, strategy, Script { records, early, ..Script::default() })
    }

    /// Creates a pair whose host has hardware events by perf's rules.
    pub(crate) fn by_rules(shape: Shape, strategy: Strategy, rules: Rules) -> Self {
        let others = rules.others;
        Self { others, ..Self::with_host(shape, strategy, Script::by_rules(rules)) }
    }

    fn with_host(shape: Shape, strategy: Strategy, script: Script) -> Self {
        let host = host::host(&strategy, script);
        let early = strategy.overflow == OnOverflow::Keep || strategy.pause == Pause::Virtual;
        let pool = if let Reuse::Pool(k) = strategy.reuse { k as u64 } else { 0 };
        Self {
            model: Model::new(shape),
            vpmu: Vpmu::new(shape.caps(), Bank::new(host, strategy)),
            early,
            shape,
            most_held: u64::from(shape.gp + shape.fixed).max(pool),
            failing: false,
            signal_held: false,
            entered: false,
            pmis: 0,
            others: 0,
            late: false,
        }
    }

    /// Returns whether perf's rules hold on its host.
    fn has_rules(&mut self) -> bool {
        self.host().host.rules.is_some()
    }

    fn host(&mut self) -> &mut ScriptedHost {
        self.vpmu.host().backend()
    }

    fn read(&mut self, msr: u32) -> Result<(), String> {
        self.model.read(msr, self.vpmu.rdmsr(msr).ok())
    }

    fn write(&mut self, msr: u32, value: u64) -> Result<(), String> {
        let fault = self.vpmu.wrmsr(msr, value).is_err();
        if self.model.write(msr, value) == fault {
            Ok(())
        } else {
            Err(format!("WRMSR {msr:#x} {value:#x}: #GP is {fault}"))
        }
    }

    fn kick(&mut self) {
        self.signal_held = false;
        self.vpmu.kick();
        if self.late && !self.model.settled() {
            self.model.may_see();
        } else {
            self.late = false;
            self.model.kick();
        }
    }

    fn enter(&mut self) -> Result<(), String> {
        self.entered = true;
        self.vpmu.enter();
        self.model.enter();
        // An event that went to error state signals: KVM_RUN returns at once, and the guest has not run.
        let mut entries = 0;
        while host::take_error_signal(self.host()) {
            self.kick();
            self.vpmu.enter();
            self.model.enter();
            entries += 1;
            if entries > MOST_ENTRIES_WITHOUT_GUEST {
                return Err("signals keep the vCPU out of the guest".to_owned());
            }
        }
        let (held, open) = (self.vpmu.host().held(), self.host().host.held.get());
        if held != open || held > self.most_held {
            return Err(format!("{held} events held of {}, {open} open", self.most_held));
        }
        self.aimed()?;
        self.late &= !self.model.settled();
        Ok(())
    }

    /// Checks that each counter that counts has an event that signals at its overflow, and nothing else runs.
    fn aimed(&mut self) -> Result<(), String> {
        // An event that goes on with its old period is aimed anew when its signal is taken.
        let goes_on = (self.early || self.host().host.early) && self.signal_held;
        if !self.failing && !goes_on && !self.late && self.model.settled() {
            let (ideal, real, has_rules) = (self.model.armed(), host::armed(self.host()), self.has_rules());
            // Events of counters that are off may go on as long as no counter is on.
            if self.host().host.goes_on && ideal.is_empty() {
                return Ok(());
            }
            // x86 loads no less.
            let least = |armed: u64| if has_rules && armed > 0 { SHORTEST_PERIOD } else { 0 };
            let fits = |(ideal, real): (&Armed, &Armed)| {
                (ideal.0, ideal.1, ideal.2) == (real.0, real.1, real.2)
                    && (ideal.3 == real.3 || ideal.3.max(least(ideal.3)) == real.3 || self.early && real.3 < ideal.3)
            };
            if ideal.len() != real.len() || !ideal.iter().zip(&real).all(fits) {
                return Err(format!("armed {real:x?}, not {ideal:x?}"));
            }
        }
        Ok(())
    }

    fn pmi(&mut self) -> Result<(), String> {
        let due = self.vpmu.take_pmi();
        self.model.pmi(due)?;
        self.pmis += u64::from(due);
        if self.entered { self.aimed() } else { Ok(()) }
    }

    fn run(&mut self, burst: Burst, signal: Signal) -> Result<(), String> {
        // An event signals after two counts at the soonest: a counter that had one left overflows before it.
        let has_rules = self.has_rules();
        let armed = |line: Line| Some((line, self.model.armed_for(line).filter(|armed| armed.3 == 1)?));
        let one_left: Vec<_> = self.model.lines().filter(|_| has_rules).filter_map(armed).collect();
        let overflowed = self.model.run(burst);
        let signalled = host::run(self.host(), burst);
        self.signal_held |= signalled;
        let real = host::armed(self.host());
        let lagging = one_left.iter().filter(|(_, armed)| real.contains(armed));
        let lagging = lagging.fold(0, |bits, (line, _)| bits | 1 << line);
        self.late |= lagging & overflowed != 0;
        if signal == Signal::OnTime && self.signal_held {
            self.kick();
            return Ok(());
        }
        // IN_TXCP never signals: with it an overflow may stay unseen.
        let seen = signal != Signal::OnTime || self.failing || self.late || self.shape.transactions;
        let unseen = !seen && self.model.overflow_unseen();
        if unseen { Err("an overflow that no event signals".to_owned()) } else { Ok(()) }
    }

    fn doubt(&mut self) {
        self.failing = true;
        self.model.doubt();
    }

    /// Makes the host sound again: the PMU must come back by itself, then it is set up anew and exact again.
    fn heal(&mut self) -> Result<(), String> {
        if !self.failing {
            return Ok(());
        }
        self.host().host.failing = Failing::default();
        if self.has_rules() {
            let others = self.others;
            host::set_others(self.host(), others);
        }
        let came_back = |pair: &mut Self| {
            let what = |(event, os, usr, _): Armed| (event, os, usr);
            let real: Vec<_> = host::armed(pair.host()).into_iter().map(what).collect();
            real == pair.model.armed().into_iter().map(what).collect::<Vec<_>>()
        };
        let mut entries = 0;
        // The lost signal's overflow is found at the next look.
        // A gate without records shows its loss when it is shut, or to the account at the end of a turn.
        let mut counts = *self.vpmu.counts();
        self.vpmu.host().account(&mut counts);
        self.kick();
        self.enter()?;
        while !came_back(self) {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(format!("{MOST_ENTRIES} entries brought {:x?} back", host::armed(self.host())));
            }
            self.kick();
            self.enter()?;
        }
        for line in self.model.lines() {
            let msr = if line < 32 { self.shape.counter(line) } else { 0x309 + line - 32 };
            self.read(msr)?;
            self.write(msr, 0)?;
        }
        let lines = self.model.lines().fold(0, |bits, line| bits | 1 << line);
        if self.shape.version >= 2 {
            self.write(self.shape.clear(), lines)?;
        }
        self.pmi()?;
        self.model.trust();
        self.failing = false;
        self.enter()?;
        let reported = failures(self.vpmu.host().stats());
        let injected = self.host().host.failures.get();
        if reported == injected { Ok(()) } else { Err(format!("{injected:?} failures, {reported:?} reported")) }
    }

    pub(crate) fn step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Read(msr) => self.read(msr)?,
            Op::Write(msr, value) => self.write(msr, value)?,
            Op::Arm { n, selector, bits, back } => {
                let start = 0u64.wrapping_sub(back & ((1 << bits.min(31)) - 1));
                if n < u32::from(self.shape.gp) {
                    self.write(self.shape.counter(n), start)?;
                    self.write(self.shape.selector(n), selector)?;
                    self.write(self.shape.global(), u64::MAX >> (64 - u32::from(self.shape.gp)))?;
                } else if n - u32::from(self.shape.gp) < u32::from(self.shape.fixed) {
                    let fixed = n - u32::from(self.shape.gp);
                    self.write(0x309 + fixed, start)?;
                    self.write(0x38d, 0xb << (4 * fixed))?;
                    self.write(0x38f, 1 << (32 + fixed) | 1)?;
                }
            }
            Op::Run { seed, bits, signal, take_pmi } => {
                let width = u32::from(self.shape.width);
                let (mut bits, mut signal) = (bits.min(width), signal);
                // An event that goes on with its old period relies on signals within half a counter's width.
                if self.early && bits + 3 >= width {
                    if self.signal_held {
                        self.kick();
                    }
                    (bits, signal) = (width - 2, Signal::OnTime);
                }
                self.enter()?;
                if take_pmi {
                    self.pmi()?;
                }
                self.run(Burst::new(seed, bits), signal)?;
            }
            Op::Handler { seed, bits, n, back } => {
                let global = |pair: &mut Self, on: u64| {
                    if pair.shape.version < 2 { Ok(()) } else { pair.write(pair.shape.global(), on) }
                };
                global(self, 0)?;
                self.step(&Op::Run { seed, bits: bits.min(12), signal: Signal::OnTime, take_pmi: true })?;
                self.step(&Op::Enter)?;
                if n < u32::from(self.shape.gp) {
                    self.write(self.shape.counter(n), 0u64.wrapping_sub(back & 0xfff))?;
                }
                global(self, u64::MAX >> (64 - u32::from(self.shape.gp)))?;
            }
            Op::Kick => self.kick(),
            Op::Enter => self.enter()?,
            Op::Pmi => self.pmi()?,
            Op::Slice => self.host().host.sched_in = true,
            Op::Reset => {
                self.vpmu.reset();
                self.model.reset();
                self.signal_held = false;
            }
            Op::Fail(failing) => {
                self.host().host.failing = failing;
                self.doubt();
            }
            Op::Lose => {
                if self.has_rules() {
                    let others = self.others + 2;
                    host::set_others(self.host(), others);
                } else {
                    host::lose(self.host());
                }
                self.doubt();
            }
            Op::LoseRecords => self.host().host.losing = true,
            Op::Heal => self.heal()?,
        }
        self.entered &= matches!(op, Op::Enter | Op::Pmi);
        Ok(())
    }

    /// Reads every register once, and checks that nothing is left open afterwards.
    pub(crate) fn finish(mut self) -> Result<Activity, String> {
        self.heal()?;
        self.kick();
        self.enter()?;
        let few = (0xc1..=0xc8).chain(0x186..=0x18d).chain(0x309..=0x30c).chain(0x38d..=0x392).chain(0x4c1..=0x4c8);
        let amds = (0xc000_0300..=0xc000_0303).chain(0xc001_0000..=0xc001_0007).chain(0xc001_0200..=0xc001_020b);
        for msr in few.chain([0x1a0, 0x1d9, 0x345, 0x3f1, 0x600]).chain(amds) {
            self.read(msr)?;
        }
        self.pmi()?;
        let Self { mut vpmu, pmis, .. } = self;
        let open_events = Rc::clone(&vpmu.host().backend().host.held);
        let overflows = vpmu.counts().overflows;
        let bank = vpmu.host().stats();
        let (failed, reused, slices) = (failures(bank).iter().sum(), bank.counts.reused, bank.counts.sched_ins);
        let activity = [overflows, pmis, reused, slices, failed, vpmu.host().backend().host.lost_records];
        drop(vpmu);
        match open_events.get() {
            0 => Ok(activity),
            left => Err(format!("{left} events left open")),
        }
    }
}
