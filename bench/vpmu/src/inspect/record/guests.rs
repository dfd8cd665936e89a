//! Runs a guest and records it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use host_pmu::stats::ns;
use perf_data::feature::Facts;
use perf_data::symbols::{Image, Symbols as Functions, build_id, text_of_kernel};
use perf_data::unwind::{FRAME_POINTER, STACK_POINTER};
use results::error::{Error, Exit};
use results::host::{self, HostFs};
use vmm::machine::linux::Kernel;
use vmm::sample::{CallerRule, Orc, OrcError, Sampling};

use super::beside::{self, KALLSYMS, PAYLOAD};
use super::code::KernelCode;
use super::layout::{Kind, of_elf, of_kernel};
use super::recorder::{self, Subject, output};
use super::spec::RecordSpec;
use super::summary;
use super::tables::Names;
use crate::inspect::run::spec::RunSpec;
use crate::inspect::sampled::{self, Ready};
use crate::machine;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::symbols::{CodeReports, Symbols};
use crate::machine::linux::userland;
use crate::sys;
use crate::terminal::console::complain;

/// Runs the guest and records it.
///
/// # Errors
/// Conditions that keep it from starting, and a recording that ended early.
pub fn record(spec: &RecordSpec) -> Result<Exit, Error> {
    if spec.aio.is_some() && spec.is_pipe() {
        return Err(Error::usage(
            "cannot write to a pipe by --aio",
            "writes that are done at once need places of their own, which a pipe does not have",
            "give a file with --output, or leave --aio out",
        ));
    }
    if spec.interval.is_some() && spec.is_pipe() {
        let what = "tables and the recording are both for stdout";
        return Err(Error::usage(what, "", "give a file with --output, or leave --interval out"));
    }
    spec.sampling.check()?;
    let mut ready = Ready::new(spec.guest.clone(), spec.quiet.quiet)?;
    let mut sampling = spec.sampling.sampling(spec.chains, ready.counters().0.guest.vcpus);
    let subject = match &mut ready {
        Ready::Payload(..) => {
            sampling.orc = spec.chains.then(tables_of_payload).flatten();
            of_payload(spec)?
        }
        Ready::Image(image, _) => of_image(image)?,
        Ready::Linux(linux, _, symbols) => of_linux(spec, (linux, symbols), &mut sampling)?,
    };
    recorded(spec, Arc::new(sampling), subject, ready)
}

fn of_image(image: &RunSpec) -> Result<Subject, Error> {
    let bytes = machine::read(&image.image, "the image")?;
    let path = fs::canonicalize(&image.image).unwrap_or_else(|_| image.image.clone());
    let names = Names { symbols: Functions::of_elf(&bytes).unwrap_or_default(), all: true };
    let subject = Subject { kind: Kind::Task, mappings: of_elf(&bytes, &path, std::process::id()), code: None, names };
    // A file that is refused at its boot says why itself.
    if subject.mappings.is_empty() && !bytes.starts_with(b"\x7fELF") {
        complain("warning: the image is no ELF file: its functions have no names");
    }
    Ok(subject)
}

fn of_linux(
    spec: &RecordSpec,
    (linux, symbols): (&LinuxSpec, &mut Option<Symbols>),
    sampling: &mut Sampling,
) -> Result<Subject, Error> {
    if spec.interval.is_some() && linux.run.is_none() && linux.initrd.is_none() {
        return Err(Error::usage("cannot show a guest with a shell", "tables fill its terminal", "give --run COMMAND"));
    }
    let kernel = userland::kernel(&linux.kernel)?;
    sampling.orc = spec.chains.then(|| tables_of_kernel(&kernel)).flatten();
    let names = Names { symbols: Functions::of_elf(kernel.image()).unwrap_or_default(), all: false };
    let (text, build_id) = (text_of_kernel(kernel.image()).unwrap_or(KERNEL_TEXT), build_id(kernel.image()));
    let reports = Arc::new(CodeReports::default());
    let mappings = vec![of_kernel(text, build_id.clone())];
    let code = Some(KernelCode::new(Arc::clone(&reports), build_id));
    if linux.run.is_some() {
        *symbols = Some(Symbols { kallsyms: spec.companion(KALLSYMS)?, reports });
    } else {
        complain("warning: without --run the guest's symbols are not fetched: functions of its kernel have no names");
    }
    Ok(Subject { kind: Kind::Host, mappings, code, names })
}

/// `_text` of a kernel whose image does not say it.
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;

