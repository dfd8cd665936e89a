//! One attempt at an element: on the host, in Slurm's job or outside of it.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fleet::campaign::element::Element;
use fleet::campaign::folder::{ATTEMPT, Attempt, Campaign, Done, Folder, SCHEMA, STOPPED};
use results::child::Supervised;
use results::document::Any;
use results::error::{Error, Exit, one_line};
use results::host::{HostFacts, HostFs};
use results::open;
use results::write::{now_unix, replace};

use crate::terminal::console::complain;
use crate::terminal::progress::Progress;

/// Whoever stops the job may signal its processes, too: the command is interrupted a little later, by another signal.
const LATER: Duration = Duration::from_secs(1);
/// Part of a command's complaints that is read, the end, bytes.
const MAX_ERROR: u64 = 2000;
/// File that takes a command's stdout.
const STDOUT: &str = "stdout.txt";
/// Its progress and complaints.
const STDERR: &str = "stderr.txt";

/// How an attempt ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// The element has an outcome, of this attempt or of one before.
    Done(Done),
    /// The attempt was stopped for this reason, and the element is to run again.
    Stopped(String),
}

/// Runs an element, unless it has an outcome. `in_job`: in a job of the campaign's, and not just in somebody's.
///
/// # Errors
/// Exit 2 for files that cannot be read or written, exit 4 if the binary does not start here.
pub fn run(
    folder: &Folder,
    campaign: &Campaign,
    element: &Element,
    in_job: bool,
    stop: &AtomicBool,
) -> Result<Ended, Error> {
    if let Some(done) = folder.done(element.number)? {
        return Ok(Ended::Done(done));
    }
    let (number, path) = folder.next_attempt(element.number)?;
    let attempt = begin(element, number, in_job);
    folder.write_new(&path.join(ATTEMPT), &attempt)?;
    let began = Instant::now();
    let mut child = start(folder, campaign, element, &path)?;
    let limit = Duration::from_secs(element.limit_s);
    let mut stopped = None;
    let over = || {
        let late = || format!("it took longer than its time limit of {} s", element.limit_s);
        let interrupted = stop.load(Ordering::Relaxed).then(|| "it was interrupted".to_owned());
        stopped = interrupted.or_else(|| (began.elapsed() >= limit).then(late));
        stopped.is_some()
    };
    let status = child
        .end(over, LATER)
        .map_err(|error| Error::host(format!("cannot wait for element {}", element.name), error.to_string(), ""))?;
    let killed = status.signal().filter(|&signal| signal == libc::SIGKILL || signal == libc::SIGTERM);
    let why = stopped.or_else(|| killed.map(|signal| format!("signal {signal} ended it")));
    // A command that ended well just before it noticed has an outcome.
    if let (Some(why), false) = (why, status.success()) {
        return Ok(stopped_by(&path, why));
    }
    let documents = documents(folder, &path)?;
    // Whoever stopped the job signalled the command itself.
    if !status.success() && documents.iter().any(|document| is_interrupted(&folder.path.join(document))) {
        return Ok(stopped_by(&path, "it was interrupted".to_owned()));
    }
    let (exit, error) = match status.success() {
        true if documents.is_empty() && leaves_documents(element) => {
            (Some(Exit::Inconclusive.code()), Some("it left no document".to_owned()))
        }
        true => (Some(0), None),
        false => (status.code().and_then(|code| u8::try_from(code).ok()), Some(last_line(&path.join(STDERR)))),
    };
    let (name, ended_unix) = (element.name.clone(), now_unix());
    let done = Done { name, ended_unix, exit, signal: status.signal(), documents, error, attempt };
    if !folder.finish(&done)? {
        complain(&format!("notice: another attempt at {} came to its end first, and counts", element.name));
    }
    Ok(Ended::Done(folder.done(element.number)?.unwrap_or(done)))
}

fn begin(element: &Element, attempt: u32, in_job: bool) -> Attempt {
    let variable = |name: &str| std::env::var(name).ok();
    let job = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
    let host = HostFacts::read(&HostFs::default());
    Attempt {
        schema: SCHEMA.to_owned(),
        element: element.number,
        attempt,
        host: variable("SLURMD_NODENAME").or(host.name),
        boot: host.boot,
        job: job.filter(|_| in_job).map(|(array, task)| format!("{array}_{task}")),
        began_unix: now_unix(),
    }
}

