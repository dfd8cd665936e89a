//! Costs of the operations of guest, VMM and host.

use super::cost::Cost;
use super::read::{MAX_NS, Section};

/// What things cost. ns unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An MSR access: from the guest's instruction to the vPMU, and from there back.
    pub exit: Cost,
    /// What an MSR access in the guest's tick costs beyond that.
    pub tick_exit: Cost,
    /// A port write in ring 3: from the guest's instruction to the VMM, and from there back.
    pub io: Cost,
    /// The vPMU's own work at an exit.
    pub vmm: Cost,
    /// A write to the local APIC (LVTPC, EOI), handled in the kernel.
    pub apic: Cost,
    /// From a host event's overflow in guest mode to the vPMU.
    pub signal: Cost,
    /// Handing a PMI over: LVTPC, NMI, LVTPC's mask.
    pub inject: Cost,
    /// From the entry with an interrupt to its handler's first instruction.
    pub interrupt: Cost,
    /// Picoseconds of one instruction in ring 0.
    pub instruction_ps: u64,
    /// A unit of the guest's work in ring 3.
    pub work_unit: u64,
    /// Creating the host's only event.
    pub open_first: Cost,
    /// Creating one more.
    pub open_more: Cost,
    /// Closing the host's only event.
    pub release_last: Cost,
    /// Closing another.
    pub release: Cost,
    /// Pausing.
    pub pause: Cost,
    /// Resuming.
    pub resume: Cost,
    /// And for each other event that runs on the vCPU: enabling one schedules all of them anew.
    pub resume_other: Cost,
    /// A new period.
    pub period: Cost,
    /// Reading a running event.
    pub read: Cost,
}

impl Costs {
    /// What [`Model::scale`] takes: every cost's key, and `open` and `release` for both of theirs.
    pub const SCALABLE: [&str; 20] = [
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
        "read",
    ];

    pub(super) fn scale(&mut self, key: &str, factor: f64) -> bool {
        #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
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
            "read" => &mut [&mut self.read],
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
    Ok(Costs {
        tick_exit: section.optional_cost("tick-exit")?.unwrap_or(Cost::fixed(0)),
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
        period: section.cost("period")?,
        read: section.cost("read")?,
    })
}
