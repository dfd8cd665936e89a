//! Solves for the instructions of each path, from the numbers executed on known ways.

use std::collections::BTreeMap;

use sim::guest::paths::Path;

use super::scripted::Ways;

/// Ways gone between two accesses, and the payload's instructions there.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) ways: BTreeMap<Ways, u64>,
    /// One way, and numbers of instructions that differ.
    conflict: Option<(Ways, [u64; 2])>,
}

impl Measured {
    pub(crate) fn add(&mut self, ways: &Ways, instructions: u64) {
        match self.ways.get(ways) {
            None => {
                self.ways.insert(ways.clone(), instructions);
            }
            Some(&known) if known == instructions => {}
            Some(&known) => self.conflict = Some((ways.clone(), [known, instructions])),
        }
    }

    /// Returns what is wrong with the table, and the right numbers; `None` if it is right.
    pub(crate) fn verdict(&self) -> Option<String> {
        if let Some((ways, counts)) = &self.conflict {
            return Some(format!("{counts:?} instructions on one way, which needs more paths: {ways:?}"));
        }
        match changes(&self.ways) {
            Ok(found) if found.is_empty() => None,
            Ok(found) => {
                let lines: Vec<_> = found.iter().map(|(path, n)| format!("    {path:?} = {n},")).collect();
                Some(format!("These numbers explain all that was executed:\n{}", lines.join("\n")))
            }
            Err(ways) => Some(format!("No numbers explain {} ways, as {:?}", ways.len(), ways.first())),
        }
    }
}

/// Ways whose instructions no numbers explain.
type Unexplained = Vec<(Ways, u64)>;

/// The paths whose numbers are others than the table's: those that explain all of `measured` with the fewest changes
/// that elimination finds, or the ways that no numbers explain.
fn changes(measured: &BTreeMap<Ways, u64>) -> Result<Vec<(Path, i64)>, Unexplained> {
    let wrong = |ways: &Ways| -> i64 { ways.iter().map(|(path, n)| (path.instructions() * n).cast_signed()).sum() };
    // Each way is one equation for the growth of its paths' numbers.
    let mut rows: Vec<(BTreeMap<Path, f64>, f64)> = Vec::new();
    for (ways, &count) in measured {
        let mut row: BTreeMap<Path, f64> = ways.iter().map(|(&path, &n)| (path, n as f64)).collect();
        let mut rest = (count.cast_signed() - wrong(ways)) as f64;
        for (pivots, known) in &rows {
            let pivot = *pivots.keys().next().expect("a pivot");
            if let Some(&factor) = row.get(&pivot) {
                subtract(&mut row, pivots, factor);
                rest -= factor * known;
            }
        }
        if let Some((&pivot, &factor)) = row.iter().next() {
            for value in row.values_mut() {
                *value /= factor;
            }
            rest /= factor;
            for (others, known) in &mut rows {
                if let Some(&factor) = others.get(&pivot) {
                    subtract(others, &row, factor);
                    *known -= factor * rest;
                }
            }
            let at = rows.partition_point(|(others, _)| others.keys().next() < Some(&pivot));
            rows.insert(at, (row, rest));
        }
    }
    // Paths that nothing tells apart keep the table's numbers.
    let found: Vec<_> = rows
        .iter()
        .filter_map(|(row, grows)| Some((*row.keys().next()?, grows.round() as i64)))
        .filter(|&(_, grows)| grows != 0)
        .map(|(path, grows)| (path, path.instructions().cast_signed() + grows))
        .collect();
    let by_path: BTreeMap<Path, i64> = found.iter().copied().collect();
    let explained = |ways: &Ways| -> i64 {
        let instructions = |path: &Path| by_path.get(path).copied().unwrap_or(path.instructions().cast_signed());
        ways.iter().map(|(path, &n)| instructions(path) * n.cast_signed()).sum()
    };
    let unexplained: Vec<_> = measured
        .iter()
        .filter(|&(ways, &count)| explained(ways) != count.cast_signed())
        .map(|(ways, &count)| (ways.clone(), count))
        .collect();
    if unexplained.is_empty() { Ok(found) } else { Err(unexplained) }
}

fn subtract(from: &mut BTreeMap<Path, f64>, row: &BTreeMap<Path, f64>, factor: f64) {
    for (&path, &value) in row {
        let entry = from.entry(path).or_default();
        *entry -= factor * value;
        if entry.abs() < 1e-6 {
            from.remove(&path);
        }
    }
}
