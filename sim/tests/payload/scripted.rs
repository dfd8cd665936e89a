//! A CPU that answers by chance and records what its guest asks of it: counters and STATUS of all kinds, NMIs at any exit, exits of any length. Its answers
//! depend on its seed and the questions only, so two guests with the same questions get the same answers.

use std::collections::BTreeMap;
use std::mem;

use counts::Counts;
use host_pmu::stats::{HostSide, PhaseTally, Recorder};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sim::guest::cpu::Cpu;
use sim::guest::paths::Path;
use sim::side::VcpuSide;

const GLOBAL_STATUS: u32 = 0x38e;
const AMD_GLOBAL_STATUS: u32 = 0xc000_0300;
const FIXED_CTR_CTRL: u32 = 0x38d;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Rdmsr(u32, u64),
    Wrmsr(u32, u64),
    Lvtpc(u32),
    Eoi,
    Timer(u64),
    Doorbell(u32),
    Phase(u64),
    Port,
    Tsc(u64),
    Interrupted { tick: bool },
    Returns { to_tick: bool },
    User { until: u64, ns: u64 },
    Halt(u64),
    Rest(u64),
}

/// Ways gone, and how often.
pub(crate) type Ways = BTreeMap<Path, u64>;

/// One request, and the instructions executed since the one before.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) asked: Asked,
    pub(crate) instructions: u64,
    pub(crate) ways: Ways,
}

/// Parameters of the random environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chances {
    pub(crate) seed: u64,
    /// NMIs of 1 000 exits.
    pub(crate) nmis: u64,
    /// STATUS is not 0, of 1 000 reads.
    pub(crate) overflows: u64,
    /// Bits of STATUS.
    pub(crate) counters: u64,
    /// Counts of a counter between two looks at it, at most, as a power of two. Occasionally it is any number.
    pub(crate) counts: u32,
    /// Longest exit, ns.
    pub(crate) exit_ns: u64,
    /// Longest time in ring 3 without an NMI, ns.
    pub(crate) user_ns: u64,
    /// An instruction takes this long. If 0, the clock does not tell how many there were.
    pub(crate) instruction_ps: u64,
}

pub(crate) struct Scripted {
    chances: Chances,
    random: Xoshiro256PlusPlus,
    tsc_khz: u64,
    ps: u64,
    nmi: Option<u64>,
    /// Last value written to each counter, and its progress since.
    counters: BTreeMap<u32, u64>,
    in_tick: bool,
    /// Instructions and ways since the last request.
    instructions: u64,
    ways: Ways,
    pub(crate) steps: Vec<Step>,
}

impl Scripted {
    pub(crate) fn new(chances: Chances, tsc_khz: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(chances.seed);
        Self {
            chances,
            random,
            tsc_khz,
            ps: 0,
            nmi: None,
            counters: BTreeMap::new(),
            in_tick: false,
            instructions: 0,
            ways: Ways::new(),
            steps: Vec::new(),
        }
    }

    fn add(&mut self, asked: Asked) {
        let (instructions, ways) = (mem::take(&mut self.instructions), mem::take(&mut self.ways));
        self.steps.push(Step { asked, instructions, ways });
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    fn exit(&mut self) {
        self.ps += 1000 * (50 + self.below(self.chances.exit_ns));
        if self.below(1000) < self.chances.nmis {
            let now = self.now();
            self.nmi.get_or_insert(now);
        }
    }

    fn read(&mut self, msr: u32) -> u64 {
        match msr {
            GLOBAL_STATUS | AMD_GLOBAL_STATUS if self.below(1000) < self.chances.overflows => {
                let all = self.chances.counters;
                // Occasionally it is that of an unused counter.
                let mask = if self.below(50) == 0 { u64::MAX } else { all };
                let bits = self.random.next_u64() & self.random.next_u64() & mask;
                if bits == 0 { mask & mask.wrapping_neg() } else { bits }
            }
            GLOBAL_STATUS | AMD_GLOBAL_STATUS => 0,
            FIXED_CTR_CTRL => self.random.next_u64() & 0xfff,
            _ => {
                let by = self.random.next_u64();
                let grows = if self.below(20) == 0 { by } else { by & ((1 << self.chances.counts) - 1) };
                let counter = self.counters.entry(msr).or_default();
                *counter = counter.wrapping_add(grows) & ((1 << 48) - 1);
                *counter
            }
        }
    }
}

impl Cpu for Scripted {
    fn now(&mut self) -> u64 {
        self.ps / 1000
    }

