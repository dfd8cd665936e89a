//! Stock perf, and this tool, as commands on the same list.

use std::path::PathBuf;
use std::process::{self, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cpu_list::CpuList;
use host_pmu::stats::ns;
use results::child::{Line, Lines, POLL, Supervised};
use results::error::Error;
use results::metric::{ELAPSED, TO_COUNTS, TOTAL};
use stat_setup::list::{Class, EventList};
use stat_setup::method::Use;

use super::events::EventRequest;
use crate::engine::plain::Sample;
use crate::sys;

/// Names of commands: perf without events, its benchmark of set-ups, this tool with one event, and with the list.
pub(super) const START: &str = "perf start-up";
pub(super) const BENCH: &str = "perf bench";
pub(super) const OWN_START: &str = "vpmu start-up";
pub(super) const OWN: &str = "vpmu";

/// Maximum length of one argument of a command (MAX_ARG_STRLEN, 32 pages).
const MAX_ARGUMENT: usize = 32 * 4096;
/// Time that one run of a command may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Group sizes to try for perf.
const SIZES: [usize; 5] = [10, 25, 50, 100, 200];

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) notes: Vec<String>,
    program: PathBuf,
    args: Vec<String>,
    /// Lines of counts that it prints.
    lines: usize,
}

fn no_perf(why: impl Into<String>) -> Error {
    Error::host(
        "cannot compare with stock perf",
        why,
        "install perf (Debian: linux-perf, elsewhere linux-tools or perf), or leave out --against",
    )
}

/// Calls `perf version`; returns why there is none otherwise.
pub(crate) fn version() -> Result<String, String> {
    let output = process::Command::new("perf").arg("version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("perf does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err("perf version fails".to_owned()) }
}

impl Command {
    /// Returns perf's commands, of groupings only the best one that is found, and this tool's.
    pub(super) fn all(
        requested: &str,
        request: &EventRequest,
        list: &EventList,
        cpus: &[u32],
        all_online: bool,
        purpose: Use,
    ) -> Result<Vec<Self>, Error> {
        let version = version().map_err(no_perf)?;
        let refuse = |why: String, remedy: &str| Err(Error::usage("cannot compare with stock perf", why, remedy));
        if list.events.iter().any(|event| event.open.is_err()) {
            let why = "the list has events this host does not know, and perf refuses such a list whole";
            return refuse(why.to_owned(), "take them out of --events");
        }
        let longest = list.to_perf(Some(2)).len();
        if longest > MAX_ARGUMENT {
            let why = format!("the list has {longest} bytes and a command's argument {MAX_ARGUMENT} at most");
            return refuse(why, "take fewer events");
        }
        let on = CpuList(cpus.to_vec()).to_string();
        let which = if all_online { vec!["-a"] } else { vec!["-C", &on] };
        let perf = |name: &str, words: &[&str]| Self::new(name, "perf".into(), words);
        let as_given = list.to_perf(None);
        let stat = |name: &str, list: &str, out: &[&str]| {
            perf(name, &[&["stat", "-x,"], &which[..], out, &["-e", list, "--", "true"]].concat())
        };
        if purpose == Use::Mmap {
            let words = ["bench", "internals", "evlist-open-close", "-i", "1", "-n", "1", "-e", &as_given];
            return Ok(vec![perf(BENCH, &[&words, &which[..]].concat()).noted(version)]);
        }
        let quiet = ["-o", "/dev/null"];
        let mut all = vec![perf(START, &["stat", "-n", "--", "true"]).noted(version)];
        let free = list.events.iter().all(|event| event.class().is_some_and(Class::never_competes));
        if free && !list.has_groups() {
            all.push(stat("perf ungrouped", &list.to_perf(Some(1)), &quiet));
            let grouped = |size: usize| stat(&format!("perf groups of {size}"), &list.to_perf(Some(size)), &quiet);
            if list.events.len() > 1 {
                all.push(fastest(list.events.len(), grouped)?);
            }
        } else {
            all.push(stat("perf as given", &as_given, &quiet));
        }
        let grouping = all.pop();
        // Counts of one run, untimed; a line is value,unit,event,...
        let mut counted = 0;
        stat("perf", &as_given, &["--log-fd", "1"]).run(&mut |line, _| {
            let value = line.split(',').next().unwrap_or_default();
            counted += usize::from(value.trim().parse::<f64>().is_ok());
        })?;
        let counts = format!("perf counted {counted} of {} events", list.events.len());
        all.extend(grouping.map(|command| command.noted(counts)));
        let own = std::env::current_exe().unwrap_or_else(|_| "vpmu".into());
        let words = ["stat-setup", "--once", "--quiet", "--strategy", "auto", "--cpus", &on, "--events"];
        all.push(Self::new(OWN_START, own.clone(), &[&words[..], &["dummy"]].concat()));
        // Pass the request itself, so that both tools parse and look up the list.
        let events = if let EventRequest::List(list) = request { list } else { requested };
        let lines = list.events.len();
        all.push(Self { lines, ..Self::new(OWN, own, &[&words[..], &[events]].concat()) });
        Ok(all)
    }

