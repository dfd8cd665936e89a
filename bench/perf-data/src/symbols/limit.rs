//! Bounds of what a list of symbols is believed.

/// Longest name that is kept.
pub(super) const NAME: usize = 512;
/// Most symbols that are read.
pub(super) const MOST: usize = 4_000_000;
