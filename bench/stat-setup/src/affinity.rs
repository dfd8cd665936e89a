//! perf's affinity guard (4804e0111662): saves the CPU mask, moves from CPU to CPU, restores the mask if it was changed.

use crate::sys::{self, Mask};

/// Binding of the calling thread; undone on drop.
#[derive(Debug)]
pub(crate) struct Guard {
    saved: Option<Mask>,
    at: Option<u32>,
}

impl Guard {
    /// Saves the mask. If that fails, `move_to` does nothing because the mask could not be restored.
    pub(crate) fn new() -> Self {
        Self { saved: sys::affinity().ok(), at: None }
    }

    /// Moves to `cpu`. A refusal (CPU outside of the cpuset) is ignored; calls then cost an IPI each.
    pub(crate) fn move_to(&mut self, cpu: u32) {
        if self.saved.is_none() || self.at == Some(cpu) {
            return;
        }
        if sys::set_affinity(&Mask::one(cpu)).is_ok() {
            self.at = Some(cpu);
        }
    }

    /// Returns whether the thread was moved.
    pub(crate) const fn has_moved(&self) -> bool {
        self.at.is_some()
    }

    fn restore(&mut self) {
        if let (Some(mask), Some(_)) = (&self.saved, self.at.take()) {
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
        drop(guard);
        assert_eq!(sys::affinity().unwrap(), before);
        // An impossible CPU is ignored: nothing changed, nothing to restore.
        let mut guard = Guard::new();
        guard.move_to(8191);
        drop(guard);
        assert_eq!(sys::affinity().unwrap(), before);
    }
}
