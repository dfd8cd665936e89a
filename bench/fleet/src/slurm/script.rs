//! The batch script of a task: copy the binaries to the node, run the element, remove the copies.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use results::error::Error;

/// Environment variable with the folder of the copies, for the runner.
pub const COPIES: &str = "VPMU_FLEET_COPIES";

/// Chooses a folder of the node for temporary files: the submitter's TMPDIR may not exist there.
const TEMPORARY: &str = r#"for TMPDIR in "$SLURM_TMPDIR" "$TMPDIR" /tmp; do
	if [ -d "$TMPDIR" ] && [ -w "$TMPDIR" ]; then break; fi
done
export TMPDIR
"#;

/// Makes the folder of the copies. sbcast copies over Slurm's own tree and leaves the file server alone; a site may not have it.
/// Without the copies the host cannot run the element: exit 4.
const COPY: &str = r#"local=$(mktemp -d "$TMPDIR/vpmu-$SLURM_JOB_ID.XXXXXX") || exit 4
copy() {
	if sbcast --force "$1" "$local/$2" || cp "$1" "$local/$2"; then
		chmod u+rx "$local/$2"
	else
		echo "vpmu: error: $(hostname): cannot copy $1 to $local" >&2
		exit 4
	fi
}
"#;

/// Writes the script for an array with these elements: the vpmu that runs one, with arguments ahead of its number, and further files that
/// are copied to the node beside it, unless nothing is.
///
/// # Errors
/// Exit 2 for paths that a script cannot name.
pub(crate) fn text(
    runner: &Path,
    arguments: &[String],
    copied: Option<&[PathBuf]>,
    elements: &[u64],
) -> Result<String, Error> {
    let mut setup = TEMPORARY.to_owned();
    let mut command = quoted(plain(runner)?);
    if let Some(files) = copied {
        setup += COPY;
        for file in [runner].into_iter().chain(files.iter().map(PathBuf::as_path)) {
            writeln!(setup, "copy {} {}", quoted(plain(file)?), quoted(plain_name(file)?)).unwrap_or_default();
        }
        writeln!(setup, "export {COPIES}=\"$local\"").unwrap_or_default();
        command = format!("\"$local\"/{}", quoted(plain_name(runner)?));
    }
    for word in arguments {
        write!(command, " {}", quoted(word)).unwrap_or_default();
    }
    let ranges = ranges(elements);
    Ok(format!(
        r#"#!/bin/sh
# A task of a campaign of `vpmu fleet`: runs the element at its position in these ranges.
ranges='{ranges}'
position=$SLURM_ARRAY_TASK_ID
element=
for range in $ranges; do
	first=${{range%-*}} last=${{range#*-}}
	count=$((last - first + 1))
	if [ "$position" -lt "$count" ]; then
		element=$((first + position))
		break
	fi
	position=$((position - count))
done
if [ -z "$element" ]; then
	echo "vpmu: error: array task $SLURM_ARRAY_TASK_ID has no element" >&2
	exit 70
fi

child= local= stopped=
# SIGTERM comes before a time limit and at preemption: the element ends with a whole document.
trap 'stopped=1; if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; fi' TERM
trap 'if [ -n "$local" ]; then rm -rf "$local"; fi' EXIT
{setup}
if [ -n "$stopped" ]; then exit 143; fi
{command} "$element" &
child=$!
# One that came before the child was known.
if [ -n "$stopped" ]; then kill -TERM "$child" 2>/dev/null; fi
# A signal ends `wait`, too; the child may still be there then.
while :; do
	wait "$child"
	code=$?
	if [ "$code" -le 128 ] || ! kill -0 "$child" 2>/dev/null; then break; fi
done
exit "$code"
"#
    ))
}

/// Returns a path as text, absolute and without control characters: `sbatch` and the script take it literally.
///
/// # Errors
/// Exit 2 for other paths.
pub(crate) fn plain(path: &Path) -> Result<&str, Error> {
    let wrong = |why, remedy| Error::usage(format!("path {}", path.display()), why, remedy);
    let text = path.to_str().ok_or_else(|| wrong("not UTF-8", "rename it"))?;
    if text.chars().any(char::is_control) {
        return Err(wrong("a control character", "rename it"));
    }
    if path.is_absolute() { Ok(text) } else { Err(wrong("not absolute", "")) }
}

fn plain_name(path: &Path) -> Result<&str, Error> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| Error::usage(format!("path {}", path.display()), "not the name of a file", ""))
}

