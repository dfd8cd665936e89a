//! Finds the target of an instruction that loads RFLAGS, and sets TF for its step.

use super::instruction::{Before, Kind};
use super::registers::{lost, own_steps};
use super::traps::{Frame, TF};
use crate::linear::Space;
use crate::outcome::End;

/// Target of an instruction, as far as a frame shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) rip: Option<u64>,
    /// RSP there.
    rsp: Option<u64>,
    /// Address at which the step needs a trap.
    pub(super) trap: Option<u64>,
    /// True if the target is in ring 3.
    pub(super) ring3: bool,
}

impl Target {
    /// Returns whether a vCPU at the trap at `rip` came there by the instruction itself: an event would have pushed a frame.
    pub(super) fn is_reached(&self, rip: u64, rsp: u64) -> bool {
        self.trap == Some(rip) && self.rsp == Some(rsp)
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
    pub(super) fn take(&mut self, before: &Before, cs: u16, rsp: u64, space: &Space<'_>) -> Result<Target, End> {
        *self = Self::default();
        match before.kind {
            Kind::Pushf(word) => self.pushed = Some((rsp.wrapping_sub(word.into()), word)),
            Kind::Popf(word) if space.word(rsp, word.into()).is_some_and(|flags| flags & TF != 0) => {
                return Err(own_steps(before.rip));
            }
            Kind::Iret => return self.iret(before, cs, rsp, space),
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
    pub(super) fn withdraw(&mut self, space: &Space<'_>) -> Option<()> {
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

#[cfg(test)]
mod tests {
    use kvm_bindings::kvm_sregs;
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;

    #[test]
    fn a_target_is_reached_only_with_the_stack_that_the_instruction_leaves() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        memory.write_obj([0x5000_u64, 8, 0x202, 0x900, 0x10], GuestAddress(0x800)).unwrap();
        let iret = Before::decode(&[0x48, 0xcf], 0x1000, false);
        let target = Aim::default().take(&iret, 8, 0x800, &Space::new(&memory, &kvm_sregs::default())).unwrap();
        assert_eq!((target.trap, target.ring3), (Some(0x5000), false));
        assert!(target.is_reached(0x5000, 0x900));
        assert!(!target.is_reached(0x5000, 0x8d8), "an event's frame lies on it");
        assert!(!target.is_reached(0x6000, 0x900) && !Target::default().is_reached(0x5000, 0x900));
    }
}
