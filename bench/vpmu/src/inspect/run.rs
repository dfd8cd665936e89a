//! `vpmu run`: a third-party image on the userspace vPMU.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use minijinja::context;
use vmm::boot::image::{MAX_MEMORY, MIN_MEMORY};
use vmm::machine::Plan;
use vmm::machine::image::{self, ImagePlan, Module};
use vmm::outcome::{Account, End};

use crate::machine::{self, CountersOptions};
use crate::setting::backend::open_kvm;
use crate::setting::options::{QuietOption, TimeLimitOption};
use crate::setting::parse::size_in;
use crate::sys;
use crate::terminal::console::{self, Stream, complain};
use results::error::{Error, Exit};

/// Options of `vpmu run`.
#[derive(Clone, Debug, Args)]
pub struct RunSpec {
    /// A kernel with a multiboot 1 header, or ELF with a PVH note
    pub image: PathBuf,

    /// The kernel's command line, after its name
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,

    /// A boot module; repeat for more
    ///
    /// Without one there is a module "environ", from which kvm-unit-tests read their environment: NR_CPUS, MEMSIZE (MiB) and
    /// TEST_DEVICE=0.
    #[arg(long, value_name = "FILE")]
    pub module: Vec<PathBuf>,

    /// Guest memory: a number and K, M or G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_in(MIN_MEMORY..=MAX_MEMORY))]
    pub memory: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Bound on the run.
    #[command(flatten)]
    pub limit: TimeLimitOption,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Runs the image, whose file was read, on this machine.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn run(args: &RunSpec, image: &[u8], machine: Plan, quiet: bool) -> Result<(Exit, Vec<Account>), Error> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let module = |path: &PathBuf| Ok(Module { name: name(path), contents: machine::read(path, "module")? });
    let mut modules = args.module.iter().map(module).collect::<Result<Vec<_>, Error>>()?;
    if modules.is_empty() {
        // kvm-unit-tests read the machine's size there.
        let (vcpus, mib) = (args.counters.guest.vcpus, args.memory >> 20);
        let environ = format!("NR_CPUS={vcpus}\nMEMSIZE={mib}\nTEST_DEVICE=0\n");
        modules.push(Module { name: "environ".to_owned(), contents: environ.into_bytes() });
    }
    let time_limit = machine.time_limit;
    let plan =
        ImagePlan { machine, memory: args.memory, program: name(&args.image), arguments: args.append.clone(), modules };
    let host = open_kvm()?;
    console::catch_interrupts()?;
    let began = Instant::now();
    let mut output = Stream::stdout(move || began.elapsed() > time_limit);
    let outcome = image::run(&host, image, &plan, &mut output, sys::interrupted())
        .map_err(|error| machine::not_begun(format!("cannot run {}", args.image.display()), &error))?;
    if let Err(error) = output.result() {
        complain(&format!("warning: serial output was lost: {error}"));
    }
    let others = context! {
        protocol => outcome.protocol.to_string(),
        checked_addresses => outcome.checked_addresses,
        asked_for_video => outcome.asked_for_video,
    };
    machine::say(&machine::report_of(&outcome.ran, &plan.machine.behind, others)?, quiet);
    let exit = exit(&outcome.ran.end);
    Ok((exit, outcome.ran.vcpus.into_iter().map(|vcpu| vcpu.account).collect()))
}

/// The exit code that a run's end has.
fn exit(end: &End) -> Exit {
    match end {
        End::GuestExit { status: 1 } => Exit::Done,
        // "Skipped", as automake and kvm-unit-tests say it.
        End::GuestExit { status: 77 } => Exit::Inconclusive,
        End::GuestExit { .. } => Exit::Regression,
        End::Host(_) => Exit::Host,
        _ => Exit::Inconclusive,
    }
}
