//! Submission: `sbatch` for each part of a request.

use std::collections::BTreeMap;
use std::ffi::OsString;

use results::error::Error;
use serde::{Deserialize, Serialize};

use crate::slurm::command::{Failure, Slurm, arguments, options_of_the_caller};
use crate::slurm::request::{Part, Request, parts};

/// A job that the controller accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Job id.
    pub job: u64,
    /// Cluster, where `sbatch` names one: a cluster other than the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Element of each array task, from task 0.
    pub elements: Vec<u64>,
    /// Options of `sbatch`.
    pub options: Vec<String>,
}

impl Slurm {
    /// Submits `request` in as many array jobs as it takes; calls `accepted` after each, before the next one.
    ///
    /// With a bound on elements at once, an array begins after the one before it.
    ///
    /// # Errors
    /// Exit 2 for what `sbatch` refuses, with its words; exit 4 if there is no `sbatch` or no controller; those of `accepted`. The
    /// jobs accepted until then run.
    pub fn submit(
        &self,
        request: &Request,
        max_array_size: u32,
        accepted: &mut dyn FnMut(&Submitted) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let logs = request.folder.join("slurm");
        results::open::Folder::make(&logs).map_err(|error| {
            Error::output(format!("cannot create {}", logs.display()), &error, "check the campaign's folder")
        })?;
        let mut before: Option<u64> = None;
        for mut part in parts(request, max_array_size)? {
            if let (Some(job), Some(_)) = (before, request.slurm.at_once) {
                // The last of two such options is in force, and the array before has waited for all others.
                part.arguments.push(OsString::from(format!("--dependency=afterany:{job}")));
            }
            let submitted = self.submit_part(&request.name, part)?;
            before = Some(submitted.job);
            accepted(&submitted)?;
        }
        Ok(())
    }

    fn submit_part(&self, name: &str, part: Part) -> Result<Submitted, Error> {
        let what = format!("cannot submit {} elements with sbatch", part.elements.len());
        let printed = self.ask("sbatch", &part.arguments, &part.script).map_err(|failure| match failure {
            // The controller may have the job although its answer was lost.
            Failure::Controller(why) if why.contains("imed out") || why.contains("no answer") => {
                let remedy = format!("check with `squeue --name={name}` for a job before you repeat");
                Error::host(&what, why, remedy)
            }
            failure => failure.error(&what, &remedy()),
        })?;
        let (job, cluster) = parsable(&printed)
            .ok_or_else(|| Error::host(&what, format!("it printed {printed:?}, no job id"), "is it Slurm's sbatch?"))?;
        let options = part.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(Submitted { job, cluster, elements: part.elements, options })
    }
}

/// Returns what to do about a refusal, with the options that the caller may believe to be in force.
fn remedy() -> String {
    let ignored = options_of_the_caller().map(|name| name.to_string_lossy().into_owned());
    let ignored: Vec<String> = ignored.filter(|name| name.starts_with("SBATCH_")).take(10).collect();
    let note = if ignored.is_empty() {
        String::new()
    } else {
        format!(" ({} of the environment: not passed on)", ignored.join(", "))
    };
    format!("correct the plan's options for Slurm{note}; see sinfo, sacctmgr")
}

/// Reads job id and cluster of `sbatch --parsable`: `18` or `18;other`, in the last line. Sites print notices before it.
fn parsable(text: &str) -> Option<(u64, Option<String>)> {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let (job, cluster) = line.split_once(';').map_or((line, None), |(job, cluster)| (job, Some(cluster)));
    let job = job.parse().ok().filter(|job| *job > 0)?;
    Some((job, cluster.filter(|name| !name.is_empty()).map(str::to_owned)))
}

/// Job ids in one call.
const AT_ONCE: usize = 200;

