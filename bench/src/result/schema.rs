//! The JSON Schema of the result document, `results/vpmu-result-1.schema.json`: made from the types, kept by a test.
//!
//! `VPMU_WRITE_SCHEMA=1 cargo test -p bench --lib schema` writes it anew after a change of the types.

use std::path::{Path, PathBuf};

use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Document, SCHEMA};
use crate::experiment::mock;

type Change = fn(&mut Value);

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results")
}

fn file() -> PathBuf {
    results().join("vpmu-result-1.schema.json")
}

/// Draft 2020-12, as documents are written.
fn generated() -> String {
    let mut schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Document>();
    schema.insert("title".to_owned(), json!("vpmu result, version 1"));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).unwrap();
    properties["schema"]["const"] = json!(SCHEMA);
    properties["arms"]["minItems"] = json!(1);
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn the_schema_in_results_is_that_of_the_types() {
    if std::env::var_os("VPMU_WRITE_SCHEMA").is_some() {
        std::fs::write(file(), generated()).unwrap();
    }
    let there = std::fs::read_to_string(file()).unwrap();
    assert!(there == generated(), "run: VPMU_WRITE_SCHEMA=1 cargo test -p bench --lib schema");
}

#[test]
fn what_this_tool_writes_is_valid() {
    let validator = validator();
    let mut absent = mock::finished(&["--rounds", "1"]).document;
    absent.arms[0].nmi_handler_ns = None;
    for document in [mock::finished(&[]).document, absent] {
        let value = serde_json::to_value(document).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn every_document_in_results_is_valid_and_loads() {
    let validator = validator();
    let mut seen = 0;
    let mut folders = vec![results()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") && path != file() {
                let value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
                assert!(validator.is_valid(&value), "{}", path.display());
                crate::load::document(&path).unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no baseline in results/");
}

#[test]
fn what_is_not_a_result_is_not_valid() {
    let validator = validator();
    let good = serde_json::to_value(mock::finished(&["--rounds", "1"]).document).unwrap();
    let changes: [Change; 6] = [
        |d| d["schema"] = json!("vpmu-result/2"),
        |d| d["arms"] = json!([]),
        |d| d["arms"][0]["nmi_handler_ns"]["p50"] = json!("5"),
        |d| d["arms"][0]["rounds"][0]["started_ns"] = json!(-1),
        |d| d["status"] = json!("done"),
        |d| {
            d.as_object_mut().unwrap().remove("host");
        },
    ];
    assert!(validator.is_valid(&good));
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!validator.is_valid(&bad));
    }
}
