//! A campaign's elements as Slurm's array jobs: the elements of an array, its call of `sbatch`, and the list of all jobs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use results::error::Error;
use results::write::replace;

use super::element::Element;
use super::folder::{Campaign, Folder, cannot, make};
use super::plan::{SlurmOptions, Target};
use crate::slurm::command::{Failure, Slurm};
use crate::slurm::query::Submitted;

/// A line for each job that was submitted.
const SUBMISSIONS: &str = "submissions.jsonl";
/// Time that a job has beyond its element's limit, seconds: copying the binary, the doctor.
const MARGIN_S: u64 = 120;
/// Time between SIGTERM and the end, at the time limit, seconds: saving.
const WARNING_S: u64 = 60;

/// Returns the jobs that were submitted, in order.
///
/// # Errors
/// Exit 2 if the file is damaged.
pub fn submitted(folder: &Folder) -> Result<Vec<Submitted>, Error> {
    let path = folder.path.join(SUBMISSIONS);
    let refuse = |why: String| {
        Error::usage(format!("cannot use {}", path.display()), why, "remove the line; `squeue` still has its job")
    };
    let text = match folder.text(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| refuse(error.to_string()))?,
    };
    let line = |(at, line)| serde_json::from_str(line).map_err(|error| refuse(format!("line {}: {error}", at + 1)));
    text.lines().enumerate().map(line).collect()
}

/// Submits these elements, one to a task; gives back the jobs. Each job is noted before the next is submitted. `options` are those of
/// the plan.
///
/// # Errors
/// Exit 2 for what `sbatch` refuses, with its words, and if a job cannot be noted; exit 4 if there is no `sbatch` or no controller. The
/// jobs that were accepted until then run.
pub fn submit(
    slurm: &Slurm,
    (folder, campaign, options): (&Folder, &Campaign, &SlurmOptions),
    due: &[&Element],
    now: u64,
) -> Result<Vec<Submitted>, Error> {
    let most = slurm.max_array_size()?;
    let logs = folder.path.join("slurm");
    make(&logs).map_err(|error| cannot(&logs, &error))?;
    let mut all = submitted(folder)?;
    let before = all.len();
    for (array, elements) in arrays(campaign, due, now) {
        let mut earlier = None;
        for elements in elements.chunks(most) {
            // With a bound on elements at once, an array begins after the one before it.
            let words = array.words((folder, campaign, options), elements.len(), earlier)?;
            let job = sbatch(slurm, &campaign.name, &words, &script((folder, campaign), elements)?)?;
            earlier = Some(job).filter(|_| options.at_once.is_some());
            all.push(Submitted { job, elements: elements.to_vec() });
            note(folder, &all)?;
        }
    }
    Ok(all.split_off(before))
}

/// An array's elements share the experiment, the host and the limit of its first, and begin together.
struct Array<'a> {
    first: &'a Element,
    /// Time that is left until its repetition, seconds.
    begins_s: u64,
}

/// Puts elements with the same experiment, host, begin and limit together, experiment by experiment.
fn arrays<'a>(campaign: &Campaign, due: &[&'a Element], now: u64) -> Vec<(Array<'a>, Vec<u64>)> {
    let mut experiments: BTreeMap<&str, u64> = BTreeMap::new();
    for element in &campaign.elements {
        experiments.entry(&element.experiment).or_insert(element.number);
    }
    let mut arrays: BTreeMap<_, (Array<'a>, Vec<u64>)> = BTreeMap::new();
    for &first in due {
        let experiment = experiments.get(first.experiment.as_str());
        let begins_s = campaign.submitted_unix.saturating_add(first.begins_s).saturating_sub(now);
        let key = (experiment, begins_s, &first.target, first.limit_s);
        let (_, elements) = arrays.entry(key).or_insert_with(|| (Array { first, begins_s }, Vec::new()));
        elements.push(first.number);
    }
    arrays.into_values().collect()
}

impl Array<'_> {
    /// Lists the options of `sbatch` for so many tasks.
    fn words(
        &self,
        (folder, campaign, options): (&Folder, &Campaign, &SlurmOptions),
        tasks: usize,
        after: Option<u64>,
    ) -> Result<Vec<String>, Error> {
        let path = plain(&folder.path)?;
        let at_once = options.at_once.map_or_else(String::new, |most| format!("%{most}"));
        let mut words = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", campaign.name),
            format!("--array=0-{}{at_once}", tasks - 1),
            format!("--time={}", (self.first.limit_s + MARGIN_S + WARNING_S).div_ceil(60)),
            format!("--signal=B:TERM@{WARNING_S}"),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            format!("--chdir={path}"),
            // In a file name `%` begins a replacement.
            format!("--output={}/slurm/%A_%a.out", path.replace('%', "%%")),
            // A requeued task must not truncate what its first run printed.
            "--open-mode=append".to_owned(),
            "--requeue".to_owned(),
        ];
        if options.exclusive.unwrap_or(true) {
            words.push("--exclusive".to_owned());
        }
        let given = [
            ("partition", &options.partition),
            ("account", &options.account),
            ("qos", &options.qos),
            ("reservation", &options.reservation),
        ];
        words.extend(given.iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))));
        match &self.first.target {
            Target::Host(name) => words.push(format!("--nodelist={name}")),
            Target::Constraint(constraint) => words.push(format!("--constraint={constraint}")),
            Target::Any => {}
        }
        if self.begins_s > 0 {
            words.push(format!("--begin=now+{}", self.begins_s));
        }
        words.extend(options.options.iter().cloned());
        words.extend(after.map(|job| format!("--dependency=afterany:{job}")));
        Ok(words)
    }
}

