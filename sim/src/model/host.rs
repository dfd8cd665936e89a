//! The simulated host: counters, slices, other tasks.

use super::cost::Cost;
use super::read::Section;

/// Maximum number of host counters.
const MAX_COUNTERS: u64 = 64;

/// Other tasks of the host that preempt the vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// Time from the start of a slice to a preemption, ns.
    pub every: Cost,
    /// Duration of a preemption, ns.
    pub length: Cost,
}

/// Properties of the simulated host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// Hardware counters of a CPU, general-purpose and fixed.
    pub counters: u64,
    /// Counters in use by others, such as the NMI watchdog.
    pub taken: u64,
    /// Sched slice of a vCPU thread on a shared CPU, ns.
    pub slice: u64,
    /// Failing opens per 1000.
    pub refused_permille: u64,
    /// Shortest period of a clock, ns, as in `host_pmu::backend::perf`.
    pub shortest_period: u64,
    /// Other tasks, if any.
    pub others: Option<Others>,
}

impl Others {
    /// Preemptions for `length` ns, `every` ns after the start of a slice.
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
