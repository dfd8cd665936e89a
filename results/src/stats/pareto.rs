//! Pareto fronts: which candidates no other beats.

/// Returns whether `one` is as good as `other` in each objective and better in one. Smaller is better.
pub fn dominates(one: &[f64], other: &[f64]) -> bool {
    let mut pairs = one.iter().zip(other);
    pairs.clone().all(|(a, b)| a <= b) && pairs.any(|(a, b)| a < b)
}

/// Returns for each candidate whether no other one dominates it.
pub fn front<P: AsRef<[f64]>>(candidates: &[P]) -> Vec<bool> {
    candidates.iter().map(|own| !candidates.iter().any(|other| dominates(other.as_ref(), own.as_ref()))).collect()
}
