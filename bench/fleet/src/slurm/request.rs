//! A request to Slurm, and its calls of `sbatch`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use results::error::Error;
use serde::{Deserialize, Serialize};

use crate::slurm::script::{self, plain};

/// Options for Slurm beside hosts and time; passed through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SlurmOptions {
    /// `--partition`.
    pub partition: Option<String>,
    /// `--account`.
    pub account: Option<String>,
    /// `--qos`.
    pub qos: Option<String>,
    /// `--reservation`.
    pub reservation: Option<String>,
    /// Most elements that run at the same time: `%K` of `--array`.
    pub at_once: Option<u32>,
    /// An element has its node for itself; absent: it has.
    pub exclusive: Option<bool>,
    /// The binary is copied to a folder of the node before it runs; absent: it is.
    pub broadcast: Option<bool>,
    /// Further options of sbatch.
    #[serde(default)]
    pub options: Vec<String>,
}

/// Elements to run as array jobs, one element per task.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the jobs.
    pub name: String,
    /// Numbers of the elements. Task i of an array runs the element at position i of the array's list.
    pub elements: Vec<u64>,
    /// Longest that an element may run.
    pub time_limit: Duration,
    /// Time between SIGTERM and the end, at the time limit.
    pub warning: Duration,
    /// Features that a node must have, as `--constraint` takes them.
    pub constraint: Option<String>,
    /// The node to run on; any node if `None`.
    pub node: Option<String>,
    /// Earliest begin, as `--begin` takes it.
    pub begin: Option<String>,
    /// Job ids; the elements begin after these jobs, however they ended.
    pub after: Vec<u64>,
    /// The plan's options.
    pub slurm: SlurmOptions,
    /// Folder on the shared file system: working directory of the jobs, whose output goes to `slurm/` in it.
    pub folder: PathBuf,
    /// The vpmu that a task runs.
    pub runner: PathBuf,
    /// Further files to copy to the node beside it, unless the plan says not to.
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
            time_limit: Duration::from_secs(3600),
            warning: Duration::from_secs(60),
            constraint: None,
            node: None,
            begin: None,
            after: Vec::new(),
            slurm: SlurmOptions::default(),
            folder: folder.to_owned(),
            runner: runner.to_owned(),
            files: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

/// One call of `sbatch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Element of each task.
    pub(crate) elements: Vec<u64>,
    /// Arguments of `sbatch`.
    pub(crate) arguments: Vec<OsString>,
    /// The batch script.
    pub(crate) script: String,
}

/// Options that [`Request`] has fields for, or that would change what a task runs.
const OURS: [&str; 22] = [
    "--array",
    "--parsable",
    "--output",
    "--error",
    "--open-mode",
    "--chdir",
    "--job-name",
    "--time",
    "--signal",
    "--partition",
    "--account",
    "--qos",
    "--reservation",
    "--constraint",
    "--nodelist",
    "--begin",
    "--exclusive",
    "--wrap",
    "--wait",
    "--dependency",
    "--nodes",
    "--ntasks",
];

/// Plans the calls of `sbatch` for `request`: more than one if it has more elements than an array may have tasks.
///
/// # Errors
/// Exit 2 for a request that cannot be passed to `sbatch`.
pub(crate) fn parts(request: &Request, max_array_size: u32) -> Result<Vec<Part>, Error> {
    check(request)?;
    let copied = request.slurm.broadcast.unwrap_or(true).then_some(request.files.as_slice());
    let most = usize::try_from(max_array_size.max(1)).unwrap_or(usize::MAX);
    request
        .elements
        .chunks(most)
        .map(|elements| {
            Ok(Part {
                elements: elements.to_vec(),
                arguments: arguments(request, elements.len())?,
                script: script::text(&request.runner, &request.arguments, copied, elements)?,
            })
        })
        .collect()
}

fn check(request: &Request) -> Result<(), Error> {
    if request.elements.is_empty() {
        return Err(wrong("nothing to submit", "the request has no elements", ""));
    }
    if request.slurm.at_once == Some(0) {
        return Err(wrong("no element could run", "at most 0 at once", "ask for at least 1"));
    }
    for option in &request.slurm.options {
        let name = option.split('=').next().unwrap_or(option);
        if !name.starts_with("--") || name.len() < 3 {
            return Err(wrong(format!("sbatch option {option:?}"), "not of the form --option=value", "write it so"));
        }
        // sbatch takes any unambiguous beginning of an option's name.
        if OURS.iter().any(|ours| *ours == name || ours.starts_with(name)) {
            return Err(wrong(format!("sbatch option {name}"), "vpmu fleet sets it", "use the plan's own key"));
        }
    }
    Ok(())
}

