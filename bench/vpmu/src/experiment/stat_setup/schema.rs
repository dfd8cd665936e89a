//! The JSON Schema of `stat-setup`'s documents, in `results/`: made from the types, kept by a test.
//!
//! `VPMU_WRITE_SCHEMAS=1 cargo test -p vpmu --lib schema` writes it anew after a change of the types.

use std::path::Path;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::document::Document;
use results::document::SCHEMA;

#[test]
fn the_schema_in_results_is_that_of_the_types() {
    let mut schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Document>();
    schema.insert("title".to_owned(), json!("vpmu result, version 1, of stat-setup"));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).unwrap();
    properties["schema"]["const"] = json!(SCHEMA);
    properties["arms"]["minItems"] = json!(1);
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/schemas/stat-setup.schema.json");
    if std::env::var_os("VPMU_WRITE_SCHEMAS").is_some() {
        std::fs::write(&file, &schema).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap();
    assert!(there == schema, "run: VPMU_WRITE_SCHEMAS=1 cargo test -p vpmu --lib schema");
}
