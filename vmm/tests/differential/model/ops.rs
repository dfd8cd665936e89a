//! What a random sequence is made of, and what carries it out on both sides.

use host_pmu::bank::Bank;
use host_pmu::counters::HostCounters;
use host_pmu::strategy::{Reuse, Strategy};
use proptest::collection::vec;
use proptest::prelude::*;
use vmm::vpmu::Vpmu;
use vmm::vpmu::caps::PmuCaps;
use vmm::vpmu::filter::{Action, Event, EventFilter};

use super::host::{Failing, ScriptedHost};
use super::{Armed, Burst, Model, Shape};

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
    Kick,
    Enter,
    Pmi,
    Slice,
    Advance(u64),
    Reset,
    Fail(Failing),
    Lose,
    Heal,
    /// Denies these of [`EVENTS`] and these fixed counters; by a list of what is allowed, or of what is not.
    Filter {
        denied: u8,
        fixed: u32,
        allow: bool,
    },
}

fn msr() -> impl Strategy_<Value = u32> {
    prop_oneof![
        6 => prop_oneof![0xc1..=0xc8u32, 0x4c1..=0x4c8u32, 0x309..=0x30cu32],
        6 => prop_oneof![0x186..=0x18du32, Just(0x38d)],
        6 => prop_oneof![Just(0x38e), Just(0x38f), Just(0x390), Just(0x391), Just(0x392)],
        2 => prop_oneof![Just(0x345), Just(0x1d9), Just(0x3f1), Just(0x600)],
        1 => prop_oneof![Just(0xc9), Just(0x18e), Just(0x30d), Just(0x38c), Just(0x393), Just(0x4c9), any::<u32>()],
    ]
}

use proptest::strategy::Strategy as Strategy_;

/// Events that the sequences select.
const EVENTS: [u64; 4] = [0xc0, 0x3c, 0x13c, 0xc4];

/// A selector of a few events, so that counters share them and strategies find them again.
fn selector() -> impl Strategy_<Value = u64> {
    let event = prop::sample::select(EVENTS.to_vec());
    (event, prop::sample::select(vec![1u64, 2, 3, 3]), any::<bool>(), prop::bool::weighted(0.85), 0..20u64).prop_map(
        |(event, ring, int, enable, rare)| {
            let rare = match rare {
                0 => 1 << 18,
                1 => 1 << 23 | 2 << 24,
                2 => 1 << 32,
                3 => 1 << 33,
                4 => 3 << 32,
                _ => 0,
            };
            event | ring << 16 | u64::from(int) << 20 | u64::from(enable) << 22 | rare
        },
    )
}

fn value(msr: u32) -> BoxedStrategy<u64> {
    let odd = prop_oneof![any::<u64>(), (0..64u32).prop_map(|bit| 1 << bit), Just(0), Just(u64::MAX)];
    let counter = prop_oneof![
        3 => (0..2000u64).prop_map(|n| 0u64.wrapping_sub(n)),
        2 => (0..2000u64).prop_map(|n| (1u64 << 48) - 1 - n),
        1 => any::<u32>().prop_map(u64::from),
        1 => odd.clone(),
    ];
    match msr {
        0xc1..=0xc8 | 0x309..=0x30c | 0x4c1..=0x4c8 => counter.boxed(),
        0x186..=0x18d => prop_oneof![9 => selector(), 1 => Just(0), 1 => odd].boxed(),
        0x38d => {
            let nibble = || prop::sample::select(vec![0u64, 1, 2, 3, 8, 9, 0xa, 0xb, 0xb, 0xb]);
            let all = vec(nibble(), 4).prop_map(|n| n[0] | n[1] << 4 | n[2] << 8 | n[3] << 12);
            prop_oneof![4 => all.clone().prop_map(|v| v & 0xfff), 2 => all, 1 => odd].boxed()
        }
        0x38f..=0x391 => {
            let lines = (any::<u8>(), 0..16u64).prop_map(|(gp, fixed)| u64::from(gp) | fixed << 32);
            let full = prop::sample::select(vec![0, 0xf, 0x7_0000_000f, 0xf_0000_00ff, 0x7_0000_0003, 3, 1 << 59]);
            prop_oneof![4 => full, 3 => lines.clone().prop_map(|v| v & 0x7_0000_000f), 1 => lines, 1 => odd].boxed()
        }
        0x1d9 => prop::sample::select(vec![0u64, 1, 0x800, 0x1000, 0x1800, 0x1801, 1 << 16, 1 << 40]).boxed(),
        0x600 => prop_oneof![any::<u64>(), 0..1u64 << 47, Just(0xffff_8000_0000_0000), Just(1 << 47)].boxed(),
        0x3f1 => prop_oneof![3 => Just(0), 1 => odd].boxed(),
        _ => odd.boxed(),
    }
}

