//! The tables of all modules.

use std::ops::Range;

use super::super::orc::{Layout, Orc, Rule};
use super::super::space::Space;
use super::place::{ModulePlace, Refusal};
use super::read::read;

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
