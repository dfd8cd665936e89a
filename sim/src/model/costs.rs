//! Costs of the operations of guest, VMM and host.

use super::cost::{Cost, MAX_NS, Section};

/// The table of costs. A row is a field, its key, and how it is read: a `cost`, which may have another in its place, `nothing` or
/// that of a row before; an `optional` one; or a `whole` number in a unit.
macro_rules! costs {
    (read $section:ident $key:literal cost) => { $section.cost($key)? };
    (read $section:ident $key:literal cost or nothing) => { $section.optional($key, Section::cost)?.unwrap_or(Cost::fixed(0)) };
    (read $section:ident $key:literal cost or $other:ident) => {
        $section.optional($key, Section::cost)?.unwrap_or_else(|| $other.clone())
    };
    (read $section:ident $key:literal optional) => { $section.optional($key, Section::cost)? };
    (read $section:ident $key:literal whole $unit:literal) => { $section.whole($key, $unit, 1..=1_000_000_000)? };
    ($($(#[$doc:meta])+ $field:ident: $type:ty = $key:literal ($($how:tt)+);)+) => {
        /// Costs, ns unless noted.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Costs {
            $($(#[$doc])+ pub $field: $type,)+
            /// Costs of a PMU that the guest owns; `None` for a host that cannot give its PMU away.
            pub mediated: Option<MediatedCosts>,
        }

        impl Costs {
            /// Keys that `Model::scale` accepts; `open` and `release` scale both of their costs.
            pub const SCALABLE: &[&str] = &[$($key,)+ "open", "pmu-switch", "register"];

            fn rows(&mut self) -> impl Iterator<Item = (&'static str, &mut dyn Scale)> {
                [$(($key, &mut self.$field as &mut dyn Scale)),+].into_iter()
            }

            pub(super) fn read(section: &mut Section<'_>) -> Result<Self, String> {
                $(let $field = costs!(read section $key $($how)+);)+
                Ok(Self { $($field,)+ mediated: mediated(section)? })
            }
        }
    };
}

costs! {
    /// Exit and entry of an MSR access.
    exit: Cost = "exit" (cost);
    /// Extra cost of an MSR access in the guest's tick.
    tick_exit: Cost = "tick-exit" (cost or nothing);
    /// Exit and entry of a port write in ring 3.
    io: Cost = "io" (cost or exit);
    /// Work of the vPMU at an exit.
    vmm: Cost = "vmm" (cost);
    /// A write to the local APIC (LVTPC, EOI), handled in the kernel.
    apic: Cost = "apic" (cost);
    /// Time from a host event's overflow in guest mode to the vPMU.
    signal: Cost = "signal" (cost);
    /// Injection of a PMI: LVTPC, NMI, mask of LVTPC.
    inject: Cost = "inject" (cost);
    /// Time from an entry with an interrupt to the first instruction of its handler.
    interrupt: Cost = "interrupt" (cost);
    /// Picoseconds of one instruction in ring 0.
    instruction_ps: u64 = "instruction" (whole "ps");
    /// One unit of the guest's work in ring 3.
    work_unit: u64 = "work-unit" (whole "ns");
    /// Creating the first event of the host.
    open_first: Cost = "open-first" (cost);
    /// Creating a further event.
    open_more: Cost = "open-more" (cost);
    /// Closing the last event of the host.
    release_last: Cost = "release-last" (cost);
    /// Closing an event that is not the last.
    release: Cost = "release" (cost);
    /// Pausing.
    pause: Cost = "pause" (cost);
    /// Resuming.
    resume: Cost = "resume" (cost);
    /// Extra cost of a resume per running event of the vCPU: enabling one reschedules all.
    resume_other: Cost = "resume-other" (cost);
    /// Setting a period.
    period: Cost = "period" (cost);
    /// Setting the period of an event that runs: a clock's timer is stopped and started.
    period_running: Cost = "period-running" (cost or period);
    /// Reading a running event.
    read: Cost = "read" (cost);
    /// A context switch of a thread that holds events, to and fro.
    switch: Cost = "switch" (cost or nothing);
    /// Additional cost for each of them.
    switch_held: Cost = "switch-held" (cost or nothing);
    /// Additional cost for each that runs.
    switch_running: Cost = "switch-running" (cost or nothing);
    /// Looking at a running event's count without a host call; `None`: it is read.
    peek: Option<Cost> = "peek" (optional);
    /// Each event that one read of a stopped group returns.
    group_read: Cost = "group-read" (cost or nothing);
    /// An expiry of a clock while the thread is in host code, or the guest in ring 0: an interrupt, and a record.
    expiry: Cost = "expiry" (cost or nothing);
}

/// Costs of a PMU that the guest owns, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediatedCosts {
    /// Saving the guest's registers at an exit, or loading them at an entry.
    pub pmu_switch: Cost,
    /// A guest's access to a register, without an exit.
    pub register: Cost,
}

/// Something that a factor makes dearer or cheaper.
trait Scale {
    fn scale(&mut self, factor: f64);
}

impl Scale for Cost {
    fn scale(&mut self, factor: f64) {
        *self = self.scaled(factor, MAX_NS);
    }
}

impl Scale for Option<Cost> {
    fn scale(&mut self, factor: f64) {
        if let Some(cost) = self {
            cost.scale(factor);
        }
    }
}

impl Scale for u64 {
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    fn scale(&mut self, factor: f64) {
        *self = (*self as f64 * factor).round().clamp(1.0, MAX_NS) as Self;
    }
}

impl Costs {
    pub(super) fn scale(&mut self, key: &str, factor: f64) -> bool {
        let is_key = |name: &str| match key {
            "open" | "release" => name.starts_with(key),
            _ => name == key,
        };
        self.rows().filter(|(name, _)| is_key(name)).for_each(|(_, cost)| cost.scale(factor));
        match (&mut self.mediated, key) {
            (Some(costs), "pmu-switch") => costs.pmu_switch.scale(factor),
            (Some(costs), "register") => costs.register.scale(factor),
            _ => {}
        }
        Self::SCALABLE.contains(&key)
    }
}

/// Reads the costs of a mediated PMU: both, or neither.
fn mediated(section: &mut Section<'_>) -> Result<Option<MediatedCosts>, String> {
    match (section.optional("pmu-switch", Section::cost)?, section.optional("register", Section::cost)?) {
        (Some(pmu_switch), Some(register)) => Ok(Some(MediatedCosts { pmu_switch, register })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!("{}: missing beside pmu-switch", section.path("register"))),
        (None, Some(_)) => Err(format!("{}: missing beside register", section.path("pmu-switch"))),
    }
}
