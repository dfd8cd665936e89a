//! `vpmu trace import`: the trace that a stock KVM's tracepoints make.

use std::path::PathBuf;

use clap::Args;
use results::error::{Error, Exit};
use trace::import;

use super::record;
use crate::machine;
use crate::setting::options::{FolderOption, QuietOption};

/// Options of `vpmu trace import`.
#[derive(Clone, Debug, Args)]
pub struct ImportOptions {
    /// The recording: of kvm:kvm_msr, kvm:kvm_exit, kvm:kvm_entry, kvm:kvm_apic_accept_irq, sched:sched_switch
    #[arg(value_name = "PERF.DATA")]
    pub recording: PathBuf,
    /// Process of the VM, where the recording has several
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// The new folder of the trace.
    #[command(flatten)]
    pub output: FolderOption,
    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Imports a recording.
///
/// # Errors
/// Exit 2: it cannot be read, or has no trace in it; as of [`Error::output`]: the trace cannot be written to its end.
pub fn import(options: &ImportOptions) -> Result<Exit, Error> {
    let ImportOptions { recording, pid, output, quiet } = options;
    let output = &output.or(record::FOLDER);
    let bytes = machine::read(recording, "the recording")?;
    record::summarize(output, &import::import((recording, &bytes), *pid, output)?, quiet.quiet);
    Ok(Exit::Done)
}
