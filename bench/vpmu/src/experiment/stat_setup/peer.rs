//! Stock perf in the same run and on the same list.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cpu_list::CpuList;
use stat_setup::list::EventList;

use super::document::{Comparison, Peer, PeerArm};
use super::measure::{SetUpArm, since};
use super::prepare::EventRequest;
use super::ratios::compare;
use crate::sys;
use results::child::{Line, Lines, POLL, Supervised};
use results::document::Summary;
use results::error::Error;

/// Maximum length of one argument of a command (MAX_ARG_STRLEN, 32 pages).
const MAX_ARGUMENT: usize = 32 * 4096;
/// Time that one run of a command may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Group sizes to try for perf.
const SIZES: [usize; 5] = [10, 25, 50, 100, 200];

/// Kind of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// perf without events.
    StartUp,
    /// perf with the list.
    Stat,
    /// `perf bench internals evlist-open-close`, one iteration.
    Bench,
    /// This tool with one event: its own start-up.
    OwnStartUp,
    /// This tool with the list, `--once`.
    Own {
        /// Lines it prints.
        lines: usize,
    },
}

/// A command and its rounds.
#[derive(Debug)]
pub(crate) struct Rival {
    name: String,
    what: What,
    program: PathBuf,
    args: Vec<String>,
    walls: Vec<u64>,
    counts: Vec<u64>,
}

/// Commands that take part in the rounds.
#[derive(Debug)]
pub(crate) struct Rivals {
    version: String,
    pub(crate) commands: Vec<Rival>,
    counted: Option<u64>,
}

fn no_perf(why: impl Into<String>) -> Error {
    Error::host(
        "cannot compare with stock perf",
        why,
        "install perf (Debian: linux-perf, elsewhere linux-tools or perf), or leave out --against",
    )
}

fn failed(rival: &Rival, why: impl std::fmt::Display) -> Error {
    no_perf(format!("{} {} ...: {why}", rival.program.display(), rival.args.first().map_or("", String::as_str)))
}

/// Calls `perf version`; returns why there is none otherwise.
pub(crate) fn version() -> Result<String, String> {
    let output = Command::new("perf").arg("version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("perf does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err("perf version fails".to_owned()) }
}

/// Parameters common to all commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Same<'a> {
    pub(crate) request: &'a str,
    pub(crate) kind: &'a EventRequest,
    pub(crate) list: &'a EventList,
    pub(crate) cpus: &'a [u32],
    pub(crate) all_online: bool,
    pub(crate) mmap: bool,
}

impl Same<'_> {
    fn which_cpus(&self) -> Vec<String> {
        if self.all_online {
            vec!["-a".to_owned()]
        } else {
            vec!["-C".to_owned(), CpuList(self.cpus.to_vec()).to_string()]
        }
    }

    fn rival(&self, name: &str, what: What, list: Option<&str>) -> Rival {
        let text = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
        let mut args = match what {
            What::StartUp => text(&["stat", "-n", "--", "true"]),
            What::Stat => {
                let mut args = text(&["stat"]);
                args.extend(self.which_cpus());
                args.extend(text(&["-x,", "-o", "/dev/null"]));
                args
            }
            What::Bench => {
                let mut args = text(&["bench", "internals", "evlist-open-close", "-i", "1", "-n", "1"]);
                args.extend(self.which_cpus());
                args
            }
            What::OwnStartUp | What::Own { .. } => {
                text(&["stat-setup", "--once", "--quiet", "--strategy", "auto", "--cpus"])
            }
        };
        match what {
            What::OwnStartUp | What::Own { .. } => args.push(CpuList(self.cpus.to_vec()).to_string()),
            _ => {}
        }
        if let Some(list) = list {
            args.extend([
                if matches!(what, What::Own { .. } | What::OwnStartUp) { "--events" } else { "-e" }.to_owned(),
                list.to_owned(),
            ]);
        }
        if what == What::Stat {
            args.extend(text(&["--", "true"]));
        }
        let own = std::env::current_exe().unwrap_or_else(|_| "vpmu".into());
        let program = if matches!(what, What::OwnStartUp | What::Own { .. }) { own } else { "perf".into() };
        Rival { name: name.to_owned(), what, program, args, walls: Vec::new(), counts: Vec::new() }
    }
}

