use std::fs;
use std::os::unix::fs::symlink;

use results::write::{Folder, Target};

use super::*;
use crate::arms::linux_boot::fake::{self, Entry};

#[test]
fn a_link_that_a_guest_plants_leads_nothing_to_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, share) = (folder.path().join("victim"), folder.path().join("share"));
    fs::write(&victim, "kept").unwrap();
    fs::create_dir(&share).unwrap();
    // The share of an earlier run has the link already.
    symlink(&victim, share.join("perf.data.modules")).unwrap();
    let target = |name: &str| Target::of(&share.join(name)).unwrap().private().always_file();
    let mut spec = crate::setting::parse::options::<LinuxSpec>(&["k"]).unwrap();
    spec.symbols = Some(Symbols {
        kallsyms: target("perf.data.kallsyms"),
        modules: target("perf.data.modules"),
        reports: Arc::default(),
    });
    let planted = [
        Entry::Folder(""),
        Entry::Link("perf.data.kallsyms", victim.to_str().unwrap()),
        Entry::Link("perf.data.modules", victim.to_str().unwrap()),
    ];
    let (mut agent, guest) = fake::start(
        &[
            ("/share", &planted),
            ("/proc/kallsyms", &[Entry::File("", 0o444, b"the guest's bytes")]),
            ("/proc/modules", &[Entry::File("", 0o444, b"the guest's bytes")]),
        ],
        |_| {},
    );
    let places = Places { share: Some(Folder::open(&share).unwrap()), output: None, console: None };
    let cut = AtomicBool::new(false);
    let mut session = Session::new(&spec, &places, &cut, COLLECT);
    assert!(session.run(&mut agent, "true", Duration::from_secs(60)).is_ok());
    drop(agent);
    let asked = guest.join().unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    let at = |path: &str| asked.iter().rposition(|asked| asked == path).unwrap();
    assert!(
        at("/share") > at("/proc/kallsyms") && at("/share") > at("/proc/modules"),
        "the share is the last: {asked:?}"
    );
}
