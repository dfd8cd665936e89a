//! The choice between the payload and Linux as the guest of an experiment: which kernel, and which perf.

use std::path::PathBuf;

use clap::builder::{ArgPredicate, StyledStr};
use clap::{Args, Command, ValueEnum};

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

/// Gives options other defaults where the guest is Linux. The help says both.
pub fn other_defaults(command: Command, values: &[(&'static str, &'static str)]) -> Command {
    values.iter().fold(command, |command, &(name, value)| {
        command.mut_arg(name, |arg| {
            let with = |help: String| format!("{help} [{value} with --guest linux]");
            // Help has no escape codes, and to look for them takes a quarter of the start of every command.
            let plain = |help: &StyledStr| help.ansi().to_string();
            let (help, long) = (arg.get_help().map(plain), arg.get_long_help().map(plain));
            let linux = ("guest", ArgPredicate::Equals("linux".into()), Some(value));
            let arg = if name == "rounds" {
                // Options that bound the run in another way leave the number of rounds open.
                let open = |option| (option, ArgPredicate::IsPresent, None);
                // A flag that is not given is present, too: it is false.
                let quick = ("quick", ArgPredicate::Equals("true".into()), None);
                arg.default_value_ifs([open("until_ci"), open("duration"), quick, linux])
            } else {
                arg.default_value_ifs([linux])
            };
            let arg = help.map(with).into_iter().fold(arg, clap::Arg::help);
            long.map(with).into_iter().fold(arg, clap::Arg::long_help)
        })
    })
}
