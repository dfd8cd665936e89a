//! perf's rules for hardware events on x86, as a model: which events a processor counts at once, and what a kernel does
//! about the others.
//!
//! - **Constraints** (`x86_schedule_events`): an event has a set of counters that may count it, by its encoding and the
//!   processor. Events count at once if each gets a counter of its own. The model finds an assignment wherever there is
//!   one; perf searches by weight, with few steps back, and may miss one where sets overlap that neither contains the
//!   other.
//! - **Order** (`ctx_pinned_sched_in`): pinned events of a CPU, as the NMI watchdog's, come first, then those of the
//!   thread in the order in which they were opened. A group is scheduled as a whole or not at all. One that finds no
//!   counters goes to error state, until it is enabled again.
//! - **Groups** (`validate_group`): an event is refused that would not fit beside the enabled events of its group on an idle PMU.
//! - **Periods**: x86 loads no less than 2 (`x86_perf_event_set_period`), and a period of 1 of branch instructions is a
//!   BTS event on Intel's (`intel_pmu_has_bts_period`), which the host's user mode fills: no shorter period than
//!   [`SHORTEST_PERIOD`] is ever asked for.
//!
//! The tables are those of arch/x86/events/intel/core.c and amd/core.c, for the events that counters of guests select.

use arch_pmu::spec::{Source, Spec, Vendor};
use serde::Deserialize;

/// The shortest period of a hardware event: the processor's counter is never loaded with less.
pub const SHORTEST_PERIOD: u64 = 2;

/// Counters of a processor: general-purpose ones from bit 0, fixed ones from bit [`FIXED`].
pub type CounterMask = u64;

/// Bit of the first fixed counter.
pub const FIXED: u32 = 32;

/// A processor, or several of one PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// Skylake and Cascade Lake servers with hyper-threading: each thread has half of the counters.
    CascadeLake,
    /// Cascade Lake servers without hyper-threading.
    CascadeLakeNoSmt,
    /// Ice Lake servers.
    IceLake,
    /// Sapphire and Emerald Rapids.
    SapphireRapids,
    /// Granite Rapids.
    GraniteRapids,
    /// Zen 3.
    #[serde(rename = "zen-3")]
    Zen3,
    /// Zen 4.
    #[serde(rename = "zen-4")]
    Zen4,
    /// Zen 5.
    #[serde(rename = "zen-5")]
    Zen5,
}

/// Counters for the events with these codes, unless a row before has them: first code, last code, unit mask or any, counters.
type Constraint = (u16, u16, Option<u8>, CounterMask);

const LOW: CounterMask = 0xf;

const SKYLAKE: [Constraint; 4] =
    [(0xc0, 0xc0, Some(0x01), 0x2), (0xd0, 0xd2, None, LOW), (0xcd, 0xcd, None, LOW), (0xc6, 0xc6, None, LOW)];
const ICE_LAKE: [Constraint; 15] = [
    (0xc0, 0xc0, Some(0x01), 0xff | 1 << FIXED),
    (0x00, 0x00, Some(0x01), 1 << FIXED),
    (0x03, 0x0a, None, LOW),
    (0x1f, 0x28, None, LOW),
    (0x32, 0x32, None, LOW),
    (0x48, 0x56, None, LOW),
    (0x60, 0x8b, None, LOW),
    (0xa3, 0xa3, Some(0x04), 0xff),
    (0xa3, 0xa3, Some(0x10), 0xff),
    (0xa3, 0xa3, Some(0x14), 0xff),
    (0xa3, 0xa3, None, LOW),
    (0xa8, 0xb0, None, LOW),
    (0xb7, 0xbd, None, LOW),
    (0xd0, 0xe6, None, LOW),
    (0xef, 0xf4, None, LOW),
];
const GOLDEN_COVE: [Constraint; 13] = [
    (0x00, 0x00, Some(0x01), 1 << FIXED),
    (0x3c, 0x3c, Some(0x01), 0xff | 1 << (FIXED + 2)),
    (0x2e, 0x2e, None, 0xff),
    (0x3c, 0x3c, None, 0xff),
    (0x01, 0x8f, None, LOW),
    (0xa3, 0xa3, Some(0x01), LOW),
    (0xa3, 0xa3, Some(0x02), LOW),
    (0xa3, 0xa3, Some(0x08), LOW),
    (0xa4, 0xa4, Some(0x04), 0x1),
    (0xa4, 0xa4, Some(0x08), 0x1),
    (0xcd, 0xcd, Some(0x02), 0x1),
    (0xce, 0xce, None, 0x1),
    (0xd0, 0xdf, None, LOW),
];

