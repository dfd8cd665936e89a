//! The vCPU loop: prepare, enter, dispatch; and the same in single steps.

use host_pmu::side::HostPmu;

use super::step::{Go, Seen, Stepper};
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
        if let Some(end) = vcpu.prepare() {
            return end;
        }
        let Some(counts) = vcpu.parts.pmu.host().stepper() else { return End::Host("no step counter".to_owned()) };
        let due = match stepper.before_entry(&mut vcpu.parts.fd, counts) {
            Ok(Go::Enter) => {
                let exit = vcpu.enter();
                let Some(counts) = vcpu.parts.pmu.host().stepper() else {
                    return End::Host("no step counter".to_owned());
                };
                match stepper.after_exit(exit, &mut vcpu.parts.fd, counts) {
                    Ok(Seen::Guest) => {
                        if let Some(end) = vcpu.dispatch(exit) {
                            return end;
                        }
                        false
                    }
                    Ok(Seen::Step { due }) => due,
                    Err(end) => return end,
                }
            }
            Ok(Go::Retired { due }) => due,
            Err(end) => return end,
        };
        if due {
            vcpu.parts.pmu.kick();
        }
    }
}