/// Starts the command.
fn start(folder: &Folder, campaign: &Campaign, element: &Element, attempt: &Path) -> Result<Supervised, Error> {
    let binary = campaign.binaries.get(&element.variant).ok_or_else(|| {
        let what = format!("cannot run element {}", element.name);
        Error::usage(what, "its variant has no binary", "submit the plan to another folder")
    })?;
    // It is that of the submission to the last byte.
    folder.program(binary)?;
    let program = folder.binary(binary);
    let begin = || {
        let mut command = Command::new(&program);
        command.args(&element.words).current_dir(&campaign.folder);
        if leaves_documents(element) {
            command.arg("--output").arg(attempt).arg("--quiet");
        }
        // An interrupt from the terminal reaches it once, from here.
        command.stdin(Stdio::null());
        command.stdout(File::create(attempt.join(STDOUT))?).stderr(File::create(attempt.join(STDERR))?);
        Supervised::start(&mut command)
    };
    begin().map_err(|error| {
        let what = format!("cannot run {} in {}", program.display(), campaign.folder.display());
        Error::host(what, error.to_string(), "is it for this machine, is there room, and are both folders there?")
    })
}

/// Returns whether the command of an element leaves documents: conformance prints its result.
fn leaves_documents(element: &Element) -> bool {
    element.words.first().is_some_and(|word| word != "conformance")
}

/// Returns the result documents of an attempt, relative to the campaign's folder.
fn documents(folder: &Folder, attempt: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(attempt).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries =
        entries.map_err(|error| Error::usage(format!("cannot read {}", attempt.display()), error.to_string(), ""))?;
    let is_document = |entry: &DirEntry| {
        let (path, name) = (entry.path(), entry.file_name());
        let own = name == ATTEMPT || name.as_encoded_bytes().starts_with(b".");
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        is_file && !own && path.extension().is_some_and(|kind| kind == "json" || kind == "jsonl")
    };
    let relative = |entry: &DirEntry| {
        let path = entry.path();
        path.strip_prefix(&folder.path).unwrap_or(&path).to_string_lossy().into_owned()
    };
    let mut documents: Vec<String> = entries.iter().filter(|entry| is_document(entry)).map(relative).collect();
    documents.sort();
    Ok(documents)
}

/// Notes why an attempt was stopped. A full disk leaves no note, which changes nothing else.
fn stopped_by(attempt: &Path, why: String) -> Ended {
    let _ = replace(&attempt.join(STOPPED), why.as_bytes());
    Ended::Stopped(why)
}

/// Returns whether a document is of a command that was interrupted. Whoever collects it finds one that cannot be read.
fn is_interrupted(document: &Path) -> bool {
    use results::document::Status::{Interrupted, Running};
    document.extension().is_some_and(|kind| kind == "json")
        && results::read::found::<Any>(document).is_ok_and(|record| matches!(record.status, Interrupted | Running))
}

