//! Finds the target of an instruction that loads RFLAGS or has its target in a register, and sets TF for its step.

use kvm_bindings::kvm_regs;

use super::instruction::{Before, Kind};
use super::registers::{lost, own_steps};
use super::traps::{Frame, TF};
use crate::linear::Space;
use crate::outcome::End;

const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_SYSENTER_ESP: u32 = 0x175;
const MSR_SYSENTER_EIP: u32 = 0x176;

/// Target of an instruction, as far as a frame or a register shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) rip: Option<u64>,
    /// RSP there, if the instruction is an IRET, SYSCALL or SYSENTER.
    rsp: Option<u64>,
    /// Address at which the step needs a trap.
    pub(super) trap: Option<u64>,
    /// True if the target is in ring 3.
    pub(super) ring3: bool,
}

impl Target {
    /// Returns whether a vCPU at the trap at `rip` came there by the instruction itself: an event would have pushed a frame.
    pub(super) fn is_reached(&self, kind: Kind, rip: u64, rsp: u64) -> bool {
        matches!(kind, Kind::Iret | Kind::Syscall | Kind::Sysenter)
            && self.rip.is_none_or(|target| target == rip)
            && self.trap == Some(rip)
            && self.rsp == Some(rsp)
    }
}

/// TF as given to the current instruction.
#[derive(Debug, Default)]
pub(super) struct Aim {
    /// The frame of an IRET to ring 3, with TF set in it.
    planted: Option<Frame>,
    /// Place where a PUSHF saves it: address and size.
    pushed: Option<(u64, u8)>,
}

impl Aim {
    /// Sets TF in what the instruction loads. Returns its target.
    ///
    /// # Errors
    /// The instruction loads a TF of the guest's, or its stack cannot be written.
    pub(super) fn take(
        &mut self,
        before: &Before,
        cs: u16,
        regs: &mut kvm_regs,
        space: &Space<'_>,
        msr: impl FnMut(u32) -> Option<u64>,
    ) -> Result<Target, End> {
        *self = Self::default();
        match before.kind {
            Kind::Pushf(word) => self.pushed = Some((regs.rsp.wrapping_sub(word.into()), word)),
            Kind::Popf(word) if space.word(regs.rsp, word.into()).is_some_and(|flags| flags & TF != 0) => {
                return Err(own_steps(before.rip));
            }
            Kind::Iret => return self.iret(before, cs, regs.rsp, space),
            Kind::Sysret if regs.r11 & TF != 0 => return Err(own_steps(before.rip)),
            Kind::Sysret => {
                regs.r11 |= TF;
                return Ok(Target { rip: Some(regs.rcx), ring3: true, ..Target::default() });
            }
            Kind::Sysexit => return Ok(Target { rip: Some(regs.rdx), ring3: true, ..Target::default() }),
            Kind::Syscall | Kind::Sysenter => return Ok(system_call(before.kind, regs.rsp, msr)),
            _ => {}
        }
        Ok(Target::default())
    }

    fn iret(&mut self, before: &Before, cs: u16, rsp: u64, space: &Space<'_>) -> Result<Target, End> {
        let Some(frame) = Frame::read(rsp, space) else { return Ok(Target::default()) };
        if frame.flags & TF != 0 {
            return Err(own_steps(before.rip));
        }
        let mut target = Target { rip: Some(frame.rip), ..Target::default() };
        if frame.cs & 3 > cs & 3 {
            if !frame.set_tf(true, space) {
                return Err(lost(before, frame.rip));
            }
            self.planted = Some(frame);
            target.ring3 = frame.cs & 3 == 3;
        } else if frame.cs == cs {
            // KVM without hardware virtualization traps one instruction late.
            target.trap = Some(frame.rip);
            target.rsp = frame.outer_stack(space).map(|(rsp, _)| rsp);
        }
        Ok(target)
    }

    /// Takes TF back from an instruction that has not begun. `None`: the stack is not in memory.
    pub(super) fn withdraw(&mut self, kind: Kind, regs: &mut kvm_regs, space: &Space<'_>) -> Option<()> {
        if kind == Kind::Sysret {
            regs.r11 &= !TF;
        }
        match self.planted.take() {
            Some(frame) => frame.restore(space).then_some(()),
            None => Some(()),
        }
    }

    /// Clears TF where PUSHF has saved it, after an event that came behind the instruction, the last of which was of
    /// kind `last`. `None`: that place is not known, or not in memory.
    pub(super) fn clean(&self, last: Kind, space: &Space<'_>) -> Option<()> {
        match (last, self.pushed) {
            (Kind::Pushf(_), Some((at, word))) => clear_pushed(at, word, space),
            (Kind::Pushf(_), None) => None,
            _ => Some(()),
        }
    }
}

/// Clears TF in flags of `word` bytes on the stack.
pub(super) fn clear_pushed(at: u64, word: u8, space: &Space<'_>) -> Option<()> {
    let flags = space.word(at, word.into())? & !TF;
    space.write(at, &flags.to_le_bytes()[..usize::from(word)]).then_some(())
}