/// Writes the batch script of an array with these elements. The runner takes the shell's place, so that signals are its own. The
/// submitter's TMPDIR may not exist on the node.
fn script((folder, campaign): (&Folder, &Campaign), elements: &[u64]) -> Result<String, Error> {
    let quoted = |path: &Path| Ok(format!("'{}'", plain(path)?.replace('\'', r"'\''")));
    let (runner, dir) = (quoted(&folder.binary(&campaign.runner))?, quoted(&folder.path)?);
    let mut list = String::new();
    for element in elements {
        let _ = write!(list, " {element}");
    }
    Ok(format!(
        r#"#!/bin/sh
# A task of a campaign of `vpmu fleet`: runs the element at its position in this list.
set --{list}
shift "$SLURM_ARRAY_TASK_ID"
for TMPDIR in "$SLURM_TMPDIR" "$TMPDIR" /tmp; do
	if [ -d "$TMPDIR" ] && [ -w "$TMPDIR" ]; then break; fi
done
export TMPDIR
exec {runner} fleet element {dir} "$1"
"#
    ))
}

/// Returns a path as text that `sbatch` and the script take literally.
fn plain(path: &Path) -> Result<&str, Error> {
    path.to_str().filter(|text| !text.contains(|c: char| c.is_control() || c == '\\')).ok_or_else(|| {
        let why = "sbatch takes UTF-8 without control characters and backslashes";
        Error::usage(format!("cannot submit from {}", path.display()), why, "rename it")
    })
}

/// Submits a job.
fn sbatch(slurm: &Slurm, name: &str, words: &[String], script: &str) -> Result<u64, Error> {
    let what = format!("cannot submit {name} with sbatch");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let printed = slurm.ask("sbatch", &words, script).map_err(|failure| match failure {
        // The controller may have the job although its answer was lost.
        Failure::Controller(why) if why.contains("imed out") || why.contains("no answer") => {
            Error::host(&what, why, format!("check with `squeue --name={name}` for a job before you repeat"))
        }
        failure => failure
            .error(&what, "correct the plan's options for Slurm, which are all that sbatch gets; see sinfo, sacctmgr"),
    })?;
    // `18` or `18;cluster`, in the last line: sites print notices before it.
    let last = printed.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let job = last.split(';').next().and_then(|job| job.parse().ok()).filter(|job| *job > 0);
    job.ok_or_else(|| Error::host(&what, format!("it printed {printed:?}, no job id"), "is it Slurm's sbatch?"))
}

