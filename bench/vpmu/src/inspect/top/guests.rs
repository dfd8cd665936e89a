//! Runs a guest and shows it.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;

use perf_data::symbols::Symbols;
use results::error::{Error, Exit};
use results::write::{Folder, Target, check_file};
use vmm::sample::Sampling;

use super::model::{Model, Names, Of};
use super::screen::Screen;
use super::spec::TopSpec;
use super::text;
use super::view::View;
use super::watch::{Show, Watched, Watcher};
use crate::inspect::run;
use crate::inspect::run::spec::RunSpec;
use crate::inspect::sampled::{
    self, GuestSpec, PayloadSpec, ReadyPayload, refuse_nested, tables_of_payload, unwind_tables,
};
use crate::machine;
use crate::machine::linux::bring::refuse_file_inside;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::{job, symbols};
use crate::setting::backend::{ThisHost, choose};
use crate::sys;
use crate::terminal::console::{complain, print};
use crate::terminal::output::Diverted;

/// Runs the guest and shows it.
///
/// # Errors
/// Conditions that keep it from starting, and a view that ended early.
pub fn top(spec: &TopSpec) -> Result<Exit, Error> {
    spec.sampling.check(&spec.sampling.event)?;
    if spec.symbols.is_some() && !matches!(spec.guest, GuestSpec::Linux(_)) {
        let why = "the names of other guests are in their ELF files";
        return Err(Error::usage("--symbols is for Linux guests", why, "leave it out"));
    }
    match spec.guest.clone() {
        GuestSpec::Payload(payload) => of_payload(spec, &payload),
        GuestSpec::Run(image) => of_image(spec, *image),
        GuestSpec::Linux(linux) => of_linux(spec, *linux),
    }
}

fn of_payload(spec: &TopSpec, payload: &PayloadSpec) -> Result<Exit, Error> {
    if spec.guest_output.is_some() {
        return Err(Error::usage("--guest-output is for other guests", "the payload writes nothing", "leave it out"));
    }
    let ready = ReadyPayload::new(payload)?;
    let names = Names::new(Symbols::of_elf(guest::PMU_PAYLOAD).unwrap_or_default(), Of::Everything);
    let mut sampling = spec.sampling.sampling(&spec.sampling.event, ready.vcpus);
    sampling.orc = spec.sampling.chains.then(tables_of_payload).flatten();
    let sampling = Arc::new(sampling);
    let sampled = Arc::clone(&sampling);
    watched(spec, sampling, Guest { name: "payload", names, output: None, late: None }, || {
        ready.run(Some(sampled), None, spec.quiet).map(|ran| ran.exit)
    })
}

fn of_image(spec: &TopSpec, mut image: RunSpec) -> Result<Exit, Error> {
    let backend = choose(&image.counters.backend, &ThisHost)?.backend;
    let bytes = machine::read(&image.image, "the image")?;
    let names = Names::new(Symbols::of_elf(&bytes).unwrap_or_default(), Of::Everything);
    if names.is_empty() {
        complain("warning: the image has no symbols: its functions have no names");
    }
    let output = output(spec.guest_output.as_deref(), None)?;
    image.quiet |= spec.quiet;
    let sampling = Arc::new(spec.sampling.sampling(&spec.sampling.event, image.vcpus));
    image.sampling = Some(Arc::clone(&sampling));
    image.diverted = Some(output.clone());
    let guest = Guest { name: "image", names, output: Some(output), late: None };
    watched(spec, sampling, guest, || run::run(&image, &backend))
}

fn of_linux(spec: &TopSpec, mut linux: LinuxSpec) -> Result<Exit, Error> {
    refuse_nested(&linux)?;
    if linux.run.is_none() && linux.initrd.is_none() {
        return Err(Error::usage(
            "cannot show a guest with a shell",
            "the terminal is the view's",
            "give --run COMMAND",
        ));
    }
    if is_picture(spec) && linux.stdin.as_deref() == Some(Path::new("-")) {
        return Err(Error::usage("--stdin -: the keys are the view's", "", "give --stdio, or --stdin FILE"));
    }
    let backend = job::backend(&linux)?;
    let kernel = job::kernel(&linux.kernel)?;
    let mut sampling = spec.sampling.sampling(&spec.sampling.event, linux.vcpus);
    sampling.orc = spec.sampling.chains.then(|| unwind_tables(&kernel)).flatten();
    let symbols = match &spec.symbols {
        Some(path) => listed(path, "the symbols")?,
        None => Symbols::of_elf(kernel.image()).unwrap_or_default(),
    };
    drop(kernel);
    let names = Names::new(symbols, Of::Kernel);
    let folder = tempfile::tempdir().map_err(|error| Error::host("cannot make a folder", error.to_string(), ""))?;
    let (list, modules) = (folder.path().join("kallsyms"), folder.path().join("modules"));
    if linux.run.is_some() {
        let target = |path: &Path| {
            let cannot = |error: io::Error| Error::host("cannot keep the guest's symbols", error.to_string(), "");
            Ok::<_, Error>(Target::of(path).map_err(cannot)?.private())
        };
        linux.symbols =
            Some(symbols::Symbols { kallsyms: target(&list)?, modules: target(&modules)?, reports: Arc::default() });
    }
    if names.is_empty() {
        complain(if linux.run.is_some() {
            "the kernel's functions have names at the end, when the guest's list of symbols is there; --symbols FILE gives them before"
        } else {
            "warning: without --run the guest's symbols are not fetched: functions of its kernel have no names; give --symbols"
        });
    }
    let output = output(spec.guest_output.as_deref(), linux.share.as_deref())?;
    linux.quiet |= spec.quiet;
    let sampling = Arc::new(sampling);
    linux.sampling = Some(Arc::clone(&sampling));
    linux.diverted = Some(output.clone());
    let late = || linux.run.is_some().then(|| listed(&list, "the guest's symbols").ok()).flatten();
    let guest = Guest { name: "linux", names, output: Some(output), late: Some(&late) };
    watched(spec, sampling, guest, || job::run(&linux, &backend))
}

