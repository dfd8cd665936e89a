//! The events that are asked for, the CPUs, and room for both; refuses bad input.

use std::path::Path;

use cpu_list::CpuList;
use results::error::Error;
use results::open;
use stat_setup::limit::{FileLimit, raise_file_limit};
use stat_setup::list::names::symbol;
use stat_setup::list::parse::{MAX_EVENTS, MAX_TEXT, join_lines, parse};
use stat_setup::list::sysfs::Sysfs;
use stat_setup::list::{EventList, software_list, tracepoint_list};
use stat_setup::method::descriptors;

/// Returns whether a text is a number of events.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the list that `--events` stands for: generated, of a file, or as it is.
///
/// # Errors
/// Exit 2 for what is no list; exit 4 on a host without tracepoints.
pub(crate) fn text(asked: &str, sysfs: &Sysfs) -> Result<String, Error> {
    let refuse = |why: String| {
        Error::usage(
            "cannot use --events",
            why,
            "give a number, tracepoints:N, a list such as cs,page-faults, or a file",
        )
    };
    let count = |digits: &str| {
        let n = digits.parse::<usize>().ok().filter(|n| (1..=MAX_EVENTS).contains(n));
        n.ok_or_else(|| refuse(format!("{digits} events; from 1 to {MAX_EVENTS} are possible")))
    };
    let list = if is_number(asked) {
        software_list(count(asked)?)
    } else if let Some(n) = asked.strip_prefix("tracepoints:").filter(|n| is_number(n)) {
        tracepoint_list(count(n)?, sysfs)
            .map_err(|why| Error::host("cannot set up tracepoint events", why, "or take software events"))?
    } else if asked.len() < 4096 && symbol(asked).is_none() && Path::new(asked).is_file() {
        let text = open::named_text(Path::new(asked), MAX_TEXT as u64);
        join_lines(&text.map_err(|error| refuse(format!("{asked}: {error}")))?)
    } else {
        asked.to_owned()
    };
    parse(&list).map_err(refuse).map(|_| list)
}

/// Returns the CPUs to count on: those that are asked for, or all that are online.
///
/// # Errors
/// Exit 2 for a CPU that is not online.
pub(crate) fn cpus(asked: Option<&CpuList>, sysfs: &mut Sysfs) -> Result<Vec<u32>, Error> {
    let online = sysfs.online();
    if online.is_empty() {
        return Err(Error::host("the online CPUs are unknown", "sysfs does not list them", "mount /sys"));
    }
    let Some(CpuList(asked)) = asked else { return Ok(online) };
    match asked.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(asked.clone()),
        Some(cpu) => Err(Error::usage(
            format!("CPU {cpu} is not online"),
            format!("CPUs {} are", CpuList(online)),
            "leave it out",
        )),
    }
}

/// Raises the limit of open files, and returns the strategies that fit under it, with notes of those that do not: an event would be
/// lost. Also returns whether one table holds all. Threads have a table each, so `auto` always finds a method where they fit.
///
/// # Errors
/// Exit 4 if none fits.
pub(crate) fn affordable(
    strategies: &[String],
    list: &EventList,
    cpus: &[u32],
    notes: &mut Vec<String>,
) -> Result<(Vec<String>, bool), Error> {
    let [together, each] = descriptors(list, cpus);
    let FileLimit { before, now, hard, room } = raise_file_limit(together)
        .map_err(|error| Error::host("the limit of open files is unknown", error.to_string(), "see ulimit -n"))?;
    if now > before {
        notes.push(format!("the limit of open files was raised from {before} to {now} (ulimit -Hn: {hard})"));
    }
    let needs = |name: &str| if matches!(name, "threads" | "auto") { each } else { together };
    let (fit, rest): (Vec<String>, Vec<String>) = strategies.iter().cloned().partition(|name| needs(name) <= room);
    if let Some(first) = rest.first() {
        let (names, needed) = (rest.join(", "), needs(first));
        let why = format!("one table needs {needed} descriptors, and {room} fit under the limit of open files, {now}");
        if fit.is_empty() {
            let auto = if needs("auto") <= room { ", or --strategy auto" } else { "" };
            let remedy = format!("raise ulimit -Hn, now {hard}, or fs.nr_open; or take fewer events or CPUs{auto}");
            return Err(Error::host(format!("cannot set up by {names}"), why, remedy));
        }
        notes.push(format!("{names} left out: {why}; threads have a table each"));
    }
    Ok((fit, together <= room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lists_files_and_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let (file, cpu) = (dir.path().join("events.txt"), dir.path().join("sys/devices/system/cpu"));
        std::fs::write(&file, "# two\ncs\n{dummy,page-faults}:W\n").unwrap();
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("online"), "0-1,3\n").unwrap();
        let mut sysfs = Sysfs::at(dir.path());
        let path = file.to_str().unwrap().to_owned();
        assert_eq!(text("700", &sysfs).unwrap(), software_list(700));
        assert_eq!(text("cs", &sysfs).unwrap(), "cs");
        assert_eq!(text(&path, &sysfs).unwrap(), "cs,{dummy,page-faults}:W");
        let mut ask = |text: &str| cpus(Some(&text.parse().unwrap()), &mut sysfs);
        assert_eq!(ask("1,3").unwrap(), [1, 3]);
        let offline = ask("1-3").unwrap_err();
        assert!(offline.exit.code() == 2 && offline.to_string().contains("CPU 2 is not online"), "{offline}");
        assert_eq!(cpus(None, &mut sysfs).unwrap(), [0, 1, 3]);
    }
}
