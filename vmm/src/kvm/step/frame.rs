//! The frame that the delivery of an event pushes (SDM vol. 3, figures 6-4 and 6-9).

use super::view::View;

/// RFLAGS.TF.
pub(super) const TF: u64 = 1 << 8;

/// A frame on the guest's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Linear address of the saved IP.
    at: u64,
    word: u8,
    pub(super) rip: u64,
    pub(super) cs: u16,
    pub(super) flags: u64,
}

/// Returns whether the exception `vector` pushes an error code (SDM vol. 3, table 6-1).
pub(super) const fn has_error_code(vector: u8) -> bool {
    matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30)
}

impl Frame {
    /// Reads the frame of words of `word` bytes whose saved IP is at `at`: an IRET's operand.
    pub(super) fn read(at: u64, word: u8, view: &View<'_>) -> Option<Self> {
        let get = |n: u64| view.word(at.wrapping_add(n * u64::from(word)), usize::from(word));
        Some(Self { at, word, rip: get(0)?, cs: get(1)? as u16, flags: get(2)? })
    }

    /// Reads the frame at the stack top of a handler, above an error code if there is one.
    pub(super) fn of_event(stack: u64, word: u8, error_code: bool, view: &View<'_>) -> Option<Self> {
        Self::read(stack.wrapping_add(u64::from(error_code) * u64::from(word)), word, view)
    }

    /// Returns the saved SP and SS of an event that changed the ring.
    pub(super) fn outer_stack(&self, view: &View<'_>) -> Option<(u64, u16)> {
        let get = |n: u64| view.word(self.at.wrapping_add(n * u64::from(self.word)), usize::from(self.word));
        Some((get(3)?, get(4)? as u16))
    }

    /// Sets or clears the saved TF. Returns whether the stack could be written.
    pub(super) fn set_tf(&self, on: bool, view: &View<'_>) -> bool {
        let flags = if on { self.flags | TF } else { self.flags & !TF };
        flags == self.flags || self.write_flags(flags, view)
    }

    /// Writes the flags back as they were read.
    pub(super) fn restore(&self, view: &View<'_>) -> bool {
        self.write_flags(self.flags, view)
    }

    fn write_flags(&self, flags: u64, view: &View<'_>) -> bool {
        let at = self.at.wrapping_add(2 * u64::from(self.word));
        view.write(at, &flags.to_le_bytes()[..usize::from(self.word)])
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;

    #[test]
    fn frames_of_every_word_size_with_and_without_an_error_code() {
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let identity = |linear| Some(linear);
        let view = View::new(&memory, &identity);
        for word in [2_u8, 4, 8] {
            for error_code in [false, true] {
                let words = [0x1234_u64, 0x1b, 0x302, 0x7ff0, 0x23];
                let mut bytes = vec![0xee; usize::from(word) * usize::from(error_code)];
                bytes.extend(words.iter().flat_map(|value| value.to_le_bytes()[..usize::from(word)].to_vec()));
                memory.write_slice(&bytes, GuestAddress(0x100)).unwrap();
                let frame = Frame::of_event(0x100, word, error_code, &view).unwrap();
                assert_eq!((frame.rip, frame.cs, frame.flags), (0x1234, 0x1b, 0x302));
                assert_eq!(frame.outer_stack(&view), Some((0x7ff0, 0x23)));
                assert!(frame.set_tf(false, &view));
                assert_eq!(Frame::of_event(0x100, word, error_code, &view).unwrap().flags, 0x202);
                assert!(frame.restore(&view));
                assert_eq!(Frame::of_event(0x100, word, error_code, &view).unwrap().flags, 0x302);
            }
        }
        assert_eq!(Frame::read(0xffe, 2, &view), None);
        assert!(has_error_code(14) && has_error_code(8) && !has_error_code(2) && !has_error_code(9));
    }
}
