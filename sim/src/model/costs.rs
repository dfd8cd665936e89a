//! Costs of the operations of guest, VMM and host.

use serde::Deserialize;

use super::cost::{Cost, MAX_NS};

/// The table of costs. A row is a field, its key, and what serde has to know of one that may be left out.
macro_rules! costs {
    ($($(#[$doc:meta])+ $field:ident: $type:ty = $key:literal;)+) => {
        /// Costs, ns unless noted.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Costs {
            $($(#[$doc])+ #[serde(rename = $key)] pub $field: $type,)+
            /// Costs of a PMU that the guest owns; `None` for a host that cannot give its PMU away.
            pub mediated: Option<MediatedCosts>,
        }

        impl Costs {
            /// Keys that `Model::scale` accepts; `open` and `release` scale both of their costs.
            pub const SCALABLE: &[&str] = &[$($key,)+ "open", "pmu-switch", "register"];

            fn rows(&mut self) -> impl Iterator<Item = (&'static str, &mut dyn Scale)> {
                [$(($key, &mut self.$field as &mut dyn Scale)),+].into_iter()
            }
        }
    };
}

costs! {
    /// Exit and entry of an MSR access.
    exit: Cost = "exit";
    /// Extra cost of an MSR access in the guest's tick.
    #[serde(default)]
    tick_exit: Cost = "tick-exit";
    /// Exit and entry of a port write in ring 3.
    io: Cost = "io";
    /// Work of the vPMU at an exit.
    vmm: Cost = "vmm";
    /// A write to the local APIC (LVTPC, EOI), handled in the kernel.
    apic: Cost = "apic";
    /// Time from a host event's overflow in guest mode to the vPMU.
    signal: Cost = "signal";
    /// Injection of a PMI: LVTPC, NMI, mask of LVTPC.
    inject: Cost = "inject";
    /// Time from an entry with an interrupt to the first instruction of its handler.
    interrupt: Cost = "interrupt";
    /// Picoseconds of one instruction in ring 0.
    instruction_ps: u64 = "instruction";
    /// One unit of the guest's work in ring 3.
    work_unit: u64 = "work-unit";
    /// Creating the first event of the host.
    open_first: Cost = "open-first";
    /// Creating a further event.
    open_more: Cost = "open-more";
    /// Closing the last event of the host.
    release_last: Cost = "release-last";
    /// Closing an event that is not the last.
    release: Cost = "release";
    /// Pausing.
    pause: Cost = "pause";
    /// Resuming.
    resume: Cost = "resume";
    /// Extra cost of a resume per running event of the vCPU: enabling one reschedules all.
    resume_other: Cost = "resume-other";
    /// Setting a period.
    period: Cost = "period";
    /// Setting the period of an event that runs: a clock's timer is stopped and started.
    period_running: Cost = "period-running";
    /// Reading a running event.
    read: Cost = "read";
    /// A context switch of a thread that holds events, to and fro.
    #[serde(default)]
    switch: Cost = "switch";
    /// Additional cost for each of them.
    #[serde(default)]
    switch_held: Cost = "switch-held";
    /// Additional cost for each that runs.
    #[serde(default)]
    switch_running: Cost = "switch-running";
    /// Looking at a running event's count without a host call; `None`: it is read.
    peek: Option<Cost> = "peek";
    /// Each event that one read of a stopped group returns.
    #[serde(default)]
    group_read: Cost = "group-read";
    /// An expiry of a clock while the thread is in host code, or the guest in ring 0: an interrupt, and a record.
    #[serde(default)]
    expiry: Cost = "expiry";
}

/// Costs of a PMU that the guest owns, ns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
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
