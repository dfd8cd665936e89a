//! Traps at the handlers of a guest: an OUT in place of the first two bytes, so that each delivery of an event exits.

use std::ops::Range;

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::gates::Handler;
use crate::linear::Space;

/// The port of the traps. No device of a PC has it; an access by the guest itself is recognised by its address.
pub(super) const PORT: u16 = 0xe8;
const PAGE_OFFSET: u64 = 0xfff;
/// OUT [`PORT`], AL.
const OUT: [u8; 2] = [0xe6, PORT as u8];

/// One trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trap {
    /// Its address.
    pub(super) rip: u64,
    /// True at the target of an IRET, which pushes no frame.
    pub(super) target: bool,
    /// True if the handler serves vector 1 (#DB).
    pub(super) debug: bool,
    /// True if it serves vector 1 and another one.
    pub(super) debug_shared: bool,
    /// True if it serves a vector with an error code, and one without.
    pub(super) error_code: [bool; 2],
    /// Guest-physical addresses of its two bytes.
    physical: [u64; 2],
    saved: [u8; 2],
    placed: bool,
}

/// The traps of one vCPU.
#[derive(Debug, Default)]
pub(super) struct Traps {
    traps: Vec<Trap>,
    /// The linear pages of all handlers, and where they were in memory.
    pages: Vec<(u64, Option<u64>)>,
}

impl Traps {
    /// Replaces all traps by those of `handlers`. A handler that is not in memory has none: its delivery faults.
    ///
    /// # Errors
    /// The address of a handler that begins in the middle of another's trap.
    pub(super) fn replace(
        &mut self,
        handlers: &[Handler],
        space: &Space<'_>,
        memory: &GuestMemoryMmap,
    ) -> Result<(), u64> {
        self.lift(memory);
        for handler in handlers {
            for page in [handler.rip & !PAGE_OFFSET, handler.rip.wrapping_add(1) & !PAGE_OFFSET] {
                if self.pages.iter().all(|known| known.0 != page) {
                    self.pages.push((page, space.physical(page)));
                }
            }
            let (with_code, debug) = (has_error_code(handler.vector), handler.vector == 1);
            if let Some(known) = self.traps.iter_mut().find(|trap| trap.rip == handler.rip) {
                known.error_code[usize::from(with_code)] = true;
                known.debug_shared |= known.debug != debug;
                known.debug |= debug;
                continue;
            }
            let mut error_code = [false; 2];
            error_code[usize::from(with_code)] = true;
            self.add(handler.rip, false, debug, error_code, space, memory)?;
        }
        Ok(())
    }

    /// Returns whether each trap is where it was placed: the guest has neither overwritten nor remapped a handler.
    pub(super) fn intact(&self, space: &Space<'_>, memory: &GuestMemoryMmap) -> bool {
        let mapped = self.pages.iter().all(|&(linear, physical)| space.physical(linear) == physical);
        mapped && self.traps.iter().all(|trap| !trap.placed || trap.is_whole(memory))
    }

    /// Returns whether the handler of vector 1 also serves another vector; `None` without such a handler.
    pub(super) fn debug_handler(&self) -> Option<bool> {
        self.traps.iter().find(|trap| trap.debug).map(|trap| trap.debug_shared)
    }

    /// Adds a trap at the target of the next instruction, until [`close`](Self::close). A trap whose second byte is the
    /// target is removed for that time: a handler's first instruction may have one byte.
    ///
    /// # Errors
    /// The address, if it or the byte after it is another handler's first byte.
    pub(super) fn add_target(&mut self, rip: u64, space: &Space<'_>, memory: &GuestMemoryMmap) -> Result<(), u64> {
        if self.traps.iter().any(|trap| trap.rip == rip) {
            return Ok(());
        }
        let first = space.physical(rip);
        if let Some(around) = self.traps.iter_mut().find(|trap| first == Some(trap.physical[1])) {
            around.restore(memory);
        }
        self.add(rip, true, false, [false; 2], space, memory)
    }

