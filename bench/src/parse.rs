//! Values as users write them: durations, sizes, bounded numbers.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Reads a duration like `4ms`, `250us`, `1.5s`: a decimal number and one of ns, us, µs, ms, s, m.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let ns_per_unit: u64 = match unit.trim() {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "" => return Err("a duration needs its unit: ns, us, ms, s or m, e.g. 4ms".to_owned()),
        _ => return Err("unknown unit; give ns, us, ms, s or m, e.g. 4ms".to_owned()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err("not a number; give e.g. 4ms or 1.5s".to_owned());
    }
    if fraction.len() > 12 {
        return Err("more than 12 decimals".to_owned());
    }
    // Integers all the way: 0.1s is exactly 100 ms.
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| "too many digits".to_owned())?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let ns = digits
        .checked_mul(u128::from(ns_per_unit))
        .map(|ns| ns / scale)
        .and_then(|ns| u64::try_from(ns).ok())
        .ok_or_else(|| "too long".to_owned())?;
    Ok(Duration::from_nanos(ns))
}

/// A duration within `range`.
pub fn duration_in(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = duration(text)?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(format!("{value:?} is out of range; give {:?} to {:?}", range.start(), range.end()))
        }
    }
}

/// A whole number within `range`; `_` may group digits.
pub fn number_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value: u64 = text
            .replace('_', "")
            .parse()
            .map_err(|_| format!("not a whole number; give {} to {}", range.start(), range.end()))?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(format!("{value} is out of range; give {} to {}", range.start(), range.end()))
        }
    }
}

/// A size in bytes like `256M` within `range`: a whole number and K, M or G; a multiple of 4K.
pub fn size_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let text = text.trim();
        let (number, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
            Some(b'K') => (&text[..text.len() - 1], 10),
            Some(b'M') => (&text[..text.len() - 1], 20),
            Some(b'G') => (&text[..text.len() - 1], 30),
            _ => return Err("a size needs its unit: K, M or G, e.g. 256M".to_owned()),
        };
        let bad = || "not a size; give e.g. 256M".to_owned();
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let bytes = number.parse::<u64>().map_err(|_| bad())?.checked_mul(1 << shift).filter(|b| range.contains(b));
        let bytes =
            bytes.ok_or_else(|| format!("out of range; give {}M to {}G", range.start() >> 20, range.end() >> 30))?;
        if bytes.is_multiple_of(4096) { Ok(bytes) } else { Err("not a multiple of 4K".to_owned()) }
    }
}

/// An architectural PMU version that a guest may see.
pub fn pmu_version(text: &str) -> Result<u64, String> {
    match text {
        "2" => Ok(2),
        "4" => Ok(4),
        _ => Err("possible values: 2, 4".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_of_every_unit() {
        for (text, ns) in [
            ("1ns", 1),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("4ms", 4_000_000),
            ("4 ms", 4_000_000),
            ("1.5s", 1_500_000_000),
            ("0.1s", 100_000_000),
            ("2m", 120_000_000_000),
            ("0.0005ms", 500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for bad in [
            "",
            "4",
            "ms",
            "-4ms",
            "4h",
            "1.2.3s",
            ".5s",
            "1.s",
            "4ms4",
            "1e3s",
            "99999999999999999999999999s",
            "99999999999999999999999999999999999999999999s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_keep_to_their_range() {
        let parse = number_in(1..=100_000);
        assert_eq!(parse("10_000"), Ok(10_000));
        assert!(parse("0").unwrap_err().contains("1 to 100000"));
        assert!(parse("-1").is_err());
        assert!(parse("99999999999999999999").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let _ = duration(&text);
            let _ = number_in(1..=9)(&text);
            let _ = text.parse::<crate::strategy::StrategyChoice>();
        }

        #[test]
        fn a_duration_in_ns_is_exact(ns in 0_u64..=u64::MAX) {
            prop_assert_eq!(duration(&format!("{ns}ns")), Ok(Duration::from_nanos(ns)));
        }
    }
}
