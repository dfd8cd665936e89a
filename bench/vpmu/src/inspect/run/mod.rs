//! `vpmu run`: a third-party image on the userspace vPMU.

pub mod spec;

use std::path::{Path, PathBuf};
use std::time::Instant;

use host_pmu::backend::BackendKey;
use vmm::machine::image::{self, FileForImage, ImagePlan};
use vmm::machine::linux::PcOutcome;
use vmm::outcome::End;

use crate::machine::{self, Watch};
use crate::setting::backend::open_kvm;
use crate::sys;
use crate::terminal::console::{Stream, complain};
use results::error::{Error, Exit};
use spec::RunSpec;

/// Runs the image, whose file was read.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn run(args: &RunSpec, image: &[u8], backend: &BackendKey, watch: Watch) -> Result<(Exit, PcOutcome), Error> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let module = |path: &PathBuf| Ok(FileForImage { name: name(path), contents: machine::read(path, "module")? });
    let mut modules = args.module.iter().map(module).collect::<Result<Vec<_>, Error>>()?;
    if modules.is_empty() {
        // kvm-unit-tests read the machine's size there.
        let (vcpus, mib) = (args.counters.guest.vcpus, args.memory >> 20);
        let environ = format!("NR_CPUS={vcpus}\nMEMSIZE={mib}\nTEST_DEVICE=0\n");
        modules.push(FileForImage { name: "environ".to_owned(), contents: environ.into_bytes() });
    }
    let plan = ImagePlan {
        machine: args.plan(backend, watch)?,
        memory: args.memory,
        program: name(&args.image),
        arguments: args.append.clone(),
        modules,
    };
    let host = open_kvm()?;
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let (began, time_limit) = (Instant::now(), args.time_limit());
    let mut output = Stream::stdout(move || began.elapsed() > time_limit);
    let outcome = image::run(&host, image, &plan, &mut output, sys::interrupted())
        .map_err(|error| machine::not_begun(format!("cannot run {}", args.image.display()), &error))?;
    if let Err(error) = output.result() {
        complain(&format!("warning: serial output was lost: {error}"));
    }
    let mut report = machine::report_of(&outcome.ran, backend);
    report.summary.insert(1, format!("boot protocol: {}", outcome.protocol));
    if outcome.checked_addresses {
        let why = "this host's processor is emulated";
        report.summary.push(format!("{why}: addresses written to MSRs are checked for being canonical here"));
    }
    if outcome.asked_for_video {
        report
            .warnings
            .push("the image asks for a video mode, and this machine has none: its console is COM1".to_owned());
    }
    machine::say(&report, args.quiet.quiet);
    Ok((exit(&outcome.ran.end), outcome.ran))
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