    fn add(
        &mut self,
        rip: u64,
        target: bool,
        debug: bool,
        error_code: [bool; 2],
        space: &Space<'_>,
        memory: &GuestMemoryMmap,
    ) -> Result<(), u64> {
        let (Some(first), Some(second)) = (space.physical(rip), space.physical(rip.wrapping_add(1))) else {
            return Ok(());
        };
        let overlaps = |trap: &Trap| trap.physical.contains(&first) || trap.physical.contains(&second);
        if self.traps.iter().any(|trap| trap.placed && overlaps(trap)) {
            return Err(rip);
        }
        let physical = [first, second];
        let saved = [0; 2];
        let mut trap = Trap { rip, target, debug, debug_shared: false, error_code, physical, saved, placed: false };
        trap.place(memory);
        self.traps.push(trap);
        Ok(())
    }

    /// Removes all traps from memory and forgets them.
    pub(super) fn lift(&mut self, memory: &GuestMemoryMmap) {
        for trap in &mut self.traps {
            trap.restore(memory);
        }
        self.traps.clear();
        self.pages.clear();
    }

    /// Removes the traps that share a byte with one of these guest-physical ranges: the instruction that is stepped.
    pub(super) fn open(&mut self, ranges: &[Range<u64>], memory: &GuestMemoryMmap) {
        for trap in &mut self.traps {
            if trap.physical.iter().any(|byte| ranges.iter().any(|range| range.contains(byte))) {
                trap.restore(memory);
            }
        }
    }

    /// Places the traps that [`open`](Self::open) removed, and removes the target's.
    pub(super) fn close(&mut self, memory: &GuestMemoryMmap) {
        if self.traps.last().is_some_and(|trap| trap.target)
            && let Some(mut target) = self.traps.pop()
        {
            target.restore(memory);
        }
        for trap in self.traps.iter_mut().filter(|trap| !trap.placed) {
            trap.place(memory);
        }
    }

    /// Returns the placed trap at address `at`.
    pub(super) fn at(&self, at: u64) -> Option<&Trap> {
        self.traps.iter().find(|trap| trap.placed && trap.rip == at)
    }

    /// Replaces the traps' bytes in code that was read from `physical` on, within a page, by the guest's own.
    pub(super) fn hide(&self, physical: u64, bytes: &mut [u8]) {
        for trap in self.traps.iter().filter(|trap| trap.placed) {
            for (at, saved) in trap.physical.iter().zip(trap.saved) {
                let offset = at.checked_sub(physical).and_then(|offset| usize::try_from(offset).ok());
                if let Some(byte) = offset.and_then(|offset| bytes.get_mut(offset)) {
                    *byte = saved;
                }
            }
        }
    }
}

impl Trap {
    fn place(&mut self, memory: &GuestMemoryMmap) {
        let mut saved = [0; 2];
        for (byte, at) in saved.iter_mut().zip(self.physical) {
            if memory.read_slice(std::slice::from_mut(byte), GuestAddress(at)).is_err() {
                return;
            }
        }
        self.saved = saved;
        self.placed = self.write(OUT, memory);
    }

    /// Returns whether both of its bytes are in memory.
    fn is_whole(&self, memory: &GuestMemoryMmap) -> bool {
        let mut now = [0; 2];
        let mut bytes = now.iter_mut().zip(self.physical);
        let read = |(byte, at): (&mut u8, u64)| memory.read_slice(std::slice::from_mut(byte), GuestAddress(at)).is_ok();
        bytes.all(read) && now == OUT
    }

    fn restore(&mut self, memory: &GuestMemoryMmap) {
        if !std::mem::take(&mut self.placed) {
            return;
        }
        // A byte that the guest has overwritten is the guest's.
        for ((at, trap), saved) in self.physical.iter().zip(OUT).zip(self.saved) {
            let mut now = [0];
            if memory.read_slice(&mut now, GuestAddress(*at)).is_ok() && now == [trap] {
                let _ = memory.write_slice(&[saved], GuestAddress(*at));
            }
        }
    }

