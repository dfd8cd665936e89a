//! A PMU, a strategy and a sequence from bytes, for fuzzers.

use host_pmu::strategy::{Apply, MAX_POOL, OnOverflow, PRESETS, Pause, Release, Reuse, Strategy};

use super::Shape;
use super::host::Failing;
use super::pair::{Op, Pair, Records, Signal};

/// Operations of one script at most.
const MOST_OPS: usize = 2000;

/// Bytes until they are used up; then there are no more operations.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes a little-endian word of `n` bytes.
    fn word(&mut self, n: usize) -> Option<u64> {
        (0..n).try_fold(0, |word, i| Some(word | u64::from(self.byte()?) << (8 * i)))
    }

    fn below(&mut self, n: u8) -> Option<u8> {
        Some(self.byte()? % n)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.byte()? & 1 != 0)
    }

    fn shape(&mut self) -> Option<Shape> {
        let version = 1 + self.below(5)?;
        let gp = 1 + self.below(8)?;
        let fixed = self.below(5)?;
        let width = [48, 48, 33, 40][usize::from(self.below(4)?)];
        Some(Shape {
            amd: None,
            version,
            gp,
            // Fixed counters came with version 2.
            fixed: if version < 2 { 0 } else { fixed },
            width,
            full_width: self.flag()?,
            transactions: self.flag()?,
            debug_store: self.flag()?,
        })
    }

    fn strategy(&mut self) -> Option<Strategy> {
        let preset = usize::from(self.below(PRESETS.len() as u8 + 1)?);
        if let Some(name) = PRESETS.get(preset) {
            return Strategy::preset(name).ok();
        }
        let n = self.byte()?;
        let reuse = match self.below(3)? {
            0 => Reuse::None,
            1 => Reuse::Last,
            _ => Reuse::Pool(1 + usize::from(n) % MAX_POOL),
        };
        let release = match self.below(2)? {
            0 if reuse == Reuse::None => Release::Eager,
            0 => Release::Never,
            _ => Release::Slices(1 + u32::from(n) % 3),
        };
        let gate = reuse != Reuse::None && self.flag()?;
        let overflow = if self.flag()? { OnOverflow::Keep } else { OnOverflow::Reprogram };
        let may_go_on = reuse != Reuse::None && !gate;
        Some(Strategy {
            name: "fuzzed".to_owned(),
            pause: if may_go_on && self.flag()? { Pause::Virtual } else { Pause::Host },
            reuse,
            release,
            apply: if self.flag()? { Apply::Deferred } else { Apply::AtOnce },
            skip_paused: self.flag()?,
            skip_period: self.flag()?,
            overflow,
            gate,
        })
    }

    fn msr(&mut self) -> Option<u32> {
        let n = u32::from(self.byte()?);
        Some(match n >> 5 {
            0 => 0xc1 + n % 9,
            1 => 0x186 + n % 9,
            2 => 0x309 + n % 5,
            3 | 4 => 0x38c + n % 8,
            5 => 0x4c1 + n % 9,
            6 => [0x345, 0x1d9, 0x3f1, 0x600, 0x1a0][(n % 5) as usize],
            _ => self.word(4)? as u32,
        })
    }

    /// Takes a value that is mostly small, near the top, or of few bits.
    fn value(&mut self) -> Option<u64> {
        Some(match self.below(6)? {
            0 => self.word(1)?,
            1 => 0u64.wrapping_sub(self.word(2)?),
            2 => 1 << self.below(64)?,
            3 => self.word(2)? | self.word(1)? << 32,
            4 => self.word(4)?,
            _ => self.word(8)?,
        })
    }

    fn op(&mut self) -> Option<Op> {
        Some(match self.below(32)? {
            0..=5 => Op::Read(self.msr()?),
            6..=13 => Op::Write(self.msr()?, self.value()?),
            14..=17 => Op::Arm {
                n: u32::from(self.below(12)?),
                selector: self.word(3)? | 1 << 22,
                bits: u32::from(self.below(24)?),
                back: self.word(2)?,
            },
            18..=23 => Op::Run {
                seed: self.word(1)?,
                bits: u32::from(self.below(44)?),
                signal: if self.below(4)? == 0 { Signal::Held } else { Signal::OnTime },
                take_pmi: self.flag()?,
            },
            24 => Op::Kick,
            25 => Op::Enter,
            26 => Op::Pmi,
            27 => Op::Slice,
            28 => match self.below(5)? {
                0 => Op::Reset,
                1 => Op::Lose,
                2 => Op::LoseRecords,
                _ => {
                    let bits = self.byte()?;
                    let [open, period, resume] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
                    Op::Fail(Failing { open, period, resume })
                }
            },
            29 => Op::Heal,
            30 => Op::Handler {
                seed: self.word(1)?,
                bits: u32::from(self.below(12)?),
                n: u32::from(self.below(10)?),
                back: self.word(2)?,
            },
            _ => Op::Filter { denied: self.below(16)?, fixed: u32::from(self.below(16)?), allow: self.flag()? },
        })
    }
}

/// Runs the script that `bytes` are, on the vPMU and the ideal one.
pub(crate) fn run(bytes: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes(bytes);
    let Some((shape, strategy)) = bytes.shape().zip(bytes.strategy()) else { return Ok(()) };
    let Some(records) = bytes.below(3) else { return Ok(()) };
    let records = [Records::None, Records::Exact, Records::Early][usize::from(records)];
    let mut pair = Pair::new(shape, strategy, records);
    for at in 0..MOST_OPS {
        let Some(op) = bytes.op() else { break };
        pair.step(&op).map_err(|why| format!("operation {at}, {op:x?}: {why}"))?;
    }
    pair.finish().map(|_| ())
}
