//! An ideal PMU, written from the register contract alone.
//!
//! It shares nothing with `arch_pmu`: registers lie in one map under rules found by address, a counter is a total that
//! never wraps, and an overflow is the total passing a multiple of 2^width.
//!
//! An overflow that a host signals late is seen late, which no guest can tell from an overflow that came late. So the
//! model is a set of possible [`World`]s: an overflow that nobody looked at yet may or may not be seen at each step,
//! must be seen where the promise is (see [`Model::must_see`]), and each observation leaves only the worlds that agree
//! with it.

mod amd;
pub(crate) mod bytes;
pub(crate) mod host;
pub(crate) mod pair;

use std::collections::{BTreeMap, BTreeSet};

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;

/// The PMU of an AMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amd {
    /// PERFCTR_CORE.
    Core,
    /// PerfMonV2.
    V2,
}

/// The guest's PMU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// An AMD's; an Intel's otherwise.
    pub(crate) amd: Option<Amd>,
    /// Version of Intel's PMU; an AMD has 2 with a global control, else 1.
    pub(crate) version: u8,
    pub(crate) gp: u8,
    pub(crate) fixed: u8,
    pub(crate) width: u8,
    pub(crate) full_width: bool,
    pub(crate) transactions: bool,
    pub(crate) debug_store: bool,
}

impl Shape {
    pub(crate) fn caps(self) -> PmuCaps {
        if let Some(kind) = self.amd {
            return AmdCaps { perfmon_v2: kind == Amd::V2, counters: self.gp, svm: false }.into();
        }
        PmuCaps::Intel(IntelCaps {
            version: self.version,
            gp: self.gp,
            fixed: self.fixed,
            width: self.width,
            full_width_writes: self.full_width,
            transactions: self.transactions,
            debug_store: self.debug_store,
        })
    }

    /// Returns the MSR of general-purpose counter `n`; below are those of its selector, of the global control and for
    /// clearing STATUS.
    pub(crate) const fn counter(self, n: u32) -> u32 {
        if self.amd.is_some() { 0xc001_0201 + 2 * n } else { 0xc1 + n }
    }

    pub(crate) const fn selector(self, n: u32) -> u32 {
        if self.amd.is_some() { 0xc001_0200 + 2 * n } else { 0x186 + n }
    }

    pub(crate) const fn global(self) -> u32 {
        if self.amd.is_some() { 0xc000_0301 } else { 0x38f }
    }

    pub(crate) const fn clear(self) -> u32 {
        if self.amd.is_some() { 0xc000_0302 } else { 0x390 }
    }
}

/// Instructions that the guest executed: a count for each event and privilege.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) seed: u64,
    /// Each count is below 2^bits.
    pub(crate) bits: u32,
}

impl Burst {
    pub(crate) const fn new(seed: u64, bits: u32) -> Self {
        Self { seed, bits }
    }

    /// Counts the occurrences of `event` (umask << 8 | select), in ring 0 and in ring 3.
    pub(crate) fn count(self, event: u64, os: bool, usr: bool) -> u64 {
        let ring = |ring: u64| {
            let x = (self.seed ^ event << 3 ^ ring).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (x ^ x >> 32) & ((1 << self.bits) - 1)
        };
        u64::from(os) * ring(0) + u64::from(usr) * ring(3)
    }
}

/// A counter by its bit in GLOBAL_CTRL.
pub(crate) type Line = u32;

/// The rule of one address.
enum Rule {
    Absent,
    Constant(u64),
    /// Keeps any of these bits.
    Bits(u64),
    /// Keeps any of the first; the second always read as 1, and a write to them is ignored.
    BitsBeside(u64, u64),
    /// Any value keeps these bits, in the register at this address.
    Kept(u32, u64),
    Counter {
        line: Line,
        full_width: bool,
    },
    /// Takes the bits of its width and ignores the others.
    WideCounter(Line),
    Status,
    ClearStatus,
    SetStatus,
    InUse,
    Canonical,
}

/// One thing that may be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// Overflow bits of GLOBAL_STATUS.
    status: u64,
    /// Counters whose overflow nobody looked at yet.
    unseen: u64,
    pmi: bool,
}