/// Writes the campaign's list of jobs, the last of which is new.
fn note(folder: &Folder, jobs: &[Submitted]) -> Result<(), Error> {
    let lines = jobs.iter().map(|job| Ok(serde_json::to_string(job)? + "\n")).collect::<io::Result<String>>();
    let path = folder.path.join(SUBMISSIONS);
    lines.and_then(|lines| replace(&path, lines.as_bytes())).map_err(|error| {
        let job = jobs.last().map_or(0, |job| job.job);
        let remedy = format!("job {job} was submitted: `scancel {job}` before you repeat");
        Error::output(format!("cannot write {}", path.display()), &error, remedy)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::campaign::folder::tests::submitted as campaign;
    use crate::campaign::plan::Plan;
    use crate::slurm::command::tests::fakes;

    /// Prints the ids 41, 42, …, keeps options and scripts; refuses the one after 46.
    const SBATCH: &str = r#"cd "$(dirname "$0")" || exit 9
    n=$(($(cat n 2>/dev/null || echo 40) + 1)); echo $n > n
    printf '%s\n' "$@" > words.$n; cat > script.$n
    if [ $n = 47 ]; then echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; fi
    echo a notice; echo "$n;cluster""#;
    const CONFIG: &str = "echo 'MaxArraySize            = 4'";

    /// Four arrays of up to seven elements, three of which are split.
    const PLAN: &str = "name = 'x'\nhosts = [{ constraint = 'clx&ib', count = 5 }, { names = 'n7' }]\n\
        repeat = { times = 2, every = '1h' }\n[[experiment]]\nrun = 'sim'\n\
        [[experiment]]\nname = 'later'\nrun = 'sim'\n\
        [slurm]\nat-once = 2\npartition = 'fleet'\naccount = 'perf'\nqos = 'low'\nreservation = 'night'\noptions = ['--mail-type=FAIL']";

    fn all(slurm: &Slurm, dir: &Path, plan: &str) -> (Folder, Campaign, Result<Vec<Submitted>, Error>) {
        let (folder, campaign) = campaign(dir, plan);
        let plan = Plan::parse(plan, "/".into(), slurm).unwrap();
        let due: Vec<&Element> = campaign.elements.iter().collect();
        let jobs = submit(slurm, (&folder, &campaign, &plan.slurm), &due, 7);
        (folder, campaign, jobs)
    }

    #[test]
    fn elements_become_arrays_each_noted_before_the_next() {
        let (fake, slurm) = fakes(&[("sbatch", SBATCH), ("scontrol", CONFIG)]);
        let dir = fake.path().join("50% of it");
        let (folder, _, end) = all(&slurm, &dir, PLAN);
        let error = end.unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("QOSMaxSubmitJobPerUserLimit"), "{error}");
        let jobs = submitted(&folder).unwrap();
        let sizes: Vec<usize> = jobs.iter().map(|job| job.elements.len()).collect();
        assert_eq!((sizes, jobs[1].job, &jobs[1].elements[..]), (vec![1, 4, 1, 1, 4, 1], 42, &[0, 1, 2, 3][..]));
        let words = |job: u64| std::fs::read_to_string(fake.path().join(format!("words.{job}"))).unwrap();
        let path = folder.path.display().to_string();
        let expected = format!(
            "--parsable --job-name=x --array=0-3%2 --time=33 --signal=B:TERM@60 --nodes=1 --ntasks=1 --chdir={path} \
             --output={}/slurm/%A_%a.out --open-mode=append --requeue --exclusive --partition=fleet --account=perf --qos=low \
             --reservation=night --constraint=clx&ib --mail-type=FAIL ",
            path.replace('%', "%%")
        );
        assert_eq!(words(42).replace('\n', " "), expected);
        assert!(words(41).contains("--nodelist=n7\n") && !words(41).contains("dependency"));
        assert!(words(43).ends_with("--dependency=afterany:42\n"), "{}", words(43));
        assert!(words(45).contains("--begin=now+3600\n"), "{}", words(45));
        // Without a bound arrays do not wait for each other, and a node can be shared.
        let plan = "name = 'x'\nhosts = [{ constraint = 'clx', count = 6 }]\nexperiment = [{ run = 'sim' }]\n\
                    slurm = { exclusive = false }";
        assert_eq!(all(&slurm, &fake.path().join("run"), plan).2.unwrap().len(), 2);
        assert!(!words(49).contains("dependency") && !words(49).contains("exclusive"), "{}", words(49));
    }

    #[test]
    fn without_sbatch_or_a_controller_it_is_exit_4() {
        let plan = "name = 'x'\nexperiment = [{ run = 'sim' }]";
        let down =
            "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1";
        for (sbatch, said) in [
            (None, "no sbatch in PATH; install Slurm's client"),
            (Some(down), "squeue --name=x"),
            (Some("echo 0"), "no job id"),
        ] {
            let scripts: Vec<_> =
                sbatch.map(|text| ("sbatch", text)).into_iter().chain([("scontrol", CONFIG)]).collect();
            let (fake, slurm) = fakes(&scripts);
            let error = all(&slurm, &fake.path().join("run"), plan).2.unwrap_err();
            assert!(error.exit.code() == 4 && error.to_string().contains(said), "{error}");
        }
    }

    /// In a folder with a name that a careless script breaks on, a program in place of vpmu.
    #[test]
    fn a_task_runs_the_element_at_its_position() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, campaign) =
            campaign(&dir.path().join("it's a \"$(name)\" %A `id`; x"), "name = 'x'\nexperiment = [{ run = 'sim' }]");
        let runner = folder.binary(&campaign.runner);
        std::fs::write(&runner, "#!/bin/sh\nprintf '%s|' \"$@\" \"$TMPDIR\"; exit 5\n").unwrap();
        std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("script");
        let elements = [8, 9, 10, 2, 5, 6, 30];
        std::fs::write(&file, script((&folder, &campaign), &elements).unwrap()).unwrap();
        let temporary = PathBuf::from("/tmp");
        for (task, (own, site, expected)) in [
            ("/nonexistent", "", &temporary),
            ("/nonexistent", "/nonexistent", &temporary),
            (dir.path().to_str().unwrap(), "", &dir.path().to_owned()),
            ("/nonexistent", dir.path().to_str().unwrap(), &dir.path().to_owned()),
        ]
        .into_iter()
        .enumerate()
        {
            let mut command = Command::new("/bin/sh");
            command.arg(&file).env("SLURM_ARRAY_TASK_ID", task.to_string()).env("TMPDIR", own);
            let output = command.env("SLURM_TMPDIR", site).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let line = format!("fleet|element|{}|{}|{}|", folder.path.display(), elements[task], expected.display());
            assert_eq!((said, output.status.code()), (line, Some(5)));
        }
        let mut beyond = Command::new("/bin/sh");
        let output = beyond.arg(&file).env("SLURM_ARRAY_TASK_ID", "8").output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}
