//! The vCPU's registers at a step, and the reasons for which stepping ends a run.

use kvm_bindings::{KVM_MP_STATE_HALTED, kvm_lapic_state, kvm_mp_state, kvm_regs, kvm_sregs, kvm_vcpu_events};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::super::exit::Exit;
use super::super::host::ioctl_failed;
use super::super::lapic::page::{PPR, register, requested};
use super::gates;
use super::instruction::Before;
use super::traps::{Frame, TF};
use crate::linear::Space;
use crate::outcome::End;

/// DR6.BS: a #DB was a single step's.
const BS: u64 = 1 << 14;

/// A step cannot be counted.
fn cannot(why: impl std::fmt::Display) -> End {
    End::Host(format!("backend step cannot count here: {why}"))
}

/// Instructions ran without steps after `before`: the vCPU is at `after`.
pub(super) fn lost(before: &Before, after: u64) -> End {
    let ring = if before.ring3 { 3 } else { 0 };
    cannot(format_args!(
        "after the instruction at {:#x} (ring {ring}, {:?}) this host ran others without a step, up to {after:#x}; their counts \
         would be wrong",
        before.rip, before.kind
    ))
}

pub(super) fn overlap(at: u64) -> End {
    cannot(format_args!("the handler at {at:#x} begins within another one's first two bytes"))
}

/// Returns the error for code that is not counted, at `at` or behind it.
pub(super) fn other_way(at: u64) -> End {
    cannot(format_args!(
        "it counts 64-bit code that enters and leaves ring 0 by gates and IRETQ; at {at:#x} the guest runs other code, or goes to it, by \
         SYSCALL perhaps"
    ))
}

/// Returns the error for a guest that single-steps itself.
pub(super) fn own_steps(at: u64) -> End {
    cannot(format_args!("the guest sets RFLAGS.TF itself, at or before {at:#x}; both cannot step at once"))
}

/// Returns the error for a handler that #DB shares, which cannot say which event it was given.
pub(super) fn ambiguous(at: u64) -> End {
    cannot(format_args!(
        "vector 1 shares its handler with another vector, and DR6.BS is set already before the step at {at:#x} in ring 3"
    ))
}

/// The registers of a vCPU at a stop.
pub(super) struct At {
    pub(super) regs: kvm_regs,
    pub(super) sregs: kvm_sregs,
}

impl At {
    pub(super) fn of(fd: &VcpuFd) -> Result<Self, End> {
        let sregs = fd.get_sregs().map_err(ioctl_failed("KVM_GET_SREGS"))?;
        Ok(Self { regs: fd.get_regs().map_err(ioctl_failed("KVM_GET_REGS"))?, sregs })
    }

    /// Returns the privilege level.
    pub(super) const fn ring(&self) -> u16 {
        self.sregs.cs.selector & 3
    }

    pub(super) const fn in_ring3(&self) -> bool {
        self.ring() == 3
    }

    pub(super) fn space<'m>(&self, memory: &'m GuestMemoryMmap) -> Space<'m> {
        Space::new(memory, &self.sregs)
    }

    /// Gives the vCPU these general registers.
    pub(super) fn set_regs(&self, fd: &VcpuFd) -> Result<(), End> {
        Ok(fd.set_regs(&self.regs).map_err(ioctl_failed("KVM_SET_REGS"))?)
    }
}

/// Returns whether the vCPU waits in HLT.
pub(super) fn is_halted(fd: &VcpuFd) -> Result<bool, End> {
    Ok(fd.get_mp_state().map_err(ioctl_failed("KVM_GET_MP_STATE"))?.mp_state == KVM_MP_STATE_HALTED)
}

/// Returns whether the next entry delivers an event, before the instruction at RIP.
pub(super) fn event_pending(fd: &VcpuFd, rflags: u64) -> Result<bool, End> {
    let events = fd.get_vcpu_events().map_err(ioctl_failed("KVM_GET_VCPU_EVENTS"))?;
    let lapic = fd.get_lapic().map_err(ioctl_failed("KVM_GET_LAPIC"))?;
    Ok(comes_first(&events, &lapic, rflags))
}

/// Completes the OUT of a trap.
pub(super) fn complete(fd: &mut VcpuFd) -> Result<(), End> {
    fd.set_kvm_immediate_exit(1);
    match Exit::next(fd).0 {
        Exit::Debug | Exit::Interrupted => Ok(()),
        other => Err(End::UnknownExit(format!("{other:?} at a trap of the stepper"))),
    }
}

