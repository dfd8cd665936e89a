//! Request of a caller to Slurm.

use std::path::{Path, PathBuf};
use std::time::Duration;

use results::error::Error;

/// Elements to run as array jobs, one element per task.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the jobs.
    pub name: String,
    /// Numbers of the elements. Task i of an array runs the element at position i of the array's list.
    pub elements: Vec<u64>,
    /// Most elements that run at a time.
    pub at_once: Option<u32>,
    /// Longest that an element may run.
    pub time_limit: Duration,
    /// Time between SIGTERM and the end, at the time limit.
    pub warning: Duration,
    /// Partition.
    pub partition: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// QOS.
    pub qos: Option<String>,
    /// Reservation.
    pub reservation: Option<String>,
    /// Features that a node must have, as `--constraint` takes them.
    pub constraint: Option<String>,
    /// The node to run on; any node if `None`.
    pub node: Option<String>,
    /// Earliest begin, as `--begin` takes it.
    pub begin: Option<String>,
    /// An element has its node for itself.
    pub exclusive: bool,
    /// Slurm requeues an element after preemption and after a failure of its node.
    pub requeue: bool,
    /// Job ids; the elements begin after these jobs, however they ended.
    pub after: Vec<u64>,
    /// Comment of the jobs.
    pub comment: Option<String>,
    /// Further options of `sbatch`, each of the form `--option` or `--option=value`.
    pub options: Vec<String>,
    /// Folder on the shared file system: working directory of the jobs, whose output goes to `slurm/` in it.
    pub folder: PathBuf,
    /// The vpmu that a task runs.
    pub runner: PathBuf,
    /// A task copies the runner and `files` to a folder of its node, which the environment variable
    /// [`COPIES`](crate::slurm::script::COPIES) names.
    pub broadcast: bool,
    /// Further files to copy.
    pub files: Vec<PathBuf>,
    /// Arguments of the runner; the element's number follows.
    pub arguments: Vec<String>,
}

impl Request {
    /// Builds a request for `elements` in `folder`, with Slurm's defaults.
    pub fn new(name: &str, folder: &Path, runner: &Path, elements: Vec<u64>) -> Self {
        Self {
            name: name.to_owned(),
            elements,
            at_once: None,
            time_limit: Duration::from_secs(3600),
            warning: Duration::from_secs(60),
            partition: None,
            account: None,
            qos: None,
            reservation: None,
            constraint: None,
            node: None,
            begin: None,
            exclusive: true,
            requeue: true,
            after: Vec::new(),
            comment: None,
            options: Vec::new(),
            folder: folder.to_owned(),
            runner: runner.to_owned(),
            broadcast: true,
            files: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

/// Returns a path as text, absolute and without control characters: `sbatch` and the script take it literally.
///
/// # Errors
/// Exit 2 for other paths.
pub(crate) fn plain(path: &Path) -> Result<&str, Error> {
    let what = || format!("path {}", path.display());
    let text = path.to_str().ok_or_else(|| wrong(what(), "not UTF-8", "rename it"))?;
    if text.chars().any(char::is_control) {
        return Err(wrong(what(), "a control character", "rename it"));
    }
    if path.is_absolute() { Ok(text) } else { Err(wrong(what(), "not absolute", "")) }
}

/// Builds an error of usage.
pub(crate) fn wrong(what: impl Into<String>, why: impl Into<String>, remedy: &str) -> Error {
    Error::usage(what, why, remedy)
}
