//! Guest counts and host counts.

/// Guest counts per host count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    guest: u64,
    host: u64,
}

impl Scale {
    /// One for one.
    pub const ONE: Self = Self { guest: 1, host: 1 };

    /// Creates a scale of `guest` counts for each `host` counts; both at least 1.
    #[must_use]
    pub const fn new(guest: u64, host: u64) -> Self {
        Self { guest: if guest == 0 { 1 } else { guest }, host: if host == 0 { 1 } else { host } }
    }

    /// Creates the scale from ns of a clock to TSC ticks.
    #[must_use]
    pub const fn ns_to_tsc(tsc_khz: u64) -> Self {
        Self::new(tsc_khz, 1_000_000)
    }

    /// Returns the guest counts of `host` host counts, rounded down.
    #[must_use]
    pub fn to_guest(self, host: u64) -> u64 {
        let guest = u128::from(host) * u128::from(self.guest) / u128::from(self.host);
        u64::try_from(guest).unwrap_or(u64::MAX)
    }

    /// Returns the smallest host count that is at least `guest` guest counts, and at least 1.
    #[must_use]
    pub fn to_host(self, guest: u64) -> u64 {
        let host = (u128::from(guest) * u128::from(self.host)).div_ceil(u128::from(self.guest));
        // perf refuses a period with the top bit set.
        u64::try_from(host).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// When the host has counted a scaled period, the guest's period has passed: no overflow is signalled early.
        #[test]
        fn a_scaled_period_is_never_short(guest in 1..1u64 << 48, num in 1..10_000_000u64, den in 1..10_000_000u64) {
            let scale = Scale::new(num, den);
            let host = scale.to_host(guest);
            prop_assert!(scale.to_guest(host) >= guest || host == i64::MAX as u64);
            prop_assert!(host == 1 || scale.to_guest(host - 1) < guest);
        }
    }
}
