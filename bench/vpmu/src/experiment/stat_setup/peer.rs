//! Stock perf as commands on the same list.

use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cpu_list::CpuList;
use host_pmu::stats::ns;
use results::child::{Gathered, Keep, POLL, Supervised};
use results::error::Error;
use results::metric::{ELAPSED, TOTAL};
use stat_setup::list::{Class, EventList};

use crate::engine::plain::{Plain, Sample};
use crate::sys;

/// The time of a command with next to nothing to set up.
const START_UP: &str = "start_up_ns";

/// Maximum length of one argument of a command (MAX_ARG_STRLEN, 32 pages).
const MAX_ARGUMENT: usize = 32 * 4096;
/// Bytes of a command's output that are read.
const MAX_OUTPUT: usize = 16 << 20;
/// Time that one run of a command may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Group sizes to try for perf.
const SIZES: [usize; 5] = [10, 25, 50, 100, 200];

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    name: String,
    notes: Vec<String>,
    program: PathBuf,
    args: Vec<String>,
    /// The arguments that leave it next to nothing to set up.
    start_up: Vec<String>,
}

/// Calls `perf version`; returns why there is none otherwise.
pub(crate) fn version() -> Result<String, String> {
    let output = process::Command::new("perf").arg("version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("perf does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err("perf version fails".to_owned()) }
}

impl Command {
    /// Returns perf's commands, of groupings only the best one that is found.
    pub(super) fn all(text: &str, list: &EventList, cpus: &[u32], all_online: bool) -> Result<Vec<Self>, Error> {
        let refuse = |why: &str, remedy: &str| Err(Error::usage("cannot compare with stock perf", why, remedy));
        let install = "install perf (Debian: linux-perf, elsewhere linux-tools or perf), or leave out --against";
        let version = version().map_err(|why| Error::host("cannot compare with stock perf", why, install))?;
        if list.events.iter().any(|event| event.open.is_err()) {
            let why = "the list has events this host does not know, and perf refuses such a list whole";
            return refuse(why, "take them out of --events");
        }
        if list.to_perf(Some(2)).len().max(text.len()) > MAX_ARGUMENT {
            return refuse("the list is longer than a command's argument may be, 128 KiB", "take fewer events");
        }
        let on = CpuList(cpus.to_vec()).to_string();
        let which = if all_online { vec!["-a"] } else { vec!["-C", &on] };
        let stat = |name: &str, size, out: &[&str]| {
            let list = list.to_perf(size);
            let words = [&["stat", "-x,"], &which[..], out, &["-e", &list, "--", "true"]].concat();
            Self::new(name, Path::new("perf"), &words, &["stat", "-n", "--", "true"])
        };
        let mut all = Vec::new();
        let quiet = ["-o", "/dev/null"];
        if list.events.iter().all(|event| event.class().is_some_and(Class::never_competes)) && !list.has_groups() {
            all.push(stat("perf ungrouped", Some(1), &quiet));
            let grouped = |size: usize| stat(&format!("perf groups of {size}"), Some(size), &quiet);
            if list.events.len() > 1 {
                all.push(fastest(list.events.len(), grouped)?);
            }
        } else {
            all.push(stat("perf as given", None, &quiet));
        }
        // Counts of one run, untimed; a line is value,unit,event,...
        let counts = stat("perf", None, &["--log-fd", "1"]);
        let said = counts.run(&counts.args)?.map(|(_, said)| said).unwrap_or_default();
        let is_count = |line: &&str| line.split(',').next().is_some_and(|value| value.trim().parse::<f64>().is_ok());
        let counted = said.lines().filter(is_count).count();
        let counts = format!("{version}, which counted {counted} of {} events", list.events.len());
        all.last_mut().into_iter().for_each(|best| best.notes.push(counts.clone()));
        Ok(all)
    }

    fn new(name: &str, program: &Path, words: &[&str], start_up: &[&str]) -> Self {
        let short = |word: &&str| match word.char_indices().nth(40) {
            Some((end, _)) if word.len() > 60 => format!("{}...", &word[..end]),
            _ => (*word).to_owned(),
        };
        let shown = words.iter().map(short).collect::<Vec<_>>().join(" ");
        let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let [args, start_up] = [words, start_up].map(|words| words.iter().map(|&word| word.to_owned()).collect());
        let notes = vec![format!("{file} {shown}")];
        Self { name: name.to_owned(), notes, program: program.into(), args, start_up }
    }

    /// Returns its arm.
    pub(super) fn arm(self) -> Plain<'static> {
        let (name, notes) = (self.name.clone(), self.notes.clone());
        let mut arm = Plain::new(name, "process", move |_| self.take());
        for note in notes {
            arm.note(note);
        }
        arm
    }

    /// Runs it once, and once with next to nothing to set up: the difference is the set-up. `None` if the user ended it.
    fn take(&self) -> Result<Option<Sample>, Error> {
        let Some((start_up, _)) = self.run(&self.start_up)? else { return Ok(None) };
        let Some((wall, _)) = self.run(&self.args)? else { return Ok(None) };
        let mut sample = Sample::default().with(&ELAPSED, [wall]);
        sample.add(START_UP, [start_up]);
        if let Some(net) = wall.checked_sub(start_up).filter(|net| *net > 0) {
            sample.add(TOTAL.key, [net]);
        }
        Ok(Some(sample))
    }

    /// Runs it with these words; returns the time until its end, ns, and its output, and `None` if the user ended it.
    fn run(&self, args: &[String]) -> Result<Option<(u64, String)>, Error> {
        let failed =
            |why: &dyn std::fmt::Display| Error::host(format!("cannot run {}", self.notes[0]), why.to_string(), "");
        let mut command = process::Command::new(&self.program);
        command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        let began = Instant::now();
        let mut child = Supervised::start(&mut command).map_err(|error| failed(&error))?;
        let interrupted = || sys::interrupted().load(Ordering::Relaxed);
        let over = || interrupted() || began.elapsed() > LIMIT;
        let said = child.process.stdout.take().map(|out| Gathered::start(out, Keep::First(MAX_OUTPUT)));
        let status = child.wait(POLL, over).map_err(|error| failed(&error))?;
        let wall = ns(began.elapsed());
        match status {
            None if interrupted() => Ok(None),
            None => Err(failed(&"it did not end in 10 minutes")),
            Some(status) if status.success() => {
                Ok(Some((wall, said.map(|said| said.text(LIMIT).0).unwrap_or_default())))
            }
            Some(status) => Err(failed(&status)),
        }
    }
}

/// Finds the fastest of [`SIZES`], two runs each. If a run takes more than a second, as with tracepoints, grouping does
/// not matter and the middle size is used.
fn fastest(events: usize, grouped: impl Fn(usize) -> Command) -> Result<Command, Error> {
    let mut best: Option<(u64, Command)> = None;
    for size in SIZES.into_iter().filter(|&size| size / 2 < events) {
        let command = grouped(size);
        let run = || Ok(command.run(&command.args)?.map(|(wall, _)| wall));
        let Some(first) = run()?.filter(|wall| *wall < 1_000_000_000) else { break };
        let least = run()?.unwrap_or(first).min(first);
        if best.as_ref().is_none_or(|(best, _)| least < *best) {
            best = Some((least, command));
        }
    }
    Ok(best.map_or_else(|| grouped(SIZES[SIZES.len() / 2]), |(_, command)| command))
}
