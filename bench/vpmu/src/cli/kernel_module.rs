//! `vpmu kernel-module`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use results::error::{Error, Exit};
use results::host::HostFs;

use crate::inspect::kernel_module::build::{build, headers, major};
use crate::inspect::kernel_module::load::{load, status, unload};
use crate::terminal::console::print;

pub(super) const EXAMPLES: &str = "\
Examples:
  # re-create the events of KVM's own vPMU, beside KVM as it is
  sudo vpmu kernel-module load
  sudo vpmu --strategy kvm:stock,kvm:recreate
  sudo vpmu kernel-module unload
  # only build it, for another kernel
  vpmu kernel-module build --kernel 6.1.0-56-amd64

Exit codes: 0 done, 2 bad usage or input, 4 this host or its
kernel cannot, or guests hold the module, 70 a bug of vpmu.";

/// Options of `vpmu kernel-module`.
#[derive(Clone, Debug, Args)]
pub struct KernelModuleArgs {
    /// One of its actions.
    #[command(subcommand)]
    pub command: KernelModuleCommand,
}

/// Actions on the module.
#[derive(Clone, Debug, Subcommand)]
pub enum KernelModuleCommand {
    /// Build it below /var/cache/vpmu (not root: ~/.cache/vpmu), and print the file
    Build {
        /// Release of the kernel that it is for [default: the running one]
        #[arg(long, value_name = "RELEASE")]
        kernel: Option<String>,
        /// Headers of that kernel [default: /lib/modules/RELEASE/build]
        #[arg(long, value_name = "DIR")]
        headers: Option<PathBuf>,
    },
    /// Load it into the running kernel, built before if need be, as root; where perf cannot be traced, with
    /// linked copies of KVM's modules in their place
    Load {
        /// Headers of the running kernel [default: /lib/modules/RELEASE/build]
        #[arg(long, value_name = "DIR")]
        headers: Option<PathBuf>,
    },
    /// Say whether it is loaded, its version, and what guests hold
    Status,
    /// Unload it, as root, unless guests hold it, and load KVM itself where copies stood in
    Unload,
}

pub(super) fn run(args: &KernelModuleArgs) -> Result<Exit, Error> {
    let fs = HostFs::default();
    let text = match &args.command {
        KernelModuleCommand::Build { kernel, headers: folder } => {
            let found = headers(&fs, kernel.as_deref(), folder.as_deref(), &major)?;
            format!("{}\n", build(&fs, &found)?.display())
        }
        KernelModuleCommand::Load { headers } => load(&fs, headers.as_deref())?,
        KernelModuleCommand::Status => status(&fs),
        KernelModuleCommand::Unload => unload(&fs)?,
    };
    print(&text).map(|()| Exit::Done)
}
