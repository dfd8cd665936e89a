//! perf's affinity guard (4804e0111662): saves the CPU mask, moves from CPU to CPU, restores the mask if it was changed.

use crate::sys::{self, Mask};

/// Binding of the calling thread; undone on drop.
#[derive(Debug)]
pub(crate) struct Guard {
    saved: Option<Mask>,
    at: Option<u32>,
    calls: u64,
}

impl Guard {
    /// Saves the mask. If that fails, `move_to` does nothing because the mask could not be restored.
    pub(crate) fn new() -> Self {
        Self { saved: sys::affinity().ok(), at: None, calls: 1 }
    }

    /// Moves to `cpu`. A refusal (CPU outside of the cpuset) is ignored; calls then cost an IPI each.
    pub(crate) fn move_to(&mut self, cpu: u32) {
        if self.saved.is_none() || self.at == Some(cpu) {
            return;
        }
        self.calls += 1;
        if sys::set_affinity(&Mask::one(cpu)).is_ok() {
            self.at = Some(cpu);
        }
    }

    /// Returns whether it has a CPU.
    pub(crate) fn is_bound(&self) -> bool {
        self.at.is_some()
    }

    /// Restores the mask; returns the number of system calls made by this guard.
    pub(crate) fn back(mut self) -> u64 {
        self.restore();
        self.calls
    }

    fn restore(&mut self) {
        if let (Some(mask), Some(_)) = (&self.saved, self.at.take()) {
            self.calls += 1;
            // Fails only if all CPUs of the saved mask are offline now.
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
    fn the_mask_is_restored() {
        let before = sys::affinity().unwrap();
        let cpu = (0..8192).rfind(|&cpu| before.has(cpu)).unwrap();
        let mut guard = Guard::new();
        guard.move_to(cpu);
        guard.move_to(cpu);
        assert_eq!(sys::affinity().unwrap(), Mask::one(cpu));
        assert_eq!(sys::current_cpu(), cpu);
        assert_eq!(guard.back(), 3);
        assert_eq!(sys::affinity().unwrap(), before);
        // An impossible CPU is ignored: nothing changed, nothing to restore.
        let mut guard = Guard::new();
        guard.move_to(8191);
        assert_eq!(guard.back(), 2);
        assert_eq!(sys::affinity().unwrap(), before);
    }
}
