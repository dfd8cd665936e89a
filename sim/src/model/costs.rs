//! Costs of the operations of guest, VMM and host.

use super::cost::Cost;
use super::cost::{MAX_NS, Section};

/// Costs, ns unless noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Exit and entry of an MSR access.
    pub exit: Cost,
    /// Extra cost of an MSR access in the guest's tick.
    pub tick_exit: Cost,
    /// Exit and entry of a port write in ring 3.
    pub io: Cost,
    /// Work of the vPMU at an exit.
    pub vmm: Cost,
    /// A write to the local APIC (LVTPC, EOI), handled in the kernel.
    pub apic: Cost,
    /// Time from a host event's overflow in guest mode to the vPMU.
    pub signal: Cost,
    /// Injection of a PMI: LVTPC, NMI, mask of LVTPC.
    pub inject: Cost,
    /// Time from an entry with an interrupt to the first instruction of its handler.
    pub interrupt: Cost,
    /// Picoseconds of one instruction in ring 0.
    pub instruction_ps: u64,
    /// One unit of the guest's work in ring 3.
    pub work_unit: u64,
    /// Creating the first event of the host.
    pub open_first: Cost,
    /// Creating a further event.
    pub open_more: Cost,
    /// Closing the last event of the host.
    pub release_last: Cost,
    /// Closing an event that is not the last.
    pub release: Cost,
    /// Pausing.
    pub pause: Cost,
    /// Resuming.
    pub resume: Cost,
    /// Extra cost of a resume per running event of the vCPU: enabling one reschedules all.
    pub resume_other: Cost,
    /// Setting a period.
    pub period: Cost,
    /// Setting the period of an event that runs: a clock's timer is stopped and started.
    pub period_running: Cost,
    /// Reading a running event.
    pub read: Cost,
    /// A context switch of a thread that holds events, to and fro.
    pub switch: Cost,
    /// Additional cost for each of them.
    pub switch_held: Cost,
    /// Additional cost for each that runs.
    pub switch_running: Cost,
    /// Looking at a running event's count without a host call; `None`: it is read.
    pub peek: Option<Cost>,
    /// Each event that one read of a stopped group returns.
    pub group_read: Cost,
    /// An expiry of a clock while the thread is in host code, or the guest in ring 0: an interrupt, and a record.
    pub expiry: Cost,
    /// Costs of a PMU that the guest owns; `None` for a host that cannot give its PMU away.
    pub mediated: Option<MediatedCosts>,
}

/// Costs of a PMU that the guest owns, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediatedCosts {
    /// Saving the guest's registers at an exit, or loading them at an entry.
    pub pmu_switch: Cost,
    /// A guest's access to a register, without an exit.
    pub register: Cost,
}

impl Costs {
    /// Keys that `Model::scale` accepts; `open` and `release` scale both of their costs.
    pub const SCALABLE: [&str; 29] = [
        "exit",
        "tick-exit",
        "io",
        "vmm",
        "apic",
        "signal",
        "inject",
        "interrupt",
        "instruction",
        "work-unit",
        "open",
        "open-first",
        "open-more",
        "release",
        "release-last",
        "pause",
        "resume",
        "resume-other",
        "period",
        "period-running",
        "read",
        "switch",
        "switch-held",
        "switch-running",
        "peek",
        "group-read",
        "expiry",
        "pmu-switch",
        "register",
    ];

