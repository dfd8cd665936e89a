//! The choice between the payload and Linux as the guest of an experiment: which kernel, and which perf.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::machine::linux::spec::BootOptions;

/// The guest of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuestKind {
    /// The bare-metal payload of this tool
    Payload,
    /// A distribution's kernel with its own perf: a fresh guest for each arm and round
    Linux,
}

/// Which guest, and which Linux with which perf.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Linux guest")]
pub struct LinuxGuestOptions {
    /// The guest: this tool's payload, or Linux with stock perf
    #[arg(long, value_enum, default_value = "payload")]
    pub guest: GuestKind,

    /// A distribution's kernel: bzImage or vmlinux
    #[arg(long, value_name = "FILE", required_if_eq("guest", "linux"))]
    pub kernel: Option<PathBuf>,

    /// The guest's perf: a file, or a program of PATH [default: perf]
    #[arg(long, value_name = "FILE", requires = "kernel", default_value = "perf", hide_default_value = true)]
    pub perf: PathBuf,

    /// Its modules, command line and memory.
    #[command(flatten)]
    pub boot: BootOptions,
}
