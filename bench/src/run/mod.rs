//! `vpmu run`: somebody else's kernel on the userspace vPMU.

mod report;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use host_pmu::strategy::{PRESETS, Strategy};
use vmm::image_machine::{self, FileForImage, ImageError, ImagePlan, Rdpmc};
use vmm::kvm::Host;
use vmm::machine::{Behind, MachineError};
use vmm::outcome::End;

use crate::cli::run::{RdpmcArg, RunArgs};
use crate::console::complain;
use crate::error::{Error, Exit};
use crate::experiment::plan;
use crate::sys;

/// Largest image or module: a kernel with all its symbols.
const MAX_FILE: u64 = 512 << 20;

/// Runs the image.
///
/// # Errors
/// Everything that keeps it from starting.
pub fn run(args: &RunArgs, backend: BackendKey) -> Result<Exit, Error> {
    let image = read(&args.image, "the image")?;
    let plan = plan_of(args, backend)?;
    let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let outcome = image_machine::run(&host, &image, &plan, std::io::stdout(), sys::interrupted()).map_err(|error| {
        let what = format!("cannot run {}", args.image.display());
        match error {
            ImageError::Machine(MachineError::Kvm(_) | MachineError::Seccomp(_) | MachineError::Host(_)) => {
                Error::host(what, error.to_string(), "`vpmu doctor` says what is missing")
            }
            error => Error::usage(what, error.to_string(), ""),
        }
    })?;
    if !args.quiet {
        for line in report::lines(&outcome, args.rdpmc) {
            complain(&line);
        }
    }
    Ok(exit(&outcome.end))
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

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let cannot = || format!("cannot read {what} {}", path.display());
    read.map_err(|error| Error::usage(cannot(), error.to_string(), ""))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::usage(cannot(), format!("it is larger than {} MiB", MAX_FILE >> 20), ""));
    }
    Ok(bytes)
}

fn plan_of(args: &RunArgs, backend: BackendKey) -> Result<ImagePlan, Error> {
    let behind = if backend == BackendKey::None {
        Behind::Floor
    } else {
        let chosen = plan::strategy(&args.strategy, &PRESETS)?;
        let strategy = Strategy::named(&chosen.name, chosen.definition.as_deref())
            .map_err(|error| Error::usage(format!("strategy {}", chosen.name), error.to_string(), ""))?;
        Behind::Events { backend, strategy }
    };
    let mut modules = Vec::new();
    for path in &args.module {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        modules.push(FileForImage { name, contents: read(path, "module")? });
    }
    if modules.is_empty() || !args.environ.is_empty() {
        modules.push(FileForImage { name: "environ".to_owned(), contents: environ(args).into_bytes() });
    }
    Ok(ImagePlan {
        behind,
        pmu: PmuCaps { version: if args.pmu_version == "4" { 4 } else { 2 }, ..PmuCaps::default() },
        vcpus: args.vcpus as usize,
        pin: args.pin.iter().flat_map(|list| &list.0).map(|&cpu| cpu as usize).collect(),
        memory: args.memory,
        program: args.image.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        arguments: args.append.clone(),
        modules,
        rdpmc: match args.rdpmc {
            RdpmcArg::Rewrite => Rdpmc::Rewrite,
            RdpmcArg::Fault => Rdpmc::Fault,
        },
        time_limit: args.time_limit,
        seccomp: !args.no_seccomp,
    })
}

/// The module "environ": the machine's size, overridden and added to by the user.
fn environ(args: &RunArgs) -> String {
    let mut lines = vec![
        ("NR_CPUS".to_owned(), args.vcpus.to_string()),
        ("MEMSIZE".to_owned(), (args.memory >> 20).to_string()),
        ("TEST_DEVICE".to_owned(), "0".to_owned()),
    ];
    for (key, value) in &args.environ {
        match lines.iter_mut().find(|(known, _)| known == key) {
            Some(line) => line.1.clone_from(value),
            None => lines.push((key.clone(), value.clone())),
        }
    }
    lines.iter().fold(String::new(), |text, (key, value)| text + key + "=" + value + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command, Request};

    fn args(more: &[&str]) -> RunArgs {
        match cli::parse(["vpmu", "run", "dir/x.flat"].iter().chain(more)).unwrap() {
            Request::Run(Command::Run(args)) => *args,
            other => panic!("not run: {other:?}"),
        }
    }

    #[test]
    fn the_environment_has_the_machines_size_unless_overridden() {
        assert_eq!(environ(&args(&["--vcpus", "2"])), "NR_CPUS=2\nMEMSIZE=256\nTEST_DEVICE=0\n");
        let lines = environ(&args(&["--environ", "MEMSIZE=1", "--environ", "X=y"]));
        assert_eq!(lines, "NR_CPUS=1\nMEMSIZE=1\nTEST_DEVICE=0\nX=y\n");
    }

    #[test]
    fn modules_displace_the_environment() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let path = file.path().to_str().unwrap();
        let names = |more: &[&str]| -> Vec<usize> {
            let plan = plan_of(&args(more), BackendKey::None).unwrap();
            plan.modules.iter().map(|module| module.contents.len()).collect()
        };
        assert_eq!(names(&[]).len(), 1);
        assert_eq!(names(&["--module", path]), [3]);
        assert_eq!(names(&["--module", path, "--environ", "A=1"]).len(), 2);
        let error = plan_of(&args(&["--module", "no/such"]), BackendKey::None).unwrap_err();
        assert!(error.to_string().contains("no/such"), "{error}");
    }

    #[test]
    fn a_plan_names_its_program_and_strategy() {
        let plan = plan_of(&args(&["--pmu-version", "4", "--pin", "0,1"]), BackendKey::CpuClock).unwrap();
        assert_eq!((plan.program.as_str(), plan.pmu.version, plan.pin), ("x.flat", 4, vec![0, 1]));
        assert!(matches!(plan.behind, Behind::Events { backend: BackendKey::CpuClock, .. }));
        assert!(plan_of(&args(&["--strategy", "reues"]), BackendKey::CpuClock).is_err());
    }

    #[test]
    fn the_guests_code_and_other_ends_are_told_apart() {
        assert_eq!(exit(&End::GuestExit { status: 1 }), Exit::Done);
        assert_eq!(exit(&End::GuestExit { status: 3 }), Exit::Regression);
        for end in [End::GuestExit { status: 77 }, End::TimedOut, End::TripleFault, End::Reset, End::Stopped] {
            assert_eq!(exit(&end), Exit::Inconclusive);
        }
        assert_eq!(exit(&End::Host(String::new())), Exit::Host);
    }
}
