//! A PMU, a host, a strategy and a sequence from bytes, for proptest and for fuzzers. Bytes that are used up are zeros.

use arch_pmu::spec::Vendor;
use host_pmu::backend::scheduling::Processor;
use host_pmu::strategy::{Apply, OnOverflow, PRESETS, Pause, Release as Kept, Reuse, Strategy};

use super::host::{Failing, Release, Rules};
use super::pair::{AMD_EVENTS, Activity, EVENTS, Op, Pair, Records, Signal};
use super::{Amd, Shape};

/// Bytes of a [`Script`] before its operations, and of one operation.
pub(crate) const HEAD: usize = 24;
pub(crate) const OP: usize = 24;

/// The kind of host that a script has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// Every event counts.
    Plain,
    /// Hardware events by perf's rules; the counters of a guest all fit.
    ByRules,
}

/// What is run on the vPMU and on the ideal one.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    shape: Shape,
    rules: Option<Rules>,
    strategy: Strategy,
    records: Records,
    pub(crate) ops: Vec<Op>,
}

impl Script {
    pub(crate) fn new<'a>(vendor: Vendor, host: Host, head: &[u8], ops: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut head = Bytes(head);
        let amd = vendor == Vendor::Amd;
        let (mut shape, strategy, records) = (head.shape(amd), head.strategy(), head.records());
        let rules = matches!(host, Host::ByRules).then(|| head.rules(vendor, &mut shape));
        Self { shape, rules, strategy, records, ops: ops.into_iter().map(|op| Bytes(op).op(amd)).collect() }
    }

    /// Runs it on both.
    pub(crate) fn run(self) -> Result<Activity, String> {
        let mut pair = match self.rules {
            Some(rules) => Pair::by_rules(self.shape, self.strategy, rules),
            None => Pair::new(self.shape, self.strategy, self.records),
        };
        for (at, op) in self.ops.iter().enumerate() {
            pair.step(op).map_err(|why| format!("operation {at}, {op:x?}: {why}"))?;
        }
        pair.finish().map_err(|why| format!("at the end: {why}"))
    }
}

