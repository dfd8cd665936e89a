//! The events that are asked for, the CPUs, and room for both; refuses bad input.

use std::path::Path;

use cpu_list::CpuList;
use stat_setup::list::names::symbol;
use stat_setup::list::parse::{MAX_EVENTS, MAX_TEXT, join_lines, parse};
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{Class, EventList, software_list, tracepoint_list};
use stat_setup::method::{Descriptors, Order};
use stat_setup::run::{self, FileLimit};

use results::error::Error;

/// Parsed `--events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventRequest {
    /// A number of software events.
    Software(usize),
    /// A number of trace events.
    Tracepoints(usize),
    /// A list, from the command line or from a file.
    List(String),
}

fn refuse(why: impl Into<String>) -> Error {
    Error::usage("cannot use --events", why, "give a number, tracepoints:N, a list such as cs,page-faults, or a file")
}

impl EventRequest {
    /// Parses the option, and reads the file if it is one.
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let count = |digits: &str| {
            let n = digits.parse::<usize>().ok().filter(|n| (1..=MAX_EVENTS).contains(n));
            n.ok_or_else(|| refuse(format!("{digits} events; from 1 to {MAX_EVENTS} are possible")))
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if is_number(text) {
            return Ok(Self::Software(count(text)?));
        }
        if let Some(n) = text.strip_prefix("tracepoints:").filter(|n| is_number(n)) {
            return Ok(Self::Tracepoints(count(n)?));
        }
        let file = Path::new(text);
        if text.len() < 4096 && symbol(text).is_none() && file.is_file() {
            return Self::file(file);
        }
        Ok(Self::List(text.to_owned()))
    }

    fn file(file: &Path) -> Result<Self, Error> {
        let failed = |why: String| refuse(format!("{}: {why}", file.display()));
        let text = results::open::named_text(file, MAX_TEXT as u64).map_err(|error| failed(error.to_string()))?;
        let list = join_lines(&text);
        if list.is_empty() { Err(failed("there is no event in it".to_owned())) } else { Ok(Self::List(list)) }
    }

    /// Generates or parses the list and looks it up.
    pub(crate) fn list(&self, sysfs: &mut Sysfs) -> Result<EventList, Error> {
        let text = match self {
            Self::Software(n) => software_list(*n),
            Self::Tracepoints(n) => tracepoint_list(*n, sysfs)
                .map_err(|why| Error::host("cannot set up tracepoint events", why, "or take software events"))?,
            Self::List(list) => list.clone(),
        };
        let written = parse(&text).map_err(|error| refuse(error.to_string()))?;
        Ok(resolve(&written, sysfs))
    }
}

/// Returns the CPUs to count on: the online ones of `asked`, or all online CPUs.
pub(crate) fn cpus(asked: Option<&CpuList>, sysfs: &mut Sysfs, notes: &mut Vec<String>) -> Result<Vec<u32>, Error> {
    let online = sysfs.online();
    if online.is_empty() {
        return Err(Error::host("the online CPUs are unknown", "sysfs does not list them", "mount /sys"));
    }
    let Some(asked) = asked else { return Ok(online) };
    let possible = sysfs.possible();
    if let Some(outside) = asked.0.iter().find(|cpu| !possible.is_empty() && !possible.contains(cpu)) {
        let all = CpuList(possible.clone());
        return Err(Error::usage(
            format!("--cpus names CPU {outside}"),
            format!("this machine has {all}"),
            "leave it out",
        ));
    }
    let (on, off): (Vec<u32>, Vec<u32>) = asked.0.iter().copied().partition(|cpu| online.contains(cpu));
    if !off.is_empty() {
        let off = CpuList(off);
        let message = format!("CPU {off} is offline: <not counted> there; all figures are of the other CPUs");
        notes.push(message);
    }
    if on.is_empty() {
        return Err(Error::host("every CPU of --cpus is offline", "", "bring one online, or choose others"));
    }
    Ok(on)
}

/// Raises the limit of open files for `needed` descriptors.
pub(crate) fn room(needed: u64, notes: &mut Vec<String>) -> Result<FileLimit, Error> {
    let limit = run::raise_file_limit(needed)
        .map_err(|error| Error::host("the limit of open files is unknown", error.to_string(), "see ulimit -n"))?;
    if limit.now > limit.before {
        let FileLimit { before, now, hard, .. } = limit;
        let message = format!("the limit of open files was raised from {before} to {now} (ulimit -Hn: {hard})");
        notes.push(message);
    }
    Ok(limit)
}

