//! The tracepoints of the host.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Directories on which tracefs may be mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// No kernel has as many; those beyond are left out, and counted.
const MOST: usize = 100_000;

/// The tracepoints that this process sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tracepoints {
    /// Names as GROUP:NAME, in order.
    pub names: Vec<String>,
    /// Reason why there are none.
    pub missing: Option<String>,
    /// Number of further ones.
    pub left_out: usize,
}

impl Tracepoints {
    /// Lists the tracepoints of this host.
    pub fn of_this_host() -> Self {
        Self::below(&ROOTS.map(PathBuf::from))
    }

    fn below(roots: &[PathBuf]) -> Self {
        let none = |missing: String| Self { missing: Some(missing), ..Self::default() };
        // An unreadable folder is found, and one without a mount is empty.
        let mut refused = None;
        for root in roots {
            match std::fs::read_dir(root.join("events")) {
                Ok(_) => return Self::in_folder(&root.join("events"), MOST),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => refused = Some(format!("{}: {error}", root.display())),
            }
        }
        let first = roots.first().map_or(Path::new(""), PathBuf::as_path).display();
        none(match refused {
            Some(why) => format!("tracefs is not readable by this user ({why}): be root, or ask for mode 755 there"),
            None => format!("tracefs is not mounted: mount -t tracefs tracefs {first}"),
        })
    }

    fn in_folder(events: &Path, most: usize) -> Self {
        let folders = |at: &Path| -> Vec<(String, PathBuf)> {
            let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|type_| type_.is_dir()));
            folders.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
        };
        let mut names = Vec::new();
        for (group, path) in folders(events) {
            names.extend(folders(&path).into_iter().map(|(name, _)| format!("{group}:{name}")));
        }
        names.sort_unstable();
        let left_out = names.len().saturating_sub(most);
        names.truncate(most);
        let missing = names.is_empty().then(|| format!("{} has none", events.display()));
        Self { names, missing, left_out }
    }
}

/// Returns whether `name` has `word` in it; a word with `*` or `?` must fit the whole name. The case of letters does not matter.
pub fn fits(name: &str, word: &str) -> bool {
    let (name, word) = (name.to_ascii_lowercase(), word.to_ascii_lowercase());
    if word.contains(['*', '?']) { fits_glob(name.as_bytes(), word.as_bytes()) } else { name.contains(&word) }
}

/// Returns whether `name` fits `glob`. It goes back to the last `*` alone: time is at most the product of both lengths.
fn fits_glob(name: &[u8], glob: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < name.len() {
        match glob.get(of) {
            Some(b'*') => {
                star = Some((at, of));
                of += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[at] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((from, star_at)) = star else { return false };
                star = Some((from + 1, star_at));
                (at, of) = (from + 1, star_at + 1);
            }
        }
    }
    glob[of..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["kvm/kvm_exit", "kvm/kvm_entry", "sched/sched_switch"] {
            std::fs::create_dir_all(root.path().join("events").join(folder)).unwrap();
        }
        std::fs::write(root.path().join("events/enable"), "0").unwrap();
        std::fs::write(root.path().join("events/kvm/filter"), "").unwrap();
        let found = Tracepoints::below(&["/nonexistent".into(), root.path().into()]);
        assert_eq!(found.names, ["kvm:kvm_entry", "kvm:kvm_exit", "sched:sched_switch"]);
        assert_eq!((found.missing, found.left_out), (None, 0));
        let some = Tracepoints::in_folder(&root.path().join("events"), 2);
        assert_eq!((some.names.len(), some.left_out), (2, 1));
    }

    #[test]
    fn where_there_are_none_the_reason_is_said() {
        let found = Tracepoints::below(&["/nonexistent/tracing".into()]);
        assert!(found.missing.unwrap().contains("mount -t tracefs tracefs /nonexistent/tracing"));
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("events")).unwrap();
        assert!(Tracepoints::below(&[root.path().into()]).missing.is_some());
    }

    #[test]
    fn a_word_is_a_part_and_a_glob_is_the_whole() {
        for (name, word, wanted) in [
            ("kvm:kvm_exit", "exit", true),
            ("kvm:kvm_exit", "EXIT", true),
            ("kvm:kvm_exit", "kvm:*", true),
            ("kvm:kvm_exit", "*exit", true),
            ("kvm:kvm_exit", "k*_e?it", true),
            ("kvm:kvm_exit", "exit*", false),
            ("kvm:kvm_exit", "kvm:?", false),
            ("cycles", "cycle?*", true),
            ("cycles", "", true),
            ("", "*", true),
            ("", "?", false),
        ] {
            assert_eq!(fits(name, word), wanted, "{name} {word}");
        }
        assert!(!fits(&"a".repeat(500), &"a*".repeat(200).replace("a*", "a*b*")), "bounded");
    }
}