    fn write(&self, bytes: [u8; 2], memory: &GuestMemoryMmap) -> bool {
        bytes.iter().zip(self.physical).all(|(byte, at)| memory.write_slice(&[*byte], GuestAddress(at)).is_ok())
    }
}

/// RFLAGS.TF.
pub(super) const TF: u64 = 1 << 8;

/// A frame on the guest's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Address of the saved RIP.
    at: u64,
    pub(super) rip: u64,
    pub(super) cs: u16,
    pub(super) flags: u64,
}

/// Returns whether the exception `vector` pushes an error code (SDM vol. 3, table 6-1).
pub(super) const fn has_error_code(vector: u8) -> bool {
    matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30)
}

impl Frame {
    /// Reads the frame whose saved RIP is at `at`: an IRETQ's operand.
    pub(super) fn read(at: u64, space: &Space<'_>) -> Option<Self> {
        let get = |n: u64| space.word(at.wrapping_add(8 * n), 8);
        Some(Self { at, rip: get(0)?, cs: get(1)? as u16, flags: get(2)? })
    }

    /// Reads the frame at the stack top of a handler, above an error code if there is one.
    pub(super) fn of_event(stack: u64, error_code: bool, space: &Space<'_>) -> Option<Self> {
        Self::read(stack.wrapping_add(8 * u64::from(error_code)), space)
    }

    /// Returns the saved SP and SS.
    pub(super) fn outer_stack(&self, space: &Space<'_>) -> Option<(u64, u16)> {
        Some((space.word(self.at.wrapping_add(24), 8)?, space.word(self.at.wrapping_add(32), 8)? as u16))
    }

    /// Sets or clears the saved TF. Returns whether the stack could be written.
    pub(super) fn set_tf(&self, on: bool, space: &Space<'_>) -> bool {
        let flags = if on { self.flags | TF } else { self.flags & !TF };
        flags == self.flags || self.write_flags(flags, space)
    }

    /// Writes the flags back as they were read; returns whether the stack could be written.
    pub(super) fn restore(&self, space: &Space<'_>) -> bool {
        self.write_flags(self.flags, space)
    }