impl Slurm {
    /// Cancels the tasks of these jobs that have not ended.
    ///
    /// # Errors
    /// Exit 4 if there is no `scancel` or no controller, exit 2 if it refuses (the jobs of another user).
    pub fn cancel(&self, jobs: &[Submitted]) -> Result<(), Error> {
        let mut clusters: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
        for job in jobs {
            clusters.entry(job.cluster.as_deref()).or_default().push(job.job);
        }
        for (cluster, ids) in clusters {
            for ids in ids.chunks(AT_ONCE) {
                let clusters = cluster.map(|name| format!("--clusters={name}"));
                let words = clusters.into_iter().chain(ids.iter().map(u64::to_string));
                match self.ask("scancel", &arguments(words), "") {
                    Err(Failure::Refused(why)) if only_ended(&why) => {}
                    Err(failure) => return Err(failure.error("cannot cancel the campaign's jobs", "see squeue")),
                    Ok(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns whether `scancel` complains only about jobs that have ended or that it has forgotten.
fn only_ended(why: &str) -> bool {
    let over = ["Invalid job id specified", "already completing or completed", "Job/step already"];
    why.split("; ").all(|part| over.iter().any(|text| part.contains(text)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use results::error::Exit;

    use super::*;
    use crate::slurm::command::tests::fakes;

    fn request(folder: &Path, elements: u64) -> Request {
        Request::new("campaign", folder, Path::new("/bin/true"), (0..elements).collect())
    }

    fn submit(slurm: &Slurm, request: &Request) -> (Vec<Submitted>, Result<(), Error>) {
        let mut jobs = Vec::new();
        let end = slurm.submit(request, 10, &mut |job| {
            jobs.push(job.clone());
            Ok(())
        });
        (jobs, end)
    }

    /// Prints the ids 41, 42, …, keeps arguments and scripts.
    const SBATCH: &str = r#"cd "$(dirname "$0")" || exit 9
    n=$(($(cat n 2>/dev/null || echo 40) + 1)); echo $n > n
    printf '%s\n' "$@" > arguments.$n; cat > script.$n
    if [ $n = 43 ]; then echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; fi
    echo $n"#;

    #[test]
    fn parts_are_submitted_in_turn_and_each_is_reported_before_the_next() {
        let (folder, slurm) = fakes(&[("sbatch", SBATCH)]);
        let mut wish = request(folder.path(), 25);
        wish.slurm.at_once = Some(4);
        let (jobs, end) = submit(&slurm, &wish);
        assert_eq!(jobs.iter().map(|job| job.job).collect::<Vec<_>>(), [41, 42]);
        assert_eq!((jobs[0].elements.len(), jobs[1].elements[0]), (10, 10));
        let error = end.unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.to_string().contains("QOSMaxSubmitJobPerUserLimit"), "{error}");
        let words = std::fs::read_to_string(folder.path().join("arguments.42")).unwrap();
        assert!(words.lines().any(|word| word == "--dependency=afterany:41") && words.contains("--array=0-9%4"));
        assert!(std::fs::read_to_string(folder.path().join("script.42")).unwrap().contains("ranges='10-19'"));
        assert!(folder.path().join("slurm").is_dir());
    }

    #[test]
    fn without_a_bound_arrays_do_not_wait_for_each_other() {
        let (folder, slurm) = fakes(&[("sbatch", SBATCH)]);
        let (jobs, end) = submit(&slurm, &request(folder.path(), 20));
        assert_eq!((jobs.len(), end), (2, Ok(())));
        assert!(!std::fs::read_to_string(folder.path().join("arguments.42")).unwrap().contains("dependency"));
    }

    #[test]
    fn without_sbatch_or_a_controller_it_is_exit_4() {
        let (folder, slurm) = fakes(&[]);
        let (_, end) = submit(&slurm, &request(folder.path(), 1));
        let error = end.unwrap_err();
        assert_eq!(error.exit, Exit::Host);
        assert!(error.to_string().contains("no sbatch in PATH; install Slurm's client"), "{error}");

        let down =
            "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1";
        let (folder, slurm) = fakes(&[("sbatch", down)]);
        let error = submit(&slurm, &request(folder.path(), 1)).1.unwrap_err();
        assert_eq!(error.exit, Exit::Host);
        assert!(error.to_string().contains("squeue --name=campaign"), "{error}");
    }

    #[test]
    fn the_job_id_is_in_the_last_line() {
        assert_eq!(parsable("18\n"), Some((18, None)));
        assert_eq!(parsable("notice of the site\n18;other\n\n"), Some((18, Some("other".into()))));
        for text in ["", "Submitted batch job 18\n", "0\n", "-1\n"] {
            assert_eq!(parsable(text), None, "{text}");
        }
    }

    fn job(job: u64, cluster: Option<&str>) -> Submitted {
        Submitted { job, cluster: cluster.map(str::to_owned), elements: vec![0], options: Vec::new() }
    }

    #[test]
    fn jobs_are_cancelled_on_their_clusters() {
        let (folder, slurm) = fakes(&[("scancel", "echo \"$@\" >> \"$(dirname \"$0\")/calls\"")]);
        slurm.cancel(&[job(1, None), job(2, Some("east")), job(3, None)]).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("calls")).unwrap(), "1 3\n--clusters=east 2\n");
    }

    #[test]
    fn jobs_that_ended_are_no_error() {
        let ended = "echo 'scancel: error: Kill job error on job id 1: Invalid job id specified' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", ended)]);
        slurm.cancel(&[job(1, None)]).unwrap();
        slurm.cancel(&[]).unwrap();
    }

    #[test]
    fn other_refusals_are_errors() {
        let denied = "echo 'scancel: error: Kill job error on job id 1: Access/permission denied' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", denied)]);
        assert_eq!(slurm.cancel(&[job(1, None)]).unwrap_err().exit, Exit::Usage);
        let down = "echo 'scancel: error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
        let (_folder, slurm) = fakes(&[("scancel", down)]);
        assert_eq!(slurm.cancel(&[job(1, None)]).unwrap_err().exit, Exit::Host);
    }
}
