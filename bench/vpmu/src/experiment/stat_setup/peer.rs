//! Stock perf as commands on the same list.

use std::process;
use std::time::Duration;

use cpu_list::CpuList;
use results::error::{Error, Exit};
use results::metric::{ELAPSED, TOTAL};
use stat_setup::list::{Class, EventList};

use crate::engine::Turn;
use crate::engine::plain::{Plain, Sample};
use crate::setting::program::{self, Ran};

/// The time of a command with next to nothing to set up.
const START_UP: &str = "start_up_ns";
/// Its arguments.
const NOTHING: [&str; 4] = ["stat", "-n", "--", "true"];
/// The set-up where the start-up took no less, ns.
pub(super) const NONE: u64 = 1;

/// Maximum length of one argument of a command (MAX_ARG_STRLEN, 32 pages).
const MAX_ARGUMENT: usize = 32 * 4096;
/// Time that one run of perf may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// Group sizes to try for perf.
const SIZES: [usize; 5] = [10, 25, 50, 100, 200];

/// Runs perf to its end; `None` if the user ended it.
fn perf<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Option<Ran>, Error> {
    let failed = |_, why| Error::host("cannot run perf stat", why, "run it alone, with these events");
    program::ended(process::Command::new("perf").args(args), LIMIT, &[Exit::Done], &failed)
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    name: String,
    note: String,
    args: Vec<String>,
}

impl Command {
    /// Returns perf's commands, of groupings only the best one that is found.
    pub(super) fn all(text: &str, list: &EventList, cpus: &[u32], all_online: bool) -> Result<Vec<Self>, Error> {
        let refuse = |why: &str, remedy: &str| Err(Error::usage("cannot compare with stock perf", why, remedy));
        let install = "install perf (Debian: linux-perf, elsewhere linux-tools or perf), or leave out --against";
        let version = program::perf_version("perf".as_ref())
            .map_err(|why| Error::host("cannot compare with stock perf", why, install))?;
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
            let args = [&["stat", "-x,"], &which[..], out, &["-e", &list, "--", "true"]].concat();
            let short = list.chars().take(40).chain("...".chars()).collect::<String>();
            let note = format!("perf {}", args.join(" ")).replace(&list, if list.len() > 60 { &short } else { &list });
            Self { name: name.to_owned(), note, args: args.into_iter().map(str::to_owned).collect() }
        };
        let mut all = Vec::new();
        let quiet = ["-o", "/dev/null"];
        if list.events.iter().all(|event| event.class().is_some_and(Class::never_competes)) && !list.has_groups() {
            all.push(stat("perf ungrouped", Some(1), &quiet));
            let grouped = |size: usize| {
                let found = stat("perf best grouping", Some(size), &quiet);
                Self { note: format!("groups of {size}: {}", found.note), ..found }
            };
            if list.events.len() > 1 {
                all.push(fastest(list.events.len(), grouped)?);
            }
        } else {
            all.push(stat("perf as given", None, &quiet));
        }
        // Counts of one run, untimed; a line is value,unit,event,...
        let is_count = |line: &&str| line.split(',').next().unwrap_or_default().trim().parse::<f64>().is_ok();
        let counted = stat("perf", None, &["--log-fd", "1"]).run()?;
        let counted = counted.map_or(0, |ran| ran.text().lines().filter(is_count).count());
        if let Some(best) = all.last_mut() {
            best.note = format!("{}; {version}, which counted {counted} of {} events", best.note, list.events.len());
        }
        Ok(all)
    }

    fn run(&self) -> Result<Option<Ran>, Error> {
        perf(self.args.iter().map(String::as_str))
    }

    /// Returns its arm. A turn runs it once, and once with next to nothing to set up, which of them first by turns: the difference is
    /// the set-up. Where the start-up took longer, by a host that is busy, it is [`NONE`]: a round that is left out there but not where
    /// the host delays the other makes set-ups long, and the middle half of rounds does not depend on how short the shortest are,
    /// unless a quarter of them or more are such.
    pub(super) fn arm(self) -> Plain<'static> {
        let (name, note) = (self.name.clone(), self.note.clone());
        let take = move |turn: Turn| {
            let before = if turn.index.is_multiple_of(2) { perf(NOTHING)? } else { None };
            let Some(all) = self.run()? else { return Ok(None) };
            let Some(start_up) = before.map_or_else(|| perf(NOTHING), |ran| Ok(Some(ran)))? else { return Ok(None) };
            let net = all.wall_ns.saturating_sub(start_up.wall_ns).max(NONE);
            let mut sample = Sample::default().with(&ELAPSED, [all.wall_ns]).with(&TOTAL, [net]);
            sample.add(START_UP, [start_up.wall_ns]);
            Ok(Some(sample))
        };
        let mut arm = Plain::new(name, "process", take);
        arm.note(note);
        arm
    }
}

/// Finds the fastest of [`SIZES`], two runs each. If a run takes more than a second, as with tracepoints, grouping does
/// not matter and the middle size is used.
fn fastest(events: usize, grouped: impl Fn(usize) -> Command) -> Result<Command, Error> {
    let mut best: Option<(u64, Command)> = None;
    for size in SIZES.into_iter().filter(|&size| size / 2 < events) {
        let command = grouped(size);
        let Some(first) = command.run()?.filter(|ran| ran.wall_ns < 1_000_000_000) else { break };
        let least = command.run()?.map_or(first.wall_ns, |second| second.wall_ns.min(first.wall_ns));
        if best.as_ref().is_none_or(|(best, _)| least < *best) {
            best = Some((least, command));
        }
    }
    Ok(best.map_or_else(|| grouped(SIZES[SIZES.len() / 2]), |(_, command)| command))
}
