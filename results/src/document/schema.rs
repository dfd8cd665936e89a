//! The JSON Schemas (draft 2020-12) of documents, made of their types: what `vpmu show schemas` prints.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::envelope::{Document, Experiment, SCHEMA};

/// Builds the schema of an experiment's documents, as they are written.
pub fn schema<E: Experiment>(title: &str) -> Value
where
    Document<E>: JsonSchema,
{
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Document<E>>().to_value();
    schema["title"] = json!(title);
    let properties = &mut schema["properties"];
    properties["schema"]["const"] = json!(SCHEMA);
    properties["arms"]["minItems"] = json!(1);
    schema
}