impl Rivals {
    /// Finds perf, checks the list, and searches perf's best grouping.
    pub(crate) fn find(same: Same<'_>) -> Result<Self, Error> {
        let version = version().map_err(no_perf)?;
        let usable: Vec<usize> =
            (0..same.list.events.len()).filter(|&event| same.list.events[event].open.is_ok()).collect();
        if usable.len() < same.list.events.len() {
            return Err(Error::usage(
                "cannot compare with stock perf",
                "the list has events this host does not know, and perf refuses such a list whole",
                "take them out of --events",
            ));
        }
        let longest = same.list.to_perf(Some(2)).len();
        if longest > MAX_ARGUMENT {
            return Err(Error::usage(
                "cannot compare with stock perf",
                format!("the list has {longest} bytes and a command's argument {MAX_ARGUMENT} at most"),
                "take fewer events",
            ));
        }
        let mut rivals = Vec::new();
        let as_given = same.list.to_perf(None);
        if same.mmap {
            rivals.push(same.rival("bench", What::Bench, Some(&as_given)));
        } else {
            rivals.push(same.rival("start-up", What::StartUp, None));
            let free = !same.list.has_groups()
                && same
                    .list
                    .events
                    .iter()
                    .all(|event| event.class().is_some_and(stat_setup::list::Class::never_competes));
            if free {
                let ungrouped = same.list.to_perf(Some(1));
                rivals.push(same.rival("ungrouped", What::Stat, Some(&ungrouped)));
                if same.list.events.len() > 1 {
                    rivals.push(best_grouping(&same)?);
                }
            } else {
                rivals.push(same.rival("as given", What::Stat, Some(&as_given)));
            }
            rivals.push(same.rival("vpmu start-up", What::OwnStartUp, Some("dummy")));
            // Pass the request itself, so that both tools parse and look up the list.
            let lines = same.list.events.len();
            let list = match same.kind {
                EventRequest::List(list) => list.as_str(),
                _ => same.request,
            };
            rivals.push(same.rival("vpmu", What::Own { lines }, Some(list)));
        }
        let counted = if same.mmap { None } else { Some(counted(&same, &as_given)?) };
        Ok(Self { version, commands: rivals, counted })
    }