fn op() -> impl Strategy_<Value = Op> {
    let flag = || prop::bool::weighted(0.5);
    let signal = prop_oneof![4 => Just(Signal::OnTime), 1 => Just(Signal::Held)];
    let bits = || prop::sample::select(vec![0u32, 1, 4, 8, 11, 11, 20, 40]);
    prop_oneof![
        60 => msr().prop_map(Op::Read),
        60 => msr().prop_flat_map(|m| value(m).prop_map(move |v| Op::Write(m, v))),
        20 => (0..12u32, selector(), bits(), any::<u64>()).prop_map(|(n, selector, bits, back)| Op::Arm {
            n, selector: selector | 1 << 22, bits, back
        }),
        60 => (any::<u64>(), bits(), signal, flag()).prop_map(|(seed, bits, signal, take_pmi)| Op::Run {
            seed, bits, signal, take_pmi
        }),
        6 => Just(Op::Kick),
        10 => Just(Op::Enter),
        10 => Just(Op::Pmi),
        12 => Just(Op::Slice),
        4 => (0..40_000_000u64).prop_map(Op::Advance),
        1 => Just(Op::Reset),
        1 => (flag(), flag(), flag()).prop_map(|(open, period, resume)| Op::Fail(Failing { open, period, resume })),
        1 => Just(Op::Lose),
        3 => Just(Op::Heal),
        1 => (0..16u8, 0..16u32, any::<bool>()).prop_map(|(denied, fixed, allow)| Op::Filter { denied, fixed, allow }),
        1 => Just(Op::Filter { denied: 0, fixed: 0, allow: false }),
    ]
}

pub(crate) fn ops(most: usize) -> impl Strategy_<Value = Vec<Op>> {
    vec(op(), 1..=most)
}

pub(crate) fn shape() -> impl Strategy_<Value = Shape> {
    let numbers = (1..=5u8, 1..=8u8, 0..=4u8, prop::sample::select(vec![33u8, 40, 47, 48, 48, 48]));
    let usual = prop::sample::select(vec![(2u8, 4u8, 3u8, 48u8), (4, 4, 3, 48), (4, 8, 4, 48)]);
    (prop_oneof![numbers, usual], any::<[bool; 3]>()).prop_map(
        |((version, gp, fixed, width), [full_width, transactions, debug_store])| Shape {
            version,
            gp,
            // Fixed counters came with version 2.
            fixed: if version < 2 { 0 } else { fixed },
            width,
            full_width,
            transactions,
            debug_store,
        },
    )
}

pub(crate) fn strategy() -> impl Strategy_<Value = Strategy> {
    let preset = prop::sample::select(host_pmu::strategy::PRESETS.to_vec())
        .prop_map(|name| Strategy::preset(name).expect("a preset"));
    let reuse = prop_oneof![
        Just("'none'".to_owned()),
        Just("'last'".to_owned()),
        (1..6u32).prop_map(|k| format!("{{ pool = {k} }}"))
    ];
    let release = prop_oneof![
        Just("'never'".to_owned()),
        Just("'eager'".to_owned()),
        (1..4u32).prop_map(|n| format!("{{ slices = {n} }}")),
        (1..30u32).prop_map(|ms| format!("{{ idle-ms = {ms} }}")),
    ];
    let valid = (reuse, release, any::<[bool; 4]>()).prop_filter_map("contradiction", |(reuse, release, flags)| {
        let [deferred, skip, reads, global] = flags;
        let apply = if deferred { "deferred" } else { "at-once" };
        Strategy::from_toml(&format!(
            "name = 'random'\nreuse = {reuse}\nrelease = {release}\napply = '{apply}'\nskip-paused = {skip}\n\
             mark = {{ reads = {reads}, global-ctrl = {global} }}"
        ))
        .ok()
    });
    prop_oneof![preset, valid]
}

/// Entries after which a host that is sound again must have been asked again.
const MOST_ENTRIES: u32 = 1100;

