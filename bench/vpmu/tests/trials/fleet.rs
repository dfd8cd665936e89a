//! A campaign in a folder of another user is read, and nothing in it is acted on; other folders of strangers are in `golden/fleet.txt`.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use trials::Case;

use crate::binary::{VPMU, text};
use crate::prerequisites::is_root;

pub(crate) fn cases() -> Vec<Case> {
    let missing = (!is_root()).then(|| "only root can give a folder to another user".to_owned());
    vec![Case::fallible("a_folder_of_another_user_is_not_acted_on", missing, folder_of_another_user).expected(false)]
}

const PLAN: &str = "name = 'x'\n[[experiment]]\nrun = 'sim'\n\
    options = { strategy = 'reuse', workload = 'counting1', rounds = 2, samples = 20 }\n";

/// Runs a command that is ended, with exit code 124, if it does not end by itself.
fn vpmu(folder: &Path, line: &str) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60", VPMU]).args(line.split(' ')).current_dir(folder);
    Ok(command.output()?)
}

/// Gives everything below to user 65534.
fn give_away(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give_away(&entry?.path())?;
        }
    }
    Ok(chown(path, Some(65534), Some(65534))?)
}

fn folder_of_another_user() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (at, run) = (dir.path(), dir.path().join("run"));
    std::fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
    std::fs::write(at.join("plan.toml"), PLAN)?;
    ensure!(vpmu(at, "fleet submit plan.toml -o run -q")?.status.success());
    let index = run.join("vpmu-index.jsonl");
    let documents = vpmu(at, "compare --by-host run run")?;
    give_away(&run)?;
    std::fs::remove_file(&index)?;
    // It may be read, and is left as it is.
    ensure!(vpmu(at, "fleet status run")?.status.success());
    let again = vpmu(at, "compare --by-host run run")?;
    ensure!((again.status, &again.stdout) == (documents.status, &documents.stdout), "{}", text(&again.stderr));
    ensure!(!index.exists(), "a file in another user's folder");
    let refused = |line: &str| -> Result<()> {
        let output = vpmu(at, line)?;
        let said = text(&output.stderr);
        ensure!(output.status.code() == Some(2) && said.contains("belongs to user 65534"), "{line}: {said}");
        Ok(())
    };
    for line in ["fleet submit plan.toml -o run", "fleet report run", "fleet element run 0"] {
        refused(line)?;
    }
    // A folder that is no campaign yet could become another one.
    std::fs::remove_dir_all(&run)?;
    std::fs::create_dir(&run)?;
    give_away(&run)?;
    refused("fleet submit plan.toml -o run")?;
    refused("fleet submit plan.toml -o run/below")?;
    ensure!(std::fs::read_dir(&run)?.next().is_none(), "something was left");
    Ok(())
}
