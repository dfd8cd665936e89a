use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use results::fixture::value;

fn document(at: u64, change: impl FnOnce(&mut Value)) -> String {
    let mut value = value(6, at, |arm, round| if arm == "floor" { 1000 + round } else { 2000 + 3 * round + at });
    value["host"]["name"] = json!(format!("n{}", at % 3));
    change(&mut value);
    value.to_string()
}

fn folder(count: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for at in 1..=count {
        fs::write(dir.path().join(format!("{at:03}.json")), document(at, |_| {})).unwrap();
    }
    dir
}

fn documents(dir: &Path) -> Vec<(PathBuf, Labels)> {
    let all = read::files(dir).unwrap_or_default();
    all.iter().map(|path| (PathBuf::from(path.file_name().unwrap()), Labels::default())).collect()
}

fn refreshed(dir: &Path) -> (Index, Refreshed) {
    let mut index = Index::open(dir);
    let found = index.refresh(documents(dir), &|_, _| {});
    (index, found)
}

/// (read, unchanged, gone, bad), and that there is no warning.
fn counts(dir: &Path) -> (usize, usize, usize, usize) {
    let found = refreshed(dir).1;
    assert_eq!(found.warning, None);
    (found.read, found.unchanged, found.gone, found.bad.len())
}

/// Reads the runs from the documents, without an index.
fn directly(dir: &Path) -> Vec<Run> {
    let of = |(path, labels): (PathBuf, Labels)| {
        Run::of(&read::record(&dir.join(&path)).unwrap(), path.to_str().unwrap(), labels)
    };
    let mut runs: Vec<Run> = documents(dir).into_iter().map(of).collect();
    runs.sort_by(|a, b| (a.started_unix, &a.file).cmp(&(b.started_unix, &b.file)));
    runs
}

#[test]
fn nothing_is_read_twice_and_what_changed_is_read_again() {
    let dir = folder(9);
    let progress = Mutex::new(Vec::new());
    let mut index = Index::open(dir.path());
    let found = index.refresh(documents(dir.path()), &|done, all| progress.lock().unwrap().push((done, all)));
    assert_eq!((found.read, found.unchanged, found.bad.len(), found.warning), (9, 0, 0, None));
    assert_eq!(progress.lock().unwrap().iter().max(), Some(&(9, 9)));
    assert_eq!(index.runs(), directly(dir.path()));
    assert_eq!(counts(dir.path()), (0, 9, 0, 0));
    assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
    // One is changed, one removed, one added; rows of the others stay.
    fs::write(dir.path().join("003.json"), document(33, |_| {})).unwrap();
    fs::remove_file(dir.path().join("004.json")).unwrap();
    fs::write(dir.path().join("010.json"), document(10, |_| {})).unwrap();
    assert_eq!(counts(dir.path()), (2, 7, 1, 0));
    assert_eq!(counts(dir.path()), (0, 8 + 1, 0, 0));
    assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
    // Another file of equal size and time.
    let (path, other) = (dir.path().join("005.json"), dir.path().join("other"));
    fs::copy(&path, &other).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(counts(dir.path()), (1, 8, 0, 0));
}

#[test]
fn labels_are_those_of_the_last_refresh() {
    let dir = folder(5);
    refreshed(dir.path());
    let labels = |host: &str| Labels {
        host: Some(host.to_owned()),
        element: Some(7),
        variant: Some("a".to_owned()),
        repetition: Some(0),
    };
    for host in ["x", "y"] {
        let mut index = Index::open(dir.path());
        let named = documents(dir.path()).into_iter().map(|(path, _)| (path, labels(host)));
        assert_eq!(index.refresh(named, &|_, _| {}).read, 0);
        assert!(index.runs().iter().all(|run| &*run.host == host && run.labels == labels(host)));
    }
    assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
}

#[test]
fn bad_documents_are_named_and_the_others_stay() {
    let dir = folder(5);
    fs::write(dir.path().join("002.json"), "{").unwrap();
    fs::write(dir.path().join("000.json"), document(9, |d| d["schema"] = json!("vpmu-result/2"))).unwrap();
    fs::copy(dir.path().join("001.json"), dir.path().join("copy.json")).unwrap();
    for read in [4 + 1, 0] {
        let (index, found) = refreshed(dir.path());
        let lines: Vec<String> = found.bad.iter().map(|(_, error)| error.to_string()).collect();
        assert_eq!((found.read, lines.len()), (read, 3), "{lines:?}");
        assert!(lines[0].contains("000.json") && lines[0].contains("newer"), "{lines:?}");
        assert!(lines[1].contains("002.json") && lines[1].contains("truncated"), "{lines:?}");
        assert!(lines[2].contains("copy.json: it is a copy of") && lines[2].contains("001.json"), "{lines:?}");
        assert_eq!(index.runs().len(), 4);
    }
    // Mended, it is read; an absent one is named.
    fs::write(dir.path().join("002.json"), document(2, |_| {})).unwrap();
    let mut asked = documents(dir.path());
    asked.push((PathBuf::from("absent.json"), Labels::default()));
    let mut index = Index::open(dir.path());
    let found = index.refresh(asked, &|_, _| {});
    assert_eq!((found.read, found.bad.len(), index.runs().len()), (1, 3, 5));
    assert!(found.bad.iter().any(|(file, _)| file == "absent.json"));
}

