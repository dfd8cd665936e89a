//! Documents against JSON Schemas (draft 2020-12), with the keywords that the schemas of this tree have.

use serde_json::Value;

/// Lists the faults of `value` by `schema`, each with its place.
///
/// # Panics
/// The schema has a keyword that is not known here, or one with an argument of another form: it would hold everything valid.
pub fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, schema, value, "", &mut errors);
    errors
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let rules = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return errors.push(format!("{at}: not allowed")),
        _ => schema.as_object().expect("a schema is a table, true or false"),
    };
    let valid = |schema| {
        let mut errors = Vec::new();
        check(root, schema, value, at, &mut errors);
        errors.is_empty()
    };
    let number = |rule: &Value| rule.as_f64().expect("a number");
    let items = || value.as_array().into_iter().flatten().enumerate();
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            // Annotations.
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            "$ref" => {
                let place = rule.as_str().and_then(|place| place.strip_prefix('#')).expect("a place in this schema");
                check(root, root.pointer(place).expect("there is such a place"), value, at, errors);
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "const" => value == rule,
            "enum" => list(rule).contains(value),
            "anyOf" => list(rule).iter().any(valid),
            "oneOf" => list(rule).iter().filter(|schema| valid(schema)).count() == 1,
            "minimum" => value.as_f64().is_none_or(|value| value >= number(rule)),
            "minItems" => value.as_array().is_none_or(|list| list.len() as f64 >= number(rule)),
            "maxItems" => value.as_array().is_none_or(|list| list.len() as f64 <= number(rule)),
            "required" => {
                list(rule).iter().all(|key| !value.is_object() || value.get(key.as_str().expect("a key")).is_some())
            }
            "prefixItems" => {
                for ((index, item), schema) in items().zip(list(rule)) {
                    check(root, schema, item, &format!("{at}/{index}"), errors);
                }
                true
            }
            "items" => {
                let others = rules.get("prefixItems").map_or(0, |first| list(first).len());
                for (index, item) in items().skip(others) {
                    check(root, rule, item, &format!("{at}/{index}"), errors);
                }
                true
            }
            "properties" | "patternProperties" | "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if let Some(schema) = of_key(rules, keyword, key) {
                        check(root, schema, value, &format!("{at}/{key}"), errors);
                    }
                }
                true
            }
            _ => panic!("no test knows the keyword {keyword}"),
        };
        if !holds {
            errors.push(format!("{at}: not as {keyword} {rule}"));
        }
    }
}

fn list(rule: &Value) -> &[Value] {
    rule.as_array().expect("a list")
}

/// Returns the schema that `keyword` has for the value of `key`.
fn of_key<'a>(rules: &'a serde_json::Map<String, Value>, keyword: &str, key: &str) -> Option<&'a Value> {
    const NUMBERS: &str = r"^\d+$";
    let rule = rules.get(keyword)?;
    match keyword {
        "properties" => rule.get(key),
        "patternProperties" => {
            let patterns = rule.as_object().expect("patterns with schemas");
            assert!(patterns.keys().all(|pattern| pattern == NUMBERS), "other patterns than {NUMBERS}: {patterns:?}");
            let number = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
            patterns.get(NUMBERS).filter(|_| number)
        }
        _ => {
            let known = ["properties", "patternProperties"];
            known.into_iter().find_map(|keyword| of_key(rules, keyword, key)).is_none().then_some(rule)
        }
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keyword_refuses_what_it_should() {
        for (schema, good, bad) in [
            (json!(false), None, json!(1)),
            (json!({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}), Some(json!("x")), json!(1)),
            (json!({"type": ["integer", "null"]}), Some(json!(3.0)), json!(3.5)),
            (json!({"type": "number"}), Some(json!(3.5)), json!(true)),
            (json!({"const": "a"}), Some(json!("a")), json!("b")),
            (json!({"enum": ["a", null]}), Some(json!(null)), json!("b")),
            (json!({"anyOf": [{"type": "boolean"}, {"type": "array"}]}), Some(json!([])), json!({})),
            (json!({"oneOf": [{"type": "integer"}, {"minimum": 5}]}), Some(json!(4)), json!(6)),
            (json!({"minimum": 0}), Some(json!(0)), json!(-1)),
            (json!({"minItems": 1, "maxItems": 2}), Some(json!([1])), json!([])),
            (json!({"minItems": 1, "maxItems": 2}), Some(json!([1])), json!([1, 2, 3])),
            (json!({"required": ["a"]}), Some(json!({"a": null})), json!({"b": 1})),
            (json!({"prefixItems": [true], "items": {"type": "null"}}), Some(json!([1, null])), json!([1, 1])),
            (json!({"prefixItems": [{"type": "null"}]}), Some(json!([null, 1])), json!([1])),
            (json!({"properties": {"a": {"type": "null"}}}), Some(json!({"a": null, "b": 1})), json!({"a": 1})),
            (json!({"properties": {"a": true}, "additionalProperties": false}), Some(json!({"a": 1})), json!({"b": 1})),
            (
                json!({"patternProperties": {r"^\d+$": {"type": "null"}}, "additionalProperties": false}),
                Some(json!({"12": null})),
                json!({"12": 1}),
            ),
            (json!({"patternProperties": {r"^\d+$": true}, "additionalProperties": false}), None, json!({"1a": 1})),
        ] {
            assert_eq!(good.map(|good| errors(&schema, &good)).unwrap_or_default(), [""; 0], "{schema}");
            assert!(!errors(&schema, &bad).is_empty(), "{schema}: {bad}");
        }
        assert_eq!(errors(&json!({"items": {"minimum": 1}}), &json!([1, 0])), ["/1: not as minimum 1"]);
    }

    #[test]
    #[should_panic(expected = "pattern")]
    fn a_keyword_that_is_not_known_is_no_permission() {
        let _ = errors(&json!({"pattern": "a"}), &json!("b"));
    }
}