/// Returns the target of SYSCALL and SYSENTER, where the MSR can be read (SDM vol. 3, 5.8.7, 5.8.8).
fn system_call(kind: Kind, rsp: u64, mut msr: impl FnMut(u32) -> Option<u64>) -> Target {
    let (index, rsp) = match kind {
        Kind::Sysenter => (MSR_SYSENTER_EIP, msr(MSR_SYSENTER_ESP)),
        _ => (MSR_LSTAR, Some(rsp)),
    };
    Target { rsp, trap: msr(index), ..Target::default() }
}

#[cfg(test)]
mod tests {
    use kvm_bindings::kvm_sregs;
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;

    const CODE: u16 = 8;

    fn stack(words: &[u64]) -> GuestMemoryMmap {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        for (i, word) in words.iter().enumerate() {
            memory.write_slice(&word.to_le_bytes(), GuestAddress(0x800 + 8 * i as u64)).unwrap();
        }
        memory
    }

    fn take(bytes: &[u8], memory: &GuestMemoryMmap, regs: &mut kvm_regs) -> (Aim, Result<Target, End>) {
        let mut aim = Aim::default();
        let before = Before::decode(bytes, 0x1000, false);
        let target = aim.take(&before, CODE, regs, &space(memory), |index| (index == MSR_LSTAR).then_some(0x7000));
        (aim, target)
    }

    /// Memory by its own addresses.
    fn space(memory: &GuestMemoryMmap) -> Space<'_> {
        Space::new(memory, &kvm_sregs::default())
    }

    fn flags(memory: &GuestMemoryMmap, at: u64) -> u64 {
        memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn regs() -> kvm_regs {
        kvm_regs { rsp: 0x800, rcx: 0x1_0000_2000, rdx: 0x1_0000_3000, r11: 0x202, ..kvm_regs::default() }
    }

    #[test]
    fn returns_to_ring_3_get_tf_and_lose_it_if_they_have_not_begun() {
        let (memory, mut regs) = (stack(&[0x5000, 0x1b, 0x202, 0x900, 0x23]), regs());
        let (mut aim, target) = take(&[0x48, 0xcf], &memory, &mut regs);
        assert_eq!((target.unwrap().rip, target_ring(&memory, 0x810)), (Some(0x5000), true));
        aim.withdraw(Kind::Iret, &mut regs, &space(&memory)).unwrap();
        assert_eq!(flags(&memory, 0x810), 0x202);

        let (mut aim, target) = take(&[0x48, 0x0f, 0x07], &memory, &mut regs);
        assert_eq!((target.unwrap().rip, regs.r11), (Some(0x1_0000_2000), 0x302));
        aim.withdraw(Kind::Sysret, &mut regs, &space(&memory)).unwrap();
        assert_eq!(regs.r11, 0x202);
        let target = take(&[0x48, 0x0f, 0x35], &memory, &mut regs).1.unwrap();
        assert_eq!((target.rip, target.ring3), (Some(0x1_0000_3000), true), "SYSEXIT");
    }

    fn target_ring(memory: &GuestMemoryMmap, at: u64) -> bool {
        flags(memory, at) & TF != 0
    }

    #[test]
    fn a_target_is_reached_only_with_the_stack_that_the_instruction_leaves() {
        let (memory, mut regs) = (stack(&[0x5000, CODE.into(), 0x202, 0x900, 0x10]), regs());
        let target = take(&[0x48, 0xcf], &memory, &mut regs).1.unwrap();
        assert_eq!((target.trap, target.ring3), (Some(0x5000), false));
        let reached = |rip, rsp| target.is_reached(Kind::Iret, rip, rsp);
        assert!(reached(0x5000, 0x900));
        assert!(!reached(0x5000, 0x8d8), "an event's frame lies on it");
        assert!(!reached(0x6000, 0x900) && !target.is_reached(Kind::Plain, 0x5000, 0x900));

        let target = take(&[0x0f, 0x05], &memory, &mut regs).1.unwrap();
        assert_eq!((target.rip, target.trap), (None, Some(0x7000)));
        assert!(target.is_reached(Kind::Syscall, 0x7000, 0x800));
        assert!(!target.is_reached(Kind::Syscall, 0x7000, 0x7d8));
    }

    #[test]
    fn pushed_flags_lose_the_tf_of_the_step() {
        let (memory, mut regs) = (stack(&[]), regs());
        let space = space(&memory);
        let (aim, _) = take(&[0x9c], &memory, &mut regs);
        memory.write_slice(&0x302_u64.to_le_bytes(), GuestAddress(0x7f8)).unwrap();
        aim.clean(Kind::Pushf(8), &space).unwrap();
        assert_eq!(flags(&memory, 0x7f8), 0x202);
        let (aim, _) = take(&[0xfb], &memory, &mut regs);
        assert_eq!((aim.clean(Kind::Pushf(8), &space), aim.clean(Kind::Plain, &space)), (None, Some(())));
        assert_eq!(clear_pushed(0xffc, 8, &space), None);
    }
}
