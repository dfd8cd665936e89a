//! AMD's registers, from the APM (volume 2, 13.2) and the PPR of family 19h alone. A selector is kept at 0x186 + n and
//! the global control at 0x38f, as the model keeps an Intel's.

use super::{Amd, Line, Rule, Selection};

/// Bits of a selector that make the event: select in 7:0 and 35:32, unit mask, edge, invert, counter mask.
pub(super) const EVENT: u64 = 0xf << 32 | 0xff << 24 | 1 << 23 | 1 << 18 | 0xffff;
/// And those beside it: USR, OS, INT, EN, GuestOnly, HostOnly.
const BESIDE: u64 = 1 << 16 | 1 << 17 | 1 << 20 | 1 << 22 | 3 << 40;

/// Returns the rule of one address, of a PMU with `counters`.
pub(super) fn rule(kind: Amd, counters: u8, msr: u32) -> Rule {
    let counters = Line::from(counters);
    let all = (1 << counters) - 1;
    let one = |line: Line, selector: bool| match (line < counters, selector) {
        (false, _) => Rule::Absent,
        (true, true) => Rule::Kept(0x186 + line, EVENT | BESIDE),
        (true, false) => Rule::WideCounter(line),
    };
    match msr {
        // The old indices of the first four.
        0xc001_0000..=0xc001_0003 => one(msr & 3, true),
        0xc001_0004..=0xc001_0007 => one(msr & 3, false),
        0xc001_0200..=0xc001_020b => one((msr - 0xc001_0200) / 2, msr.is_multiple_of(2)),
        0xc000_0300 if kind == Amd::V2 => Rule::Status,
        0xc000_0301 if kind == Amd::V2 => Rule::Kept(0x38f, all),
        0xc000_0302 if kind == Amd::V2 => Rule::ClearStatus,
        0xc000_0303 if kind == Amd::V2 => Rule::SetStatus,
        _ => Rule::Absent,
    }
}

/// Returns the event by which a host counts: unit mask and select, its upper four bits above both.
pub(super) fn event(selector: u64) -> u64 {
    selector & 0xffff | (selector >> 32 & 0xf) << 16
}

/// Returns the events that a selector selects if its counter's own enable is on. GuestOnly and HostOnly count
/// while EFER.SVME is 1, which it never is.
pub(super) fn selection(selector: u64) -> Option<Selection> {
    let counts = selector >> 22 & 1 != 0 && selector & 3 << 40 == 0;
    counts.then_some((event(selector), selector >> 17 & 1 != 0, selector >> 16 & 1 != 0))
}
