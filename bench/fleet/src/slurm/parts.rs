//! A request as calls of `sbatch`.

use std::ffi::OsString;

use results::error::Error;

use crate::slurm::request::{Request, plain, wrong};
use crate::slurm::script;

/// One call of `sbatch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Element of each task.
    pub elements: Vec<u64>,
    /// Arguments of `sbatch`.
    pub arguments: Vec<OsString>,
    /// The batch script.
    pub script: String,
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
pub fn parts(request: &Request, max_array_size: u32) -> Result<Vec<Part>, Error> {
    check(request)?;
    let most = usize::try_from(max_array_size.max(1)).unwrap_or(usize::MAX);
    request
        .elements
        .chunks(most)
        .map(|elements| {
            Ok(Part {
                elements: elements.to_vec(),
                arguments: arguments(request, elements.len())?,
                script: script::text(request, elements)?,
            })
        })
        .collect()
}

fn check(request: &Request) -> Result<(), Error> {
    if request.elements.is_empty() {
        return Err(wrong("nothing to submit", "the request has no elements", ""));
    }
    // JobName comes early in `scontrol show job -o`, whose fields are separated by blanks.
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if request.name.is_empty() || !request.name.chars().all(fine) {
        return Err(wrong(format!("job name {:?}", request.name), "only letters, digits, '-', '_' and '.'", ""));
    }
    if request.at_once == Some(0) {
        return Err(wrong("no element could run", "at most 0 at once", "ask for at least 1"));
    }
    for option in &request.options {
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
    let at_once = request.at_once.map_or_else(String::new, |most| format!("%{most}"));
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
        if request.requeue { "--requeue" } else { "--no-requeue" }.to_owned(),
    ];
    if request.exclusive {
        words.push("--exclusive".to_owned());
    }
    let given = [
        ("partition", &request.partition),
        ("account", &request.account),
        ("qos", &request.qos),
        ("reservation", &request.reservation),
        ("constraint", &request.constraint),
        ("nodelist", &request.node),
        ("begin", &request.begin),
        ("comment", &request.comment),
    ];
    for (option, value) in given {
        let Some(value) = value else { continue };
        if value.chars().any(char::is_control) {
            return Err(wrong(format!("{option} {value:?}"), "a control character", ""));
        }
        words.push(format!("--{option}={value}"));
    }
    words.extend(request.options.iter().cloned());
    if !request.after.is_empty() {
        let jobs: Vec<String> = request.after.iter().map(u64::to_string).collect();
        words.push(format!("--dependency=afterany:{}", jobs.join(":")));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

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
        let wishes = Request {
            at_once: Some(4),
            time_limit: Duration::from_secs(301),
            partition: Some("fleet".into()),
            account: Some("perf".into()),
            qos: Some("low".into()),
            reservation: Some("night".into()),
            constraint: Some("clx&ib".into()),
            node: Some("clx7".into()),
            begin: Some("now+1hour".into()),
            comment: Some("a comment".into()),
            options: vec!["--mail-type=FAIL".into()],
            after: vec![3, 4],
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
                "--comment=a comment",
                "--mail-type=FAIL",
                "--dependency=afterany:3:4",
            ]
        );
    }

    #[test]
    fn a_shared_node_and_no_requeue_can_be_asked_for() {
        let words = words(&Request { exclusive: false, requeue: false, ..request(vec![0]) });
        assert!(words.contains(&"--no-requeue".to_owned()) && !words.contains(&"--exclusive".to_owned()));
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
        for option in ["--array=0-9", "--arr=0-9", "--wrap=reboot", "--time=1"] {
            assert!(
                refused(Request { options: vec![option.into()], ..request(vec![0]) }).contains("vpmu fleet sets it")
            );
        }
        for option in ["-a", "x", "--"] {
            assert!(refused(Request { options: vec![option.into()], ..request(vec![0]) }).contains("not of the form"));
        }
        assert!(refused(Request { name: "a b".into(), ..request(vec![0]) }).contains("job name"));
        assert!(refused(Request { at_once: Some(0), ..request(vec![0]) }).contains("at most 0"));
        assert!(refused(Request { folder: "a".into(), ..request(vec![0]) }).contains("not absolute"));
        assert!(refused(Request { folder: "/a\nb".into(), ..request(vec![0]) }).contains("control character"));
        assert!(refused(Request { folder: "/a\\b".into(), ..request(vec![0]) }).contains("backslash"));
        assert!(refused(Request { comment: Some("a\nb".into()), ..request(vec![0]) }).contains("control character"));
    }
}
