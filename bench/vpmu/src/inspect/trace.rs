//! `vpmu trace`: a guest runs, and a thread writes what its vCPUs trace; or a trace is made of what a stock KVM told perf.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand};
use host_pmu::backend::BackendKey;
use host_pmu::stats::{HostSide, OpKind};
use host_pmu::trace::{Row, Tracing};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::layout::plural;
use trace::meta::Meta;
use trace::write::Writer;
use vmm::machine::{CounterSource, Plan};

use crate::arms::arm::sim;
use crate::inspect::drain::{run_beside_drain, take_some};
use crate::inspect::guest::{Guest, GuestSpec, PayloadSpec};
use crate::machine;
use crate::setting::backend::BackendChoice;
use crate::setting::options::{FolderOption, QuietOption};
use crate::setting::parse::number_in;
use crate::sys;
use crate::terminal::console::{self, complain};

/// Folder of a trace, unless another is given.
const FOLDER: &str = "vpmu-trace";

/// Commands for traces.
#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Run a guest, and write what its vCPUs do to their PMUs
    #[command(
        override_usage = "vpmu trace record [OPTIONS] -- <payload|run|linux> [...]",
        disable_help_subcommand = true
    )]
    Record(Box<RecordOptions>),
    /// Make a trace of a recording of a stock KVM host by perf
    Import(ImportOptions),
}

/// Options of `vpmu trace import`.
#[derive(Clone, Debug, Args)]
pub struct ImportOptions {
    /// The recording: of kvm:kvm_msr, kvm:kvm_exit, kvm:kvm_entry, kvm:kvm_apic_accept_irq, sched:sched_switch
    #[arg(value_name = "PERF.DATA")]
    pub recording: PathBuf,
    /// Process of the VM, where the recording has several
    #[arg(long, value_name = "PID", value_parser = number_in(1..=u32::MAX.into()))]
    pub pid: Option<u64>,
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
    let output = &output.or(FOLDER);
    let bytes = machine::read(recording, "the recording")?;
    summarize(output, &trace::import::import((recording, &bytes), pid.map(|pid| pid as u32), output)?, quiet.quiet);
    Ok(Exit::Done)
}

/// Options of `vpmu trace record`.
#[derive(Clone, Debug, Args)]
pub struct RecordOptions {
    /// The new folder of the trace.
    #[command(flatten)]
    pub output: FolderOption,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,

    /// The guest.
    #[command(subcommand)]
    pub guest: GuestSpec,
}

/// The end of a run, its host operations and its PMIs.
type Told = (Exit, Vec<u64>, u64);

/// Runs the guest, and traces it.
///
/// # Errors
/// Conditions that keep it from starting, and a trace that ended early.
pub fn record(options: &RecordOptions) -> Result<Exit, Error> {
    let RecordOptions { output, quiet: QuietOption { quiet }, guest } = options;
    if let GuestSpec::Payload(payload) = guest
        && let BackendChoice::Sim(model) = &payload.counters.behind.backend
    {
        return of_model(options, payload, model);
    }
    let mut guest = Guest::watched(guest.clone(), *quiet)?;
    traced(&output.or(FOLDER), *quiet, meta(&guest.machine, &guest.name)?, |tracing| {
        guest.machine.trace = Some(tracing);
        let (exit, vcpus) = guest.run(None)?;
        let pmis = vcpus.iter().map(|account| account.counts.pmis).sum();
        Ok((exit, operations(&vcpus.iter().map(|account| &account.host)), pmis))
    })
}

fn meta(machine: &Plan, guest: &str) -> Result<Meta, Error> {
    let (backend, strategy, definition) = match &machine.behind {
        CounterSource::Events { backend, strategy } => {
            let definition = toml::to_string(strategy).map_err(|why| Error::internal("a strategy has no TOML", why))?;
            (backend.to_string(), strategy.name.clone(), definition)
        }
        _ => (BackendKey::None.to_string(), "floor".to_owned(), String::new()),
    };
    Ok(Meta {
        vcpus: machine.vcpus,
        cpu: machine.cpu.name().to_owned(),
        pmu_version: 2,
        backend,
        strategy,
        definition,
        host: HostFacts::read(&HostFs::default()).class,
        guest: guest.to_owned(),
        ..Meta::default()
    })
}

/// Traces the payload on a simulated host.
fn of_model(options: &RecordOptions, payload: &PayloadSpec, name: &str) -> Result<Exit, Error> {
    let model = sim::model(name)?;
    let chosen = sim::chosen(&model, "by --backend");
    let plan = payload.plan(&chosen, None)?;
    let arm = plan.arms.first().ok_or_else(|| Error::internal("a payload without an arm", "none"))?;
    let host_plan = sim::planned(&plan.floor(&model)?, arm, payload.samples)?;
    let meta = meta(&payload.machine(&plan, &chosen)?, &format!("payload {}", payload.workload))?;
    let meta = Meta { host: format!("simulated (model {name})"), backend: format!("sim:{name}"), ..meta };
    console::catch_interrupts()?;
    traced(&options.output.or(FOLDER), options.quiet.quiet, meta, |tracing| {
        let guests = ::sim::host::run(&model, &::sim::host::Plan { trace: Some(tracing), ..host_plan }, 0);
        let exit = if guests.iter().any(|guest| guest.timed_out) { Exit::Inconclusive } else { Exit::Done };
        let pmis = guests.iter().map(|guest| guest.side.counts.pmis).sum();
        Ok((exit, operations(&guests.iter().map(|guest| &guest.side.host)), pmis))
    })
}