    fn new(name: &str, program: PathBuf, words: &[&str]) -> Self {
        let short = |word: &&str| {
            if word.chars().count() > 60 {
                word.chars().take(40).collect::<String>() + "..."
            } else {
                (*word).to_owned()
            }
        };
        let shown = words.iter().map(short).collect::<Vec<_>>().join(" ");
        let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let args = words.iter().map(|&word| word.to_owned()).collect();
        Self { name: name.to_owned(), notes: vec![format!("{file} {shown}")], program, args, lines: 0 }
    }

    fn noted(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// Runs it once; `None` if the user ended it.
    pub(super) fn take(&self) -> Result<Option<Sample>, Error> {
        let (mut lines, mut counts, mut reported) = (0, None, None);
        let wall = self.run(&mut |line, since| {
            lines += 1;
            counts = counts.or((lines == self.lines).then_some(since));
            reported = reported.or_else(|| average(line));
        })?;
        let Some(wall) = wall else { return Ok(None) };
        if self.name == BENCH {
            let ns = reported.ok_or_else(|| self.failed("it reports no average"))?;
            return Ok(Some(Sample::default().with(&TOTAL, [ns])));
        }
        let sample = Sample::default().with(&ELAPSED, [wall]);
        Ok(Some(if let Some(counts) = counts { sample.with(&TO_COUNTS, [counts]) } else { sample }))
    }

    /// Runs it, and hands each line of its output to `each` with the time since its start; returns the time until its end, ns, and
    /// `None` if the user ended it.
    fn run(&self, each: &mut dyn FnMut(&str, u64)) -> Result<Option<u64>, Error> {
        let mut command = process::Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        let began = Instant::now();
        let mut child = Supervised::start(&mut command).map_err(|error| self.failed(error))?;
        let interrupted = || sys::interrupted().load(Ordering::Relaxed);
        let over = || interrupted() || began.elapsed() > LIMIT;
        if let Some(out) = child.process.stdout.take() {
            let mut lines = Lines::new(out, MAX_ARGUMENT);
            while let Line::Text(line) = lines.next(over).map_err(|error| self.failed(error))? {
                each(&line, ns(began.elapsed()));
            }
        }
        let status = child.wait(POLL, over).map_err(|error| self.failed(error))?;
        let wall = ns(began.elapsed());
        let Some(status) = status else {
            return if interrupted() { Ok(None) } else { Err(self.failed("it did not end in 10 minutes")) };
        };
        // Exit 3 of this tool only means events without a count.
        let inconclusive = self.name == OWN && status.code() == Some(3);
        if status.success() || inconclusive { Ok(Some(wall)) } else { Err(self.failed(status)) }
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        no_perf(format!("{} {} ...: {why}", self.program.display(), self.args.first().map_or("", String::as_str)))
    }
}

/// Finds the fastest of [`SIZES`], two runs each. If a run takes more than a second, as with tracepoints, grouping does
/// not matter and the middle size is used.
fn fastest(events: usize, grouped: impl Fn(usize) -> Command) -> Result<Command, Error> {
    let mut best: Option<(u64, Command)> = None;
    for size in SIZES.into_iter().filter(|&size| size / 2 < events) {
        let command = grouped(size);
        let first = command.run(&mut |_, _| {})?;
        if first.is_none_or(|wall| wall > 1_000_000_000) {
            return Ok(grouped(SIZES[SIZES.len() / 2]));
        }
        let least = first.min(command.run(&mut |_, _| {})?).unwrap_or(u64::MAX);
        if best.as_ref().is_none_or(|(best, _)| least < *best) {
            best = Some((least, command));
        }
    }
    Ok(best.map_or_else(|| grouped(SIZES[0]), |(_, command)| command))
}

/// Reads "Average open-close took: 689.200 usec (+- 300.907 usec)" in ns.
fn average(line: &str) -> Option<u64> {
    let (_, after) = line.split_once("open-close took:")?;
    let us = after.split_whitespace().next()?;
    let (whole, part) = us.split_once('.').unwrap_or((us, "0"));
    let part: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_bench_s_average_is_read() {
        assert_eq!(average("  Average open-close took: 689.200 usec (+- 300.907 usec)"), Some(689_200));
        assert_eq!(average("  Average open-close took: 12 usec (+- 0 usec)"), Some(12_000));
        assert_eq!(average("  Number of cpus: 2"), None);
        assert_eq!(average("open-close took: x"), None);
    }
}
