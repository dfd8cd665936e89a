//! Count rates of host events.

use std::collections::BTreeMap;

use super::read::Section;

/// Fractional bits of a rate.
const RATE_SHIFT: u32 = 20;
/// Base of the count of host events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountBase {
    /// Time in guest mode in the selected rings: a hardware event with `exclude_host`.
    GuestTime,
    /// Time of the vCPU thread: a clock as stand-in.
    ThreadTime,
    /// Exits of the vCPU to userspace: tracepoint `kvm:kvm_userspace_exit` as stand-in.
    Exits,
}

/// Counts per nanosecond (per exit, where those are counted), in units of 2^-20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    rate: u64,
    /// 2^64 / `rate`, rounded down: a product with it takes the place of a division at each period.
    reciprocal: u64,
}

impl Rate {
    /// Creates a rate in units of 2^-20.
    const fn new(rate: u64) -> Self {
        // A rate of 0 or 1 does not use the reciprocal, which would not fit.
        Self { rate, reciprocal: if rate > 1 { ((1_u128 << 64) / rate as u128) as u64 } else { 0 } }
    }

    /// Returns the counts in `ns` (or in as many exits).
    #[inline]
    #[must_use]
    pub const fn counts(self, ns: u64) -> u64 {
        ((ns as u128 * self.rate as u128) >> RATE_SHIFT) as u64
    }

    /// Returns the least ns for `counts`; `u64::MAX` at rate 0.
    #[inline]
    #[must_use]
    pub fn ns_for(self, counts: u64) -> u64 {
        if self.rate > 1 && counts <= u64::MAX >> RATE_SHIFT {
            let shifted = counts << RATE_SHIFT;
            // The reciprocal is rounded down by less than 1, so the quotient is at most 1 too small.
            let quotient = ((u128::from(shifted) * u128::from(self.reciprocal)) >> 64) as u64;
            let rest = shifted - quotient * self.rate;
            quotient + u64::from(rest > 0) + u64::from(rest > self.rate)
        } else {
            self.ns_for_many(counts)
        }
    }

    #[cold]
    fn ns_for_many(self, counts: u64) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        let ns = (u128::from(counts) << RATE_SHIFT).div_ceil(u128::from(self.rate));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Base, default rate, and rates by umask << 8 | event code.
pub(super) type Counts = (CountBase, Rate, BTreeMap<u16, Rate>);

pub(super) fn counts(section: &mut Section<'_>) -> Result<Counts, String> {
    let (base, unit, per) = match section.text("follow")?.as_str() {
        "guest-time" => (CountBase::GuestTime, "per-us", 1000.0),
        "thread-time" => (CountBase::ThreadTime, "per-us", 1000.0),
        "exits" => (CountBase::Exits, "per-exit", 1.0),
        other => return Err(format!("counts.follow: '{other}' is none of guest-time, thread-time and exits")),
    };
    let default = rate(section.number("default", unit)?, per);
    let mut rates = BTreeMap::new();
    let events = section.optional_section("events", |events| {
        for key in events.keys() {
            let code = key.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
            let code = code.ok_or_else(|| format!("{}: not an umask and event code in hex", events.path(&key)))?;
            rates.insert(code, rate(events.number(&key, unit)?, per));
        }
        Ok(())
    });
    events?;
    Ok((base, default, rates))
}

/// Returns the rate of `counts` per `per` ns or exits; `counts` is finite and not negative.
fn rate(counts: f64, per: f64) -> Rate {
    #[expect(clippy::cast_sign_loss, reason = "checked by the reader")]
    Rate::new((counts * f64::from(1 << RATE_SHIFT) / per).round().min(1e12) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The counts are reached after the ns of `ns_for`, and not before.
        #[test]
        fn ns_for_is_the_least(rate in 1..1u64 << 34, counts in 1..1u64 << 47) {
            let rate = Rate::new(rate);
            let ns = rate.ns_for(counts);
            if ns < u64::MAX {
                prop_assert!(rate.counts(ns) >= counts);
                prop_assert!(rate.counts(ns - 1) < counts);
            }
        }

        /// The product is the division.
        #[test]
        fn ns_for_is_the_quotient(rate: u64, shift in 0..64u32, counts: u64, by in 0..64u32) {
            let (rate, counts) = (rate >> shift, counts >> by);
            let quotient = (u128::from(counts) << RATE_SHIFT).checked_div(u128::from(rate)).map(|whole| {
                whole + u128::from(whole * u128::from(rate) != u128::from(counts) << RATE_SHIFT)
            });
            let expected = quotient.map_or(u64::MAX, |ns| u64::try_from(ns).unwrap_or(u64::MAX));
            prop_assert_eq!(Rate::new(rate).ns_for(counts), expected);
        }
    }
}