fn arguments(request: &Request, tasks: usize) -> Result<Vec<OsString>, Error> {
    let folder = plain(&request.folder)?;
    // In a file name `%` begins a replacement and a backslash ends all of them.
    if folder.contains('\\') {
        return Err(wrong(
            format!("path {folder:?}"),
            "sbatch takes no backslash in the name of an output file",
            "rename it",
        ));
    }
    let at_once = request.slurm.at_once.map_or_else(String::new, |most| format!("%{most}"));
    let whole = request.time_limit + request.warning;
    let minutes = whole.as_secs().div_ceil(60).max(1);
    let mut words = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", request.name),
        format!("--array=0-{}{at_once}", tasks.saturating_sub(1)),
        format!("--time={minutes}"),
        format!("--signal=B:TERM@{}", request.warning.as_secs()),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        format!("--chdir={folder}"),
        format!("--output={}/slurm/%A_%a.out", folder.replace('%', "%%")),
        // A requeued task must not truncate what its first run printed.
        "--open-mode=append".to_owned(),
        "--requeue".to_owned(),
    ];
    if request.slurm.exclusive.unwrap_or(true) {
        words.push("--exclusive".to_owned());
    }
    let given = [
        ("partition", &request.slurm.partition),
        ("account", &request.slurm.account),
        ("qos", &request.slurm.qos),
        ("reservation", &request.slurm.reservation),
        ("constraint", &request.constraint),
        ("nodelist", &request.node),
        ("begin", &request.begin),
    ];
    for (option, value) in given {
        let Some(value) = value else { continue };
        if value.chars().any(char::is_control) {
            return Err(wrong(format!("{option} {value:?}"), "a control character", ""));
        }
        words.push(format!("--{option}={value}"));
    }
    words.push(format!("--comment=vpmu fleet {}", request.name));
    words.extend(request.slurm.options.iter().cloned());
    if !request.after.is_empty() {
        let jobs: Vec<String> = request.after.iter().map(u64::to_string).collect();
        words.push(format!("--dependency=afterany:{}", jobs.join(":")));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Builds an error of usage.
fn wrong(what: impl Into<String>, why: impl Into<String>, remedy: &str) -> Error {
    Error::usage(what, why, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(elements: Vec<u64>) -> Request {
        Request::new("campaign-1", Path::new("/shared/a b/50%"), Path::new("/shared/a b/50%/bin/vpmu"), elements)
    }

    fn words(request: &Request) -> Vec<String> {
        let parts = parts(request, 1001).unwrap();
        parts[0].arguments.iter().map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_wish_is_an_option_of_sbatch() {
        let slurm = SlurmOptions {
            at_once: Some(4),
            partition: Some("fleet".into()),
            account: Some("perf".into()),
            qos: Some("low".into()),
            reservation: Some("night".into()),
            options: vec!["--mail-type=FAIL".into()],
            ..SlurmOptions::default()
        };
        let wishes = Request {
            time_limit: Duration::from_secs(301),
            constraint: Some("clx&ib".into()),
            node: Some("clx7".into()),
            begin: Some("now+1hour".into()),
            after: vec![3, 4],
            slurm,
            ..request(vec![5, 9])
        };
        assert_eq!(
            words(&wishes),
            [
                "--parsable",
                "--job-name=campaign-1",
                "--array=0-1%4",
                "--time=7",
                "--signal=B:TERM@60",
                "--nodes=1",
                "--ntasks=1",
                "--chdir=/shared/a b/50%",
                "--output=/shared/a b/50%%/slurm/%A_%a.out",
                "--open-mode=append",
                "--requeue",
                "--exclusive",
                "--partition=fleet",
                "--account=perf",
                "--qos=low",
                "--reservation=night",
                "--constraint=clx&ib",
                "--nodelist=clx7",
                "--begin=now+1hour",
                "--comment=vpmu fleet campaign-1",
                "--mail-type=FAIL",
                "--dependency=afterany:3:4",
            ]
        );
    }

    #[test]
    fn a_shared_node_can_be_asked_for() {
        let slurm = SlurmOptions { exclusive: Some(false), ..SlurmOptions::default() };
        assert!(!words(&Request { slurm, ..request(vec![0]) }).contains(&"--exclusive".to_owned()));
    }

    #[test]
    fn a_campaign_larger_than_an_array_is_split() {
        let parts = parts(&request((100..2600).collect()), 1001).unwrap();
        let sizes: Vec<usize> = parts.iter().map(|part| part.elements.len()).collect();
        assert_eq!(sizes, [1001, 1001, 498]);
        assert_eq!(parts[2].elements.first(), Some(&2102));
        assert!(parts[2].arguments.contains(&OsString::from("--array=0-497")));
    }

    #[test]
    fn what_sbatch_could_misread_is_refused() {
        let refused = |request: Request| parts(&request, 1001).unwrap_err().to_string();
        assert!(refused(request(vec![])).contains("no elements"));
        let of = |slurm| refused(Request { slurm, ..request(vec![0]) });
        let option = |option: &str| of(SlurmOptions { options: vec![option.into()], ..SlurmOptions::default() });
        for own in ["--array=0-9", "--arr=0-9", "--wrap=reboot", "--time=1"] {
            assert!(option(own).contains("vpmu fleet sets it"));
        }
        for wrong in ["-a", "x", "--"] {
            assert!(option(wrong).contains("not of the form"));
        }
        assert!(of(SlurmOptions { at_once: Some(0), ..SlurmOptions::default() }).contains("at most 0"));
        assert!(refused(Request { folder: "a".into(), ..request(vec![0]) }).contains("not absolute"));
        assert!(refused(Request { folder: "/a\nb".into(), ..request(vec![0]) }).contains("control character"));
        assert!(refused(Request { folder: "/a\\b".into(), ..request(vec![0]) }).contains("backslash"));
        assert!(refused(Request { node: Some("a\nb".into()), ..request(vec![0]) }).contains("control character"));
    }
}