    pub(super) fn scale(&mut self, key: &str, factor: f64) -> bool {
        #[expect(clippy::cast_sign_loss, reason = "not negative")]
        let whole = |value: u64| (value as f64 * factor).round().clamp(1.0, MAX_NS) as u64;
        let costs: &mut [&mut Cost] = match key {
            "instruction" => {
                self.instruction_ps = whole(self.instruction_ps);
                &mut []
            }
            "work-unit" => {
                self.work_unit = whole(self.work_unit);
                &mut []
            }
            "exit" => &mut [&mut self.exit],
            "tick-exit" => &mut [&mut self.tick_exit],
            "io" => &mut [&mut self.io],
            "vmm" => &mut [&mut self.vmm],
            "apic" => &mut [&mut self.apic],
            "signal" => &mut [&mut self.signal],
            "inject" => &mut [&mut self.inject],
            "interrupt" => &mut [&mut self.interrupt],
            "open" => &mut [&mut self.open_first, &mut self.open_more],
            "open-first" => &mut [&mut self.open_first],
            "open-more" => &mut [&mut self.open_more],
            "release" => &mut [&mut self.release_last, &mut self.release],
            "release-last" => &mut [&mut self.release_last],
            "pause" => &mut [&mut self.pause],
            "resume" => &mut [&mut self.resume],
            "resume-other" => &mut [&mut self.resume_other],
            "period" => &mut [&mut self.period],
            "period-running" => &mut [&mut self.period_running],
            "read" => &mut [&mut self.read],
            "switch" => &mut [&mut self.switch],
            "switch-held" => &mut [&mut self.switch_held],
            "switch-running" => &mut [&mut self.switch_running],
            "peek" => match &mut self.peek {
                Some(peek) => &mut [peek],
                None => &mut [],
            },
            "group-read" => &mut [&mut self.group_read],
            "expiry" => &mut [&mut self.expiry],
            "pmu-switch" | "register" => match &mut self.mediated {
                Some(costs) if key == "register" => &mut [&mut costs.register],
                Some(costs) => &mut [&mut costs.pmu_switch],
                None => &mut [],
            },
            _ => return false,
        };
        for cost in costs {
            **cost = cost.scaled(factor, MAX_NS);
        }
        true
    }
}

pub(super) fn costs(section: &mut Section<'_>) -> Result<Costs, String> {
    let exit = section.cost("exit")?;
    let mut or_nothing = |key| Ok::<_, String>(section.optional_cost(key)?.unwrap_or(Cost::fixed(0)));
    let (switch, switch_held) = (or_nothing("switch")?, or_nothing("switch-held")?);
    let (switch_running, tick_exit) = (or_nothing("switch-running")?, or_nothing("tick-exit")?);
    let (expiry, group_read) = (or_nothing("expiry")?, or_nothing("group-read")?);
    let period = section.cost("period")?;
    Ok(Costs {
        switch,
        switch_held,
        switch_running,
        tick_exit,
        io: section.optional_cost("io")?.unwrap_or_else(|| exit.clone()),
        exit,
        vmm: section.cost("vmm")?,
        apic: section.cost("apic")?,
        signal: section.cost("signal")?,
        inject: section.cost("inject")?,
        interrupt: section.cost("interrupt")?,
        instruction_ps: section.whole("instruction", "ps", 1..=1_000_000_000)?,
        work_unit: section.whole("work-unit", "ns", 1..=1_000_000_000)?,
        open_first: section.cost("open-first")?,
        open_more: section.cost("open-more")?,
        release_last: section.cost("release-last")?,
        release: section.cost("release")?,
        pause: section.cost("pause")?,
        resume: section.cost("resume")?,
        resume_other: section.cost("resume-other")?,
        period_running: section.optional_cost("period-running")?.unwrap_or_else(|| period.clone()),
        period,
        read: section.cost("read")?,
        peek: section.optional_cost("peek")?,
        group_read,
        expiry,
        mediated: mediated(section)?,
    })
}

/// Reads the costs of a mediated PMU: both, or neither.
fn mediated(section: &mut Section<'_>) -> Result<Option<MediatedCosts>, String> {
    match (section.optional_cost("pmu-switch")?, section.optional_cost("register")?) {
        (Some(pmu_switch), Some(register)) => Ok(Some(MediatedCosts { pmu_switch, register })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!("{}: missing beside pmu-switch", section.path("register"))),
        (None, Some(_)) => Err(format!("{}: missing beside register", section.path("pmu-switch"))),
    }
}
