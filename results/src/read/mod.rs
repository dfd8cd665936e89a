//! Reading documents back. A file is not trusted: what is wrong with it is an error in one line that names the file.
//!
//! [`record`] reads a document of any experiment, [`document`] one with its experiment's own types. Both are the types' own derived
//! reader, and make the same checks.
//! Nothing is skipped: a folder with one bad document is a bad folder.

mod file;
mod source;

#[cfg(any(test, feature = "testing"))]
pub(crate) use file::of_text;
pub use file::{MAX_DOCUMENT, document, found, record, record_with};
pub use source::{
    BASELINES, LeftOut, MAX_DOCUMENTS, baseline_folder, check_name, copied, files, folder, folder_beside, gather,
};

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    /// A good document, changed.
    fn changed(change: impl FnOnce(&mut Value)) -> String {
        let document = fixture::document(3);
        let mut value = fixture::spread(&document);
        change(&mut value);
        value.to_string()
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn complaint(text: &str) -> String {
        let (_dir, path) = written(text);
        let error = record(&path).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        let line = error.to_string();
        assert!(line.contains("x.json") && !line.contains('\n'), "{line}");
        line
    }

    #[test]
    fn a_document_of_ours_is_read_back() {
        let (_dir, path) = written(&changed(|_| {}));
        let record = record(&path).unwrap();
        assert_eq!((record.experiment.as_str(), record.arms.len()), ("nmi-latency", 5));
        let arm = record.arm("recreate").unwrap();
        assert_eq!((arm.rounds.len(), arm.metrics["nmi_handler_ns"].count), (3, 120));
        assert!(arm.rounds.metrics["nmi_handler_ns"].p50[2] > 0);
        assert_eq!(record.parameter("workload").as_deref(), Some("single/ftest"));
        assert!(record.arm("kvm").unwrap().not_available.is_some());
        assert_eq!(document::<crate::document::GuestRun>(&path).unwrap().arms.len(), 5);
    }

    #[test]
    fn what_other_commands_left_beside_results_is_no_result() {
        let (dir, _) = written(&changed(|_| {}));
        let beside = |text: &str| std::fs::write(dir.path().join("y.json"), text).unwrap();
        for other in ["{\"schema\": \"vpmu-ab/1\", \"rows\": []}", "{\"meta\": {\"preprocessedProfileVersion\": 55}}"] {
            beside(other);
            assert_eq!(folder(dir.path()).unwrap().len(), 1, "{other}");
        }
        for bad in ["{\"schema\": \"vpmu-result/2\"}", "{\"name\": \"x\"}", "{"] {
            beside(bad);
            assert!(folder(dir.path()).unwrap_err().to_string().contains("y.json"), "{bad}");
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_with_its_reason() {
        let whole = changed(|_| {});
        for (text, needle) in [
            (String::new(), "it is empty"),
            (whole[..whole.len() / 2].to_owned(), "truncated"),
            ("{\"schema\": NaN}".to_owned(), "NaN"),
            ("{]".to_owned(), "not JSON"),
            ("[1]".to_owned(), "no \"schema\""),
            ("[[1, 2], [3]]".to_owned(), "no \"schema\""),
            ("<html>".to_owned(), "it is not JSON; give"),
            ("{\"schema\": 1, \"schema\": 2}".to_owned(), "duplicate key \"schema\""),
            ("{\"meta\": {\"preprocessedProfileVersion\": 55}, \"threads\": []}".to_owned(), "a Firefox profile"),
            ("{\"schema\": \"vpmu-ab/1\"}".to_owned(), "vpmu-ab/1"),
            ("{\"schema\": \"vpmu-result/1\"}".to_owned(), "missing field `experiment`"),
            ("{\"schema\": \"vpmu-result/2\"}".to_owned(), "newer"),
            ("{\"schema\": \"vpmu-result/0\"}".to_owned(), "no release"),
            (changed(|value| value["arms"][0]["nmis"] = json!(1e29)), "arms[0]"),
            (
                changed(|value| drop(value["host"].as_object_mut().unwrap().remove("class"))),
                "host: missing field `class`",
            ),
            (whole.replacen("\"nmis\":", "\"nmis\":1,\"nmis\":", 1), "duplicate key \"nmis\""),
            (
                whole.replacen("\"p50\":[", "\"p50\":[],\"p50\":[", 1),
                "arms[0].rounds.metrics.exit_path_ns: duplicate field `p50`",
            ),
            (
                whole.replacen(
                    "\"metrics\":{\"exit_path_ns\"",
                    "\"metrics\":{\"nmi_handler_ns\":{\"count\":1,\"p50\":1},\"exit_path_ns\"",
                    1,
                ),
                "duplicate key \"nmi_handler_ns\"",
            ),
        ] {
            assert!(complaint(&text).contains(needle), "{}", complaint(&text));
        }
    }

    #[test]
    fn a_document_that_contradicts_itself_is_refused() {
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 23] = [
            ("0 arms", |d| d["arms"] = json!([])),
            ("duplicate arm", |d| d["arms"][1] = d["arms"][0].clone()),
            ("no rounds and does not say why", |d| {
                d["arms"][0]["rounds"] = d["arms"][4]["rounds"].clone();
            }),
            ("arms[0].rounds: invalid type", |d| d["arms"][0]["rounds"] = json!(3)),
            ("arms[0].metrics.nmi_handler_ns.p50: invalid type: string", |d| {
                d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!("5");
            }),
            ("arms[0].metrics.nmi_handler_ns.p50: invalid value: integer `-5`", |d| {
                d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!(-5);
            }),
            ("p50 is 900000", |d| d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!(900_000)),
            ("outside of min and max", |d| d["arms"][0]["metrics"]["nmi_handler_ns"]["mean"] = json!(1e9)),
            ("no values", |d| d["arms"][0]["metrics"]["nmi_handler_ns"]["count"] = json!(0)),
            ("its rounds 120", |d| d["arms"][0]["metrics"]["nmi_handler_ns"]["count"] = json!(121)),
            ("clock goes backwards", |d| {
                d["arms"][0]["rounds"]["started_us"][0] = json!(u64::MAX);
            }),
            ("guest 3, the one after it of guest 1", |d| d["arms"][0]["rounds"]["guest"] = json!([3, 1, 2])),
            ("probe_ns is not above 0", |d| d["arms"][0]["rounds"]["probe_ns"] = json!([0.0, null, 1.0])),
            ("follows round", |d| d["arms"][0]["rounds"]["round"][1] = json!(0)),
            ("arms[0].rounds: position has 0 values for 3 rounds", |d| d["arms"][0]["rounds"]["position"] = json!([])),
            ("arms[0].rounds: opens has 2 values for 3 rounds", |d| d["arms"][0]["rounds"]["opens"] = json!([1, 2])),
            ("arms[0].rounds: exit_path_ns: p50 has 2 values for 3", |d| {
                d["arms"][0]["rounds"]["metrics"]["exit_path_ns"]["p50"] = json!([1, 1]);
            }),
            ("arm recreate: rounds: exit_path_ns: min is 251 and p10 is 250", |d| {
                d["arms"][0]["rounds"]["metrics"]["exit_path_ns"]["min"] = json!([250, 251, 250]);
            }),
            ("arms[0].rounds: exit_path_ns: mean has 4 values for 3", |d| {
                d["arms"][0]["rounds"]["metrics"]["exit_path_ns"]["mean"] = json!([1, 1, 1, 1]);
            }),
            ("mixed units", |d| {
                let map = d["arms"][0]["metrics"].as_object_mut().unwrap();
                map.remove("nmi_handler_ns");
            }),
            ("its unit is unknown", |d| {
                let map = d["arms"][0]["metrics"].as_object_mut().unwrap();
                let metric = map.remove("nmi_handler_ns").unwrap();
                map.insert("nmi_handler_us".to_owned(), metric);
            }),
            ("clock was not set", |d| d["started_unix"] = json!(0)),
            ("not available", |d| d["arms"][0]["not_available"] = json!("why")),
        ];
        for (needle, change) in cases {
            let line = complaint(&changed(change));
            assert!(line.contains(needle), "{line} lacks {needle}");
        }
    }

    #[test]
    fn rounds_are_of_guests_and_probed() {
        let (_dir, path) = written(&changed(|d| crate::fixture::in_guests(d, 2)));
        let record = record(&path).unwrap();
        let rounds = &record.arm("reuse").unwrap().rounds;
        assert_eq!(rounds.iter().map(|round| round.guest).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(rounds.probe_ns[2], Some(20_000.5));
        let again = serde_json::to_value(&record).unwrap();
        assert_eq!(again["arms"][0]["rounds"]["guest"], json!([0, 0, 1]));
        let (_dir, path) = written(&changed(|_| {}));
        let record = super::record(&path).unwrap();
        let round = record.arm("reuse").unwrap().rounds.iter().nth(2).unwrap();
        assert_eq!((round.guest, round.probe_ns), (2, None));
        assert!(serde_json::to_value(&record).unwrap()["arms"][0]["rounds"].get("probe_ns").is_none());
    }

    #[test]
    fn the_schemas_of_a_folder_are_no_results() {
        let (dir, _) = written(&changed(|_| {}));
        std::fs::write(dir.path().join("vpmu-result.schema.json"), "{}").unwrap();
        assert_eq!(folder(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_folder_is_all_of_it_or_nothing() {
        let (dir, path) = written(&changed(|_| {}));
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        std::fs::create_dir(dir.path().join(BASELINES)).unwrap();
        assert_eq!(folder(dir.path()).unwrap().len(), 1);
        let copy = dir.path().join("y.json");
        std::fs::copy(&path, &copy).unwrap();
        assert!(folder(dir.path()).unwrap_err().to_string().contains("a copy of"));
        std::fs::write(&copy, changed(|d| d["started_unix"] = json!(5))).unwrap();
        let both = folder(dir.path()).unwrap();
        assert_eq!((both.len(), both[0].started_unix), (2, 5));
        std::fs::write(&copy, "{").unwrap();
        assert!(folder(dir.path()).unwrap_err().to_string().contains("y.json"));
        assert!(folder(&dir.path().join(BASELINES)).unwrap_err().to_string().contains("no .json"));
    }

    #[test]
    fn a_name_is_a_baseline_unless_a_path_is_there() {
        let (dir, path) = written(&changed(|_| {}));
        let results = dir.path();
        let baseline = baseline_folder(results, "v1.0");
        std::fs::create_dir_all(&baseline).unwrap();
        std::fs::copy(&path, baseline.join("nmi-latency.json")).unwrap();
        assert_eq!(gather("v1.0", results).unwrap().len(), 1);
        assert_eq!(gather(path.to_str().unwrap(), results).unwrap().len(), 1);
        for bad in ["none", "../x", "a/b", ""] {
            assert!(gather(bad, results).unwrap_err().to_string().contains("baseline"), "{bad}");
        }
        for bad in ["", ".x", "a/b", "a b", "ä"] {
            assert!(check_name(bad).is_err());
        }
    }

    #[test]
    fn what_would_block_in_a_folder_is_refused_and_links_to_documents_are_followed() {
        let (dir, path) = written(&changed(|_| {}));
        let folders = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&path, folders.path().join("link.json")).unwrap();
        assert_eq!(folder(folders.path()).unwrap().len(), 1);
        let fifo = dir.path().join("a.json");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folders.path().join("zero.json")).unwrap();
        for (error, kind) in [
            (folder(dir.path()).unwrap_err(), "FIFO"),
            (found::<crate::document::Any>(&fifo).unwrap_err(), "FIFO"),
            (folder(folders.path()).unwrap_err(), "device"),
        ] {
            assert!(error.to_string().contains(&format!("it is a {kind}, not a regular file")), "{error}");
            assert_eq!(error.exit.code(), 2);
        }
    }
}