/// A processor: its name in models, vendor, family and ranges of models, and the numbers of general-purpose and fixed counters of a
/// thread.
type Row = (Processor, &'static str, Vendor, (u32, &'static [(u32, u32)]), (u8, u8));

/// Every processor, in the order of its discriminant.
const TABLE: [Row; 8] = [
    (Processor::CascadeLake, "cascade-lake", Vendor::Intel, (6, &[(0x55, 0x55)]), (4, 3)),
    (Processor::CascadeLakeNoSmt, "cascade-lake-no-smt", Vendor::Intel, (6, &[(0x55, 0x55)]), (8, 3)),
    (Processor::IceLake, "ice-lake", Vendor::Intel, (6, &[(0x6a, 0x6a), (0x6c, 0x6c)]), (8, 4)),
    (Processor::SapphireRapids, "sapphire-rapids", Vendor::Intel, (6, &[(0x8f, 0x8f), (0xcf, 0xcf)]), (8, 4)),
    (Processor::GraniteRapids, "granite-rapids", Vendor::Intel, (6, &[(0xad, 0xae)]), (8, 4)),
    (Processor::Zen3, "zen-3", Vendor::Amd, (0x19, &[(0x00, 0x0f), (0x20, 0x5f)]), (6, 0)),
    (Processor::Zen4, "zen-4", Vendor::Amd, (0x19, &[(0x10, 0x1f), (0x60, 0xaf)]), (6, 0)),
    (Processor::Zen5, "zen-5", Vendor::Amd, (0x1a, &[(0x00, 0x2f), (0x40, 0x4f), (0x60, 0x7f)]), (6, 0)),
];

impl Processor {
    /// Returns every processor.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|row| row.0)
    }

    /// Returns its name in models.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Returns its vendor.
    pub const fn vendor(self) -> Vendor {
        TABLE[self as usize].2
    }

    /// Returns the numbers of general-purpose and fixed counters of a thread.
    pub const fn counters(self) -> (u8, u8) {
        TABLE[self as usize].4
    }

    /// Returns the processor of this vendor, family and model, if KVM there shows a guest so many `counters`: three fixed ones at
    /// most. A hypervisor may offer fewer.
    pub fn of_signature(vendor: Vendor, family: u32, model: u32, counters: u32) -> Option<Self> {
        let is_it = |&(_, _, of, (its, models), (gp, fixed)): &Row| {
            let is_model = models.iter().any(|&(first, last)| (first..=last).contains(&model));
            (of, its) == (vendor, family) && is_model && u32::from(gp) + u32::from(fixed).min(3) == counters
        };
        TABLE.into_iter().find(is_it).map(|row| row.0)
    }

    /// Returns the counters that may count `spec`.
    pub fn allows(self, spec: Spec) -> CounterMask {
        let (gp, fixed) = self.counters();
        let general = (1 << gp) - 1;
        let fixed_counter = |index: u32| if index < u32::from(fixed) { 1 << (FIXED + index) } else { 0 };
        // Cycles and instructions count on any counter, reference cycles and slots on their own alone.
        let generic = |index: u32| if index < 2 { general | fixed_counter(index) } else { fixed_counter(index) };
        if self.vendor() == Vendor::Amd {
            return general;
        }
        let selection = match spec.0 {
            Source::Fixed { index, .. } => return generic(u32::from(index)),
            Source::Selector(selection) => selection,
        };
        let plain = !selection.edge() && !selection.invert() && selection.cmask() == 0;
        let allowed = match (selection.select(), selection.umask()) {
            (0xc0, 0) if plain && !spec.is_transactional() => generic(0),
            (0x3c, 0) if plain && !spec.is_transactional() => generic(1),
            (select, umask) => {
                let table: &[Constraint] = match self {
                    Self::IceLake => &ICE_LAKE,
                    Self::SapphireRapids | Self::GraniteRapids => &GOLDEN_COVE,
                    _ => &SKYLAKE,
                };
                let holds = |&&(first, last, of, _): &&Constraint| {
                    (first..=last).contains(&select) && of.is_none_or(|of| of == umask)
                };
                let counters = table.iter().find(holds).map_or(general, |&(.., counters)| counters);
                counters & (general | ((1 << fixed) - 1) << FIXED)
            }
        };
        // An event that counts by checkpoints has counter 2 alone (`hsw_get_event_constraints`).
        if selection.in_txcp() { allowed & 1 << 2 } else { allowed }
    }
}

