//! The vCPU loop: prepare, enter, dispatch; and the same in single steps.

use arch_pmu::Vpmu;
use host_pmu::backend::step::StepCounts;
use host_pmu::side::HostPmu;

use super::step::{Step, Stepper};
use super::vcpu::Vcpu;
use crate::devices::bus::Bus;
use crate::outcome::End;
use crate::sys::KickGuard;

/// Runs the guest until it is done, fails, or is stopped, or its turn is over. A kick reaches it while its `guard` is alive.
pub(crate) fn run<H: HostPmu, B: Bus>(vcpu: &mut Vcpu<'_, H, B>, _guard: &KickGuard) -> End {
    if vcpu.parts.pmu.host().stepper().is_some() { in_steps(vcpu) } else { freely(vcpu) }
}

fn freely<H: HostPmu, B: Bus>(vcpu: &mut Vcpu<'_, H, B>) -> End {
    let first = to_the_first_exit(vcpu);
    vcpu.parts.pmu.host().attend();
    if let Some(end) = first {
        return end;
    }
    loop {
        if let Some(end) = vcpu.prepare() {
            return end;
        }
        let exit = vcpu.enter();
        if let Some(end) = vcpu.dispatch(exit) {
            return end;
        }
    }
}

#[inline(never)]
fn to_the_first_exit<H: HostPmu, B: Bus>(vcpu: &mut Vcpu<'_, H, B>) -> Option<End> {
    if let Some(end) = vcpu.prepare() {
        return Some(end);
    }
    let exit = vcpu.enter();
    vcpu.dispatch(exit)
}

/// Runs the loop where the host side counts the instructions that the stepper reports.
fn in_steps<H: HostPmu, B: Bus>(vcpu: &mut Vcpu<'_, H, B>) -> End {
    let mut stepper = Stepper::new(vcpu.parts.memory);
    loop {
        match step(vcpu, &mut stepper) {
            Ok(true) => _ = vcpu.parts.pmu.kick(),
            Ok(false) => {}
            Err(end) => return end,
        }
    }
}

/// Makes one entry, which is a step unless nothing is counted. Returns whether a counter reached its period in it.
fn step<H: HostPmu, B: Bus>(vcpu: &mut Vcpu<'_, H, B>, stepper: &mut Stepper<'_>) -> Result<bool, End> {
    vcpu.prepare().map_or(Ok(()), Err)?;
    let parts = &mut vcpu.parts;
    if let Step::Done { due } = stepper.before_entry(&mut parts.fd, counts(&mut parts.pmu)?)? {
        return Ok(due);
    }
    let exit = vcpu.enter();
    let parts = &mut vcpu.parts;
    match stepper.after_exit(exit, &mut parts.fd, counts(&mut parts.pmu)?)? {
        Step::Done { due } => Ok(due),
        Step::Guest => vcpu.dispatch(exit).map_or(Ok(false), Err),
    }
}

fn counts<H: HostPmu>(pmu: &mut Vpmu<H>) -> Result<&mut StepCounts, End> {
    pmu.host().stepper().ok_or_else(|| End::Host("no step counter".to_owned()))
}