/// Both sides.
pub(crate) struct Pair {
    model: Model,
    vpmu: Vpmu<Bank<ScriptedHost>>,
    host: ScriptedHost,
    shape: Shape,
    most_held: u64,
    failing: bool,
    /// A refused period may leave an event aimed wrongly until a retry.
    aim_open: bool,
    /// A signal was given and no kick followed.
    signal_held: bool,
    /// Nothing happened since the entry.
    entered: bool,
    pmis: u64,
}

/// What came about in a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    pub(crate) overflows: u64,
    pub(crate) pmis: u64,
    pub(crate) reused: u64,
    pub(crate) slices: u64,
    pub(crate) failures: u64,
}

impl Activity {
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            overflows: self.overflows + other.overflows,
            pmis: self.pmis + other.pmis,
            reused: self.reused + other.reused,
            slices: self.slices + other.slices,
            failures: self.failures + other.failures,
        }
    }
}

impl Pair {
    pub(crate) fn new(shape: Shape, strategy: Strategy) -> Self {
        let host = ScriptedHost::default();
        let pool = if let Reuse::Pool(k) = strategy.reuse { k as u64 } else { 0 };
        let caps = PmuCaps {
            version: shape.version,
            gp: shape.gp,
            fixed: shape.fixed,
            width: shape.width,
            full_width_writes: shape.full_width,
            transactions: shape.transactions,
            debug_store: shape.debug_store,
        };
        Self {
            model: Model::new(shape),
            vpmu: Vpmu::new(caps, Bank::new(host.clone(), strategy)),
            host,
            shape,
            most_held: u64::from(shape.gp + shape.fixed) + pool,
            failing: false,
            aim_open: false,
            signal_held: false,
            entered: false,
            pmis: 0,
        }
    }

    fn read(&mut self, msr: u32) -> Result<(), String> {
        self.model.read(msr, self.vpmu.rdmsr(msr).ok())
    }

    fn write(&mut self, msr: u32, value: u64) -> Result<(), String> {
        let fault = self.vpmu.wrmsr(msr, value).is_err();
        match self.model.write(msr, value) {
            Some(expected) if expected != fault => Err(format!("WRMSR {msr:#x} {value:#x}: #GP is {fault}")),
            _ => Ok(()),
        }
    }

    fn kick(&mut self) {
        self.signal_held = false;
        self.vpmu.kick();
        self.model.kick();
    }

    fn enter(&mut self) -> Result<(), String> {
        self.entered = true;
        self.vpmu.enter();
        self.model.enter();
        let held = self.vpmu.host().held();
        if held != self.host.open_events() as u64 || held > self.most_held {
            return Err(format!("{held} events held of {}, {} open", self.most_held, self.host.open_events()));
        }
        self.aimed()
    }