    fn now_at_exit(&mut self) -> u64 {
        self.ps / 1000
    }

    fn rdtsc(&mut self) -> (u64, u64) {
        let now = self.now();
        let tsc = now * (self.tsc_khz / 1000) / 1000;
        self.add(Asked::Tsc(tsc));
        (now, tsc)
    }

    fn execute(&mut self, n: u64) {
        self.instructions += n;
        self.ps += n * self.chances.instruction_ps;
    }

    fn goes(&mut self, path: Path, times: u64) {
        *self.ways.entry(path).or_default() += times;
    }

    fn rdmsr(&mut self, msr: u32) -> u64 {
        self.exit();
        let value = self.read(msr);
        self.add(Asked::Rdmsr(msr, value));
        value
    }

    fn wrmsr(&mut self, msr: u32, value: u64) {
        self.counters.insert(msr, value);
        self.exit();
        self.add(Asked::Wrmsr(msr, value));
    }

    fn write_lvtpc(&mut self, value: u32) {
        self.ps += 300_000;
        self.add(Asked::Lvtpc(value));
    }

    fn write_eoi(&mut self) {
        self.ps += 200_000;
        self.add(Asked::Eoi);
    }

    fn write_timer(&mut self, count: u64) {
        self.ps += 500_000;
        self.add(Asked::Timer(count));
    }

    fn doorbell(&mut self, code: u32) {
        self.exit();
        self.add(Asked::Doorbell(code));
    }

    fn begin_phase(&mut self, phase: u64) {
        self.exit();
        self.add(Asked::Phase(phase));
    }

    fn port_write(&mut self) {
        self.exit();
        self.add(Asked::Port);
    }

    fn interrupted(&mut self, tick: bool) {
        self.in_tick = tick;
        self.ps += 150_000;
        self.add(Asked::Interrupted { tick });
    }

    fn returns(&mut self, to_tick: bool) {
        self.in_tick = to_tick;
        self.add(Asked::Returns { to_tick });
    }

    fn in_tick(&self) -> bool {
        self.in_tick
    }

    fn has_nmi(&self) -> bool {
        self.nmi.is_some()
    }

    fn take_nmi(&mut self) -> Option<u64> {
        self.nmi.take()
    }

    fn run_user(&mut self, until: u64, most: u64) -> u64 {
        let left = until.saturating_sub(self.now()).min(most);
        if self.nmi.is_some() || left == 0 {
            return 0;
        }
        let ns = self.below(self.chances.user_ns).min(left);
        self.ps += ns * 1000;
        if ns < left {
            let now = self.now();
            self.nmi = Some(now);
        }
        if ns > 0 {
            self.add(Asked::User { until, ns });
        }
        ns
    }

    fn halt_until(&mut self, until: u64) {
        self.ps = self.ps.max(until.saturating_mul(1000));
        self.exit();
        self.add(Asked::Halt(until));
    }

    fn rest_until(&mut self, at: u64) {
        self.ps = self.ps.max(at * 1000) + 7_000_000;
        self.exit();
        self.add(Asked::Rest(at));
    }

    fn held(&mut self) -> u64 {
        0
    }

    fn take_side(&mut self) -> VcpuSide {
        VcpuSide {
            counts: Counts::default(),
            msrs: Vec::new(),
            phases: [PhaseTally::default(); guest::abi::PHASES],
            exit_path_ns: Recorder::default(),
            host: HostSide::default(),
        }
    }
}
