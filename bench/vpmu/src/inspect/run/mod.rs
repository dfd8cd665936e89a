//! `vpmu run`: a third-party image on the userspace vPMU.

pub mod spec;

use std::time::Instant;

use host_pmu::backend::BackendKey;
use vmm::machine::image::{self, FileForImage, ImagePlan, Rdpmc};
use vmm::outcome::End;

use crate::machine;
use crate::machine::EndedRun;
use crate::setting::backend::open_kvm;
use crate::sys;
use crate::terminal::console::complain;
use crate::terminal::output::{Limits, Output};
use results::error::{Error, Exit};
use spec::RunSpec;

/// Runs the image.
///
/// # Errors
/// Conditions that keep it from starting.
pub fn run(args: &RunSpec, backend: &BackendKey) -> Result<Exit, Error> {
    let image = machine::read(&args.image, "the image")?;
    let plan = plan_of(args, backend)?;
    let host = open_kvm()?;
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let limits = Limits { began: Instant::now(), time_limit: args.time_limit };
    let mut output = Output::to_stdout(limits);
    let outcome = image::run(&host, &image, &plan, &mut output, sys::interrupted())
        .map_err(|error| machine::not_begun(format!("cannot run {}", args.image.display()), &error))?;
    let unsent = output.finish();
    if let Err(error) = &unsent {
        complain(&format!("warning: serial output was lost: {error}"));
    }
    let ran = EndedRun {
        end: &outcome.ran.end,
        wall: outcome.ran.wall,
        vcpus: &outcome.ran.vcpus,
        rewritten: (args.rdpmc == Rdpmc::Rewrite).then_some(outcome.ran.rewritten),
        absent: outcome.ran.vcpus.iter().map(|vcpu| vcpu.left.absent).sum(),
        checked_addresses: outcome.checked_addresses,
        output: &outcome.ran.console,
    };
    let mut report = machine::report_of(&ran, backend);
    report.summary.insert(1, format!("boot protocol: {}", outcome.protocol));
    if outcome.asked_for_video {
        report
            .warnings
            .push("the image asks for a video mode, and this machine has none: its console is COM1".to_owned());
    }
    machine::say(&report, args.quiet.quiet);
    Ok(exit(&outcome.ran.end))
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

fn plan_of(args: &RunSpec, backend: &BackendKey) -> Result<ImagePlan, Error> {
    let machine = args.plan(backend)?;
    let mut modules = Vec::new();
    for path in &args.module {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        modules.push(FileForImage { name, contents: machine::read(path, "module")? });
    }
    if modules.is_empty() || !args.environ.is_empty() {
        modules.push(FileForImage { name: "environ".to_owned(), contents: environ(args).into_bytes() });
    }
    Ok(ImagePlan {
        machine,
        memory: args.memory,
        program: args.image.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        arguments: args.append.clone(),
        modules,
        rdpmc: args.rdpmc,
    })
}

/// The module "environ": the machine's size, overridden and added to by the user.
fn environ(args: &RunSpec) -> String {
    let mut lines = vec![
        ("NR_CPUS".to_owned(), args.counters.guest.vcpus.to_string()),
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
    use crate::setting::parse::options;

    fn spec() -> RunSpec {
        options(&["dir/x.flat"]).unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn the_environment_has_the_machines_size_unless_overridden() {
        let mut two = spec();
        two.counters.guest.vcpus = 2;
        assert_eq!(environ(&two), "NR_CPUS=2\nMEMSIZE=256\nTEST_DEVICE=0\n");
        let lines = environ(&RunSpec { environ: vec![pair("MEMSIZE", "1"), pair("X", "y")], ..spec() });
        assert_eq!(lines, "NR_CPUS=1\nMEMSIZE=1\nTEST_DEVICE=0\nX=y\n");
    }

    #[test]
    fn modules_displace_the_environment() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let path = file.path().to_owned();
        let lengths = |spec: &RunSpec| -> Vec<usize> {
            let plan = plan_of(spec, &BackendKey::None).unwrap();
            plan.modules.iter().map(|module| module.contents.len()).collect()
        };
        assert_eq!(lengths(&spec()).len(), 1);
        assert_eq!(lengths(&RunSpec { module: vec![path.clone()], ..spec() }), [3]);
        let both = RunSpec { module: vec![path], environ: vec![pair("A", "1")], ..spec() };
        assert_eq!(lengths(&both).len(), 2);
    }
}