/// Returns the last line of a file, as one line.
fn last_line(path: &Path) -> String {
    let end = open::found(path, u64::MAX).and_then(|mut file| {
        let before = file.limit().saturating_sub(MAX_ERROR);
        file.get_mut().seek(SeekFrom::Start(before))?;
        file.set_limit(MAX_ERROR);
        open::bytes(file)
    });
    let end = end.unwrap_or_default();
    let text = String::from_utf8_lossy(&end);
    one_line(text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing"))
}

/// Runs the elements of these numbers in order. False if it was interrupted.
///
/// # Errors
/// Returns the errors of [`run`]; outcomes until then are kept.
pub fn one_after_the_other(
    folder: &Folder,
    campaign: &Campaign,
    due: &BTreeSet<u64>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<bool, Error> {
    progress.begin(due.len() as u64);
    let elements = campaign.elements.iter().filter(|element| due.contains(&element.number));
    for element in elements {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.run(&element.name);
        let ended = run(folder, campaign, element, false, stop).inspect_err(|_| progress.end())?;
        if let Ended::Stopped(why) = ended
            && !stop.load(Ordering::Relaxed)
        {
            complain(&format!("warning: {}: {why}; it runs again with the next submission", element.name));
        }
        progress.step();
    }
    progress.end();
    Ok(!stop.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use fleet::campaign::element::elements;
    use fleet::campaign::plan::Plan;
    use fleet::campaign::submission::submit;
    use fleet::slurm::command::Slurm;

    use super::*;

    /// Makes a campaign whose binary is a shell script.
    fn script(dir: &Path, text: &str, plan: &str) -> (Folder, Campaign) {
        use std::os::unix::fs::PermissionsExt as _;
        let binary = dir.join("tool");
        // A shell cannot trap a signal that was ignored when it began, as SIGINT is below a shell's background job.
        let first = "#!/usr/bin/env -S --default-signal=INT sh";
        std::fs::write(&binary, format!("{first}\n{text}\n")).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        let plan = format!("name = 'x'\nvariant = [{{ name = 'v', binary = '{}' }}]\n{plan}", binary.display());
        let plan = Plan::parse(&plan, "/".into(), &Slurm::default()).unwrap();
        let program = (trials::fixture::document(1).tool, Path::new("/bin/true"));
        submit(&dir.join("campaign"), &plan, elements(&plan), program, 7).unwrap()
    }

    const ONE: &str = "experiment = [{ run = 'sim', options = { rounds = 2 } }]";

    fn attempt(folder: &Folder, campaign: &Campaign) -> Ended {
        run(folder, campaign, &campaign.elements[0], false, &AtomicBool::new(false)).unwrap()
    }

    fn outcome(ended: Ended) -> Done {
        if let Ended::Done(done) = ended { done } else { panic!("{ended:?}") }
    }

    #[test]
    fn an_element_that_ran_is_not_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, campaign) =
            script(dir.path(), "echo \"$@\"; echo 0 >\"$5/a.json\"; echo x >>\"$0.runs\"; exit 0", ONE);
        let done = outcome(attempt(&folder, &campaign));
        assert_eq!((done.exit, done.attempt.attempt, done.error.clone()), (Some(0), 1, None));
        assert_eq!(done.documents, ["elements/000000/attempt-1/a.json"]);
        let said = std::fs::read_to_string(folder.element(0).join("attempt-1/stdout.txt")).unwrap();
        assert!(said.starts_with("sim --rounds 2 --output /"), "{said}");
        assert_eq!(attempt(&folder, &campaign), Ended::Done(done));
        let runs = folder.binary(&campaign.binaries["v"]).display().to_string() + ".runs";
        assert_eq!(std::fs::read_to_string(runs).unwrap(), "x\n");
    }

    #[test]
    fn a_measurement_without_a_document_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, campaign) = script(dir.path(), "exit 0", ONE);
        assert_eq!(outcome(attempt(&folder, &campaign)).exit, Some(Exit::Inconclusive.code()));

        let measured =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/baselines/development-host/nmi-latency.json");
        let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(measured).unwrap()).unwrap();
        let exit_with = |value: &serde_json::Value, code: u8, run: &str| {
            let dir = tempfile::tempdir().unwrap();
            let document = dir.path().join("document");
            std::fs::write(&document, value.to_string()).unwrap();
            let text = format!("cp '{}' \"$3/a.json\"; exit {code}", document.display());
            let (folder, campaign) = script(dir.path(), &text, &format!("experiment = [{{ run = '{run}' }}]"));
            attempt(&folder, &campaign)
        };
        assert_eq!(outcome(exit_with(&value, 0, "nmi-latency")).exit, Some(0));
        value["status"] = "interrupted".into();
        let stopped = exit_with(&value, 3, "nmi-latency");
        assert_eq!(stopped, Ended::Stopped("it was interrupted".to_owned()));
    }

    #[test]
    fn a_stopped_attempt_leaves_its_document_and_no_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let text = "trap 'echo 1 >\"$3/late.json\"; exit 3' INT; while :; do sleep 0.05; done";
        let (folder, campaign) = script(dir.path(), text, "experiment = [{ run = 'sim', time = '1s' }]");
        let Ended::Stopped(why) = attempt(&folder, &campaign) else { panic!("it ended") };
        assert!(why.contains("limit of 1 s"), "{why}");
        assert!(folder.element(0).join("attempt-1/late.json").exists());
        assert_eq!(folder.done(0).unwrap(), None);
        let stop = AtomicBool::new(true);
        let ended = run(&folder, &campaign, &campaign.elements[0], false, &stop).unwrap();
        assert_eq!(ended, Ended::Stopped("it was interrupted".to_owned()));
        assert_eq!(folder.attempts(0).len(), 2);
    }

    #[test]
    fn another_binary_than_the_submitted_one_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, campaign) = script(dir.path(), "exit 0", ONE);
        std::fs::write(folder.binary(&campaign.binaries["v"]), "#!/bin/sh\nexit 0 # changed\n").unwrap();
        let error = run(&folder, &campaign, &campaign.elements[0], false, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("not the binary that was submitted"), "{error}");
    }
}
