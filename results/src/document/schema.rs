//! The JSON Schemas (draft 2020-12) of what commands print, made of its types: what `vpmu show schemas` prints.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Builds the schema of this name of what is written by a type: a document, which has `schema` itself, or a command's output, to which
/// [`output`](crate::answers::output) adds it and `exit`.
pub fn schema<T: JsonSchema>(name: &str) -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    schema["title"] = json!(name);
    let own = schema["properties"].clone();
    for (key, added) in [("schema", json!({})), ("exit", json!({ "description": "Exit code.", "type": "integer" }))] {
        let (None, None) = (own.get("schema"), own.get(key)) else { continue };
        schema["properties"][key] = added;
        schema["required"].as_array_mut().expect("a type with keys").push(json!(key));
    }
    schema["properties"]["schema"]["const"] = json!(name);
    schema
}
