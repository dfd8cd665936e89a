use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::arms::linux_boot::fake::{self, Entry};
use crate::arms::linux_boot::symbols::Symbols;

fn open(path: &Path) -> Folder {
    Folder::open(path).unwrap()
}

/// The files of a folder, without a link's.
fn count(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn what_is_there_already_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let get = |paths: &[&str]| {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        check(&open(folder.path()), &paths).map_err(|error| error.to_string())
    };
    get(&["/tmp/perf.data", "/var/log/"]).unwrap();
    fs::write(folder.path().join("perf.data"), "x").unwrap();
    assert!(get(&["/tmp/perf.data"]).unwrap_err().contains("exists"));
    symlink("nowhere", folder.path().join("link")).unwrap();
    assert!(get(&["/tmp/link"]).unwrap_err().contains("exists"));
    assert!(get(&["/a/x", "/b/x"]).unwrap_err().contains("another --get"));
    for path in ["x", "/", "", "/x/..", "/."] {
        assert!(get(&[path]).is_err(), "{path}");
    }
}

#[test]
fn nothing_of_the_hosts_is_written_into_the_share() {
    type Change<'a> = &'a dyn Fn(&mut LinuxSpec, &Path);
    let folder = tempfile::tempdir().unwrap();
    let (share, outside) = (folder.path().join("share"), folder.path().join("outside"));
    fs::create_dir_all(share.join("sub")).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(share.join("sub"), outside.join("link")).unwrap();
    let spec = |change: Change<'_>, at: &Path| {
        let mut spec = crate::setting::parse::options::<LinuxSpec>(&["k"]).unwrap();
        spec.share = Some(share.clone());
        change(&mut spec, at);
        Places::open(&spec).map(drop).map_err(|error| error.to_string())
    };
    let changes: [(&str, Change<'_>); 3] = [
        ("--get", &|spec, at| (spec.get, spec.output) = (vec!["/x".to_owned()], at.to_owned())),
        ("--console", &|spec, at| spec.console = Some(at.join("log"))),
        ("a recording", &|spec, at| {
            let target = |name: &str| Target::of(&at.join(name)).unwrap();
            let (kallsyms, modules) = (target("perf.data.kallsyms"), target("perf.data.modules"));
            spec.symbols = Some(Symbols { kallsyms, modules, reports: std::sync::Arc::default() });
        }),
    ];
    for (name, change) in changes {
        for inside in [share.clone(), share.join("sub"), outside.join("link")] {
            let refused = spec(change, &inside).unwrap_err();
            assert!(refused.contains("it is in --share") && refused.contains("outside"), "{name}: {refused}");
        }
        spec(change, &outside).unwrap();
        spec(change, folder.path()).unwrap();
    }
    assert!(spec(&|spec, at| spec.console = Some(at.to_owned()), Path::new("/dev/stderr")).is_ok());
    assert_eq!((count(&share), count(&outside)), (1, 1), "a check leaves nothing");
}

#[test]
fn a_folder_is_merged_and_links_are_not_followed() {
    let (from, to, outside) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (root, name, text) in
        [(&from, "a", "new"), (&from, "d/b", "new"), (&to, "a", "old"), (&to, "d/c", "kept"), (&from, "l/x", "new")]
    {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    symlink(outside.path(), to.path().join("l")).unwrap();
    let merge = || merge_folder(&open(from.path()), &open(to.path()));
    let refused = merge();
    let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap_or_default();
    assert_eq!(count(outside.path()), 0, "nothing goes through a link");
    assert!(refused.is_err(), "a link is in the folder's place");
    fs::remove_file(to.path().join("l")).unwrap();
    merge().unwrap();
    assert_eq!([read("a"), read("d/b"), read("d/c"), read("l/x")], ["new", "new", "kept", "new"]);
}

#[test]
fn a_folder_that_its_user_swaps_for_a_link_sends_nothing_elsewhere() {
    type Bring = fn(&mut Agent<'_>, &Folder) -> Result<(), AgentError>;
    let ways: [(&str, Bring); 2] =
        [("merge", |agent, to| merge(agent, "/share", to)), ("get", |agent, to| get(agent, "/share", to))];
    for (name, bring) in ways {
        let folder = tempfile::tempdir().unwrap();
        let [user, real, root] = ["user", "real", "root"].map(|name| folder.path().join(name));
        fs::create_dir(&user).unwrap();
        fs::create_dir(&root).unwrap();
        let sent =
            [Entry::Folder(""), Entry::Folder("d"), Entry::File("d/f", 0o7777, b"x"), Entry::File("g", 0o644, b"x")];
        let (mut agent, guest) = fake::start(&[("/share", &sent)], {
            let [user, real, root] = [&user, &real, &root].map(Clone::clone);
            move |_| {
                fs::rename(&user, &real).unwrap();
                symlink(&root, &user).unwrap();
            }
        });
        agent.hello(std::time::Duration::from_secs(60)).unwrap();
        bring(&mut agent, &open(&user)).unwrap();
        drop(agent);
        guest.join().unwrap();
        assert_eq!(count(&root), 0, "{name}");
        let top = if name == "get" { real.join("share") } else { real.clone() };
        assert_eq!((fs::read(top.join("d/f")).unwrap(), count(&top)), (b"x".to_vec(), 2), "{name}");
        assert_eq!(fs::metadata(top.join("d/f")).unwrap().permissions().mode() & 0o7000, 0, "{name}");
    }
}

#[test]
fn a_scratch_folder_that_is_swapped_for_a_link_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [user, root] = ["user", "root"].map(|name| folder.path().join(name));
    fs::create_dir(&user).unwrap();
    fs::create_dir(&root).unwrap();
    let (mut agent, guest) = fake::start(&[("/share", &[Entry::Folder(""), Entry::File("f", 0o644, b"x")])], {
        let [user, root] = [&user, &root].map(Clone::clone);
        move |_| {
            let scratch = fs::read_dir(&user).unwrap().next().unwrap().unwrap().path();
            fs::rename(&scratch, user.join("moved")).unwrap();
            symlink(&root, &scratch).unwrap();
        }
    });
    agent.hello(std::time::Duration::from_secs(60)).unwrap();
    merge(&mut agent, "/share", &open(&user)).unwrap();
    drop(agent);
    guest.join().unwrap();
    assert_eq!(count(&root), 0);
    assert!(user.join("f").exists());
}

#[test]
fn what_begins_and_does_not_come_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "kept").unwrap();
    let (mut agent, _guest) = fake::start(&[], |_| {});
    agent.hello(std::time::Duration::from_secs(60)).unwrap();
    assert!(fetch(&mut agent, "/proc/kallsyms", &Target::of(&path).unwrap()).is_err());
    assert!(get(&mut agent, "/tmp/y", &open(folder.path())).is_err());
    assert!(merge(&mut agent, "/share", &open(folder.path())).is_err());
    assert_eq!((fs::read(&path).unwrap(), count(folder.path())), (b"kept".to_vec(), 1));
}
