//! Decides when a run may look at its intervals, to end once they are narrow enough.

/// Fewest guests of an arm, or pairs of `ab`, before the first look.
pub const MIN_LOOKED_AT: usize = 10;
/// Number of consecutive looks that must find every interval narrow enough.
const IN_A_ROW: u32 = 2;

/// The looks of a run, and what they found.
///
/// Looking after each guest picks moments at which an interval happens to be narrow, and covers the truth too seldom.
/// With two looks in a row, the second after a quarter more guests, it does so as often as it says
/// (docs/evidence.md).
#[derive(Debug)]
pub struct Looks {
    guests: usize,
    next: usize,
    good: u32,
}

impl Default for Looks {
    fn default() -> Self {
        Self { guests: 0, next: MIN_LOOKED_AT, good: 0 }
    }
}

impl Looks {
    /// Returns whether the run may end; asked after each guest of an arm, or pair. `is_reached` says whether the
    /// intervals are narrow enough now.
    pub fn are_enough(&mut self, is_reached: impl FnOnce() -> bool) -> bool {
        self.guests += 1;
        if self.guests < self.next {
            return false;
        }
        self.next += self.next.div_ceil(4);
        self.good = if is_reached() { self.good + 1 } else { 0 };
        self.good >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_in_a_row_must_be_good() {
        let ends = |good: &dyn Fn(usize) -> bool| {
            let mut looks = Looks::default();
            (1..100).find(|guests| looks.are_enough(|| good(*guests)))
        };
        assert_eq!(ends(&|_| true), Some(13));
        assert_eq!(ends(&|guests| guests != 13), Some(22), "looks are after 10, 13, 17 and 22 guests");
        assert_eq!(ends(&|guests| [10, 17, 28, 44, 69].contains(&guests)), None);
    }
}