    fn write_flags(&self, flags: u64, space: &Space<'_>) -> bool {
        space.write(self.at.wrapping_add(16), &flags.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;
    use crate::linear::tests::long_mode;

    /// Code at physical 0x1000 is at linear 0x10_1000; the last level of the page tables is at 0x7000.
    fn world() -> GuestMemoryMmap {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x8000)]).unwrap();
        for (at, entry) in [(0x4000, 0x5001), (0x5000, 0x6001), (0x6000, 0x7001), (CODE, 0x1001), (CODE - 8, 1)] {
            memory.write_obj::<u64>(entry, GuestAddress(at)).unwrap();
        }
        memory.write_slice(&[1, 2, 3, 4, 5, 6], GuestAddress(0x1000)).unwrap();
        memory
    }

    /// The entry of the page of the code.
    const CODE: u64 = 0x7000 + 8 * 0x101;

    fn space(memory: &GuestMemoryMmap) -> Space<'_> {
        Space::new(memory, &long_mode(0x4000))
    }

    fn bytes(memory: &GuestMemoryMmap) -> [u8; 6] {
        let mut bytes = [0; 6];
        memory.read_slice(&mut bytes, GuestAddress(0x1000)).unwrap();
        bytes
    }

    fn handler(vector: u8, rip: u64) -> Handler {
        Handler { vector, rip }
    }

    #[test]
    fn traps_come_and_go_and_leave_the_code_as_it_was() {
        let (memory, mut traps) = (world(), Traps::default());
        let space = space(&memory);
        let handlers = [handler(1, 0x10_1000), handler(13, 0x10_1004), handler(2, 0x10_1004), handler(3, 0x50)];
        traps.replace(&handlers, &space, &memory).unwrap();
        assert_eq!(bytes(&memory), [0xe6, 0xe8, 3, 4, 0xe6, 0xe8]);
        let (debug, shared) = (traps.at(0x10_1000).unwrap(), traps.at(0x10_1004).unwrap());
        assert_eq!(
            (debug.debug, debug.error_code, shared.debug, shared.error_code),
            (true, [true, false], false, [true; 2])
        );
        assert!(traps.at(0x10_1001).is_none() && traps.at(0x50).is_none());
        let mut code = bytes(&memory);
        traps.hide(0x1000, &mut code);
        assert_eq!(code, [1, 2, 3, 4, 5, 6]);
        // An instruction that reaches into the second trap.
        traps.open(std::slice::from_ref(&(0x1003..0x1005)), &memory);
        assert_eq!(bytes(&memory), [0xe6, 0xe8, 3, 4, 5, 6]);
        assert!(traps.at(0x10_1004).is_none());
        traps.close(&memory);
        assert_eq!(bytes(&memory), [0xe6, 0xe8, 3, 4, 0xe6, 0xe8]);
        assert!(traps.intact(&space, &memory));
        assert_eq!(traps.debug_handler(), Some(false));
        for (at, entry, usual) in [(CODE, 0x2001_u64, 0x1001_u64), (0x7000, 0x2001, 0)] {
            memory.write_obj(entry, GuestAddress(at)).unwrap();
            assert!(
                !traps.intact(&self::space(&memory), &memory),
                "the handlers' page is elsewhere, or another's is there now"
            );
            memory.write_obj(usual, GuestAddress(at)).unwrap();
        }
        // The guest writes a handler anew: its byte stays.
        memory.write_slice(&[9], GuestAddress(0x1001)).unwrap();
        assert!(!traps.intact(&space, &memory));
        traps.lift(&memory);
        assert_eq!(bytes(&memory), [1, 9, 3, 4, 5, 6]);
    }

    #[test]
    fn handlers_that_overlap_are_refused_and_targets_push_no_frame() {
        let (memory, mut traps) = (world(), Traps::default());
        let space = space(&memory);
        assert_eq!(traps.replace(&[handler(6, 0x10_1000), handler(7, 0x10_1001)], &space, &memory), Err(0x10_1001));
        assert_eq!(traps.debug_handler(), None);
        traps.replace(&[handler(1, 0x10_1000), handler(6, 0x10_1000)], &space, &memory).unwrap();
        assert_eq!(traps.debug_handler(), Some(true));
        traps.replace(&[handler(6, 0x10_1000)], &space, &memory).unwrap();
        traps.add_target(0x10_1002, &space, &memory).unwrap();
        traps.add_target(0x10_1002, &space, &memory).unwrap();
        assert!(traps.at(0x10_1002).is_some_and(|trap| trap.target));
        traps.close(&memory);
        assert_eq!(bytes(&memory), [0xe6, 0xe8, 3, 4, 5, 6], "a target's trap is for one instruction");
        // A target within a handler's trap, behind an instruction of one byte.
        traps.add_target(0x10_1001, &space, &memory).unwrap();
        assert_eq!(bytes(&memory), [1, 0xe6, 0xe8, 4, 5, 6]);
        assert!(traps.at(0x10_1000).is_none() && traps.at(0x10_1001).is_some());
        traps.close(&memory);
        assert_eq!(bytes(&memory), [0xe6, 0xe8, 3, 4, 5, 6]);
        assert_eq!(traps.add_target(0x10_0fff, &space, &memory), Err(0x10_0fff), "an event would run its second byte");
        traps.lift(&memory);
        assert_eq!(bytes(&memory), [1, 2, 3, 4, 5, 6]);
    }
}
