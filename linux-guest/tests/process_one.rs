//! The init as process 1 of a PID namespace of this machine. The namespace owns no mounts, so the init changes nothing outside its folder.
#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What the kernel ends process 1 of a namespace by: a restart's signal, and that of power-off.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;

/// Runs words as process 1 in `root`; `None` if this machine gives an ordinary user no namespaces.
fn process_one(root: &Path, words: &[&str]) -> Option<Output> {
    let run = |root: &Path, words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--root"]).arg(root).args(words);
        command.stdin(Stdio::null()).output()
    };
    if !run(Path::new("/"), &["/bin/true"]).is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP: no user namespaces (unshare --user --pid)");
        return None;
    }
    Some(run(root, words).unwrap())
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

#[test]
fn a_guest_without_a_port_and_without_the_word_says_so_and_switches_itself_off() {
    for (acpi, signal) in [(true, SIGINT), (false, SIGHUP)] {
        let root = root("console=ttyS0 vpmu.shells acpi=off\n", acpi);
        let Some(output) = process_one(root.path(), &["/init"]) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no virtio port named vpmu") && said.contains("vpmu.shell"), "{said}");
        assert!(!said.contains("initramfs"), "no shell is looked for: {said}");
        assert_eq!(output.status.signal(), Some(signal), "ACPI {acpi}: {:?}", output.status);
    }
}

#[test]
fn the_word_starts_a_shell_with_or_without_a_port() {
    let root = root(&format!("console=ttyS0 {}\n", linux_guest::SHELL_WORD), true);
    let Some(output) = process_one(root.path(), &["/init"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no shell in the initramfs") && !said.contains("virtio"), "{said}");
    assert_eq!(output.status.signal(), Some(SIGINT), "{:?}", output.status);
}
