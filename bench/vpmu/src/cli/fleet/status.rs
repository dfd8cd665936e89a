//! `vpmu fleet status`, `wait` and `cancel`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fleet::slurm::command::Slurm;
use results::error::{Error, Exit};
use results::table::fold::{Table, wrapped};
use results::table::layout::{columns, dash, plural};

use super::args::{DirArgs, StatusArgs, WaitArgs};
use crate::campaign::on_slurm;
use crate::sys;
use crate::terminal::console::{complain, internal, print, print_json};
use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::standing::{Line, Standing, State};

/// Reads a campaign with Slurm's answer. `open` is [`Folder::own`] for commands that act on the folder.
pub(super) fn standing(
    dir: &Path,
    open: impl Fn(&Path) -> Result<(Folder, Campaign), Error>,
) -> Result<(Folder, Campaign, Standing), Error> {
    let (folder, campaign) = open(dir)?;
    let states = on_slurm::states(&Slurm::default(), &folder)?;
    if let Some(why) = &states.unanswered {
        complain(&format!("warning: Slurm does not answer ({why}): elements without an outcome are shown as lost"));
    }
    let standing = Standing::of(&folder, &campaign, &states.elements, states.unanswered)?;
    Ok((folder, campaign, standing))
}

/// Runs `vpmu fleet status`.
pub(super) fn status(args: &StatusArgs) -> Result<Exit, Error> {
    let (_, _, standing) = standing(&args.dir, Folder::open)?;
    if args.json {
        print_json(&standing)?;
    } else {
        print(&shown(&standing, args.all))?;
    }
    Ok(standing.exit())
}

/// Formats the counts, then the elements that need a look, or all.
pub(super) fn shown(standing: &Standing, all: bool) -> String {
    let counts = State::ALL.into_iter().filter(|&state| standing.count(state) > 0);
    let counts: Vec<String> = counts.map(|state| format!("{} {}", standing.count(state), state.word())).collect();
    let total = plural(standing.elements.len(), "element");
    let mut text = format!("{}: {total}: {}\n", results::shown::line(&standing.campaign), counts.join(", "));
    // A job may wait for ever, for a limit of its partition or because it is held; only the reason says so.
    let mut waits: BTreeMap<&str, usize> = BTreeMap::new();
    for line in standing.elements.iter().filter(|line| line.state == State::Pending) {
        *waits.entry(line.reason.as_deref().unwrap_or("no reason given")).or_default() += 1;
    }
    if !waits.is_empty() {
        let waits: Vec<String> = waits.iter().map(|(reason, count)| format!("{count} for {reason}")).collect();
        text += &wrapped(&format!("pending: {}", waits.join(", ")), columns(), "  ");
        text += "\n";
    }
    let needs_a_look = |line: &&Line| all || !matches!(line.state, State::Ok | State::Pending | State::Waiting);
    let lines: Vec<&Line> = standing.elements.iter().filter(needs_a_look).collect();
    if lines.is_empty() {
        return text;
    }
    let mut table = Table::new(["element", "state", "host", "job", "exit", "attempts"]).left(1).left(2).left(3);
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for line in lines {
        let given = |text: &Option<String>| text.clone().unwrap_or_else(dash);
        table.add_row([
            line.name.clone(),
            line.state.word().to_owned(),
            given(&line.host),
            given(&line.job),
            line.exit.map_or_else(dash, |code| code.to_string()),
            line.attempts.to_string(),
        ]);
        let mut why = line.reason.clone();
        if line.state == State::Failed && !line.missing.is_empty() {
            let host = line.host.as_deref().unwrap_or("its host");
            why = Some(format!("{}; {host} lacks {}", why.unwrap_or_default(), line.missing.join(", ")));
        }
        let Some(why) = why else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&line.name),
            None => reasons.push((why, vec![&line.name])),
        }
    }
    text += &table.text(columns());
    text += "\n";
    for (reason, names) in reasons {
        let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        text += &wrapped(&format!("{}{more}: {reason}", names[0]), columns(), "  ");
        text += "\n";
    }
    text
}

/// Time between two questions to Slurm.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Runs `vpmu fleet wait`: until no element runs or waits for a node.
pub(super) fn wait(args: &WaitArgs) -> Result<Exit, Error> {
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    let began = Instant::now();
    let mut last = String::new();
    loop {
        let (_, _, standing) = standing(&args.dir, Folder::open)?;
        let line = shown(&standing, false).lines().next().unwrap_or_default().to_owned();
        if line != last {
            complain(&line);
            last = line;
        }
        let active = standing.count(State::Running) + standing.count(State::Pending);
        // A controller that does not answer may still have jobs.
        if active == 0 && standing.unanswered.is_none() {
            return Ok(standing.exit());
        }
        let over = args.timeout.is_some_and(|limit| began.elapsed() >= limit);
        if over || sys::interrupted().load(Ordering::Relaxed) {
            let why = format!("{} run or wait for a node", plural(active, "element"));
            return Err(Error::new(Exit::Inconclusive, "the campaign goes on", why, "wait again"));
        }
        let until = Instant::now() + ASK_EVERY.min(args.timeout.unwrap_or(ASK_EVERY));
        while Instant::now() < until && !sys::interrupted().load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Runs `vpmu fleet cancel`.
pub(super) fn cancel(args: &DirArgs) -> Result<Exit, Error> {
    let dir = &args.dir;
    let (folder, _) = Folder::own(dir)?;
    let jobs = on_slurm::submissions(&folder)?;
    if jobs.is_empty() {
        let why = "it was not submitted to Slurm";
        return Err(Error::usage(
            format!("nothing to cancel in {}", dir.display()),
            why,
            "interrupt a local run with Ctrl-C",
        ));
    }
    Slurm::default().cancel(&jobs)?;
    print(&format!("cancelled; `vpmu fleet status {}` shows what has an outcome\n", dir.display())).map(|()| Exit::Done)
}