/// Returns the strategies whose descriptors fit under the limit of open files, and says which do not: an event would be lost.
/// Threads have a table each, so `auto` always finds a method where they fit.
pub(crate) fn affordable(
    strategies: Vec<String>,
    list: &EventList,
    cpus: &[u32],
    limit: &FileLimit,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, Error> {
    let FileLimit { room, now, hard, .. } = *limit;
    let all = Descriptors::of(list, cpus);
    let needs =
        |name: &str| all.fullest(if matches!(name, "threads" | "auto") { Order::Threads } else { Order::EventMajor });
    let (fit, rest): (Vec<String>, Vec<String>) = strategies.into_iter().partition(|name| needs(name) <= room);
    let Some(first) = rest.first() else { return Ok(fit) };
    let (names, needed) = (rest.join(", "), needs(first));
    let why =
        format!("{needed} descriptors are needed in one table, and {room} fit under the limit of open files, {now}");
    if fit.is_empty() {
        let (auto, fewer) = if needs("auto") <= room { (", or --strategy auto", " or CPUs") } else { ("", "") };
        let remedy = format!("raise ulimit -Hn, now {hard}, or fs.nr_open; or take fewer events{fewer}{auto}");
        return Err(Error::host(format!("cannot set up by {names}"), why, remedy));
    }
    notes.push(format!("{names} left out: {why}; threads have a table each"));
    Ok(fit)
}

/// Refuses a set-up whose threads did not get what they need.
pub(crate) fn short(why: String) -> Error {
    Error::host(
        "cannot set up by threads",
        why,
        "raise pids.max or ulimit -u, or ulimit -Hn; or take fewer events or CPUs",
    )
}

/// Says how many CPUs have no thread of their own.
pub(crate) fn threadless(cpus: usize) -> String {
    format!("no thread started for {cpus} CPUs (pids.max, ulimit -u): the caller served them, one after another")
}

/// Returns the most frequent class of events, in a word.
pub(crate) fn kind(list: &EventList) -> &'static str {
    match list.main_class() {
        Some(Class::Software) => "software",
        Some(Class::Tracepoint) => "tracepoint",
        Some(Class::Hardware) => "hardware",
        Some(Class::OtherPmu) => "other PMUs'",
        Some(Class::Tool) | None => "unsupported",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lists_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events.txt");
        std::fs::write(&file, "# two\ncs\n{dummy,page-faults}:W\n").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(EventRequest::read("700").unwrap(), EventRequest::Software(700));
        assert_eq!(EventRequest::read("tracepoints:9").unwrap(), EventRequest::Tracepoints(9));
        assert_eq!(EventRequest::read("cs").unwrap(), EventRequest::List("cs".into()));
        assert_eq!(EventRequest::read(path).unwrap(), EventRequest::List("cs,{dummy,page-faults}:W".into()));
        std::fs::write(&file, "# nothing\n").unwrap();
        assert!(EventRequest::read(path).unwrap_err().to_string().contains("no event"));
        for bad in ["0", "100001", "99999999999999999999"] {
            assert!(EventRequest::read(bad).unwrap_err().to_string().contains("100000"), "{bad}");
        }
        let error = EventRequest::List("{cs".into()).list(&mut Sysfs::host()).unwrap_err();
        assert!(error.to_string().contains("closing brace"), "{error}");
    }

    #[test]
    fn offline_cpus_are_named_and_cpus_outside_the_machine_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("possible"), "0-3\n").unwrap();
        std::fs::write(cpu.join("online"), "0-1,3\n").unwrap();
        let ask = |text: &str| {
            let mut warnings = Vec::new();
            let list: CpuList = text.parse().unwrap();
            cpus(Some(&list), &mut Sysfs::at(dir.path()), &mut warnings).map(|cpus| (cpus, warnings))
        };
        let (on, warnings) = ask("1-3").unwrap();
        assert_eq!(on, [1, 3]);
        assert!(warnings[0].contains("CPU 2 is offline: <not counted> there"), "{warnings:?}");
        let outside = ask("0-4").unwrap_err();
        assert!(outside.exit.code() == 2 && outside.to_string().contains("this machine has 0-3"), "{outside}");
        let off = ask("2").unwrap_err();
        assert_eq!(off.exit.code(), 4, "{off}");
        assert_eq!(cpus(None, &mut Sysfs::at(dir.path()), &mut Vec::new()).unwrap(), [0, 1, 3]);
    }
}