/// Counters of an [`Assignment`], and events, at most.
const MOST: usize = 64;

/// Events that count at once, each on a counter of its own. Pinned ones are added as perf puts them on: those of a CPU's other
/// users first, then the thread's in the order in which they were opened.
#[derive(Clone, Copy, Debug)]
pub struct Assignment {
    /// The event on each busy counter, by its number among those that were added.
    on: [u8; MOST],
    busy: CounterMask,
    events: [CounterMask; MOST],
    added: u8,
}

impl Default for Assignment {
    fn default() -> Self {
        Self { on: [0; MOST], busy: 0, events: [0; MOST], added: 0 }
    }
}

impl Assignment {
    /// Adds a group of events, all of them or none. Returns whether they fit.
    pub fn add(&mut self, group: impl IntoIterator<Item = CounterMask>) -> bool {
        let before = *self;
        let fit = group.into_iter().all(|event| {
            let (number, is_room) = (self.added, usize::from(self.added) < MOST);
            if is_room {
                (self.events[usize::from(number)], self.added) = (event, number + 1);
            }
            is_room && self.place(number, &mut 0)
        });
        if !fit {
            *self = before;
        }
        fit
    }

    /// Returns how many events were added.
    pub const fn added(&self) -> usize {
        self.added as usize
    }

    /// Returns the counters in use.
    pub const fn busy(&self) -> CounterMask {
        self.busy
    }

    /// Returns the counter of an event, by its number among those that were added.
    pub fn counter_of(&self, event: usize) -> CounterMask {
        let is_its = |at: &usize| self.busy >> at & 1 != 0 && usize::from(self.on[*at]) == event;
        (0..MOST).find(is_its).map_or(0, |at| 1 << at)
    }