/// Quotes a word for the shell, whatever its characters.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Elements as ranges `0-99 105-105`, in their order.
fn ranges(elements: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &element in elements {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(element) => *last = element,
            _ => ranges.push((element, element)),
        }
    }
    ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Folders with a name that a careless script breaks on, and a runner in place of vpmu.
    struct Rig {
        folder: tempfile::TempDir,
        runner: PathBuf,
        arguments: Vec<String>,
        copied: bool,
    }

    const NAME: &str = "it's a \"$(name)\" %A `id`; x";

    impl Rig {
        fn new(runner: &str, arguments: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let shared = folder.path().join(NAME);
            std::fs::create_dir_all(shared.join("bin")).unwrap();
            std::fs::create_dir_all(folder.path().join("tmp of node")).unwrap();
            let path = shared.join("bin").join("run it's");
            std::fs::write(&path, format!("#!/bin/sh\n{runner}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            Self { folder, runner: path, arguments, copied: true }
        }

        fn temporary(&self) -> PathBuf {
            self.folder.path().join("tmp of node")
        }

        /// Runs the script of `elements`, with no sbcast in PATH.
        fn command(&self, elements: &[u64], task: usize) -> Command {
            let script = self.folder.path().join("script");
            std::fs::write(&script, text(&self.runner, &self.arguments, self.copied.then_some(&[]), elements).unwrap())
                .unwrap();
            let mut command = Command::new("/bin/sh");
            command.arg(script).env("SLURM_ARRAY_TASK_ID", task.to_string()).env("SLURM_JOB_ID", "18");
            command.env("PATH", "/usr/bin:/bin").env("TMPDIR", self.temporary()).env_remove("SLURM_TMPDIR");
            command
        }

        fn run(&self, elements: &[u64], task: usize) -> Output {
            self.command(elements, task).output().unwrap()
        }

        fn leftovers(&self) -> usize {
            std::fs::read_dir(self.temporary()).unwrap().count()
        }
    }

    #[test]
    fn a_task_runs_a_copy_with_its_element_and_removes_it() {
        let rig = Rig::new(
            "printf '%s|' \"$@\"; dirname \"$0\"; echo \"$VPMU_FLEET_COPIES\"; exit 5",
            &["fleet", "element", "/a 'b' $c"],
        );
        let output = rig.run(&[3, 4, 5, 9, 20, 21], 3);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = stdout.lines().collect();
        let (words, copy) = lines[0].rsplit_once('|').unwrap();
        assert_eq!((words, output.status.code()), ("fleet|element|/a 'b' $c|9", Some(5)));
        assert_eq!(copy, lines[1]);
        assert!(copy.starts_with(rig.temporary().join("vpmu-18.").to_str().unwrap()), "{copy}");
        assert_eq!(rig.leftovers(), 0);
    }

    #[test]
    fn a_temporary_folder_that_the_node_lacks_is_replaced() {
        let rig = Rig::new("echo \"$TMPDIR $VPMU_FLEET_COPIES\"", &[]);
        for (variable, other) in [("TMPDIR", "/tmp".into()), ("SLURM_TMPDIR", rig.temporary())] {
            let output = rig.command(&[7], 0).env(variable, "/nonexistent").output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            let expected = format!("{} {}/vpmu-18.", other.display(), other.display());
            assert!(output.status.success() && stdout.starts_with(&expected), "{variable}: {stdout}");
        }
    }

    #[test]
    fn without_copies_the_shared_runner_runs() {
        let mut rig = Rig::new("echo \"$0 [$VPMU_FLEET_COPIES] $1\"", &[]);
        rig.copied = false;
        let expected = format!("{} [] 7\n", rig.runner.display());
        assert_eq!((String::from_utf8(rig.run(&[7], 0).stdout).unwrap(), rig.leftovers()), (expected, 0));
    }

    #[test]
    fn every_task_has_the_element_at_its_position() {
        let rig = Rig::new("echo \"$1\"", &[]);
        let elements = [8, 9, 10, 2, 5, 6, 30];
        for (task, element) in elements.iter().enumerate() {
            assert_eq!(rig.run(&elements, task).stdout, format!("{element}\n").into_bytes());
        }
        let beyond = rig.run(&elements, elements.len());
        assert_eq!((beyond.status.code(), rig.leftovers()), (Some(70), 0));
    }

    #[test]
    fn sigterm_goes_to_the_element_and_its_exit_code_comes_back() {
        let rig = Rig::new("trap 'echo whole; exit 3' TERM; echo ready; while :; do sleep 0.05; done", &[]);
        let mut child = rig.command(&[7], 0).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "whole");
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the script does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!((status.code(), rig.leftovers()), (Some(3), 0));
    }

    #[test]
    fn a_runner_that_a_signal_kills_is_seen_as_the_shell_does() {
        let rig = Rig::new("kill -9 $$", &[]);
        assert_eq!((rig.run(&[7], 0).status.code(), rig.leftovers()), (Some(137), 0));
    }

    #[test]
    fn a_runner_that_is_not_there_is_exit_4_with_the_reason() {
        let rig = Rig::new("", &[]);
        std::fs::remove_file(&rig.runner).unwrap();
        let output = rig.run(&[7], 0);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(stderr.contains("cannot copy") && stderr.contains(NAME), "{stderr}");
        assert_eq!(rig.leftovers(), 0);
    }
}
