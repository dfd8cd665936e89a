//! A campaign's elements as Slurm's array jobs: which go into one array, and what became of them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::terminal::console::complain;
use results::error::Error;
use results::open::{self, below};

use fleet::campaign::element::Element;
use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::plan::Target;
use fleet::slurm::command::Slurm;
use fleet::slurm::nodes::Config;
use fleet::slurm::query::States;
use fleet::slurm::request::Request;
use fleet::slurm::request::SlurmOptions;
use fleet::slurm::submit::Submitted;

/// A line for each job that was submitted.
const SUBMISSIONS: &str = "submissions.jsonl";
/// Largest file of submissions, bytes.
const MAX_FILE: u64 = 256 << 20;
/// Time that a job has beyond its element's limit: copying the binary, the doctor, saving.
const MARGIN: Duration = Duration::from_secs(120);

/// Options of `sbatch` that the elements of one array share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    /// Place of the experiment in the plan's order.
    experiment: usize,
    begins_s: u64,
    target: Option<Target>,
    limit_s: u64,
}

/// Returns the jobs that were submitted, in order.
///
/// # Errors
/// Exit 2 if the file is damaged.
pub fn submissions(folder: &Folder) -> Result<Vec<Submitted>, Error> {
    let path = folder.path.join(SUBMISSIONS);
    let refuse = |why: String| {
        Error::usage(format!("cannot use {}", path.display()), why, "remove the line; `squeue` still has its job")
    };
    let text = match below(&folder.path, Path::new(SUBMISSIONS), MAX_FILE) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.and_then(open::text).map_err(|error| refuse(error.to_string()))?,
    };
    // A full disk or a kill may have left part of a line.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        complain(&format!(
            "warning: the last line of {} is torn: a job of it is unknown here; see squeue",
            path.display()
        ));
    }
    let line = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| refuse(format!("line {}: {error}", at + 1)))
    };
    text[..whole].lines().enumerate().filter(|(_, line)| !line.is_empty()).map(line).collect()
}

/// Asks Slurm for the states of the campaign's elements; none if nothing was submitted to it.
///
/// # Errors
/// Returns the errors of [`submissions`]. A controller that does not answer is no error, but [`States::unanswered`].
pub fn states(slurm: &Slurm, folder: &Folder) -> Result<States, Error> {
    let jobs = submissions(folder)?;
    if jobs.is_empty() {
        return Ok(States::default());
    }
    let accounting = slurm.config().is_ok_and(|config| config.accounting);
    Ok(slurm.states(&jobs, accounting))
}

/// Submits these elements; gives back the jobs.
///
/// # Errors
/// Returns the errors of `sbatch`, and exit 2 if a job cannot be noted.
pub fn submit(
    slurm: &Slurm,
    (folder, campaign, options): (&Folder, &Campaign, &SlurmOptions),
    due: &[&Element],
    now: u64,
    states: &States,
) -> Result<Vec<Submitted>, Error> {
    let Config { max_array_size, .. } = slurm.config()?;
    let mut arrays: BTreeMap<Alike, Vec<&Element>> = BTreeMap::new();
    let mut experiments: Vec<&str> = Vec::new();
    for element in &campaign.elements {
        if !experiments.contains(&element.experiment.as_str()) {
            experiments.push(&element.experiment);
        }
    }
    for element in due {
        let alike = Alike {
            experiment: experiments.iter().position(|name| **name == element.experiment).unwrap_or(0),
            // Time that is left until its repetition.
            begins_s: campaign.submitted_unix.saturating_add(element.begins_s).saturating_sub(now),
            target: (element.target != Target::Any).then(|| element.target.clone()),
            limit_s: element.limit_s,
        };
        arrays.entry(alike).or_default().push(element);
    }
    let mut jobs: Vec<Submitted> = Vec::new();
    // Jobs of elements that run or will run, of earlier submissions.
    let mut of_experiment: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for element in &campaign.elements {
        if let Some(task) = states.elements.get(&element.number).filter(|task| task.state.is_active()) {
            let jobs = of_experiment.entry(&element.experiment).or_default();
            if !jobs.contains(&task.job) {
                jobs.push(task.job);
            }
        }
    }
    for (alike, elements) in arrays {
        let request = request((folder, campaign, options), &alike, &elements, &of_experiment);
        let experiment = experiments[alike.experiment];
        slurm.submit(&request, max_array_size, &mut |job| {
            note(folder, job)?;
            of_experiment.entry(experiment).or_default().push(job.job);
            jobs.push(job.clone());
            Ok(())
        })?;
    }
    Ok(jobs)
}

fn request(
    (folder, campaign, options): (&Folder, &Campaign, &SlurmOptions),
    alike: &Alike,
    elements: &[&Element],
    before: &BTreeMap<&str, Vec<u64>>,
) -> Request {
    let numbers = elements.iter().map(|element| element.number).collect();
    let runner = folder.binary(&campaign.runner);
    let mut files: Vec<_> = campaign.binaries.values().map(|binary| folder.binary(binary)).collect();
    files.sort();
    files.dedup();
    files.retain(|file| *file != runner);
    let mut request = Request {
        time_limit: Duration::from_secs(alike.limit_s).saturating_add(MARGIN),
        begin: (alike.begins_s > 0).then(|| format!("now+{}", alike.begins_s)),
        slurm: options.clone(),
        files,
        ..Request::new(&campaign.name, &folder.path, &runner, numbers)
    };
    match &alike.target {
        Some(Target::Host(name)) => request.node = Some(name.clone()),
        Some(Target::Constraint(constraint)) => request.constraint = Some(constraint.clone()),
        Some(Target::Any) | None => {}
    }
    request.arguments = vec!["fleet".to_owned(), "element".to_owned(), folder.path.to_string_lossy().into_owned()];
    let after = elements.first().map(|element| element.after.as_slice()).unwrap_or_default();
    request.after = after.iter().filter_map(|name| before.get(name.as_str())).flatten().copied().collect();
    request
}

/// Bytes of a file's whole lines.
fn end_of_lines(path: &Path) -> std::io::Result<u64> {
    Ok(open::found_bytes(path, MAX_FILE)?.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at as u64 + 1))
}

/// Appends a job to the campaign's list, before anything else is submitted.
fn note(folder: &Folder, job: &Submitted) -> Result<(), Error> {
    let path = folder.path.join(SUBMISSIONS);
    let line =
        serde_json::to_string(job).map_err(|error| crate::terminal::console::internal("a job has no JSON", error))?;
    let append = || {
        let mut file = results::write::append(&path)?;
        let size = file.metadata()?.len();
        let mut last = [b'\n'];
        if size > 0 {
            file.read_exact_at(&mut last, size - 1)?;
        }
        if last != *b"\n" {
            file.set_len(end_of_lines(&path)?)?;
        }
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    };
    append().map_err(|error: std::io::Error| {
        let remedy = format!("job {} was submitted: `scancel {}` before you repeat", job.job, job.job);
        Error::output(format!("cannot write {}", path.display()), &error, remedy)
    })
}
