//! `vpmu fleet submit`, and what an element's job runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fleet::campaign::element::Element;
use fleet::campaign::folder::Folder;
use fleet::campaign::jobs;
use fleet::campaign::plan::Target;
use fleet::campaign::standing::Standing;
use fleet::campaign::submission;
use fleet::slurm::command::Slurm;
use results::error::{Error, Exit};
use results::table::layout::plural;
use results::write::{append, now_unix};

use super::args::{On, SubmitArgs};
use super::plan::{Check, planned};
use crate::campaign::attempt::{self, Ended};
use crate::setting::process;
use crate::sys;
use crate::terminal::console::{self, complain, print};
use crate::terminal::progress;

/// Submits what is due. The campaign's folder, unless it was interrupted.
pub(super) fn submit(args: &SubmitArgs, check: Check<'_>) -> Result<Option<PathBuf>, Error> {
    let slurm = Slurm::default();
    let (plan, elements) = planned(&args.plan, check, &slurm)?;
    let dir = args.output.clone().unwrap_or_else(|| Path::new("vpmu-campaigns").join(&plan.name));
    // A missing Slurm is noticed before anything is written.
    if args.on == On::Slurm {
        slurm.max_array_size()?;
    }
    let now = now_unix();
    let vpmu = std::env::current_exe().map_err(|error| Error::internal("cannot find this program", error))?;
    let (folder, campaign) = submission::submit(&dir, &plan, elements, (process::tool(), &vpmu), now)?;
    let _lock = lock(&folder, "submission")?;
    let states = slurm.states(&jobs::submitted(&folder)?);
    if let Some(why) = &states.unanswered {
        let what = format!("cannot tell which elements of {} run", dir.display());
        return Err(Error::host(what, why, "submit again when Slurm's controller answers: nothing runs twice then"));
    }
    let standing = Standing::of(&folder, &campaign, &states)?;
    let due: BTreeSet<u64> =
        standing.elements.iter().filter(|line| line.state.is_due()).map(|line| line.number).collect();
    complain(&format!(
        "{} of {} to run{}; folder {}",
        due.len(),
        plural(campaign.elements.len(), "element"),
        if due.is_empty() { ": the others have an outcome or a job" } else { "" },
        folder.path.display()
    ));
    if due.is_empty() {
        return Ok(Some(dir));
    }
    match args.on {
        On::Local => {
            if campaign.elements.iter().any(|element| element.target != Target::Any) {
                complain("notice: --on local: every element runs on this host, whatever host the plan names");
            }
            console::catch_interrupts()?;
            let mut progress = progress::shown(!args.quiet.quiet);
            let ended = attempt::one_after_the_other(&folder, &campaign, &due, sys::interrupted(), progress.as_mut())?;
            if !ended {
                complain("warning: interrupted; run the same command again to go on");
            }
            Ok(ended.then_some(dir))
        }
        On::Slurm => {
            let due: Vec<&Element> = due.iter().filter_map(|number| campaign.element(*number)).collect();
            for job in jobs::submit(&slurm, (&folder, &campaign, &plan.slurm), &due, now)? {
                print(&format!("job {}: {}\n", job.job, plural(job.elements.len(), "element")))?;
            }
            Ok(Some(dir))
        }
    }
}

/// Takes the lock that submissions and reports of a campaign share.
pub(super) fn lock(folder: &Folder, what: &str) -> Result<std::fs::File, Error> {
    let failed =
        |error: std::io::Error| Error::usage(format!("cannot lock {}", folder.path.display()), error.to_string(), "");
    // A file of its own, open for writing: NFS refuses an exclusive lock on a folder.
    let file = append(&folder.path.join("lock")).map_err(failed)?;
    if !process::try_lock(&file).map_err(failed)? {
        return Err(Error::usage(
            format!("cannot begin a {what} in {}", folder.path.display()),
            "a submission or a report is at work there",
            "wait for it; outcomes are safe meanwhile",
        ));
    }
    Ok(file)
}

/// Runs one element, as its job does.
pub(super) fn element(dir: &Path, number: u64) -> Result<Exit, Error> {
    let (folder, campaign) = Folder::own(dir)?;
    let element = campaign.element(number).ok_or_else(|| {
        let count = plural(campaign.elements.len(), "element");
        Error::usage(format!("no element {number}"), format!("the campaign has {count}"), "")
    })?;
    console::catch_interrupts()?;
    let (how, exit) = match attempt::run(&folder, &campaign, element, true, sys::interrupted())? {
        Ended::Done(done) => (done.how(), done.exit.map(Exit::from_code)),
        Ended::Stopped(why) => (format!("stopped: {why}"), None),
    };
    complain(&format!("{}: {how}", element.name));
    Ok(exit.unwrap_or(Exit::Inconclusive))
}
