//! Estimates how much one quantity follows another from round to round.

/// Returns the slope of `y` over `x` by least absolute deviations over pairs of values far apart in time; 0 where `x` never differs.
///
/// A pair gives a slope; the slopes' median, weighted by the pairs' distances in `x`, is the one that minimizes the sum of
/// absolute deviations. Pairs of neighbours would see only what changes fast.
#[must_use]
pub fn slope(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len().min(y.len());
    let mut slopes: Vec<(f64, f64)> = Vec::with_capacity(3 * n);
    for apart in [n / 2, n / 3, 1] {
        for i in 0..n.saturating_sub(apart.max(1)) {
            let (dx, dy) = (x[i + apart] - x[i], y[i + apart] - y[i]);
            if dx != 0.0 && apart > 0 {
                slopes.push((dy / dx, dx.abs()));
            }
        }
    }
    slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = slopes.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut seen = 0.0;
    slopes
        .iter()
        .find(|(_, weight)| {
            seen += weight;
            seen >= half
        })
        .map_or(0.0, |(slope, _)| *slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_whatever_is_far_out() {
        let x: Vec<f64> = (0..40).map(|i| f64::from(i * 7 % 11)).collect();
        let mut y: Vec<f64> = x.iter().map(|x| 0.8 * x + 3.0).collect();
        assert!((slope(&x, &y) - 0.8).abs() < 1e-9);
        y[3] = 500.0;
        y[20] = -90.0;
        assert!((slope(&x, &y) - 0.8).abs() < 0.05);
        assert!(slope(&[1.0; 9], &[2.0; 9]).abs() < 1e-12 && slope(&[], &[]).abs() < 1e-12);
    }
}
