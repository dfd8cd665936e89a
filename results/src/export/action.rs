//! github-action-benchmark's own JSON, for its tool `customSmallerIsBetter`: a list of name, unit, value, range, extra.

use serde_json::{Value, json};

use super::named::named;
use crate::document::Record;
use crate::error::{Error, one_line};

/// Formats the records as that list.
///
/// # Errors
/// Exit 2 for two figures under one name.
pub fn text(records: &[Record]) -> Result<String, Error> {
    let rows = named(records)?.into_iter().map(|row| {
        let range = row.spread.map_or_else(|| "0".to_owned(), |(low, high)| format!("{:.0}", (high - low) / 2.0));
        let stand_in = if row.arm.stand_in { ", a stand-in" } else { "" };
        json!({
            "name": row.name,
            "unit": "ns",
            "value": row.metric.median(),
            "range": range,
            "extra": one_line(&format!(
                "median of {} values; backend {}{stand_in}; {}",
                row.metric.count, row.arm.backend, row.record.host.class
            )),
        })
    });
    Ok(format!("{:#}\n", Value::Array(rows.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn entries_have_what_the_action_requires_and_say_what_is_a_stand_in() {
        let (_dir, record) = fixture::written(&fixture::document(2));
        let list: Vec<Value> = serde_json::from_str(&text(&[record]).unwrap()).unwrap();
        assert!(list.len() >= 8);
        for entry in &list {
            assert!(entry["name"].is_string() && entry["unit"] == "ns" && entry["value"].is_f64(), "{entry}");
        }
        let recreate = list.iter().find(|e| e["name"].as_str().is_some_and(|n| n.contains("/recreate/nmi"))).unwrap();
        assert!(recreate["extra"].as_str().unwrap().contains("cpu-clock, a stand-in; development host"), "{recreate}");
    }
}