/// Completes HLT: RIP behind it, and the vCPU waits. An interrupt shadow (STI before it) ends with it.
pub(super) fn halt(fd: &VcpuFd, next: u64, mut at: At) -> Result<(), End> {
    at.regs.rip = next;
    at.set_regs(fd)?;
    let mut events = fd.get_vcpu_events().map_err(ioctl_failed("KVM_GET_VCPU_EVENTS"))?;
    if events.interrupt.shadow != 0 {
        events.interrupt.shadow = 0;
        fd.set_vcpu_events(&events).map_err(ioctl_failed("KVM_SET_VCPU_EVENTS"))?;
    }
    Ok(fd.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_HALTED }).map_err(ioctl_failed("KVM_SET_MP_STATE"))?)
}

/// Returns whether the guest was given #DB for a single step: DR6.BS. It is cleared if the guest must not see the step.
pub(super) fn single_step(fd: &VcpuFd, clear: bool) -> Result<bool, End> {
    let mut debug = fd.get_debug_regs().map_err(ioctl_failed("KVM_GET_DEBUGREGS"))?;
    let stepped = debug.dr6 & BS != 0;
    if stepped && clear {
        debug.dr6 &= !BS;
        fd.set_debug_regs(&debug).map_err(ioctl_failed("KVM_SET_DEBUGREGS"))?;
    }
    Ok(stepped)
}

/// Takes the delivery of a ring-3 step's #DB back: the registers are again what its frame holds.
pub(super) fn undo(fd: &VcpuFd, at: &mut At, frame: &Frame, space: &Space<'_>) -> Result<(), End> {
    let segments = frame.outer_stack(space).and_then(|(rsp, ss)| {
        let cs = gates::descriptor(&at.sregs, frame.cs, space)?;
        Some((rsp, cs, gates::descriptor(&at.sregs, ss, space)?))
    });
    let Some((rsp, cs, ss)) = segments else {
        return Err(cannot(format_args!(
            "the code or stack segment of ring 3 (CS {:#x}) is not in the guest's descriptor tables",
            frame.cs
        )));
    };
    (at.sregs.cs, at.sregs.ss) = (cs, ss);
    fd.set_sregs(&at.sregs).map_err(ioctl_failed("KVM_SET_SREGS"))?;
    (at.regs.rip, at.regs.rsp, at.regs.rflags) = (frame.rip, rsp, frame.flags & !TF);
    at.set_regs(fd)
}

const IF: u64 = 1 << 9;

/// Returns whether the next entry delivers an NMI, an exception or an interrupt.
pub(super) fn comes_first(events: &kvm_vcpu_events, lapic: &kvm_lapic_state, rflags: u64) -> bool {
    let injected = events.nmi.injected | events.interrupt.injected | events.exception.injected != 0;
    if injected || events.exception.pending != 0 {
        return true;
    }
    // After STI or MOV SS the instruction comes first.
    if events.interrupt.shadow != 0 {
        return false;
    }
    let nmi = events.nmi.pending != 0 && events.nmi.masked == 0;
    nmi || rflags & IF != 0 && requested(lapic).is_some_and(|vector| vector >> 4 > register(lapic, PPR) >> 4 & 0xf)
}

#[cfg(test)]
mod tests {
    use super::super::super::lapic::page::IRR;
    use super::*;

    #[test]
    fn a_hlt_runs_only_if_nothing_comes_before_it() {
        let events = |change: fn(&mut kvm_vcpu_events)| {
            let mut events = kvm_vcpu_events::default();
            change(&mut events);
            events
        };
        let mut lapic = kvm_lapic_state::default();
        for (change, rflags, first) in [
            ((|_| ()) as fn(&mut kvm_vcpu_events), IF, false),
            (|events| events.nmi.pending = 1, 0, true),
            // Within an NMI handler; behind STI or MOV SS.
            (|events| (events.nmi.pending, events.nmi.masked) = (1, 1), 0, false),
            (|events| (events.nmi.pending, events.interrupt.shadow) = (1, 1), 0, false),
            (|events| events.nmi.injected = 1, 0, true),
            (|events| events.exception.pending = 1, 0, true),
        ] {
            assert_eq!(comes_first(&events(change), &lapic, rflags), first, "{:?}", events(change));
        }
        // Vector 0x41: not enabled, alone, of the same class as the one in service, and of a higher one.
        lapic.regs[IRR + 0x20] = 2;
        assert_eq!(requested(&lapic), Some(0x41));
        for (rflags, in_service, first) in [(0, 0, false), (IF, 0, true), (IF, 0x40, false), (IF, 0x3f, true)] {
            lapic.regs[PPR] = in_service;
            assert_eq!(comes_first(&kvm_vcpu_events::default(), &lapic, rflags), first, "{in_service:#x}");
        }
    }
}
