//! Runs a guest and records it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use host_pmu::stats::ns;
use perf_data::feature::Facts;
use perf_data::symbols::{Image, Symbols as Functions, build_id, text_of_kernel};
use perf_data::unwind::{FRAME_POINTER, STACK_POINTER};
use perf_data::writer::Output;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::write::check_no_input;
use vmm::machine::linux::Kernel;
use vmm::sample::{CallerRule, Orc};

use super::beside::{self, IMAGE, KALLSYMS};
use super::layout::{Kind, of_elf, of_kernel};
use super::recorder::{self, Subject};
use super::spec::RecordSpec;
use super::summary;
use super::tables::Names;
use crate::inspect::sampled::{self, Guest};
use crate::sys;
use crate::terminal::console::complain;

/// Runs the guest and records it.
///
/// # Errors
/// Conditions that keep it from starting, and a recording that ended early.
pub fn record(spec: &RecordSpec) -> Result<Exit, Error> {
    let places = "writes that are done at once need places of their own, which a pipe does not have";
    for (given, option, why) in [
        (spec.aio.is_some(), "--aio", places),
        (spec.interval.is_some(), "--interval", "tables and the recording are both for stdout"),
    ] {
        if given && spec.is_pipe() {
            let remedy = format!("give a file with --output, or leave {option} out");
            return Err(Error::usage(format!("cannot write to a pipe with {option}"), why, remedy));
        }
    }
    spec.sampling.check()?;
    let (guest, backend) = Guest::watched(spec.guest.clone(), spec.quiet.quiet)?;
    let mut sampling = spec.sampling.sampling(spec.chains, guest.counters().0.guest.vcpus);
    // perf reads the functions' names from a file. Of an image it is a copy: the image itself may be another one soon.
    let (subject, copy, input) = match &guest {
        Guest::Payload(..) => {
            sampling.orc = spec.chains.then(tables_of_payload).flatten();
            (of_image(guest::PMU_PAYLOAD, spec)?, guest::PMU_PAYLOAD, None)
        }
        Guest::Image(image, bytes) => (of_image(bytes, spec)?, &bytes[..], Some(&image.image)),
        Guest::Linux(linux, kernel) => {
            sampling.orc = spec.chains.then(|| tables_of_kernel(kernel)).flatten();
            (of_linux(kernel), &[][..], Some(&linux.kernel))
        }
    };
    for output in [spec.output.clone(), spec.beside(IMAGE), spec.beside(KALLSYMS)] {
        check_no_input(&output, input)?;
    }
    let (kind, vcpus) = (subject.kind, sampling.channels.len());
    let events = sampled::described(&sampling, kind == Kind::Task)?;
    let kallsyms = (kind == Kind::Host).then(|| spec.companion(KALLSYMS)).transpose()?;
    let (output, displaced) = output(spec)?;
    let copied = if kind == Kind::Host || subject.mappings.is_empty() {
        Ok(())
    } else {
        spec.companion(IMAGE).and_then(|file| file.replace(copy).map_err(|error| cannot(spec, &error)))
    };
    let sampling = Arc::new(sampling);
    let watch = Arc::clone(&sampling).into();
    let run = || guest.run(backend, watch, kallsyms.as_ref(), spec.quiet.quiet).map(|(exit, _)| exit);
    let recorded =
        copied.and_then(|()| recorder::record((sampling, output, subject), spec, (&events, facts(vcpus)), run));
    if recorded.is_err() && !spec.is_pipe() {
        beside::take_back(&spec.output, displaced);
    }
    let (recorded, exit) = recorded?;
    let (lines, warnings) = summary::lines(&recorded, spec, vcpus);
    for line in lines.iter().filter(|_| !spec.quiet.quiet) {
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

fn cannot(spec: &RecordSpec, error: &std::io::Error) -> Error {
    let what = format!("cannot write the recording to {}", spec.output.display());
    Error::output(what, error, "make room, or give another --output")
}

/// Opens the output, and says whether an earlier file gave place.
fn output(spec: &RecordSpec) -> Result<(Output, bool), Error> {
    let opened = if spec.is_pipe() {
        // Whatever the guest writes to stdout goes to stderr from here on.
        beside::remove(&spec.beside(KALLSYMS))
            .and_then(|()| sys::take_stdout())
            .map(|fd| (Output::Pipe(File::from(fd)), false))
    } else {
        beside::begin(&spec.output).map(|(file, displaces)| (Output::File(file), displaces))
    };
    opened.map_err(|error| cannot(spec, &error))
}

fn of_image(bytes: &[u8], spec: &RecordSpec) -> Result<Subject, Error> {
    let path = std::path::absolute(spec.beside(IMAGE)).map_err(|error| cannot(spec, &error))?;
    let names = Names { symbols: Functions::of_elf(bytes).unwrap_or_default(), all: true };
    // A file that is refused at its boot says why itself.
    if !bytes.starts_with(b"\x7fELF") {
        complain("warning: the image is no ELF file: its functions have no names");
    }
    Ok(Subject { kind: Kind::Task, mappings: of_elf(bytes, &path, std::process::id()), names })
}

fn of_linux(kernel: &Kernel) -> Subject {
    let text = text_of_kernel(kernel.image()).unwrap_or(KERNEL_TEXT);
    let names = Names { symbols: Functions::of_elf(kernel.image()).unwrap_or_default(), all: false };
    Subject { kind: Kind::Host, mappings: vec![of_kernel(text, build_id(kernel.image()))], names }
}

/// `_text` of a kernel whose image does not say it.
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;

/// Returns the unwind tables of a kernel, with a warning if it has none.
fn tables_of_kernel(kernel: &Kernel) -> Option<Orc> {
    let warn = |why| {
        complain(&format!("warning: {why}: chains of the kernel follow frame pointers, which it may not have"));
    };
    Orc::of_kernel(kernel.image(), kernel.release()).map_err(warn).ok()
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

fn facts(vcpus: usize) -> Facts {
    let fs_of_host = HostFs::default();
    let text = |file| fs_of_host.text(file).unwrap_or_default().trim().to_owned();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ns);
    Facts {
        hostname: text("proc/sys/kernel/hostname"),
        os_release: text("proc/sys/kernel/osrelease"),
        version: format!("vpmu {}", env!("CARGO_PKG_VERSION")),
        cpu: HostFacts::read(&fs_of_host).cpu_model.unwrap_or_default(),
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        cpus: vcpus as u32,
        clocks: (wall, sys::monotonic_ns()),
        ..Facts::default()
    }
}
