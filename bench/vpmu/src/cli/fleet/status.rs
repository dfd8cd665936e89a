//! `vpmu fleet status`.

use std::path::Path;
use std::time::{Duration, Instant};

use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::jobs;
use fleet::campaign::standing::{Line, Standing, State};
use fleet::slurm::command::Slurm;
use results::error::{Error, Exit};
use results::table::layout::plural;

use crate::sys;
use crate::terminal::console::{self, complain};

/// Time between two questions to Slurm.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Reads a campaign with Slurm's answer. `open` is [`Folder::own`] for commands that act on the folder.
pub(super) fn standing(
    dir: &Path,
    open: impl Fn(&Path) -> Result<(Folder, Campaign), Error>,
) -> Result<(Folder, Campaign, Standing), Error> {
    let (folder, campaign) = open(dir)?;
    let states = Slurm::default().states(&jobs::submitted(&folder)?);
    if let Some(why) = &states.unanswered {
        complain(&format!("warning: Slurm does not answer ({why}): elements without an outcome are shown as lost"));
    }
    let standing = Standing::of(&folder, &campaign, &states)?;
    Ok((folder, campaign, standing))
}

/// Runs `vpmu fleet status`.
pub(super) fn status(dir: &Path, wait: bool, json: bool) -> Result<Exit, Error> {
    let standing = if wait { waited(dir)? } else { standing(dir, Folder::open)?.2 };
    console::show(json, &fleet::progress(&standing), &standing)?;
    // Its report says why.
    let never = wait && standing.elements.iter().any(|line| line.never.is_some());
    Ok(if never { Exit::Host } else { standing.exit() })
}

/// Waits until no element runs or waits for a node, but those that never start.
fn waited(dir: &Path) -> Result<Standing, Error> {
    console::catch_interrupts()?;
    let mut last = String::new();
    loop {
        let now = standing(dir, Folder::open)?.2;
        let line = now.summary();
        if line != last {
            complain(&line);
            last = line;
        }
        let is_active = |line: &&Line| matches!(line.state, State::Running | State::Pending) && line.never.is_none();
        let active = now.elements.iter().filter(is_active).count();
        // A controller that does not answer may still have jobs.
        if active == 0 && now.unanswered.is_none() {
            return Ok(now);
        }
        if sys::stopped() {
            let why = format!("{} run or wait for a node", plural(active, "element"));
            return Err(Error::new(Exit::Inconclusive, "the campaign goes on", why, "wait again"));
        }
        let until = Instant::now() + ASK_EVERY;
        while Instant::now() < until && !sys::stopped() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