/// Selection of a counter: (event, OS, USR).
type Selection = (u64, bool, bool);

/// Arming that the host should have: the event's whole configuration, OS, USR, counts to the overflow or 0.
pub(crate) type Armed = (u64, bool, bool, u64);

#[derive(Clone, Debug)]
pub(crate) struct Model {
    shape: Shape,
    registers: BTreeMap<u32, u64>,
    totals: BTreeMap<Line, u128>,
    /// STATUS bits that are no counter's.
    flags: u64,
    worlds: BTreeSet<World>,
    /// Counts since the counter was last known: what a failing host may have missed.
    gained: BTreeMap<Line, u128>,
    /// The host fails, or did since the counters were last known.
    doubted: bool,
}

const CTR_FRZ: u64 = 1 << 59;

impl Model {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut model = Self {
            shape,
            registers: BTreeMap::new(),
            totals: BTreeMap::new(),
            flags: 0,
            worlds: BTreeSet::new(),
            gained: BTreeMap::new(),
            doubted: false,
        };
        model.reset();
        model
    }

    pub(crate) fn reset(&mut self) {
        self.registers.clear();
        self.registers.insert(0x38f, (1 << self.shape.gp) - 1);
        self.registers.insert(0x1a0, 1);
        self.totals.clear();
        self.gained.clear();
        self.flags = 0;
        self.worlds = [World { status: 0, unseen: 0, pmi: false }].into();
    }

    fn get(&self, msr: u32) -> u64 {
        self.registers.get(&msr).copied().unwrap_or(0)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> + use<> {
        (0..Line::from(self.shape.gp)).chain((0..Line::from(self.shape.fixed)).map(|n| 32 + n))
    }

    fn line_bits(&self) -> u64 {
        self.lines().fold(0, |bits, line| bits | 1 << line)
    }

    fn modulus(&self) -> u128 {
        1 << self.shape.width
    }

    fn value(&self, line: Line) -> u64 {
        (self.totals.get(&line).copied().unwrap_or(0) % self.modulus()) as u64
    }

    fn rule(&self, msr: u32) -> Rule {
        if let Some(kind) = self.shape.amd {
            return amd::rule(kind, self.shape.gp, msr);
        }
        let Shape { version, gp, fixed, full_width, transactions, debug_store, .. } = self.shape;
        let (gp, fixed) = (u32::from(gp), u32::from(fixed));
        let within = |first: u32, n: u32| msr.checked_sub(first).filter(|&i| i < n);
        if let Some(line) = within(0xc1, gp) {
            return Rule::Counter { line, full_width: false };
        }
        if let Some(line) = within(0x4c1, gp) {
            return if full_width { Rule::Counter { line, full_width: true } } else { Rule::Absent };
        }
        if let Some(n) = within(0x186, gp) {
            // Everything below 32 but ANY (21).
            let in_tx = if transactions { 1 << 32 } else { 0 };
            let in_txcp = if transactions && n == 2 { 1 << 33 } else { 0 };
            return Rule::Bits(0xffdf_ffff | in_tx | in_txcp);
        }
        if let Some(n) = within(0x309, fixed) {
            return Rule::Counter { line: 32 + n, full_width: false };
        }
        match msr {
            // Bits 7, 11 and 12 are read-only (SDM vol. 4, table 2-2).
            0x1a0 => Rule::BitsBeside(0x44_00c5_0009, 0x1880),
            0x345 => Rule::Constant(u64::from(full_width) << 13),
            // Beside a DS area, and with nothing that announces PEBS there is nothing to enable.
            0x3f1 if debug_store => Rule::Bits(0),
            0x600 if debug_store => Rule::Canonical,
            // LBR, BTF and the five bits of branch trace; the two freeze bits since version 2.
            0x1d9 => Rule::Bits(0x7c3 | if version >= 2 { 3 << 11 } else { 0 }),
            0x38d if version >= 2 => Rule::Bits((0..fixed).fold(0, |bits, n| bits | 0xb << (4 * n))),
            0x38e if version >= 2 => Rule::Status,
            0x38f if version >= 2 => Rule::Bits(self.line_bits()),
            0x390 if version >= 2 => Rule::ClearStatus,
            0x391 if version >= 4 => Rule::SetStatus,
            0x392 if version >= 4 => Rule::InUse,
            _ => Rule::Absent,
        }
    }

    /// Returns the selection of `line` if its own enable is on, whatever GLOBAL_CTRL says.
    fn selection(&self, line: Line) -> Option<Selection> {
        if line >= 32 {
            let nibble = self.get(0x38d) >> (4 * (line - 32)) & 0xf;
            let event = [0xc0, 0x3c, 0x13c, 0x1a4][line as usize - 32];
            return (nibble & 3 != 0).then_some((event, nibble & 1 != 0, nibble & 2 != 0));
        }
        let selector = self.get(0x186 + line);
        if self.shape.amd.is_some() {
            return amd::selection(selector);
        }
        (selector >> 22 & 1 != 0).then_some((selector & 0xffff, selector >> 17 & 1 != 0, selector >> 16 & 1 != 0))
    }

    fn interrupts(&self, line: Line) -> bool {
        match line.checked_sub(32) {
            Some(n) => self.get(0x38d) >> (4 * n) & 8 != 0,
            None => self.get(0x186 + line) >> 20 & 1 != 0,
        }
    }

    /// Returns the selection that `line` counts now.
    fn counts(&self, line: Line) -> Option<Selection> {
        let gated = self.shape.version >= 2 && self.get(0x38f) >> line & 1 == 0;
        let frozen = self.shape.version >= 4 && self.flags & CTR_FRZ != 0;
        if gated || frozen { None } else { self.selection(line) }
    }

    /// Counts a `burst` that the guest executes. Returns the counters that overflow.
    pub(crate) fn run(&mut self, burst: Burst) -> u64 {
        let mut overflows = 0;
        for line in self.lines() {
            let Some((event, os, usr)) = self.counts(line) else { continue };
            let n = u128::from(burst.count(event, os, usr));
            let modulus = self.modulus();
            let total = self.totals.entry(line).or_default();
            let before = *total / modulus;
            *total += n;
            let overflowed = *total / modulus != before;
            *self.gained.entry(line).or_default() += n;
            if overflowed {
                overflows |= 1 << line;
                self.each_world(|w| World { unseen: w.unseen | 1 << line, ..w });
            }
        }
        overflows
    }

    fn each_world(&mut self, change: impl Fn(World) -> World) {
        self.worlds = self.worlds.iter().map(|world| change(*world)).collect();
    }

    fn see(&self, world: World, line: Line) -> World {
        // A counter that missed counts may overflow after its ideal did: its overflow stays possible.
        let unseen = if self.doubted { world.unseen } else { world.unseen & !(1 << line) };
        World { status: world.status | 1 << line, unseen, pmi: world.pmi || self.interrupts(line) }
    }

    /// Allows that an overflow nobody looked at is seen now.
    fn may_see(&mut self) {
        if self.worlds.iter().all(|w| w.unseen == 0) {
            return;
        }
        for line in self.lines() {
            let seen: Vec<_> =
                self.worlds.iter().filter(|w| w.unseen >> line & 1 != 0).map(|w| self.see(*w, line)).collect();
            self.worlds.extend(seen);
        }
    }

    /// Overflows of these counters must be seen now: after a signal, of all of them; at an entry, of those that do not
    /// count; at an access to a counter's value or selection, its own.
    fn must_see(&mut self, lines: u64) {
        if self.doubted {
            return self.may_see();
        }
        for line in self.lines().filter(|line| lines >> line & 1 != 0) {
            let see = |w: &World| if w.unseen >> line & 1 != 0 { self.see(*w, line) } else { *w };
            self.worlds = self.worlds.iter().map(see).collect();
        }
    }

    /// Takes a signal.
    pub(crate) fn kick(&mut self) {
        self.must_see(u64::MAX);
    }

    /// Prepares an entry of the guest.
    pub(crate) fn enter(&mut self) {
        self.may_see();
        let off = self.lines().filter(|&line| self.counts(line).is_none()).fold(0, |bits, line| bits | 1 << line);
        self.must_see(off);
    }

    fn keep(&mut self, agrees: impl Fn(&World) -> bool, what: &str) -> Result<(), String> {
        let before = self.worlds.clone();
        self.worlds.retain(agrees);
        if self.worlds.is_empty() { Err(format!("{what}; possible were {before:x?}")) } else { Ok(()) }
    }

    /// Notes that a PMI was, or was not, due at an entry.
    pub(crate) fn pmi(&mut self, due: bool) -> Result<(), String> {
        self.may_see();
        self.keep(|w| w.pmi == due, &format!("PMI due: {due}"))?;
        if !due {
            return Ok(());
        }
        self.each_world(|w| World { pmi: false, ..w });
        let debugctl = self.get(0x1d9);
        let (lbrs, counters) = (debugctl >> 11 & 1 != 0, debugctl >> 12 & 1 != 0);
        if self.shape.version >= 4 {
            self.flags |= u64::from(lbrs) << 58 | u64::from(counters) << 59;
        } else {
            if counters {
                self.registers.insert(0x38f, 0);
            }
            if lbrs {
                self.registers.insert(0x1d9, debugctl & !1);
            }
        }
        Ok(())
    }

    /// Checks that the guest read `observed`, or #GP.
    pub(crate) fn read(&mut self, msr: u32, observed: Option<u64>) -> Result<(), String> {
        self.may_see();
        let expected = match self.rule(msr) {
            Rule::Absent => None,
            Rule::Constant(value) => Some(value),
            Rule::Bits(_) | Rule::Canonical => Some(self.get(msr)),
            Rule::BitsBeside(_, ones) => Some(self.get(msr) | ones),
            Rule::Kept(at, _) => Some(self.get(at)),
            Rule::ClearStatus | Rule::SetStatus => Some(0),
            Rule::InUse => Some(self.in_use()),
            Rule::Status => {
                let Some(status) = observed else { return Err("STATUS faulted".to_owned()) };
                let flags = self.flags;
                return self.keep(|w| w.status | flags == status, &format!("STATUS {status:#x}"));
            }
            Rule::Counter { line, .. } | Rule::WideCounter(line) => {
                self.must_see(1 << line);
                return self.read_counter(line, observed);
            }
        };
        if expected == observed { Ok(()) } else { Err(format!("{msr:#x} read {observed:x?}, not {expected:x?}")) }
    }

    fn read_counter(&mut self, line: Line, observed: Option<u64>) -> Result<(), String> {
        let ideal = self.value(line);
        let slack = if self.doubted { self.gained.get(&line).copied().unwrap_or(0) } else { 0 };
        let Some(value) = observed else { return Err(format!("counter {line} faulted")) };
        let behind = (u128::from(ideal) + self.modulus() - u128::from(value)) % self.modulus();
        if u128::from(value) < self.modulus() && behind <= slack {
            if !self.doubted {
                self.gained.remove(&line);
            }
            Ok(())
        } else {
            Err(format!("counter {line} is {value:#x}, not {ideal:#x} less at most {slack:#x}"))
        }
    }

    fn in_use(&self) -> u64 {
        let gp = (0..u32::from(self.shape.gp)).filter(|n| self.get(0x186 + n) & 0xff != 0).fold(0, |b, n| b | 1 << n);
        let fixed = (0..u32::from(self.shape.fixed)).filter(|n| self.get(0x38d) >> (4 * n) & 3 != 0);
        let fixed = fixed.fold(0, |b, n| b | 1 << (32 + n));
        gp | fixed | u64::from(self.lines().any(|line| self.interrupts(line))) << 63
    }

    /// Writes `value` for the guest; returns whether it is #GP.
    pub(crate) fn write(&mut self, msr: u32, value: u64) -> bool {
        self.may_see();
        // An AMD ignores what an Intel refuses.
        let lenient = self.shape.amd;
        let takes_lines = lenient.is_some() && (0xc000_0302..=0xc000_0303).contains(&msr);
        let value = if takes_lines { value & self.line_bits() } else { value };
        let more = if self.shape.version >= 4 { 0xf << 58 } else { 0 };
        let lines = self.line_bits();
        let clearable = lines | 3 << 62 | more;
        let rule = self.rule(msr);
        let fault = match rule {
            Rule::Status => lenient.is_none(),
            Rule::Absent | Rule::Constant(_) | Rule::InUse => true,
            Rule::Bits(bits) => value & !bits != 0,
            Rule::BitsBeside(bits, ones) => value & !(bits | ones) != 0,
            Rule::Kept(..) | Rule::WideCounter(_) => false,
            Rule::Counter { full_width, .. } => full_width && u128::from(value) >= self.modulus(),
            Rule::ClearStatus => value & !clearable != 0,
            Rule::SetStatus => value & !(clearable & !(1 << 63)) != 0,
            Rule::Canonical => value.cast_signed() << 16 >> 16 != value.cast_signed(),
        };
        match rule {
            _ if fault => {}
            Rule::Bits(_) => self.set_bits(msr, value),
            Rule::Kept(at, bits) => self.set_bits(at, value & bits),
            Rule::BitsBeside(bits, _) => _ = self.registers.insert(msr, value & bits),
            Rule::Canonical => _ = self.registers.insert(msr, value),
            Rule::Counter { line, full_width: false } if line < 32 => {
                self.set_counter(line, i64::from(value as i32).cast_unsigned());
            }
            Rule::Counter { line, .. } | Rule::WideCounter(line) => self.set_counter(line, value),
            Rule::ClearStatus => {
                self.flags &= !value;
                self.each_world(|w| World { status: w.status & !value, ..w });
            }
            Rule::SetStatus => {
                self.flags |= value & !lines;
                self.each_world(|w| World { status: w.status | value & lines, ..w });
            }
            _ => {}
        }
        fault
    }

    fn set_bits(&mut self, at: u32, value: u64) {
        let changed = self.get(at) ^ value;
        let lines = self.lines().filter(|&line| Self::selected_by(line, at, changed));
        self.must_see(lines.fold(0, |bits, line| bits | 1 << line));
        self.registers.insert(at, value);
    }

    fn set_counter(&mut self, line: Line, value: u64) {
        self.must_see(1 << line);
        self.totals.insert(line, u128::from(value) % self.modulus());
        self.gained.remove(&line);
    }

    /// Returns whether `changed` bits of `msr` change what `line` selects or whether it interrupts.
    fn selected_by(line: Line, msr: u32, changed: u64) -> bool {
        match line.checked_sub(32) {
            None => msr == 0x186 + line && changed != 0,
            Some(n) => msr == 0x38d && changed >> (4 * n) & 0xf != 0,
        }
    }

    /// Notes that the host began to fail: from here counts may be missing, none may be made up.
    pub(crate) fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Notes that the host is sound and every counter was written.
    pub(crate) fn trust(&mut self) {
        self.doubted = false;
        self.each_world(|w| World { unseen: 0, ..w });
    }

    /// Returns whether nothing is left that depends on the host's future.
    pub(crate) fn settled(&self) -> bool {
        !self.doubted && self.worlds.iter().all(|w| w.unseen == 0)
    }

    /// Returns whether an overflow may have been missed so far.
    pub(crate) fn overflow_unseen(&self) -> bool {
        !self.doubted && self.worlds.iter().all(|w| w.unseen != 0)
    }

    /// Lists the armings that the host should have at an entry, sorted.
    pub(crate) fn armed(&self) -> Vec<Armed> {
        let mut armed: Vec<_> = self.lines().filter_map(|line| self.armed_for(line)).collect();
        armed.sort_unstable();
        armed
    }

    /// Returns the arming that the host should have for `line`.
    pub(crate) fn armed_for(&self, line: Line) -> Option<Armed> {
        let (_, os, usr) = self.counts(line)?;
        // An event that never comes need not be armed.
        if !os && !usr {
            return None;
        }
        let config = if line >= 32 { 1 << 63 | u64::from(line) } else { self.get(0x186 + line) };
        let of_event = if self.shape.amd.is_some() { amd::EVENT } else { 0x3_ff84_ffff };
        let event = if line >= 32 { config } else { config & of_event };
        // IN_TXCP counts and does not signal.
        let signals = line >= 32 || self.shape.amd.is_some() || config >> 33 & 1 == 0;
        let left = (self.modulus() - u128::from(self.value(line))) as u64;
        Some((event, os, usr, if signals { left } else { 0 }))
    }
}