#[test]
fn runs_of_one_simulation_count_once() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.json", "b.json"] {
        let text = document(0, |d| d["host"]["class"] = json!("simulated host"));
        fs::write(dir.path().join(name), text).unwrap();
    }
    let (index, found) = refreshed(dir.path());
    assert_eq!((found.read, found.bad.len(), index.runs().len()), (2, 0, 1));
}

#[test]
fn whatever_happens_to_the_index_the_runs_are_those_of_the_documents() {
    let dir = folder(6);
    let path = dir.path().join(INDEX);
    refreshed(dir.path());
    let whole = fs::read(&path).unwrap();
    let wanted = directly(dir.path());
    // Truncated and damaged in many places.
    let mut reread = 0;
    for step in 0..60 {
        let mut bytes = whole.clone();
        if step % 4 == 0 {
            bytes.truncate(bytes.len() * step / 60);
        } else {
            let at = (step * 7919 * 31) % bytes.len();
            bytes[at..].iter_mut().take(step % 17 + 1).for_each(|byte| *byte = byte.wrapping_add(1));
        }
        fs::write(&path, &bytes).unwrap();
        let (index, found) = refreshed(dir.path());
        assert_eq!(index.runs(), wanted, "step {step}");
        assert!(found.bad.is_empty());
        reread += found.read;
        if found.warning.is_none_or(|warning| !warning.contains("is no index of vpmu")) {
            assert_eq!(counts(dir.path()).0, 0, "step {step}");
        }
    }
    assert!(reread > 90, "{reread}");
}

#[test]
fn an_index_that_says_something_else_is_not_believed() {
    let dir = folder(4);
    let path = dir.path().join(INDEX);
    for (from, to, read) in [
        ("\"rounds\":6", "\"rounds\":7", 1),
        ("\"kernel\":\"", "\"kernel\":\"x", 1),
        ("002.json", "005.json", 1),
        ("\"started_unix\":1,", "\"started_unix\":7,", 1),
        ("\"version\":2", "\"version\":3", 4),
        ("]\n[", "] [", 2),
        ("\"version\":2}\n", "\"version\":2}", 4),
    ] {
        refreshed(dir.path());
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let (index, found) = refreshed(dir.path());
        assert_eq!(found.read, read, "{to}");
        assert_eq!(index.runs(), directly(dir.path()), "{to}");
        assert_eq!(counts(dir.path()).0, 0, "{to}");
    }
}

#[test]
fn an_index_that_others_may_write_to_is_not_believed() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = folder(2);
    refreshed(dir.path());
    let index = dir.path().join(INDEX);
    assert_eq!(refreshed(dir.path()).1.read, 0);
    fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(refreshed(dir.path()).1.read, 2, "documents are read again");
}

#[test]
fn another_programs_file_stays_as_it_is() {
    let dir = folder(3);
    let path = dir.path().join(INDEX);
    let before = b"{\"mine\":1}\n";
    fs::write(&path, before).unwrap();
    for _ in 0..2 {
        let (index, found) = refreshed(dir.path());
        assert_eq!((index.runs().len(), found.read), (3, 3));
        assert!(found.warning.is_some_and(|line| line.contains("is no index of vpmu") && line.contains("remove it")));
        assert!(fs::read(&path).unwrap() == before);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(refreshed(dir.path()).0.runs().len(), 3);
}

#[test]
fn a_folder_that_cannot_be_written_has_its_runs_and_a_warning() {
    let dir = folder(3);
    let mut index = Index::open(dir.path());
    let asked = documents(dir.path());
    // A folder that is gone is one that nobody can write to, not even root.
    let elsewhere = dir.path().with_extension("elsewhere");
    index.dir = dir.path().join("none");
    let absolute = asked.iter().map(|(path, labels)| (dir.path().join(path), labels.clone()));
    let found = index.refresh(absolute, &|_, _| {});
    assert_eq!((found.read, found.bad.len(), index.runs().len()), (3, 0, 3));
    assert!(found.warning.is_some_and(|line| line.contains("cannot write")));
    assert!(!elsewhere.exists());
}

/// The variable by which the test below finds itself to be a collector of its own.
const COLLECTOR: &str = "VPMU_TEST_COLLECTOR";
const ROUNDS: usize = 15;

#[test]
fn two_collectors_at_once_lose_nothing() {
    if let Some(dir) = std::env::var_os(COLLECTOR) {
        let dir = PathBuf::from(dir);
        for _ in 0..ROUNDS {
            let (index, found) = refreshed(&dir);
            assert_eq!((found.warning, found.bad.len()), (None, 0));
            assert!(index.runs().len() >= 20);
        }
        return;
    }
    let dir = folder(20);
    let name = "index::tests::two_collectors_at_once_lose_nothing";
    let collector = || {
        let program = std::env::current_exe().unwrap();
        Command::new(program).args(["--exact", name]).env(COLLECTOR, dir.path()).output()
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(collector), scope.spawn(collector)];
        for at in 21..=40 {
            // As results are written: whole or not at all.
            results::write::replace(&dir.path().join(format!("{at:03}.json")), document(at, |_| {}).as_bytes())
                .unwrap();
        }
        for one in both {
            let output = one.join().unwrap().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    });
    assert_eq!(refreshed(dir.path()).0.runs(), directly(dir.path()));
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others: Vec<String> =
        names.filter(|name| Path::new(name).extension().is_none_or(|extension| extension != "json")).collect();
    assert_eq!(others, [INDEX]);
}
