//! The unwind tables of a Linux kernel's modules. Each module brings its own, and the kernel sorts it as it loads the
//! module; it lies in guest memory from then on.
//!
//! The guest says where modules lie; their tables are read from its memory, and the one of an address is found among
//! them. Nothing that a guest says or has in memory is believed further than bounds go: a table ends at the first entry
//! that makes no sense.

use std::ops::Range;

use thiserror::Error;

use super::orc::{ENTRY, Layout, Orc, Rule};
use super::space::Space;

/// Start of the kernel's half of linear addresses.
const KERNEL: u64 = 1 << 63;

/// A module of the guest's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModulePlace {
    /// Its name.
    pub name: String,
    /// Names and addresses of its sections, in any order. Their lengths are unknown.
    pub sections: Vec<(String, u64)>,
}

/// Reason why the tables of a module are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It has none, or the guest hides where they are.
    #[error("the guest does not say where its unwind tables are")]
    Unknown,
    /// They are not in memory.
    #[error("its unwind tables are not in memory")]
    Unmapped,
    /// Nothing in them is of its code.
    #[error("its unwind tables have no entry of its code")]
    Nonsense,
    /// Another module is at the same place.
    #[error("its code overlaps another module's")]
    Overlap,
    /// More tables than are kept.
    #[error("the modules have more unwind tables than are kept")]
    TooMany,
}

/// Content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Code that stays.
    Code,
    /// Code that is gone once the module is initialised: others may be at its place since.
    Initial,
    /// No code.
    Data,
}

impl Content {
    fn of(name: &str) -> Self {
        match name {
            // Up to 6.2 there are exception handlers of a function in .fixup.
            _ if !name.contains("text") && name != ".fixup" => Self::Data,
            _ if name.starts_with(".init") => Self::Initial,
            _ => Self::Code,
        }
    }
}

/// The sections of a module by address.
#[derive(Debug)]
struct Plan {
    /// Ascending.
    sections: Vec<(u64, Content)>,
    /// Range of the addresses of the tables; `rules` is that of their rules.
    addresses: (u64, u64),
    rules: (u64, u64),
}

impl Plan {
    fn of(place: &ModulePlace) -> Result<Self, Refusal> {
        let kernels = place.sections.iter().filter(|section| section.1 >= KERNEL);
        let mut sections: Vec<_> = kernels.clone().map(|(name, at)| (*at, Content::of(name))).collect();
        sections.sort_by_key(|section| section.0);
        let table = |wanted: &str| {
            let start = kernels.clone().find(|(name, _)| name == wanted).ok_or(Refusal::Unknown)?.1;
            // The next section is the end of this one; behind the last there may be anything.
            let next = sections.get(sections.partition_point(|section| section.0 <= start));
            Ok((start, next.map_or(u64::MAX, |section| section.0)))
        };
        Ok(Self { addresses: table(".orc_unwind_ip")?, rules: table(".orc_unwind")?, sections })
    }

    /// Returns the content at an address. An entry at the end of code, which says that there is none any more, belongs
    /// to that code.
    fn content(&self, address: u64) -> Content {
        let before = |address: u64| {
            let at = self.sections.partition_point(|section| section.0 <= address);
            at.checked_sub(1).map_or(Content::Data, |at| self.sections[at].1)
        };
        match before(address) {
            Content::Data => before(address.wrapping_sub(1)),
            code => code,
        }
    }
}

/// Reads the tables of a module, of code that stays. `left` is how many entries may still be read: a guest can map one
/// page any number of times.
///
/// The kernel has sorted them. They end where the next section begins, and at the first entry that is not of the
/// module's code or is below the one before it: behind the last entry there may be anything.
fn read(space: &mut Space<'_>, place: &ModulePlace, layout: Layout, left: &mut usize) -> Result<Orc, Refusal> {
    let plan = Plan::of(place)?;
    let (mut addresses, mut rules) = (Vec::new(), Vec::new());
    let (mut at, mut rule_at, mut last) = (plan.addresses.0, plan.rules.0, 0);
    if space.u32(at).is_none() || rule(space, rule_at).is_none() {
        return Err(Refusal::Unmapped);
    }
    loop {
        let (next, next_rule) = (at.wrapping_add(4), rule_at.wrapping_add(ENTRY as u64));
        if next <= at || next > plan.addresses.1 || next_rule <= rule_at || next_rule > plan.rules.1 {
            break;
        }
        *left = left.checked_sub(1).ok_or(Refusal::TooMany)?;
        let (Some(offset), Some(rule)) = (space.u32(at), rule(space, rule_at)) else { break };
        let address = at.wrapping_add_signed(offset.cast_signed().into());
        let content = plan.content(address);
        if address < last || content == Content::Data {
            break;
        }
        if content == Content::Code {
            addresses.push(address);
            rules.push(rule);
        }
        (at, rule_at, last) = (next, next_rule, address);
    }
    Orc::of_entries(addresses, rules, layout).ok_or(Refusal::Nonsense)
}

