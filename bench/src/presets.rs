//! Names of the strategies that ship with the tool.

/// The presets, in the order in which help and errors list them.
pub const NAMES: &[&str] = &[
    "recreate",
    "reuse",
    "reuse-lazy",
    "paused-flag",
    "deferred",
    "pool",
];
