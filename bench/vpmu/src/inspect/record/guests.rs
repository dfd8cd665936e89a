//! Runs a guest and records it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use host_pmu::stats::ns;
use minijinja::context;
use perf_data::feature::Facts;
use perf_data::symbols::{Image, Symbols as Functions, build_id, text_of_kernel};
use perf_data::unwind::{FRAME_POINTER, STACK_POINTER};
use results::error::{Error, Exit, one_line};
use results::host::{HostFacts, HostFs};
use results::write::{Target, check_no_input};
use rustix::time::ClockId;
use vmm::machine::linux::Kernel;
use vmm::sample::{CallerRule, Orc, Sampling};

use super::beside::{self, IMAGE, KALLSYMS};
use super::layout::{Kind, of_elf, of_kernel};
use super::recorder::{self, Recorded, Subject};
use super::spec::{RecordSpec, described};
use super::tables::Names;
use crate::inspect::guest::{Code, Guest};
use crate::machine::say;
use crate::sys;
use crate::terminal::console::{complain, filled};

/// Runs the guest and records it.
///
/// # Errors
/// Conditions that keep it from starting, and a recording that ended early.
pub fn record(spec: &RecordSpec) -> Result<Exit, Error> {
    if spec.output == Path::new("-") {
        return Err(Error::usage(
            "cannot write a recording to a pipe",
            "its header is brought up to date",
            "give a file",
        ));
    }
    spec.check()?;
    let mut guest = Guest::watched(spec.guest.clone(), spec.quiet.quiet)?;
    let vcpus = guest.machine.vcpus;
    let mut sampling = Sampling::new(spec.event.clone(), spec.rate(), spec.chains, vcpus);
    // perf reads the functions' names from a file. Of an image it is a copy: the image itself may be another one soon.
    let (subject, copy, input) = match &guest.code {
        Code::Payload(_) => {
            sampling.orc = spec.chains.then(tables_of_payload).flatten();
            (of_image(guest::PMU_PAYLOAD, spec)?, guest::PMU_PAYLOAD, None)
        }
        Code::Image(image, bytes) => (of_image(bytes, spec)?, &bytes[..], Some(&image.image)),
        Code::Linux(linux, kernel) => {
            sampling.orc = spec.chains.then(|| tables_of_kernel(kernel)).flatten();
            (of_linux(kernel), &[][..], Some(&linux.kernel))
        }
    };
    for output in [spec.output.clone(), spec.beside(IMAGE), spec.beside(KALLSYMS)] {
        check_no_input(&output, input)?;
    }
    let kind = subject.kind;
    let events = described(&sampling, kind == Kind::Task)?;
    let companion = |word| {
        let target = Target::of(&spec.beside(word)).map(|target| target.mode(0o600));
        target.map_err(|error| cannot(spec, &error))
    };
    let kallsyms = (kind == Kind::Host).then(|| companion(KALLSYMS)).transpose()?;
    let (output, displaced) = beside::begin(&spec.output).map_err(|error| cannot(spec, &error))?;
    let copied = if kind == Kind::Host || subject.mappings.is_empty() {
        Ok(())
    } else {
        companion(IMAGE).and_then(|file| file.replace(copy).map_err(|error| cannot(spec, &error)))
    };
    let sampling = Arc::new(sampling);
    guest.machine.sampling = Some(Arc::clone(&sampling));
    let run = || guest.run(kallsyms.as_ref()).map(|(exit, _)| exit);
    let recorded =
        copied.and_then(|()| recorder::record((sampling, output, subject), spec, (&events, facts(vcpus)), run));
    if recorded.is_err() {
        beside::take_back(&spec.output, displaced);
    }
    let (recorded, exit) = recorded?;
    say(&report(&recorded, spec, vcpus)?, spec.quiet.quiet);
    ended(&recorded, exit, &spec.output)
}

fn cannot(spec: &RecordSpec, error: &std::io::Error) -> Error {
    let what = format!("cannot write the recording to {}", spec.output.display());
    Error::output(what, error, "make room, or give another --output")
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
    let followed = "chains of the kernel follow frame pointers, which it may not have";
    let tables = Orc::of_kernel(kernel.image(), kernel.release());
    tables.inspect_err(|why| complain(&format!("warning: {why}: {followed}"))).ok()
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
        clocks: (wall, sys::clock_ns(ClockId::Monotonic)),
        ..Facts::default()
    }
}

/// Reports on a recording.
fn report(recorded: &Recorded, spec: &RecordSpec, vcpus: usize) -> Result<Vec<String>, Error> {
    let Recorded { samples, lost: [ours, kernels, throttled], at_exit, parts, complete, file, .. } = recorded;
    let events: Vec<_> = spec.event.iter().map(ToString::to_string).collect();
    let of = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let levels = parts.iter().zip(complete).zip(["chains at level 0", "chains at level 3"]);
    let shares: Vec<_> = levels
        .filter(|((whole, _), _)| spec.chains && **whole > 0)
        .map(|((&whole, &complete), what)| format!("{:.2} % of {whole} {what}", of(complete, whole)))
        .collect();
    let values = context! {
        samples, ours, kernels, throttled, at_exit, vcpus,
        written => file.samples,
        given_up => file.given_up,
        kib => file.bytes.div_ceil(1024),
        events => events.join(", "),
        level => spec.writing().level,
        ratio => format!("{:.1}", file.ratio),
        at_exits => format!("{:.1}", of(*at_exit, *samples)),
        complete => shares.join(", "),
    };
    // The name of the file may be anything.
    let name = one_line(&spec.output.to_string_lossy());
    filled(include_str!("report.txt"), context! { name, ..values })
}

/// Returns the guest's exit code, or the error of a recording that ended early, unless its reader just left.
fn ended(recorded: &Recorded, guest: Exit, output: &Path) -> Result<Exit, Error> {
    match (&recorded.failed, guest) {
        (Some(error), _) if error.kind() != ErrorKind::BrokenPipe => {
            let what = format!("the recording {} ended early", output.display());
            let remedy =
                "what was written before that is readable, later samples are gone; make room, and record again";
            Err(Error::output(what, error, remedy))
        }
        // The recording's end is not the guest's failure.
        (None, Exit::Inconclusive) if recorded.by_duration => Ok(Exit::Done),
        // The reader of the tables left before the end of the guest.
        (Some(_), Exit::Done) => Ok(Exit::Inconclusive),
        (_, exit) => Ok(exit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(failed: Option<ErrorKind>, by_duration: bool) -> Recorded {
        Recorded { failed: failed.map(Into::into), by_duration, ..Recorded::default() }
    }

    #[test]
    fn a_reader_that_left_is_no_whole_recording_and_a_full_disk_is_an_error() {
        let of = |failed: Option<ErrorKind>, by_duration, guest| {
            ended(&recorded(failed, by_duration), guest, Path::new("x")).map_err(|error| error.exit)
        };
        let left = Some(ErrorKind::BrokenPipe);
        assert_eq!(of(None, false, Exit::Done), Ok(Exit::Done));
        assert_eq!(of(left, false, Exit::Done), Ok(Exit::Inconclusive));
        assert_eq!(of(None, true, Exit::Inconclusive), Ok(Exit::Done));
        assert_eq!(of(left, true, Exit::Inconclusive), Ok(Exit::Inconclusive));
        assert_eq!(of(left, false, Exit::Guest(7)), Ok(Exit::Guest(7)));
        assert_eq!(of(Some(ErrorKind::StorageFull), false, Exit::Done), Err(Exit::Host));
    }
}
