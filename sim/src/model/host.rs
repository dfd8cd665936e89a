//! The simulated host: counters, slices, other tasks.

use super::cost::Cost;
use super::read::Section;

/// Most host counters a model may have.
const MAX_COUNTERS: u64 = 64;

/// Tasks of the host that take the vCPU's CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// From a turn's begin until one comes, ns.
    pub every: Cost,
    /// How long it stays, ns.
    pub length: Cost,
}

/// The simulated host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// Hardware counters of a CPU, general-purpose and fixed together.
    pub counters: u64,
    /// Of those, counters that events of other users of the PMU hold, the NMI watchdog's among them.
    pub taken: u64,
    /// A turn of a vCPU thread on a shared CPU, ns.
    pub slice: u64,
    /// Of 1000 opens, those that fail.
    pub refused_permille: u64,
    /// The shortest period asked of a clock, ns: what `host_pmu::backend::perf` takes there.
    pub shortest_period: u64,
    /// Other tasks, if there are any.
    pub others: Option<Others>,
}

impl Others {
    /// Tasks that take the CPU every `every` ns for `length` ns.
    #[must_use]
    pub const fn new(every: Cost, length: Cost) -> Self {
        Self { every, length }
    }
}

pub(super) fn host(section: &mut Section<'_>) -> Result<HostModel, String> {
    let model = HostModel {
        counters: section.whole("counters", "value", 1..=MAX_COUNTERS)?,
        taken: section.whole("taken", "value", 0..=MAX_COUNTERS)?,
        slice: section.whole("slice", "ns", 1000..=1_000_000_000_000)?,
        shortest_period: section.optional_whole("shortest-period", "ns", 1..=1_000_000_000)?.unwrap_or(50_000),
        refused_permille: section.optional_whole("refused", "permille", 0..=1000)?.unwrap_or(0),
        others: section.optional_section("others", |others| {
            let every = others.cost("every")?;
            if every.smallest() == 0 {
                return Err(format!("{}: 0 ns between other tasks leave the vCPU no time", others.path("every")));
            }
            Ok(Others::new(every, others.cost("length")?))
        })?,
    };
    if model.taken > model.counters {
        return Err(format!("host.taken: {} of {} counters cannot be taken", model.taken, model.counters));
    }
    Ok(model)
}