/// Runs a fuzzer's script.
#[allow(dead_code, reason = "the fuzz target's way in")]
pub(crate) fn run(bytes: &[u8]) -> Result<(), String> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(()) };
    let (head, ops) = rest.split_at(rest.len().min(HEAD));
    let vendor = if kind & 1 == 0 { Vendor::Intel } else { Vendor::Amd };
    let host = if kind & 2 == 0 { Host::Plain } else { Host::ByRules };
    Script::new(vendor, host, head, ops.chunks(OP).take(2000)).run().map(|_| ())
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// Takes a little-endian word of `n` bytes.
    fn word(&mut self, n: usize) -> u64 {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    fn below(&mut self, n: u64) -> u64 {
        self.word(if n > 64 { 2 } else { 1 }) % n
    }

    fn flag(&mut self) -> bool {
        self.word(1) & 1 != 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.word(1) as usize % of.len()].clone()
    }

    fn shape(&mut self, amd: bool) -> Shape {
        let plain = Shape {
            amd: None,
            version: 1,
            gp: 6,
            fixed: 0,
            width: 48,
            full_width: false,
            transactions: false,
            debug_store: false,
        };
        let (gp, fixed) = (1 + self.below(8) as u8, self.below(5) as u8);
        if amd {
            let v2 = Shape { amd: Some(Amd::V2), version: 2, ..plain };
            return self.pick(&[Shape { amd: Some(Amd::Core), ..plain }, v2, Shape { gp: gp.min(6), ..v2 }]);
        }
        let version = 1 + self.below(5) as u8;
        let width = self.pick(&[48, 48, 48, 47, 40, 33]);
        // Fixed counters came with version 2.
        let any = (version, gp, if version < 2 { 0 } else { fixed }, width);
        let (version, gp, fixed, width) = self.pick(&[any, any, any, (2, 4, 3, 48), (4, 4, 3, 48), (4, 8, 4, 48)]);
        let [full_width, transactions, debug_store] = [(); 3].map(|()| self.flag());
        Shape { version, gp, fixed, width, full_width, transactions, debug_store, ..plain }
    }

    /// Takes a host with hardware events, on which the counters of the guest have to fit.
    fn rules(&mut self, vendor: Vendor, shape: &mut Shape) -> Rules {
        let processors: Vec<_> = Processor::all().filter(|processor| processor.vendor() == vendor).collect();
        let processor = self.pick(&processors);
        let release = self.pick(&[Release(5, 4), Release(6, 1), Release(6, 12), Release(6, 15), Release(7, 2)]);
        let others = self.pick(&[0, 1]);
        let (gp, fixed) = processor.counters();
        (shape.gp, shape.fixed) = (shape.gp.min(gp - others as u8), shape.fixed.min(fixed));
        if shape.amd == Some(Amd::Core) && others > 0 {
            // PERFCTR_CORE has six counters, one more than are left.
            (shape.amd, shape.version) = (Some(Amd::V2), 2);
        }
        Rules { processor, release, others }
    }

    /// Takes a preset, or a strategy of choices that do not contradict each other.
    fn strategy(&mut self) -> Strategy {
        if self.flag() {
            return Strategy::preset(self.pick(&PRESETS)).expect("a preset");
        }
        let pool = Reuse::Pool(1 + self.below(5) as usize);
        let reuse = self.pick(&[Reuse::None, Reuse::Last, Reuse::Last, pool, pool]);
        let slices = Kept::Slices(1 + self.below(3) as u32);
        let reused = reuse != Reuse::None;
        let release = self.pick(&[slices, Kept::Never, if reused { Kept::Never } else { Kept::Eager }]);
        let gate = reused && self.flag();
        Strategy {
            name: "random".to_owned(),
            pause: if reused && !gate && self.flag() { Pause::Virtual } else { Pause::Host },
            reuse,
            release,
            apply: self.pick(&[Apply::AtOnce, Apply::Deferred]),
            skip_paused: self.flag(),
            skip_period: self.flag(),
            overflow: self.pick(&[OnOverflow::Reprogram, OnOverflow::Keep]),
            gate,
        }
    }

    fn records(&mut self) -> Records {
        self.pick(&[Records::Exact, Records::Exact, Records::None, Records::Early])
    }

    fn one_of(&mut self, first: u32, number: u64, step: u32) -> u32 {
        first + step * self.below(number) as u32
    }

    fn msr(&mut self, amd: bool) -> u32 {
        const ODD: [u32; 6] = [0xc9, 0x18e, 0x30d, 0x38c, 0x393, 0x4c9];
        const AMDS_ODD: [u32; 5] = [0xc001_020c, 0xc001_01ff, 0xc000_0304, 0xc1, 0x38f];
        match (self.below(if amd { 25 } else { 63 }), amd) {
            (0..8, true) => self.one_of(0xc001_0201, 6, 2),
            (8..14, true) => self.one_of(0xc001_0200, 6, 2),
            (14..18, true) => self.one_of(0xc001_0000, 8, 1),
            (18..24, true) => self.one_of(0xc000_0300, 4, 1),
            (0..6, false) => self.one_of(0xc1, 8, 1),
            (6..12, false) => self.one_of(0x4c1, 8, 1),
            (12..18, false) => self.one_of(0x309, 4, 1),
            (18..27, false) => self.one_of(0x186, 8, 1),
            (27..36, false) => 0x38d,
            (36..54, false) => self.one_of(0x38e, 5, 1),
            (54..60, false) => self.pick(&[0x345, 0x1d9, 0x3f1, 0x600, 0x1a0]),
            _ => {
                let odd: &[u32] = if amd { &AMDS_ODD } else { &ODD };
                let at = self.below(odd.len() as u64 + 1) as usize;
                odd.get(at).copied().unwrap_or_else(|| self.word(4) as u32)
            }
        }
    }

    /// Takes a selector of a few events, so that counters share them and strategies find them again.
    fn selector(&mut self, amd: bool) -> u64 {
        let event = self.pick(if amd { &AMD_EVENTS } else { &EVENTS });
        let event = if amd { event & 0xffff | event >> 16 << 32 } else { event };
        let (ring, int, enable) = (self.pick(&[3, 3, 1, 2]), self.flag(), self.below(20) < 17);
        let rare: &[u64] = if amd {
            &[1 << 18, 1 << 23 | 2 << 24, 1 << 40, 1 << 41, 1 << 19 | 1 << 21 | 1 << 36]
        } else {
            &[1 << 18, 1 << 23 | 2 << 24, 1 << 32, 1 << 33, 3 << 32, 1 << 21]
        };
        let rare = rare.get((self.below(20) as usize).wrapping_sub(1)).copied().unwrap_or(0);
        event | ring << 16 | u64::from(int) << 20 | u64::from(enable) << 22 | rare
    }

    fn odd(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => 1 << self.below(64),
            2 => self.word(8),
            _ => u64::MAX,
        }
    }

    fn value(&mut self, msr: u32, amd: bool) -> u64 {
        let first = self.below(10);
        let near = |bytes: &mut Self| 0u64.wrapping_sub(bytes.below(2000));
        match msr {
            0x186..=0x18d | 0xc001_0000..=0xc001_0003 if first < 9 => self.selector(amd),
            0xc001_0200..=0xc001_020b if msr.is_multiple_of(2) && first < 9 => self.selector(amd),
            0xc000_0300..=0xc000_0303 if first < 4 => 0x3f,
            0xc000_0300..=0xc000_0303 if first < 8 => self.below(64),
            0xc1..=0xc8 | 0x309..=0x30c | 0x4c1..=0x4c8 if first < 8 => match first {
                0..4 => near(self),
                4..7 => near(self).wrapping_sub(1) & ((1 << 48) - 1),
                _ => self.word(4),
            },
            0x38d if first < 8 => {
                let nibbles = [0u64, 1, 2, 3, 8, 9, 0xa, 0xb, 0xb, 0xb];
                let all = (0..4).fold(0, |bits, n| bits | self.pick(&nibbles) << (4 * n));
                if first < 5 { all & 0xfff } else { all }
            }
            0x38f..=0x391 if first < 4 => self.pick(&[0, 0xf, 0x7_0000_000f, 0xf_0000_00ff, 0x7_0000_0003, 3, 1 << 59]),
            0x38f..=0x391 if first < 8 => {
                let lines = self.word(1) | self.below(16) << 32;
                if first < 7 { lines & 0x7_0000_000f } else { lines }
            }
            0x1d9 => {
                let plain = [0, 1, 2, 0x40, 0x400, 0x800, 0x1000, 0x1800, 0x1801, 4, 0x2000, 1 << 16, 1 << 40];
                self.pick(&plain)
            }
            0x600 => {
                let any = self.word(8);
                self.pick(&[any, any >> 17, 0xffff_8000_0000_0000, 1 << 47])
            }
            0x1a0 if first < 8 => {
                let any = self.word(8);
                self.pick(&[0, 0x1881, 0x40_0080, any & 0x44_00c5_1889])
            }
            0x3f1 if first < 8 => 0,
            _ if amd && first < 8 => near(self),
            _ => self.odd(),
        }
    }

    fn op(&mut self, amd: bool) -> Op {
        const BITS: [u32; 8] = [0, 1, 4, 8, 11, 11, 20, 40];
        match self.below(268) {
            0..60 => {
                let msr = self.msr(amd);
                Op::Write(msr, self.value(msr, amd))
            }
            60..120 => Op::Read(self.msr(amd)),
            120..180 => Op::Run {
                seed: self.word(8),
                bits: self.pick(&BITS),
                signal: self.pick(&[Signal::OnTime, Signal::OnTime, Signal::OnTime, Signal::OnTime, Signal::Held]),
                take_pmi: self.flag(),
            },
            180..200 => Op::Arm {
                n: self.below(12) as u32,
                selector: self.selector(amd) | 1 << 22,
                bits: self.pick(&BITS),
                back: self.word(8),
            },
            200..220 => {
                Op::Handler { seed: self.word(8), bits: self.pick(&BITS), n: self.below(10) as u32, back: self.word(8) }
            }
            220..226 => Op::Kick,
            226..236 => Op::Enter,
            236..246 => Op::Pmi,
            246..258 => Op::Slice,
            258 => Op::Reset,
            259 => {
                let [open, period, resume] = [(); 3].map(|()| self.flag());
                Op::Fail(Failing { open, period, resume })
            }
            260 => Op::Lose,
            261..265 => Op::LoseRecords,
            _ => Op::Heal,
        }
    }
}