    /// Finds a counter for `event`, moving others that have a choice.
    fn place(&mut self, event: u8, tried: &mut CounterMask) -> bool {
        let allowed = self.events[usize::from(event)];
        for at in 0..MOST {
            let bit = 1 << at;
            if allowed & !*tried & bit == 0 {
                continue;
            }
            *tried |= bit;
            if self.busy & bit == 0 || self.place(self.on[at], tried) {
                (self.on[at], self.busy) = (event, self.busy | bit);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use arch_pmu::amd::PerfCtl;
    use arch_pmu::intel::PerfEvtSel;

    use super::*;

    const ENABLED: u64 = 0x53_0000;

    fn intel(event: u64) -> Spec {
        PerfEvtSel::from_bits(ENABLED | event).spec()
    }

    fn fixed(index: u8) -> Spec {
        Spec(Source::Fixed { index, control: 0xb })
    }

    /// Returns how many events of `specs`, one after the other, a processor counts at once.
    fn at_once(processor: Processor, watchdog: bool, specs: &[Spec]) -> usize {
        let mut assignment = Assignment::default();
        assert!(!watchdog || assignment.add([processor.allows(intel(0x3c))]));
        specs.iter().filter(|&&spec| assignment.add([processor.allows(spec)])).count()
    }

    #[test]
    fn a_cascade_lake_guest_has_one_counter_too_few_beside_the_watchdog() {
        let seven = [intel(0x4f2e), intel(0x412e), intel(0xc4), intel(0xc5), fixed(0), fixed(1), fixed(2)];
        assert_eq!(at_once(Processor::CascadeLake, false, &seven), 7);
        assert_eq!(at_once(Processor::CascadeLake, true, &seven), 6);
        for processor in [Processor::CascadeLakeNoSmt, Processor::IceLake, Processor::SapphireRapids] {
            assert_eq!(at_once(processor, true, &seven), 7, "{processor:?}");
        }
        let amd = [0x76, 0xc0, 0xc2, 0xc3, 0xff60, 0x0964].map(|event| PerfCtl::from_bits(ENABLED | event).spec());
        for zen in [Processor::Zen3, Processor::Zen4, Processor::Zen5] {
            assert_eq!([at_once(zen, false, &amd), at_once(zen, true, &amd)], [6, 5], "{zen:?}");
        }
    }

    #[test]
    fn events_with_a_choice_make_room_for_those_without() {
        // Cycles leave their fixed counter to nobody, but a general-purpose one to the four that need it.
        let cycles_first = [intel(0x3c), intel(0xc4), intel(0xc5), intel(0x4f2e), intel(0x412e)];
        assert_eq!(at_once(Processor::CascadeLake, false, &cycles_first), 5);
        assert_eq!(at_once(Processor::CascadeLake, false, &[fixed(2), fixed(2)]), 1, "reference cycles have one");
        assert_eq!(at_once(Processor::IceLake, false, &[fixed(3), intel(0x48), intel(0x48)]), 3);
        let low = [intel(0xd0), intel(0xd1), intel(0xd2), intel(0xd0), intel(0xcd)];
        assert_eq!(at_once(Processor::CascadeLakeNoSmt, false, &low), 4, "the lower four of eight");
        // A fixed counter's event has the general-purpose ones too, unless its encoding is one that those do not have (4a263bf331c5).
        let reference = [fixed(2), intel(0x013c), intel(0x013c)];
        assert_eq!(at_once(Processor::SapphireRapids, false, &reference), 3);
        assert_eq!(at_once(Processor::SapphireRapids, false, &[intel(0x0100), intel(0x0100)]), 1);
        assert_eq!(at_once(Processor::SapphireRapids, false, &[intel(0x02cd), intel(0x02cd), intel(0x01cd)]), 2);
        assert_eq!(at_once(Processor::IceLake, false, &[intel(0x14a3); 9]), 8, "stalls on memory have no constraint");
        let txcp = PerfEvtSel::from_bits(1 << 33 | ENABLED | 0xc4).spec();
        assert_eq!(at_once(Processor::CascadeLake, false, &[txcp, txcp]), 1, "counter 2");
    }

    #[test]
    fn a_processor_is_known_by_its_name_and_by_its_signature() {
        for processor in Processor::all() {
            let named = toml::Value::from(processor.name()).try_into::<Processor>();
            assert_eq!(named, Ok(processor));
        }
        let of = Processor::of_signature;
        assert_eq!(of(Vendor::Intel, 6, 0x55, 7), Some(Processor::CascadeLake));
        assert_eq!(of(Vendor::Intel, 6, 0x55, 11), Some(Processor::CascadeLakeNoSmt));
        assert_eq!(of(Vendor::Intel, 6, 0x8f, 11), Some(Processor::SapphireRapids));
        assert_eq!(of(Vendor::Intel, 6, 0x8f, 7), None, "a guest with a part of its counters");
        assert_eq!(
            [of(Vendor::Amd, 0x19, 0x11, 6), of(Vendor::Amd, 0x1a, 2, 6)],
            [Some(Processor::Zen4), Some(Processor::Zen5)]
        );
        assert_eq!(of(Vendor::Amd, 6, 0x55, 7), None);
    }

    #[test]
    fn a_group_has_all_of_its_counters_or_none() {
        let mut assignment = Assignment::default();
        let any = |events| std::iter::repeat_n(LOW, events);
        assert!(!assignment.add(any(5)), "five on four");
        assert!(assignment.add(any(3)) && !assignment.add(any(2)) && assignment.add(any(1)));
    }
}
