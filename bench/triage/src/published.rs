//! Published figures of the same kind, from `results/published.toml`.

use results::published::PUBLISHED;
use toml::{Table, Value};

use crate::account::Published;

/// Keys that are numbers of a figure.
const NUMBERS: [&str; 5] = ["before", "after", "ratio", "change", "rows"];

/// The figures of these ids that are there.
#[must_use]
pub fn figures(ids: &[&str]) -> Vec<Published> {
    of(PUBLISHED, ids)
}

fn of(text: &str, ids: &[&str]) -> Vec<Published> {
    let table: Table = text.parse().unwrap_or_default();
    let rows = table.get("figure").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table);
    let rows: Vec<&Table> = rows.collect();
    let named = |id: &&str| rows.iter().find(|row| row.get("id").and_then(Value::as_str) == Some(id));
    ids.iter().filter_map(named).map(|row| published(row)).collect()
}

fn published(row: &Table) -> Published {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let numbers = NUMBERS.iter().filter_map(|key| match row.get(*key)? {
        Value::Array(values) => Some(values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        value => Some(format!("{key} {value}")),
    });
    let figures = format!("{} ({})", numbers.collect::<Vec<_>>().join(", "), text("unit"));
    let source = if row.contains_key("source") { text("source") } else { "results/published.toml".to_owned() };
    Published { id: text("id"), source, what: text("what"), figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    #[test]
    fn figures_are_as_they_are_published() {
        let text = "[[figure]]\nid = \"a\"\nseed = \"001.txt\"\nwhat = \"w\"\nunit = \"s\"\nbefore = 2.5\nratio = 3\n\
                    [[figure]]\nid = \"b\"\nsource = \"a blog\"\nwhat = \"v\"\nunit = \"s\"\nrows = [1, 2.0]\n";
        let found = of(text, &["b", "none", "a"]);
        assert_eq!((found[0].figures.as_str(), found[0].source.as_str()), ("1, 2.0 (s)", "a blog"));
        assert_eq!(
            (found[1].figures.as_str(), found[1].source.as_str()),
            ("before 2.5, ratio 3 (s)", "results/published.toml")
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn the_seeds_figure_of_rand_is_there() {
        let rand = workloads::Workload::named("rand").unwrap();
        assert!(figures(rand.figures).iter().any(|figure| figure.id == "event-practice.rand"));
    }
}
