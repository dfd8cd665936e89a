//! The init as process 1 of a PID namespace of this machine. The namespace owns no mounts, so the init changes nothing
//! outside its folder.
#![expect(clippy::unwrap_used, reason = "tests without libtest's harness, which the lint does not recognise")]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use trials::Case;

/// Signals by which the kernel ends process 1 of a namespace: for a restart, and for power-off.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;

fn main() -> ExitCode {
    let missing = process_one(Path::new("/"), &["/bin/true"]);
    let missing =
        (!missing.is_ok_and(|output| output.status.success())).then_some("no user namespaces (unshare --user --pid)");
    let cases: [(&str, fn()); 2] = [
        (
            "a_guest_without_a_port_and_without_the_word_says_so_and_switches_itself_off",
            without_a_port_and_without_the_word,
        ),
        ("the_word_starts_a_shell_with_or_without_a_port", the_word_starts_a_shell),
    ];
    let cases = cases.map(|(name, run)| Case::new(name, missing.map(str::to_owned), run));
    trials::run(cases)
}

/// Runs words as process 1 in `root`.
fn process_one(root: &Path, words: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--root"]).arg(root).args(words);
    command.stdin(Stdio::null()).output()
}

/// A guest's folder: the init, and what its kernel has.
fn root(command_line: &str, acpi: bool) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("init"), linux_guest::INIT).unwrap();
    fs::set_permissions(root.path().join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    fs::write(root.path().join("proc/cmdline"), command_line).unwrap();
    if acpi {
        fs::create_dir_all(root.path().join("sys/firmware/acpi")).unwrap();
    }
    root
}

fn without_a_port_and_without_the_word() {
    for (acpi, signal) in [(true, SIGINT), (false, SIGHUP)] {
        let root = root("console=ttyS0 vpmu.shells acpi=off\n", acpi);
        let output = process_one(root.path(), &["/init"]).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no virtio port named vpmu") && said.contains("vpmu.shell"), "{said}");
        assert!(!said.contains("initramfs"), "no shell is looked for: {said}");
        assert_eq!(output.status.signal(), Some(signal), "ACPI {acpi}: {:?}", output.status);
    }
}

fn the_word_starts_a_shell() {
    let root = root(&format!("console=ttyS0 {}\n", linux_guest::SHELL_WORD), true);
    let output = process_one(root.path(), &["/init"]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no shell in the initramfs") && !said.contains("virtio"), "{said}");
    assert_eq!(output.status.signal(), Some(SIGINT), "{:?}", output.status);
}