/// Sums operations in the order of their kinds.
fn operations<'a>(sides: &(impl Iterator<Item = &'a HostSide> + Clone)) -> Vec<u64> {
    OpKind::ALL.map(|kind| sides.clone().map(|side| side.ops.count(kind)).sum()).to_vec()
}

/// Traces while `guest` runs, and says what came of it.
fn traced(
    output: &Path,
    quiet: bool,
    meta: Meta,
    guest: impl FnOnce(Arc<Tracing>) -> Result<Told, Error>,
) -> Result<Exit, Error> {
    let tracing = Tracing::new(meta.vcpus);
    let writer = Writer::begin(output, meta)?;
    let drained = Drained { writer, failed: None, origin: None };
    let (drained, ended) = run_beside_drain(drained, |state, _| state.drain(&tracing), || guest(Arc::clone(&tracing)))?;
    let Drained { mut writer, failed, .. } = drained;
    if let Some(error) = failed {
        return Err(error);
    }
    let (exit, ops, pmis) = match ended {
        Ok(told) => told,
        Err(error) => {
            writer.abandon()?;
            return Err(error);
        }
    };
    let lost = tracing.lost.load(Ordering::Relaxed);
    (writer.meta().ops, writer.meta().pmis, writer.meta().lost) = (ops, Some(pmis), lost);
    summarize(output, &writer.finish()?, quiet);
    if lost > 0 {
        complain(&format!("warning: {lost} rows missing, for want of room; give the recorder a CPU of its own"));
    }
    Ok(if lost > 0 && exit == Exit::Done { Exit::Inconclusive } else { exit })
}

/// Says what a finished trace has.
fn summarize(output: &Path, meta: &Meta, quiet: bool) {
    if !quiet {
        let Meta { accesses, vcpus, .. } = meta;
        complain(&format!("{accesses} accesses of {} in {}", plural(*vcpus, "vCPU"), output.display()));
    }
}

/// Longest time between two looks at the ring.
const POLL: Duration = Duration::from_millis(5);

/// Writes what the vCPUs trace into files. After an error nothing more is written, and the guest is ended.
struct Drained {
    writer: Writer,
    failed: Option<Error>,
    /// The TSC of the first row.
    origin: Option<u64>,
}

impl Drained {
    fn drain(&mut self, tracing: &Tracing) -> Option<Duration> {
        // A row that is there has a clock.
        let more = take_some(|| tracing.pop(), |row| self.add(row, tracing.khz.load(Ordering::Relaxed).max(1)));
        tracing.stop.store(sys::stopped(), Ordering::Relaxed);
        (!more).then_some(POLL)
    }

    fn add(&mut self, row: Row, khz: u64) {
        let since = row.at.saturating_sub(*self.origin.get_or_insert(row.at));
        let at = u128::from(since) * 1_000_000 / u128::from(khz);
        if self.failed.is_none() {
            let added = self.writer.add(Row { at: u64::try_from(at).unwrap_or(u64::MAX), ..row });
            self.failed = added.err().inspect(|_| sys::interrupted().store(true, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use host_pmu::trace::{Kind, Tracer};
    use trace::read::Trace;

    use super::*;

    #[test]
    fn a_guest_that_fails_keeps_what_it_traced_and_one_that_never_began_has_no_folder() {
        let dir = tempfile::TempDir::new().unwrap();
        let meta = Meta { vcpus: 1, ..Meta::default() };
        let fails = || Err(Error::usage("the guest fails", "a test", ""));
        let (none, some) = (dir.path().join("none"), dir.path().join("some"));
        assert!(traced(&none, true, meta.clone(), |_| fails()).is_err());
        assert!(!none.exists());
        let error = traced(&some, true, meta, |tracing| {
            let mut tracer = Tracer::new(&tracing, 0, 1_000_000, false);
            tracer.row(1, Kind::Write, 0x38f, 1, 0);
            tracer.entry(2);
            tracer.row(3, Kind::Read, 0x38f, 1, 0);
            fails()
        });
        assert!(error.unwrap_err().to_string().contains("the guest fails"));
        let trace = Trace::open(&some).unwrap();
        let rows: usize = trace.batches().map(|rows| rows.unwrap().len()).sum();
        assert_eq!((rows, trace.meta.finished), (3, false));
    }
}
