//! Runs in order of time whose neighbours are alike: the one model for two sides taken one after the other, and for a history.

use super::jackknife::Estimate;

/// Largest correlation of neighbours that is allowed for.
const MOST: f64 = 0.9;
/// Short series show less correlation than there is: by about so much over their length (Marriott and Pope).
const HIDDEN: f64 = 3.0;

/// Estimates the last of these columns' coefficients by generalized least squares. The correlation of neighbours is that of what
/// plain least squares leave.
pub fn last(values: &[f64], columns: &[Vec<f64>]) -> Estimate {
    let left = fit(values, columns, 0.0).1;
    let lag: f64 = left.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let all = product(&left, &left);
    let seen = if all > 0.0 { lag / all } else { 0.0 };
    // How related they are is not known well from few values: a standard error more counts.
    let n = values.len() as f64;
    fit(values, columns, (seen + HIDDEN / n + 1.0 / n.sqrt()).clamp(0.0, MOST)).0
}

/// Returns the last coefficient at a correlation, and what all of them leave of the values.
fn fit(values: &[f64], columns: &[Vec<f64>], correlation: f64) -> (Estimate, Vec<f64>) {
    let own = (1.0 - correlation * correlation).sqrt();
    let unrelated = |values: &[f64]| -> Vec<f64> {
        let rest = values.windows(2).map(|pair| pair[1] - correlation * pair[0]);
        values.first().map(|first| own * first).into_iter().chain(rest).collect()
    };
    let mut bases: Vec<Vec<f64>> = Vec::new();
    let (mut left, mut value, mut size) = (unrelated(values), 0.0, 0.0);
    for column in columns {
        let mut base = unrelated(column);
        for other in &bases {
            take_away(&mut base, other);
        }
        (value, size) = (take_away(&mut left, &base), product(&base, &base));
        bases.push(base);
    }
    let freedom = (values.len() as f64 - columns.len() as f64).max(1.0);
    (Estimate { value, error: (product(&left, &left) / freedom / size).sqrt(), freedom }, left)
}

/// Takes out of values what a column explains; returns its coefficient.
fn take_away(values: &mut [f64], column: &[f64]) -> f64 {
    let share = product(values, column) / product(column, column);
    values.iter_mut().zip(column).for_each(|(value, column)| *value -= share * column);
    share
}

/// Returns the sum of products.
pub(super) fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Random;

    /// Returns how often "no step" is refused at 5 %, and how often the interval holds a step, of 400 series of 8 and 8.
    fn rates(correlation: f64, step: f64) -> (usize, usize) {
        let side: Vec<f64> = (0..16).map(|run| f64::from(u8::from(run >= 8))).collect();
        let of = |seed| {
            let noise = Random::new(seed).related(16, correlation);
            let values: Vec<f64> = noise.iter().zip(&side).map(|(noise, side)| noise + step * side).collect();
            last(&values, &[vec![1.0; 16], side.clone()])
        };
        let found: Vec<Estimate> = (0..400).map(of).collect();
        let holds = |one: &&Estimate| one.interval().low <= step && step <= one.interval().high;
        (found.iter().filter(|one| one.p() < 0.05).count(), found.iter().filter(holds).count())
    }

    #[test]
    fn alike_neighbours_widen_the_interval() {
        let (alarms, holds) = rates(0.0, 0.0);
        assert!(alarms <= 28 && holds >= 372, "{alarms}, {holds} of 400");
        let (alarms, _) = rates(0.7, 0.0);
        assert!(alarms <= 90, "{alarms} of 400");
        assert!(rates(0.0, 4.0).0 >= 396);
    }
}
