//! Place of a module, as the guest reports it.

use thiserror::Error;

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
pub(super) enum Content {
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
pub(super) struct Plan {
    /// Ascending.
    sections: Vec<(u64, Content)>,
    /// Range of the addresses of the tables; `rules` is that of their rules.
    pub(super) addresses: (u64, u64),
    pub(super) rules: (u64, u64),
}

impl Plan {
    pub(super) fn of(place: &ModulePlace) -> Result<Self, Refusal> {
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

    /// Returns the content at an address. An entry at the end of code, which says that there is none any more, belongs to that code.
    pub(super) fn content(&self, address: u64) -> Content {
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