/// Returns the unwind tables of a kernel, with a warning if it has none.
fn tables_of_kernel(kernel: &Kernel) -> Option<Orc> {
    match Orc::of_kernel(kernel.image(), kernel.release()) {
        Ok(orc) => Some(orc),
        Err(why @ (OrcError::Absent | OrcError::Damaged(_))) => {
            complain(&format!("warning: {why}: chains of the kernel follow frame pointers, which it may not have"));
            None
        }
    }
}

/// Returns the unwind tables of the payload, for its kernel and its ring 3.
fn tables_of_payload() -> Option<Orc> {
    // An interrupt's frame ends with RIP, CS, RFLAGS, RSP and SS.
    const FRAME: i64 = 40;
    let mut rules: Vec<(u64, CallerRule)> = Vec::new();
    for row in Image::read(guest::PMU_PAYLOAD)?.rows() {
        let (register, cfa) = row.cfa;
        let by_bp = register != STACK_POINTER;
        let rule = match row.frame_pointer.map(i16::try_from).transpose() {
            _ if row.outermost => Some(CallerRule::Outermost),
            _ if row.interrupted => i16::try_from(cfa - FRAME).ok().filter(|_| !by_bp).map(CallerRule::Interrupt),
            Ok(bp) if !by_bp || register == FRAME_POINTER => {
                i16::try_from(cfa).ok().map(|sp| CallerRule::Call { by_bp, sp, bp })
            }
            _ => None,
        };
        // Between functions nothing is known.
        rules.pop_if(|(end, _)| *end == row.code.0);
        rules.extend([(row.code.0, rule.unwrap_or(CallerRule::Unknown)), (row.code.1, CallerRule::Unknown)]);
    }
    Orc::of_callers(&rules)
}

fn of_payload(spec: &RecordSpec) -> Result<Subject, Error> {
    if spec.output.is_dir() {
        let what = format!("cannot write the recording to {}", spec.output.display());
        return Err(Error::usage(what, "it is a folder", "give the path of a file with --output"));
    }
    // perf reads the functions' names from a file.
    let file = spec.companion(PAYLOAD)?;
    let written = || {
        file.replace(guest::PMU_PAYLOAD)?;
        std::path::absolute(file.path())
    };
    let elf = written().map_err(|error| {
        let what = format!("cannot write the payload to {}", file.path().display());
        Error::output(what, &error, "make room, or give another --output")
    })?;
    let mappings = of_elf(guest::PMU_PAYLOAD, &elf, std::process::id());
    let names = Names { symbols: Functions::of_elf(guest::PMU_PAYLOAD).unwrap_or_default(), all: true };
    Ok(Subject { kind: Kind::Task, mappings, code: None, names })
}

/// Records while the guest runs, and says what came of it.
fn recorded(spec: &RecordSpec, sampling: Arc<Sampling>, subject: Subject, ready: Ready) -> Result<Exit, Error> {
    let (kind, vcpus) = (subject.kind, sampling.channels.len());
    sampled::described(&sampling, kind == Kind::Task)?;
    let facts = facts(vcpus);
    let sampled = Arc::clone(&sampling);
    let guest = || ready.run(sampled.into(), spec.quiet.quiet).map(|(exit, _)| exit);
    let (output, displaced) = output(spec)?;
    let recorded = recorder::record((sampling, output, subject), spec, facts, guest);
    if recorded.is_err() && !spec.is_pipe() {
        beside::take_back(&spec.output, displaced);
    }
    let (recorded, exit) = recorded?;
    let (lines, warnings) = summary::lines(&recorded, spec, vcpus);
    let commands = summary::commands(spec, kind).filter(|_| recorded.file.samples > 0);
    for line in lines.iter().chain(&commands).filter(|_| !spec.quiet.quiet) {
        complain(line);
    }
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
    match summary::error(&recorded, Path::new(&spec.output)) {
        Some(error) => Err(error),
        None => Ok(summary::exit(&recorded, exit)),
    }
}

fn facts(vcpus: usize) -> Facts {
    let fs_of_host = HostFs::default();
    let facts = host::HostFacts::read(&fs_of_host);
    let text = |file| fs_of_host.text(file).unwrap_or_default().trim().to_owned();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ns);
    Facts {
        hostname: text("proc/sys/kernel/hostname"),
        os_release: text("proc/sys/kernel/osrelease"),
        version: format!("vpmu {}", env!("CARGO_PKG_VERSION")),
        cpu: facts.cpu_model.unwrap_or_default(),
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        cpus: vcpus as u32,
        clocks: (wall, sys::monotonic_ns()),
        ..Facts::default()
    }
}
