//! The JSON Schemas of result documents, in `results/schemas/`: made from the types, kept by a test. `stat-setup` has a type
//! and a schema of its own, all else shares one.
//!
//! `VPMU_WRITE_SCHEMAS=1 cargo test -p results --lib schema` writes it anew after a change of the types.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use trials::schema::errors;

use super::envelope::{Document, SCHEMA};
use crate::fixture;

type Change = fn(&mut Value);

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

const GUESTS: &str = "schemas/result.schema.json";
const HOSTS: &str = "schemas/stat-setup.schema.json";

/// Generates the schema of draft 2020-12, as documents are written.
fn generated<D: JsonSchema>(title: &str) -> String {
    let mut schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<D>();
    schema.insert("title".to_owned(), json!(title));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).unwrap();
    properties["schema"]["const"] = json!(SCHEMA);
    properties["arms"]["minItems"] = json!(1);
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(results().join(name)).unwrap()).unwrap()
}

#[test]
fn the_schema_in_results_is_that_of_the_types() {
    let schema = generated::<Document>("vpmu result, version 1");
    let file = results().join(GUESTS);
    if std::env::var_os("VPMU_WRITE_SCHEMAS").is_some() {
        std::fs::write(&file, &schema).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap();
    assert!(there == schema, "run: VPMU_WRITE_SCHEMAS=1 cargo test -p results --lib schema");
}

#[test]
fn what_this_tool_writes_is_valid() {
    let schema = schema(GUESTS);
    let mut absent = fixture::document(1);
    absent.arms[0].metrics.remove("nmi_handler_ns");
    let mut in_turns = fixture::spread(&fixture::document(10));
    fixture::in_guests(&mut in_turns, 5);
    let values = [fixture::document(10), absent].map(|document| serde_json::to_value(document).unwrap());
    for value in values.into_iter().chain([in_turns]) {
        assert_eq!(errors(&schema, &value), [""; 0]);
    }
}

#[test]
fn every_document_in_results_is_valid_and_loads() {
    let (guests, hosts) = (schema(GUESTS), schema(HOSTS));
    let others = ["schemas", "traces"].map(|folder| results().join(folder));
    let mut seen = 0;
    let mut folders = vec![results()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.extend((!others.contains(&path)).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "json") {
                let value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
                let schema = if value["in"] == "host" { &hosts } else { &guests };
                assert_eq!(errors(schema, &value), [""; 0], "{}", path.display());
                crate::read::record(&path).unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no baseline in results/");
}

#[test]
fn what_is_not_a_result_is_not_valid() {
    let schema = schema(GUESTS);
    let good = fixture::spread(&fixture::document(2));
    let changes: [Change; 6] = [
        |d| d["schema"] = json!("vpmu-result/2"),
        |d| d["arms"] = json!([]),
        |d| d["arms"][0]["metrics"]["nmi_handler_ns"]["p50"] = json!("5"),
        |d| d["arms"][0]["rounds"]["started_us"][0] = json!(-1),
        |d| d["status"] = json!("done"),
        |d| {
            d.as_object_mut().unwrap().remove("host");
        },
    ];
    assert_eq!(errors(&schema, &good), [""; 0]);
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!errors(&schema, &bad).is_empty());
    }
}
