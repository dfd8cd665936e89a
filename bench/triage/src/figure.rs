//! Numbers for readers: three digits, with a unit prefix.

/// Three significant digits: `0.012`, `3.40`, `571`, `12.3k`, `4.56M`.
pub(crate) fn figure(value: f64) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // 999.6 would be shown as 1000.
    let found = prefixes.iter().find(|(unit, _)| value.abs() >= 0.9995 * unit);
    let (scaled, prefix) = found.map_or((value, ""), |(unit, prefix)| (value / unit, *prefix));
    let magnitude = scaled.abs();
    let decimals = match magnitude {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 || m == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.decimals$}");
    // Whole numbers need no decimals.
    let text = if text.contains('.') && text.trim_end_matches('0').ends_with('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    format!("{text}{prefix}")
}

/// A share of a whole, in percent.
pub(crate) fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "none".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0124, "0.012"),
            (2.0, "2"),
            (3.401, "3.40"),
            (12.345, "12.3"),
            (571.4, "571"),
            (999.7, "1k"),
            (12_345.0, "12.3k"),
            (4.564e6, "4.56M"),
            (1.9e9, "1.90G"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!((percent(1, 3), percent(0, 0)), ("33.3 %".to_owned(), "none".to_owned()));
    }
}
