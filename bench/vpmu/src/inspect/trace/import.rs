//! `vpmu trace import`: the trace that a stock KVM's tracepoints make.

use std::path::PathBuf;

use clap::Args;
use perf_data::reader::Damage;
use results::error::{Error, Exit};
use trace::import;

use super::record;
use crate::machine;
use crate::setting::options::QuietOption;
use crate::setting::parse::folder;
use crate::terminal::console::complain;

/// Options of `vpmu trace import`.
#[derive(Clone, Debug, Args)]
pub struct ImportOptions {
    /// The recording: kvm:kvm_msr, kvm:kvm_exit, kvm:kvm_entry; kvm:kvm_apic_accept_irq for PMIs, sched:sched_switch for slices
    #[arg(value_name = "PERF.DATA")]
    pub recording: PathBuf,
    /// Process of the VM, where the recording has several
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// New folder of the trace
    #[arg(short, long, value_name = "DIR", default_value = "vpmu-trace", value_parser = folder)]
    pub output: PathBuf,
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
    let bytes = machine::read(recording, "the recording")?;
    let (meta, damage) = import::import((recording, &bytes), *pid, output)?;
    record::summarize(output, &meta, quiet.quiet)?;
    if !quiet.quiet {
        complain(&format!("notice: the recording does not tell {}", meta.unknown.join("; ")));
    }
    if meta.lost > 0 {
        complain(&format!("warning: perf lost {} records: give it a larger buffer (-m)", meta.lost));
    }
    if damage.any() {
        complain(&format!("warning: {damage}"));
    }
    // perf ends a compressed recording within a record.
    let is_whole = meta.lost == 0 && damage == Damage { rest: damage.rest, ..Damage::default() };
    Ok(if is_whole { Exit::Done } else { Exit::Inconclusive })
}
