//! Bounds of what a list of symbols is believed.

/// Longest name that is kept.
pub(super) const NAME: usize = 512;
