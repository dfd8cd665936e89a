//! Event names that need no lookup in sysfs: software, hardware and cache events
//! (`include/uapi/linux/perf_event.h`); and modifiers.

use perf_event_open_sys::bindings as sys;
use perf_event_open_sys::bindings::perf_event_attr;

/// Type and config of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// PERF_TYPE_*.
    pub kind: u32,
    /// Config word: the event within its type.
    pub config: u64,
}

const SOFTWARE: [(&str, u32); 15] = [
    ("cpu-clock", sys::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", sys::PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", sys::PERF_COUNT_SW_PAGE_FAULTS),
    ("faults", sys::PERF_COUNT_SW_PAGE_FAULTS),
    ("context-switches", sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cs", sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", sys::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("migrations", sys::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("minor-faults", sys::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("alignment-faults", sys::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", sys::PERF_COUNT_SW_EMULATION_FAULTS),
    ("dummy", sys::PERF_COUNT_SW_DUMMY),
    ("bpf-output", sys::PERF_COUNT_SW_BPF_OUTPUT),
    ("cgroup-switches", sys::PERF_COUNT_SW_CGROUP_SWITCHES),
];

const HARDWARE: [(&str, u32); 14] = [
    ("cycles", sys::PERF_COUNT_HW_CPU_CYCLES),
    ("cpu-cycles", sys::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", sys::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", sys::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", sys::PERF_COUNT_HW_CACHE_MISSES),
    ("branches", sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-instructions", sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", sys::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", sys::PERF_COUNT_HW_BUS_CYCLES),
    ("stalled-cycles-frontend", sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
    ("idle-cycles-frontend", sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
    ("stalled-cycles-backend", sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    ("idle-cycles-backend", sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    ("ref-cycles", sys::PERF_COUNT_HW_REF_CPU_CYCLES),
];

/// Figures that perf takes itself; they open no event.
const TOOL: [(&str, u32); 3] = [("duration_time", DURATION_TIME as u32), ("user_time", 1), ("system_time", 2)];
/// The config of `duration_time`, which has [`TOOL_TYPE`].
pub const DURATION_TIME: u64 = 0;
/// A type that no event of the kernel has, for figures that the tool takes itself.
pub const TOOL_TYPE: u32 = sys::PERF_TYPE_MAX;

/// Names of a cache, as perf's lexer has them, and its operations: load 1, store 2, prefetch 4.
const CACHES: [(&[&str], u8); 7] = [
    (&["L1-dcache", "l1-d", "l1d", "L1-data"], 7),
    (&["L1-icache", "l1-i", "l1i", "L1-instruction"], 5),
    (&["LLC", "L2"], 7),
    (&["dTLB", "d-tlb", "Data-TLB"], 7),
    (&["iTLB", "i-tlb", "Instruction-TLB"], 1),
    (&["branch", "bpu", "btb", "bpc"], 1),
    (&["node"], 7),
];
const CACHE_OPS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];
const CACHE_RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// Returns the config of a cache event: the cache, and at most one operation and one result in any order.
fn cache(name: &str) -> Option<u64> {
    let find = |table: &[&[&str]], word: &str| Some(table.iter().position(|names| names.contains(&word))? as u64);
    let of = |(at, (names, ops)): (usize, &(&[&str], u8))| {
        let rest = names
            .iter()
            .find_map(|known| name.strip_prefix(known).filter(|rest| "-".starts_with(&rest[..rest.len().min(1)])))?;
        let (mut op, mut result, mut rest) = (None, None, rest);
        while let Some(text) = rest.strip_prefix('-') {
            let end = |&end: &usize| find(&CACHE_OPS, &text[..end]).or(find(&CACHE_RESULTS, &text[..end])).is_some();
            let mut ends = text.match_indices('-').map(|(at, _)| at).chain([text.len()]);
            let word = &text[..ends.rfind(end)?];
            match (find(&CACHE_OPS, word), find(&CACHE_RESULTS, word)) {
                (Some(found), _) if op.is_none() => op = Some(found),
                (_, Some(found)) if result.is_none() => result = Some(found),
                _ => return None,
            }
            rest = &text[word.len()..];
        }
        let op = op.unwrap_or(0);
        (ops >> op & 1 == 1).then(|| at as u64 | op << 8 | result.unwrap_or(0) << 16)
    };
    CACHES.iter().enumerate().find_map(of)
}

/// Returns the code of a software, hardware, cache (`LLC-load-misses`), tool (`duration_time`), raw (`r1a8`,
/// hexadecimal) or numeric (`1:0x3`, type and config) event; `None` if unknown.
pub fn symbol(name: &str) -> Option<Code> {
    if let Some((kind, config)) = name.split_once(':') {
        let kind = u32::try_from(number(kind)?).ok().filter(|&kind| kind != TOOL_TYPE)?;
        return Some(Code { kind, config: number(config)? });
    }
    for (kind, table) in
        [(sys::PERF_TYPE_SOFTWARE, &SOFTWARE[..]), (sys::PERF_TYPE_HARDWARE, &HARDWARE), (TOOL_TYPE, &TOOL)]
    {
        if let Some(&(_, config)) = table.iter().find(|(known, _)| *known == name) {
            return Some(Code { kind, config: config.into() });
        }
    }
    if let Some(config) = cache(name) {
        return Some(Code { kind: sys::PERF_TYPE_HW_CACHE, config });
    }
    let hex = name.strip_prefix('r').filter(|hex| (1..=16).contains(&hex.len()))?;
    let config = hex.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(hex, 16).ok())??;
    Some(Code { kind: sys::PERF_TYPE_RAW, config })
}

/// Reads a decimal or 0x-prefixed number.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) =
        text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).map_or((text, 10), |hex| (hex, 16));
    // A sign is none of perf's.
    digits.bytes().all(|digit| digit.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Modifiers after an event or a group: letters of `LETTERS`, and a precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    letters: u16,
    precise: u8,
}

/// Privilege levels, guest and host, no idle, pinned, exclusive, and a group that may be broken up.
const LETTERS: &str = "ukhGHIDeW";

impl Modifiers {
    /// Parses letters such as `uk` or `W`.
    ///
    /// # Errors
    /// A letter is not a modifier.
    pub fn parse(letters: &str) -> Result<Self, String> {
        let mut found = Self::default();
        if letters.is_empty() {
            return Err("no modifier after the colon".to_owned());
        }
        for letter in letters.chars() {
            match (letter, LETTERS.find(letter)) {
                (_, Some(at)) => found.letters |= 1 << at,
                ('p', _) if found.precise < 3 => found.precise += 1,
                // `P` is the maximum precision.
                ('P', _) => found.precise = 3,
                // `S` only affects sampling, and `b` whether perf reads the count through BPF.
                ('S' | 'b', _) => {}
                _ => return Err(format!("{letter} is not a modifier")),
            }
        }
        Ok(found)
    }

    /// Returns whether all of `letters` are modifiers.
    pub fn are(letters: &str) -> bool {
        Self::parse(letters).is_ok()
    }

    /// Returns whether the group may be broken up.
    pub fn weak(self) -> bool {
        self.has('W')
    }

    fn has(self, letter: char) -> bool {
        LETTERS.find(letter).is_some_and(|at| self.letters >> at & 1 == 1)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { letters: self.letters | other.letters, precise: self.precise.max(other.precise) }
    }

    /// Sets the bits of an attribute: a named privilege level excludes those not named.
    pub fn apply(self, attr: &mut perf_event_attr) {
        let [user, kernel, hypervisor, guest, host] = ['u', 'k', 'h', 'G', 'H'].map(|letter| self.has(letter));
        if user | kernel | hypervisor {
            attr.set_exclude_user(u64::from(!user));
            attr.set_exclude_kernel(u64::from(!kernel));
            attr.set_exclude_hv(u64::from(!hypervisor));
        }
        if guest | host {
            attr.set_exclude_guest(u64::from(!guest));
            attr.set_exclude_host(u64::from(!host));
        }
        attr.set_exclude_idle(self.has('I').into());
        attr.set_pinned(self.has('D').into());
        attr.set_exclusive(self.has('e').into());
        attr.set_precise_ip(self.precise.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_kind() {
        for (name, kind, config) in [
            ("page-faults", 1, 2),
            ("cycles", 0, 0),
            ("ref-cycles", 0, 9),
            ("LLC-load-misses", 3, 0x1_0002),
            ("branch-misses", 0, 5),
            ("bpc-misses", 3, 0x1_0005),
            ("L1-dcache-misses-stores", 3, 0x1_0100),
            ("LLC-speculative-read-miss", 3, 0x1_0202),
            ("duration_time", TOOL_TYPE, DURATION_TIME),
            ("r1a8", 4, 0x1a8),
            ("1:0x3", 1, 3),
        ] {
            assert_eq!(symbol(name), Some(Code { kind, config }), "{name}");
        }
        for name in
            ["iTLB-stores", "", "r", "r10000000000000000", "cyclez", "branch-stores", "LLC-loads-x", "6:0", "1:+1"]
        {
            assert_eq!(symbol(name), None, "{name}");
        }
    }

    #[test]
    fn a_named_level_excludes_the_others() {
        let mut attr = perf_event_attr::default();
        Modifiers::parse("u").unwrap().and(Modifiers::parse("D").unwrap()).apply(&mut attr);
        assert_eq!((attr.exclude_user(), attr.exclude_kernel(), attr.exclude_hv()), (0, 1, 1));
        assert_eq!((attr.pinned(), attr.exclude_guest()), (1, 0));
        let mut attr = perf_event_attr::default();
        Modifiers::parse("pp").unwrap().apply(&mut attr);
        assert_eq!((attr.precise_ip(), attr.exclude_user()), (2, 0));
        assert!(Modifiers::parse("").is_err() && Modifiers::parse("ux").is_err() && Modifiers::parse("pppp").is_err());
    }
}