fn rule(space: &mut Space<'_>, at: u64) -> Option<[u8; ENTRY]> {
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&space.u32(at)?.to_le_bytes());
    for (n, byte) in bytes[4..].iter_mut().enumerate() {
        *byte = space.u8(at.wrapping_add(4 + n as u64))?;
    }
    Some(bytes)
}

/// Most entries of all tables together that are read, in all tries: 14 MiB. The largest modules have some 100 000.
pub(in crate::sample) const MOST_ENTRIES: usize = 1 << 20;

/// The tables of modules, each for its own code.
#[derive(Debug, Default)]
pub(in crate::sample) struct ModuleTables {
    /// Ascending and apart.
    tables: Vec<(Range<u64>, Orc)>,
}

/// Outcome of reading tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablesRead {
    /// Modules with tables.
    pub modules: usize,
    /// Modules without, by name, and why.
    pub refused: Vec<(String, Refusal)>,
}

impl ModuleTables {
    /// Reads the tables of modules at these places, and no more than `left` entries. `None`: they are not in this address space.
    pub(in crate::sample) fn read(
        space: &mut Space<'_>,
        places: &[ModulePlace],
        layout: Layout,
        left: &mut usize,
    ) -> Option<(Self, TablesRead)> {
        let (mut found, mut done) = (Vec::new(), TablesRead::default());
        let (mut absent, mut too_many) = (0, false);
        for place in places {
            match read(space, place, layout, left) {
                Ok(orc) => found.push((orc.code(), orc, &place.name)),
                Err(why) => {
                    absent += usize::from(why == Refusal::Unmapped);
                    too_many |= why == Refusal::TooMany;
                    done.refused.push((place.name.clone(), why));
                }
            }
        }
        // Beyond the bound another address space is of no use.
        if found.is_empty() && absent > 0 && !too_many {
            return None;
        }
        found.sort_by_key(|(code, ..)| code.start);
        let mut tables: Vec<(Range<u64>, Orc)> = Vec::with_capacity(found.len());
        for (code, orc, name) in found {
            if tables.last().is_some_and(|(before, _)| code.start < before.end) {
                done.refused.push((name.clone(), Refusal::Overlap));
            } else {
                tables.push((code, orc));
            }
        }
        done.modules = tables.len();
        Some((Self { tables }, done))
    }

