//! Event names that need no lookup in sysfs: software and hardware events (`include/uapi/linux/perf_event.h`); and modifiers.

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

/// Names by config.
const SOFTWARE: &str = "cpu-clock|task-clock|page-faults faults|context-switches cs|cpu-migrations migrations|minor-faults|\
    major-faults|alignment-faults|emulation-faults|dummy|bpf-output|cgroup-switches";
const HARDWARE: &str = "cycles cpu-cycles|instructions|cache-references|cache-misses|branches branch-instructions|branch-misses|\
    bus-cycles|stalled-cycles-frontend idle-cycles-frontend|stalled-cycles-backend idle-cycles-backend|ref-cycles";

/// Returns the code of a software, hardware, raw (`r1a8`, hexadecimal) or numeric (`1:0x3`, type and config) event; `None` if
/// unknown.
pub fn symbol(name: &str) -> Option<Code> {
    if let Some((kind, config)) = name.split_once(':') {
        return Some(Code { kind: u32::try_from(number(kind)?).ok()?, config: number(config)? });
    }
    for (kind, names) in [(sys::PERF_TYPE_SOFTWARE, SOFTWARE), (sys::PERF_TYPE_HARDWARE, HARDWARE)] {
        if let Some(config) = names.split('|').position(|names| names.split(' ').any(|known| known == name)) {
            return Some(Code { kind, config: config as u64 });
        }
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
            ("page-faults", sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_PAGE_FAULTS),
            ("cs", sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
            ("cgroup-switches", sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CGROUP_SWITCHES),
            ("cycles", sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CPU_CYCLES),
            ("idle-cycles-backend", sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
            ("ref-cycles", sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_REF_CPU_CYCLES),
            ("r1a8", sys::PERF_TYPE_RAW, 0x1a8),
            ("1:0x3", sys::PERF_TYPE_SOFTWARE, 3),
        ] {
            assert_eq!(symbol(name), Some(Code { kind, config: config.into() }), "{name}");
        }
        for name in ["", "r", "r10000000000000000", "cyclez", "faults cs", "1:+1"] {
            assert_eq!(symbol(name), None, "{name}");
        }
    }
}
