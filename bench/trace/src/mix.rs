//! Accesses of a trace by register, and what else it has.

use std::collections::BTreeMap;

use arch_pmu::PmuMsr;
use host_pmu::trace::{Kind, Row, UNKNOWN};

/// Rows by kind and register.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// Rows of each kind; accesses by register as well.
    pub rows: BTreeMap<(Kind, u32), u64>,
    /// Time of each vCPU from its first row to its last, ns, summed.
    pub ns: u64,
    /// PMIs that reached the guest.
    pub pmis: u64,
    ends: BTreeMap<u16, (u64, u64)>,
}

impl Mix {
    /// Adds rows of a vCPU.
    pub fn add(&mut self, rows: &[Row]) {
        for row in rows {
            let register = if row.kind.is_access() { row.register } else { 0 };
            *self.rows.entry((row.kind, register)).or_default() += 1;
            self.pmis += u64::from(row.brings_pmi());
        }
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            let ends = self.ends.entry(first.vcpu).or_insert((first.at, first.at));
            self.ns += last.at.saturating_sub(ends.1);
            ends.1 = last.at;
        }
    }

    /// Returns the rows of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.rows.iter().filter(|((found, _), _)| *found == kind).map(|(_, count)| count).sum()
    }

    /// Returns the accesses.
    pub fn accesses(&self) -> u64 {
        self.rows.iter().filter(|((kind, _), _)| kind.is_access()).map(|(_, count)| count).sum()
    }
}

/// Returns the name of what a row is about.
pub fn name(kind: Kind, register: u32) -> String {
    match (kind, PmuMsr::decode(register)) {
        (Kind::Rdpmc, _) if register == UNKNOWN => "RDPMC ?".to_owned(),
        (Kind::Rdpmc | Kind::RdpmcFault, _) => format!("RDPMC {register:#x}"),
        (kind, Some(msr)) if kind.is_access() || kind == Kind::State => msr.name(),
        (kind, None) if kind.is_access() || kind == Kind::State => format!("{register:#x}"),
        _ => String::new(),
    }
}
