//! Student's t-test of two samples with a common variance.

use statrs::function::beta::beta_reg;

/// Returns mean and sum of squared deviations.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum())
}

/// Returns the two-sided p value; 1 where there are too few values to tell.
pub(super) fn p(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() || a.len() + b.len() <= 2 {
        return 1.0;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let ((mean_a, squares_a), (mean_b, squares_b)) = (moments(a), moments(b));
    let free = n + m - 2.0;
    let variance = (squares_a + squares_b) / free;
    let difference = mean_a - mean_b;
    if variance <= 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t2 = difference * difference / (variance * (1.0 / n + 1.0 / m));
    // P(|T| > t) = I_x(ν/2, 1/2) with x = ν / (ν + t²).
    beta_reg(free / 2.0, 0.5, (free / (free + t2)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_published_tables() {
        // Student's sleep data (R's t.test(extra ~ group, var.equal = TRUE)): t = -1.8608, df = 18, p = 0.07919.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        assert!((p(&one, &two) - 0.07919).abs() < 5e-6, "{}", p(&one, &two));
        // t = 2.228 is the two-sided 5 % point of 10 degrees of freedom.
        let t2 = 2.228_138_852_f64.powi(2);
        assert!((beta_reg(5.0, 0.5, 10.0 / (10.0 + t2)) - 0.05).abs() < 1e-6);
    }

    #[test]
    fn what_cannot_differ_does_not() {
        assert!((p(&[1.0], &[2.0]) - 1.0).abs() < 1e-12);
        assert!((p(&[1.0, 1.0], &[1.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!(p(&[1.0, 1.0], &[2.0, 2.0]) < 1e-12);
        assert!((p(&[], &[2.0, 3.0, 4.0]) - 1.0).abs() < 1e-12);
    }
}
