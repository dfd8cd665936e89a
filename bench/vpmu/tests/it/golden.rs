//! Transcripts: each file of `tests/golden` is a sequence of commands, each with what it prints. `BLESS=1` writes them anew.
//!
//! A line that begins with `$ ` is a command of a shell, in a folder that its file's commands share. Below it are standard output,
//! standard error with `! ` before each line, and `exit N` if N is not 0. Only what is the same on every host stands here.

use std::path::Path;
use std::process::{Command, Stdio};

/// Makes the shell find this tree's binary.
fn path() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_vpmu")).parent().expect("a folder");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Runs the commands of a transcript.
fn played(transcript: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = vpmu::setting::process::tool();
    let (revision, profile) = (tool.git_revision, format!("({})", tool.profile));
    // Pages show the first digits.
    let short: String = revision.chars().take(12).collect();
    let mut found = String::new();
    for line in transcript.lines() {
        let Some(words) = line.strip_prefix("$ ") else {
            // A remark before the first command.
            if found.lines().all(|line| line.starts_with('#')) && line.starts_with('#') {
                found.extend([line, "\n"]);
            }
            continue;
        };
        let output = Command::new("sh")
            .args(["-c", words])
            .current_dir(folder.path())
            .env("PATH", path())
            .env("TREE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
            .env("COLUMNS", "80")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let shown = |bytes: &[u8]| {
            let names = [
                (&*revision, "REVISION"),
                (&*short, "REVISION"),
                (&*tool.version, "VERSION"),
                (&*profile, "(PROFILE)"),
            ];
            let text = String::from_utf8_lossy(bytes).replace(&*folder.path().to_string_lossy(), "FOLDER");
            names.iter().fold(text, |text, (name, place)| text.replace(name, place))
        };
        found.extend([line, "\n", &shown(&output.stdout)]);
        let stderr = shown(&output.stderr);
        for line in stderr.lines().filter(|line| !line.contains("this is a debug build")) {
            found.extend(["! ", line, "\n"]);
        }
        if output.status.code() != Some(0) {
            found.extend(["exit ", &output.status.code().unwrap_or(-1).to_string(), "\n"]);
        }
    }
    found
}

#[test]
fn commands_print_what_their_transcripts_show() {
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).expect("the folder");
    std::thread::scope(|scope| {
        for file in files {
            let path = file.expect("a file").path();
            scope.spawn(move || {
                let transcript = std::fs::read_to_string(&path).expect("a transcript");
                trials::golden(&path, &played(&transcript));
            });
        }
    });
}