    /// Compares perf's rounds with those of this tool. Like with like are two processes, each less its own start-up, and
    /// of perf's the fastest grouping that was found: `auto` counts in groups, too. `perf bench` is warm, as `auto` is.
    pub(crate) fn ratios(&self, arms: &[SetUpArm], bare: &[u64]) -> Vec<Comparison> {
        let find = |what: fn(&What) -> bool| self.commands.iter().find(|rival| what(&rival.what));
        let walls = |rival: Option<&Rival>| rival.map_or(&[][..], |rival| rival.walls.as_slice()).to_vec();
        let (start, own_start) =
            (walls(find(|what| *what == What::StartUp)), walls(find(|what| *what == What::OwnStartUp)));
        let own = find(|what| matches!(what, What::Own { .. }));
        let auto = arms.iter().find(|arm| arm.strategy == "auto").map(SetUpArm::totals).unwrap_or_default();
        let mut found = Vec::new();
        // The best grouping is the last.
        for rival in self.commands.iter().rev() {
            let (name, walls) = (&rival.name, rival.walls.as_slice());
            match rival.what {
                What::Stat => {
                    let net = (walls, Some(start.as_slice()));
                    if let Some(own) = own {
                        let (what, other) =
                            ("vpmu, both processes less start-up", (own.walls.as_slice(), Some(&own_start[..])));
                        found.push(compare(format!("perf {name} ÷ {what}"), true, net, other));
                        let what = format!("perf {name}'s end ÷ vpmu's counts, whole processes");
                        found.push(compare(what, false, (walls, None), (&own.counts, None)));
                    }
                    let what = format!("perf {name} less start-up ÷ auto, which is warm");
                    found.push(compare(what, false, net, (&auto, None)));
                    let what = format!("perf {name} less start-up ÷ the bare calls, the limit");
                    found.push(compare(what, false, net, (bare, None)));
                }
                What::Bench => found.extend(arms.iter().map(|arm| {
                    let what = format!("perf bench ÷ {}, both warm", arm.strategy);
                    compare(what, arm.strategy == "auto", (walls, None), (&arm.totals(), None))
                })),
                _ => {}
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Returns the summary.
    pub(crate) fn result(&self, whole: u64) -> Peer {
        let p50 = |name: &str| {
            let rival = self.commands.iter().find(|rival| rival.name == name && !rival.walls.is_empty())?;
            Some(Summary::of_values(&rival.walls).p50)
        };
        let arms_of_peer = self.commands.iter().map(|rival| {
            let wall_ns = Summary::of_values(&rival.walls);
            let startup = match rival.what {
                What::Stat => p50("start-up"),
                What::Own { .. } => p50("vpmu start-up"),
                _ => None,
            };
            PeerArm {
                name: rival.name.clone(),
                command: shortened(rival),
                less_startup_ns: startup.map(|startup| wall_ns.p50.cast_signed() - startup.cast_signed()),
                to_counts_ns: (!rival.counts.is_empty()).then(|| Summary::of_values(&rival.counts)),
                rounds_ns: rival.walls.clone(),
                wall_ns,
            }
        });
        let arms = arms_of_peer.collect();
        Peer { version: self.version.clone(), arms, counted: self.counted.map(|n| (n, whole)) }
    }
}

fn shortened(rival: &Rival) -> String {
    let word = |arg: &String| {
        if arg.chars().count() > 60 { arg.chars().take(40).collect::<String>() + "..." } else { arg.clone() }
    };
    let name = rival.program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    std::iter::once(name).chain(rival.args.iter().map(word)).collect::<Vec<_>>().join(" ")
}

/// Finds the fastest of [`SIZES`], two runs each. If a run takes more than a second, as with tracepoints, grouping does
/// not matter and the middle size is used.
fn best_grouping(same: &Same<'_>) -> Result<Rival, Error> {
    let grouped =
        |size: usize| same.rival(&format!("groups of {size}"), What::Stat, Some(&same.list.to_perf(Some(size))));
    let mut best: Option<(u64, usize)> = None;
    for size in SIZES.into_iter().filter(|&size| size / 2 < same.list.events.len()) {
        let mut rival = grouped(size);
        rival.run()?;
        if rival.walls[0] > 1_000_000_000 {
            return Ok(grouped(SIZES[SIZES.len() / 2]));
        }
        rival.run()?;
        let least = rival.walls.iter().copied().min().unwrap_or(u64::MAX);
        if best.is_none_or(|(best, _)| least < best) {
            best = Some((least, size));
        }
    }
    Ok(grouped(best.map_or(SIZES[0], |(_, size)| size)))
}

/// Returns the number of events with a count from perf.
fn counted(same: &Same<'_>, list: &str) -> Result<u64, Error> {
    let mut command = Command::new("perf");
    command.arg("stat").args(same.which_cpus()).args(["-x,", "-e", list, "--", "true"]).stdin(Stdio::null());
    let output = command.output().map_err(|error| no_perf(format!("perf does not start: {error}")))?;
    // Counts go to stderr; a line is value,unit,event,...
    let text = String::from_utf8_lossy(&output.stderr);
    let is_count = |line: &&str| line.split(',').next().is_some_and(|value| value.trim().parse::<f64>().is_ok());
    Ok(text.lines().filter(is_count).count() as u64)
}

impl Rival {
    /// Returns the name in the progress bar.
    pub(crate) fn name(&self) -> String {
        format!("perf: {}", self.name)
    }

    /// Runs one round.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stderr(Stdio::null());
        let piped = matches!(self.what, What::Bench | What::Own { .. });
        command.stdout(if piped { Stdio::piped() } else { Stdio::null() });
        let began = Instant::now();
        let mut child = Supervised::start(&mut command).map_err(|error| failed(self, error))?;
        let until = began + LIMIT;
        let over = || sys::interrupted().load(Ordering::Relaxed) || Instant::now() > until;
        let mut reported = None;
        if let Some(out) = child.process.stdout.take() {
            let (mut out, mut lines) = (Lines::new(out, MAX_ARGUMENT), 0);
            while let Line::Text(line) = out.next(over).map_err(|error| failed(self, error))? {
                lines += 1;
                match self.what {
                    What::Own { lines: all } if lines == all => self.counts.push(since(began)),
                    What::Bench => reported = reported.or_else(|| average(&line)),
                    _ => {}
                }
            }
        }
        let status = child.wait(POLL, over).map_err(|error| failed(self, error))?;
        let status = status.ok_or_else(|| failed(self, "it was interrupted, or did not end in 10 minutes"))?;
        let wall = since(began);
        // Exit 3 of this tool only means events without a count.
        let inconclusive = matches!(self.what, What::Own { .. }) && status.code() == Some(3);
        if !(status.success() || inconclusive) {
            return Err(failed(self, status));
        }
        match (&self.what, reported) {
            (What::Bench, Some(ns)) => self.walls.push(ns),
            (What::Bench, None) => return Err(failed(self, "it reports no average")),
            _ => self.walls.push(wall),
        }
        Ok(())
    }
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
