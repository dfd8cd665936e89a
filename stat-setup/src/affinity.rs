//! The affinity guard of the 2019 series: save the mask, move to one CPU after the other, put the mask back if it was
//! changed (4804e0111662).

use crate::sys::{self, Mask};

/// Binds the calling thread for a while.
#[derive(Debug)]
pub(crate) struct Guard {
    saved: Option<Mask>,
    at: Option<u32>,
    calls: u64,
}

impl Guard {
    /// Saves the mask. Without it nothing is ever moved: it could not be put back.
    pub(crate) fn new() -> Self {
        Self { saved: sys::affinity().ok(), at: None, calls: 1 }
    }

    /// Moves to `cpu`. Where that is refused (outside of a cpuset), calls cost an IPI as before: no error.
    pub(crate) fn move_to(&mut self, cpu: u32) {
        if self.saved.is_none() || self.at == Some(cpu) {
            return;
        }
        self.calls += 1;
        if sys::set_affinity(&Mask::one(cpu)).is_ok() {
            self.at = Some(cpu);
        }
    }

    /// Puts the mask back; the number of system calls this cost.
    pub(crate) fn back(mut self) -> u64 {
        self.restore();
        self.calls
    }

    fn restore(&mut self) {
        if let (Some(mask), Some(_)) = (&self.saved, self.at.take()) {
            self.calls += 1;
            // The mask was in force before; only its last CPU's going offline can make it fail.
            let _ = sys::set_affinity(mask);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_put_back() {
        let before = sys::affinity().unwrap();
        let cpu = (0..8192).rfind(|&cpu| before.has(cpu)).unwrap();
        let mut guard = Guard::new();
        guard.move_to(cpu);
        guard.move_to(cpu);
        assert_eq!(sys::affinity().unwrap(), Mask::one(cpu));
        assert_eq!(sys::current_cpu(), cpu);
        assert_eq!(guard.back(), 3);
        assert_eq!(sys::affinity().unwrap(), before);
        // A CPU that cannot be: ignored, nothing changed, nothing to put back.
        let mut guard = Guard::new();
        guard.move_to(8191);
        assert_eq!(guard.back(), 2);
        assert_eq!(sys::affinity().unwrap(), before);
    }
}