    /// Returns the rule at an address of a module.
    pub(in crate::sample) fn rule(&self, address: u64) -> Option<Rule> {
        let at = self.tables.partition_point(|(code, _)| code.start <= address).checked_sub(1)?;
        let (code, orc) = &self.tables[at];
        if code.contains(&address) { orc.rule(address) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use kvm_bindings::kvm_sregs;
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::super::orc::tests::tables;
    use super::super::orc::{Base, Kind, Layout};
    use super::super::sampling::Sampling;
    use super::super::space::Space;
    use super::Content::{Code, Data, Initial};
    use super::Plan;
    use super::*;

    const TEXT: u64 = 0xffff_ffff_c000_0000;
    /// Address at which the tables of a test begin.
    const DATA: u64 = 0xffff_ffff_c001_0000;
    /// Code of initialisation, which is gone.
    const INIT: u64 = 0xffff_ffff_c008_0000;
    /// A rule as bytes: the caller's stack pointer is `offset` above this one, and a return address is below it.
    const fn call(offset: u8) -> [u8; 6] {
        [offset, 0, 0, 0, 5, 2]
    }
    const END: [u8; 6] = [0; 6];

    /// Memory with a page table: the last GiB is the first 2 MiB of memory, again and again.
    fn memory() -> GuestMemoryMmap {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x20_0000)]).unwrap();
        let put = |at: u64, value: u64| memory.write_obj(value, GuestAddress(at)).unwrap();
        put(0x1000 + 8 * 511, 0x2001);
        put(0x2000 + 8 * 511, 0x3001);
        (0..512).for_each(|entry| put(0x3000 + 8 * entry, 0x81));
        memory
    }

    fn sregs() -> kvm_sregs {
        kvm_sregs { cr0: 1 << 31, cr3: 0x1000, cr4: 1 << 5, efer: 1 << 10, ..kvm_sregs::default() }
    }

    fn put(memory: &GuestMemoryMmap, at: u64, bytes: &[u8]) {
        memory.write_slice(bytes, GuestAddress(at % 0x20_0000)).unwrap();
    }

    /// Plants tables at `at`, addresses before rules; returns the sections of a module with code at `text`.
    fn plant(memory: &GuestMemoryMmap, text: u64, at: u64, entries: &[(u64, [u8; 6])]) -> Vec<(String, u64)> {
        let rules = at + 4 * entries.len() as u64;
        for (n, (address, rule)) in entries.iter().enumerate() {
            let place = at + 4 * n as u64;
            put(memory, place, &(address.wrapping_sub(place) as i32).to_le_bytes());
            put(memory, rules + 6 * n as u64, rule);
        }
        let behind = (rules + 6 * entries.len() as u64).next_multiple_of(32);
        let sections = [(".orc_unwind", rules), (".rodata", behind), (".text", text), (".orc_unwind_ip", at)];
        sections.map(|(name, at)| (name.to_owned(), at)).to_vec()
    }

    fn module(name: &str, sections: Vec<(String, u64)>) -> ModulePlace {
        ModulePlace { name: name.to_owned(), sections }
    }

    fn read(memory: &GuestMemoryMmap, places: &[ModulePlace]) -> Option<(ModuleTables, TablesRead)> {
        let mut space = Space::new(memory, &sregs());
        ModuleTables::read(&mut space, places, Layout::TypeOf3Bits, &mut MOST_ENTRIES.clone())
    }

    fn refusals(memory: &GuestMemoryMmap, places: &[ModulePlace]) -> (usize, Vec<Refusal>) {
        let (_, done) = read(memory, places).unwrap();
        (done.modules, done.refused.into_iter().map(|(_, why)| why).collect())
    }

    #[test]
    fn tables_in_memory_have_rules_for_the_code_that_stays() {
        let memory = memory();
        let entries =
            [(TEXT, call(8)), (TEXT + 0x20, call(16)), (TEXT + 0x40, END), (INIT, call(24)), (INIT + 0x10, END)];
        let mut sections = plant(&memory, TEXT, DATA, &entries);
        sections.push((".init.text".to_owned(), INIT));
        let (tables, done) = read(&memory, &[module("m", sections)]).unwrap();
        assert_eq!(done, TablesRead { modules: 1, refused: Vec::new() });
        let offset = |address: u64| tables.rule(address).map(|rule| (rule.sp, rule.kind));
        let rule = |offset: i16| Some(((Base::Sp, offset), Kind::Call));
        assert_eq!([offset(TEXT), offset(TEXT + 0x1f), offset(TEXT + 0x3f)], [rule(8), rule(8), rule(16)]);
        assert_eq!([TEXT - 1, TEXT + 0x40, INIT, u64::MAX].map(offset), [None; 4]);
    }

    #[test]
    fn rules_may_lie_before_addresses_and_in_code_of_several_sections() {
        let memory = memory();
        let rules = DATA;
        let addresses = DATA + 20;
        for (n, (address, rule)) in [(TEXT, call(8)), (TEXT + 0x100, call(16)), (TEXT + 0x120, END)].iter().enumerate()
        {
            let place = addresses + 4 * n as u64;
            put(&memory, place, &(address.wrapping_sub(place) as i32).to_le_bytes());
            put(&memory, rules + 6 * n as u64, rule);
        }
        let sections = [
            (".orc_unwind", rules),
            (".orc_unwind_ip", addresses),
            (".text", TEXT),
            (".exit.text", TEXT + 0x100),
            // The end of the code is where other data begins.
            (".rodata", TEXT + 0x120),
            (".bss", addresses + 12),
        ];
        let (tables, _) =
            read(&memory, &[module("m", sections.map(|(name, at)| (name.to_owned(), at)).to_vec())]).unwrap();
        assert_eq!([TEXT, TEXT + 0x11f].map(|at| tables.rule(at).map(|rule| rule.sp.1)), [Some(8), Some(16)]);
        assert!(tables.rule(TEXT + 0x120).is_none());
    }

    #[test]
    fn a_table_ends_where_it_makes_no_sense_and_lies_about_its_length_have_no_effect() {
        let memory = memory();
        let good = [(TEXT, call(8)), (TEXT + 0x20, call(16)), (TEXT + 0x40, END)];
        let behind = |lie: (u64, [u8; 6])| {
            let entries = [&good[..], &[lie, (TEXT + 0x1000, call(32))]].concat();
            let (tables, _) = read(&memory, &[module("m", plant(&memory, TEXT, DATA, &entries))]).unwrap();
            tables.rule(TEXT + 0x800).is_none() && tables.rule(TEXT + 0x30).is_some()
        };
        // Below the one before, in the user's half, in data.
        for lie in [TEXT + 0x10, 0x1000, DATA + 0x8000] {
            assert!(behind((lie, call(8))), "{lie:#x}");
        }
        // Rules without room for as many as there are addresses.
        let mut sections = plant(&memory, TEXT, DATA, &good);
        sections.push((".bss".to_owned(), DATA + 12 + 13));
        let (tables, _) = read(&memory, &[module("m", sections)]).unwrap();
        assert!(tables.rule(TEXT).is_some() && tables.rule(TEXT + 0x20).is_none());
    }

    #[test]
    fn what_has_no_usable_table_is_refused_by_name() {
        let memory = memory();
        let good = module("good", plant(&memory, TEXT, DATA, &[(TEXT, call(8)), (TEXT + 0x40, END)]));
        let with = |place: ModulePlace| refusals(&memory, &[good.clone(), place]);
        let sections = |all: &[(&str, u64)]| all.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
        let hidden = sections(&[(".text", 0), (".orc_unwind", 0), (".orc_unwind_ip", 0)]);
        assert_eq!(with(module("hidden", hidden)), (1, vec![Refusal::Unknown]));
        assert_eq!(with(module("none", Vec::new())), (1, vec![Refusal::Unknown]));
        // Linear addresses that nothing is mapped at.
        let outside = 0xffff_ffff_0000_0000;
        let outside = sections(&[(".text", TEXT), (".orc_unwind", outside), (".orc_unwind_ip", outside + 0x1000)]);
        assert_eq!(with(module("outside", outside)), (1, vec![Refusal::Unmapped]));
        let nothing = plant(&memory, TEXT + 0x1000, DATA + 0x1000, &[(0x1000, call(8)), (0x2000, call(8))]);
        assert_eq!(with(module("nothing", nothing)), (1, vec![Refusal::Nonsense]));
        // The later of two that overlap; the same twice.
        let over = plant(&memory, TEXT + 0x20, DATA + 0x2000, &[(TEXT + 0x20, call(8)), (TEXT + 0x80, END)]);
        assert_eq!(with(module("over", over)), (1, vec![Refusal::Overlap]));
        assert_eq!(with(good.clone()), (1, vec![Refusal::Overlap]));
    }

    #[test]
    fn tables_of_another_address_space_may_come_later() {
        let memory = memory();
        let outside = 0xffff_ffff_0000_0000;
        let sections = [(".text", TEXT), (".orc_unwind", outside), (".orc_unwind_ip", outside + 0x1000)];
        let outside = module("m", sections.map(|(name, at)| (name.to_owned(), at)).to_vec());
        assert!(read(&memory, &[outside]).is_none());
        assert_eq!(read(&memory, &[]).unwrap().1, TablesRead::default(), "a kernel without modules");
    }

    #[test]
    fn a_page_that_is_mapped_again_and_again_ends_the_reading() {
        let memory = memory();
        // Zeros up to the end of the address space: each entry is at its own place, which is said to be code.
        for entry in 0..512 {
            memory.write_obj(0x4001_u64, GuestAddress(0x3000 + 8 * entry)).unwrap();
            memory.write_obj(0x5001_u64, GuestAddress(0x4000 + 8 * entry)).unwrap();
        }
        let start = 0xffff_ffff_c010_0000;
        let endless = module("endless", vec![(".text".into(), start), (".orc_unwind_ip".into(), start)]);
        assert_eq!(refusals(&memory, std::slice::from_ref(&endless)), (0, vec![Refusal::Unknown]));
        for name in [".text", ".init.text"] {
            let mut lie = endless.clone();
            lie.sections = [(".orc_unwind_ip", start), (".orc_unwind", start), (name, start)]
                .map(|(name, at)| (name.to_owned(), at))
                .to_vec();
            let others = vec![lie; 3];
            assert_eq!(refusals(&memory, &others), (0, vec![Refusal::TooMany; 3]), "{name}");
        }
    }

    #[test]
    fn reading_again_and_again_is_bounded_over_all_tries() {
        let memory = memory();
        let outside = 0xffff_ffff_0000_0000;
        let sections = |tables: u64| {
            [(".orc_unwind_ip", tables), (".orc_unwind", tables + 0x1000), (".text", TEXT)]
                .map(|(name, at)| (name.to_owned(), at))
                .to_vec()
        };
        // One module's tables are never in memory, so that there is another try; the other's cost entries each time.
        let nothing = plant(&memory, TEXT, DATA, &[(0x1000, call(8)), (0x2000, call(8))]);
        let places = [module("absent", sections(outside)), module("nothing", nothing)];
        let (mut left, mut tries) = (5, 0);
        let done = loop {
            let mut space = Space::new(&memory, &sregs());
            tries += 1;
            match ModuleTables::read(&mut space, &places, Layout::TypeOf3Bits, &mut left) {
                Some((_, done)) => break done,
                None => assert!(tries < 10),
            }
        };
        let why: Vec<_> = done.refused.iter().map(|(_, why)| *why).collect();
        assert_eq!((why, done.modules, left), (vec![Refusal::Unmapped, Refusal::TooMany], 0, 0));
        assert!(tries > 1);
    }

    #[test]
    fn sections_have_their_kind_by_name() {
        let names =
            [".text", ".text.unlikely", ".noinstr.text", ".fixup", ".init.text", ".exit.text", ".rodata", ".data"];
        let mut sections =
            names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), TEXT + 16 * n as u64)).collect();
        let tables = [(".orc_unwind".to_owned(), DATA), (".orc_unwind_ip".to_owned(), DATA + 8)];
        Vec::extend(&mut sections, tables);
        let plan = Plan::of(&module("m", sections)).unwrap();
        let content = |n: u64| plan.content(TEXT + 16 * n + 8);
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(content), [Code, Code, Code, Code, Initial, Code, Data, Data]);
        assert_eq!(
            (plan.content(TEXT - 1), plan.addresses, plan.rules),
            (Data, (DATA + 8, u64::MAX), (DATA, DATA + 8))
        );
    }

    #[test]
    fn a_recording_reads_tables_once_a_sample_has_shown_where_memory_is() {
        let memory = memory();
        let places = [module("m", plant(&memory, TEXT, DATA, &[(TEXT, call(8)), (TEXT + 0x40, END)]))];
        let mut sampling = Sampling::new(Vec::new(), host_pmu::sampler::Rate::Hertz(1), true, 2);
        assert_eq!(sampling.read_modules(&places), Some(TablesRead::default()), "a kernel without tables");
        sampling.orc = Some(tables(&[(0xffff_ffff_8100_0000, 5, 8, 0, 0, 2)]));
        assert_eq!(sampling.read_modules(&places), None);
        sampling.has_memory(&memory);
        assert_eq!(sampling.read_modules(&places), None);
        let space = |sampling: &Sampling, at: usize, value: u64| {
            sampling.channels[at].kernel_space.store(value, std::sync::atomic::Ordering::Relaxed);
        };
        // Tables of pages that are not there any more; the other vCPU's are.
        space(&sampling, 0, 0x9_0001);
        assert!(sampling.read_modules(&places).is_none() && sampling.modules().is_none());
        space(&sampling, 1, Space::packed(&sregs()));
        assert_eq!(sampling.read_modules(&places).unwrap().modules, 1);
        assert!(sampling.modules().unwrap().rule(TEXT).is_some());
    }
}