/// Symbols as `/proc/kallsyms` lists them.
fn listed(path: &Path, what: &str) -> Result<Symbols, Error> {
    let text = machine::read(path, what)?;
    let symbols = Symbols::of_kallsyms(&String::from_utf8_lossy(&text));
    if symbols.is_empty() {
        let what = format!("{} lists no symbols", path.display());
        return Err(Error::usage(
            what,
            "",
            "a list is what /proc/kallsyms says to root, or FILE.kallsyms of vpmu record",
        ));
    }
    Ok(symbols)
}

/// Opens the destination of the guest's output.
fn output(path: Option<&Path>, share: Option<&Path>) -> Result<Diverted, Error> {
    let Some(path) = path else { return Ok(Diverted::default()) };
    let target = check_file(path)?;
    if let Some(Ok(share)) = share.map(Folder::open) {
        refuse_file_inside(&share, path)?;
    }
    let created = target.create().map(Diverted::to);
    created.map_err(|error| {
        Error::usage(format!("cannot write the guest's output to {}", path.display()), error.to_string(), "")
    })
}

fn is_picture(spec: &TopSpec) -> bool {
    !spec.stdio && io::stdout().is_terminal()
}

/// A guest that is shown.
struct Guest<'a> {
    name: &'static str,
    names: Names,
    /// Destination of its output, if it has any.
    output: Option<Diverted>,
    /// Names that are there at its end.
    late: Option<&'a dyn Fn() -> Option<Symbols>>,
}

/// Shows it while `run` runs it, and says what there was to see.
fn watched(
    spec: &TopSpec,
    sampling: Arc<Sampling>,
    guest: Guest<'_>,
    run: impl FnOnce() -> Result<Exit, Error>,
) -> Result<Exit, Error> {
    // Before anything begins: an event that this host does not have.
    sampled::described(&sampling, false)?;
    sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
    let events = spec.sampling.event.iter().map(ToString::to_string).collect();
    let model = Model::new(events, spec.span(), guest.name == "payload");
    let show = if is_picture(spec) {
        let screen = Screen::open()
            .map_err(|error| Error::host("cannot use the terminal", error.to_string(), "--stdio needs no terminal"))?;
        Show::Picture(Box::new(screen), View::new(guest.name, spec.sampling.chains))
    } else {
        Show::Tables
    };
    let watcher = Watcher::start(sampling, model, guest.names, show, spec.interval, spec.iterations)?;
    let ended = run();
    let Watched { model, mut names, throttled, by_request, failed } = watcher.finish()?;
    let exit = ended?;
    if names.is_empty()
        && let Some(late) = guest.late.and_then(|late| late())
    {
        names = Names::new(late, Of::Kernel);
    }
    let dropped = guest.output.as_ref().and_then(Diverted::dropped).filter(|&bytes| bytes > 0);
    let shown = model.snapshot(&mut names, None);
    print(&text::summary(&shown, model.every_sample(), throttled, dropped))?;
    if let Some(error) = guest.output.as_ref().and_then(Diverted::error) {
        complain(&format!("warning: output of the guest was lost: {error}"));
    }
    match failed {
        Some(error) => Err(error),
        // The end of the view is not the guest's failure.
        None if by_request && exit == Exit::Inconclusive => Ok(Exit::Done),
        None => Ok(exit),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_guests_output_goes_through_no_link_and_into_no_share() {
        let folder = tempfile::tempdir().unwrap();
        let (share, victim, path) =
            (folder.path().join("share"), folder.path().join("victim"), folder.path().join("out"));
        std::fs::create_dir(&share).unwrap();
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        output(Some(&path), Some(&share)).unwrap().write_all(b"the guest's").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        assert_eq!(std::fs::read(&path).unwrap(), b"the guest's");
        let error = output(Some(&share.join("out")), Some(&share)).unwrap_err();
        assert!(error.exit == Exit::Usage && error.to_string().contains("it is in --share"), "{error}");
        assert_eq!(std::fs::read_dir(&share).unwrap().count(), 0);
    }

    #[test]
    fn a_list_without_symbols_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "0000000000000000 T start\n").unwrap();
        let error = listed(&path, "the symbols").unwrap_err();
        assert!(error.exit == Exit::Usage && error.to_string().contains("lists no symbols"), "{error}");
        std::fs::write(&path, "ffffffff81000000 T start\n").unwrap();
        assert_eq!(listed(&path, "the symbols").unwrap().len(), 1);
        assert!(listed(&folder.path().join("no"), "the symbols").is_err());
    }
}