    /// Each counter that counts has an event that signals at its overflow, and nothing else runs.
    fn aimed(&mut self) -> Result<(), String> {
        if !self.aim_open && self.model.settled() {
            let (ideal, real) = (self.model.armed(), self.host.armed());
            if ideal != real {
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
        self.model.run(burst);
        self.signal_held |= self.host.run(burst);
        if signal == Signal::OnTime && self.signal_held {
            self.kick();
        } else if signal == Signal::OnTime && !self.aim_open && self.shape_signals() && self.model.overflow_unseen() {
            return Err("an overflow that no event signals".to_owned());
        }
        Ok(())
    }

    /// IN_TXCP never signals: with it an overflow may stay unseen.
    fn shape_signals(&self) -> bool {
        !self.shape.transactions
    }

    fn doubt(&mut self) {
        self.failing = true;
        self.aim_open = true;
        self.model.doubt();
    }

    /// The host is sound again: the PMU must come back by itself, then it is set up anew and exact again.
    fn heal(&mut self) -> Result<(), String> {
        if !self.failing {
            return Ok(());
        }
        self.host.set_failing(Failing::default());
        let came_back = |pair: &Self| {
            let what = |(event, os, usr, _): Armed| (event, os, usr);
            let real: Vec<_> = pair.host.armed().into_iter().map(what).collect();
            real == pair.model.armed().into_iter().map(what).collect::<Vec<_>>()
        };
        let mut entries = 0;
        // What was lost is found at the next look.
        self.kick();
        self.enter()?;
        while !came_back(self) {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(format!("{MOST_ENTRIES} entries brought {:x?} back", self.host.armed()));
            }
            self.kick();
            self.enter()?;
        }
        for line in self.model.lines() {
            let msr = if line < 32 { 0xc1 + line } else { 0x309 + line - 32 };
            self.read(msr)?;
            self.write(msr, 0)?;
        }
        let lines = self.model.lines().fold(0, |bits, line| bits | 1 << line);
        if self.shape.version >= 2 {
            self.write(0x390, lines)?;
        }
        self.pmi()?;
        self.model.trust();
        self.failing = false;
        self.aim_open = false;
        self.enter()?;
        let stats = self.vpmu.host().stats();
        let reported = [stats.failed_opens, stats.refused_periods, stats.pinned_errors];
        let injected = self.host.failures();
        if reported == injected { Ok(()) } else { Err(format!("{injected:?} failures, {reported:?} reported")) }
    }

    fn filter(&mut self, denied: u8, fixed: u32, allow: bool) {
        let mut listed = Vec::new();
        let of_events = EVENTS.iter().enumerate().filter(|(i, _)| denied >> i & 1 != 0).map(|(_, event)| *event);
        // What is not on a list of what is allowed is denied.
        self.model.filter(EVENTS.iter().copied().collect(), of_events.collect(), allow, fixed);
        for (i, event) in EVENTS.iter().enumerate() {
            if (denied >> i & 1 != 0) != allow {
                listed.push(Event { event: *event as u8, umask: (event >> 8) as u8 });
            }
        }
        let (action, fixed) = if allow { (Action::Allow, !fixed) } else { (Action::Deny, fixed) };
        self.vpmu.set_filter(EventFilter::new(action, listed, fixed).expect("few events"));
    }

    pub(crate) fn step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Read(msr) => self.read(msr)?,
            Op::Write(msr, value) => self.write(msr, value)?,
            Op::Arm { n, selector, bits, back } => {
                let start = 0u64.wrapping_sub(back & ((1 << bits.min(31)) - 1));
                if n < u32::from(self.shape.gp) {
                    self.write(0xc1 + n, start)?;
                    self.write(0x186 + n, selector)?;
                    self.write(0x38f, u64::MAX >> (64 - u32::from(self.shape.gp)))?;
                } else if n - u32::from(self.shape.gp) < u32::from(self.shape.fixed) {
                    let fixed = n - u32::from(self.shape.gp);
                    self.write(0x309 + fixed, start)?;
                    self.write(0x38d, 0xb << (4 * fixed))?;
                    self.write(0x38f, 1 << (32 + fixed) | 1)?;
                }
            }
            Op::Run { seed, bits, signal, take_pmi } => {
                self.enter()?;
                if take_pmi {
                    self.pmi()?;
                }
                self.run(Burst { seed, bits: bits.min(u32::from(self.shape.width)) }, signal)?;
            }
            Op::Kick => self.kick(),
            Op::Enter => self.enter()?,
            Op::Pmi => self.pmi()?,
            Op::Slice => self.host.new_slice(),
            Op::Advance(ns) => self.host.advance(ns),
            Op::Reset => {
                self.vpmu.reset();
                self.model.reset();
                self.signal_held = false;
            }
            Op::Fail(failing) => {
                self.host.set_failing(failing);
                self.doubt();
            }
            Op::Lose => {
                self.host.lose();
                self.doubt();
            }
            Op::Heal => self.heal()?,
            Op::Filter { denied, fixed, allow } => self.filter(denied, fixed, allow),
        }
        self.entered &= matches!(op, Op::Enter | Op::Pmi);
        Ok(())
    }

    /// Every register once, and nothing left open afterwards.
    pub(crate) fn finish(mut self) -> Result<Activity, String> {
        self.heal()?;
        self.kick();
        self.enter()?;
        let few = (0xc1..=0xc8).chain(0x186..=0x18d).chain(0x309..=0x30c).chain(0x38d..=0x392).chain(0x4c1..=0x4c8);
        for msr in few.chain([0x1d9, 0x345, 0x3f1, 0x600]) {
            self.read(msr)?;
        }
        self.pmi()?;
        let Self { mut vpmu, host, pmis, .. } = self;
        let overflows = vpmu.stats().overflows;
        let bank = vpmu.host().stats();
        let failures = bank.failed_opens + bank.refused_periods + bank.pinned_errors;
        let activity = Activity { overflows, pmis, reused: bank.reused, slices: bank.sched_ins, failures };
        drop(vpmu);
        match host.open_events() {
            0 => Ok(activity),
            left => Err(format!("{left} events left open")),
        }
    }
}
