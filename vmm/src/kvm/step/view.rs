//! A guest's linear memory.

use kvm_ioctls::VcpuFd;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};

const PAGE: u64 = 0x1000;

/// Guest memory by linear address.
pub(super) struct View<'a> {
    memory: &'a GuestMemoryMmap,
    translate: &'a dyn Fn(u64) -> Option<u64>,
}

/// Returns KVM_TRANSLATE.
pub(super) fn translation(fd: &VcpuFd) -> impl Fn(u64) -> Option<u64> + '_ {
    move |linear| {
        let found = fd.translate_gva(linear).ok()?;
        (found.valid != 0).then_some(found.physical_address)
    }
}

impl<'a> View<'a> {
    pub(super) const fn new(memory: &'a GuestMemoryMmap, translate: &'a dyn Fn(u64) -> Option<u64>) -> Self {
        Self { memory, translate }
    }

    /// Returns the translation of linear addresses.
    pub(super) const fn translate(&self) -> &'a dyn Fn(u64) -> Option<u64> {
        self.translate
    }

    /// Returns the guest-physical address of `linear`.
    pub(super) fn physical(&self, linear: u64) -> Option<u64> {
        (self.translate)(linear)
    }

    /// Reads from `linear` on, up to the first byte that is not there. Returns how many bytes were read.
    pub(super) fn read(&self, linear: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let at = linear.wrapping_add(done as u64);
            let here = ((PAGE - at % PAGE) as usize).min(bytes.len() - done);
            let Some(physical) = self.physical(at) else { break };
            let Ok(got) = self.memory.read(&mut bytes[done..done + here], GuestAddress(physical)) else { break };
            done += got;
            if got < here {
                break;
            }
        }
        done
    }

    /// Reads a little-endian word of 2, 4 or 8 bytes.
    pub(super) fn word(&self, linear: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes_read = self.read(linear, &mut bytes[..size]);
        (bytes_read == size).then(|| u64::from_le_bytes(bytes))
    }

    /// Writes `bytes`, all or nothing. Returns whether that was possible.
    pub(super) fn write(&self, linear: u64, bytes: &[u8]) -> bool {
        let first = ((PAGE - linear % PAGE) as usize).min(bytes.len());
        let (here, there) = bytes.split_at(first);
        let part = |from: usize, bytes: &[u8]| {
            let physical = GuestAddress(self.physical(linear.wrapping_add(from as u64))?);
            self.memory.check_range(physical, bytes.len()).then_some(physical)
        };
        let write = |at, bytes: &[u8]| self.memory.write_slice(bytes, at).is_ok();
        match (part(0, here), part(first, there)) {
            (Some(at), _) if there.is_empty() => write(at, here),
            (Some(at), Some(then)) => write(at, here) && write(then, there),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_cross_pages_that_lie_apart_and_writes_are_whole_or_not_done() {
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        // Linear 0x10000 is physical 0x1000, the next page 0x3000, and no more.
        let translate = |linear: u64| match linear / PAGE {
            0x10 => Some(0x1000 + linear % PAGE),
            0x11 => Some(0x3000 + linear % PAGE),
            _ => None,
        };
        let view = View::new(&memory, &translate);
        assert!(view.write(0x1_0ffd, &[0, 1, 2, 3, 4]));
        let mut bytes = [0; 4];
        assert_eq!((view.read(0x1_0ffe, &mut bytes), bytes), (4, [1, 2, 3, 4]));
        assert_eq!(view.word(0x1_0ffe, 4), Some(0x0403_0201));
        let mut neighbour = [0xff; 2];
        memory.read_slice(&mut neighbour, GuestAddress(0x2000)).unwrap();
        assert_eq!(neighbour, [0, 0], "the page behind the first one in memory is another");
        assert_eq!(view.read(0x1_1ffe, &mut bytes), 2);
        assert_eq!((view.read(0x1_2000, &mut bytes), view.word(0x1_1ffe, 8)), (0, None));
        assert!(!view.write(0x1_1ffe, &[7, 7, 7]) && !view.write(0x1_2000, &[9]));
        assert_eq!(view.word(0x1_1ffe, 2), Some(0));
    }
}
