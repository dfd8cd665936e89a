//! Shows how the time between KVM_RUN's return and the next KVM_RUN is spent (feature `exit-points`, never in a
//! release): the TSC at named points of each MSR exit, and how often each number of ticks passed between two of them.
//!
//! `cargo bench -p vmm --features exit-points --bench exit_points` prints the table of a real guest.

use std::sync::{Mutex, PoisonError};

use crate::sys;

/// A point of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The exit is an owned value, and whether the guest ran is known.
    Decoded,
    /// The vPMU has done the access.
    Accessed,
    /// It is counted.
    Handled,
    /// KVM has its answer.
    Answered,
    /// The kick was looked at.
    Kicked,
    /// All work that was due before the entry is done: overflows of a kick, deferred work, the strategy's release, PMIs.
    Prepared,
    /// Ready for KVM_RUN: the end of `exit_path_ns`.
    Ready,
}

impl Point {
    /// Every point, in the order of the way.
    pub const ALL: [Self; 7] =
        [Self::Decoded, Self::Accessed, Self::Handled, Self::Answered, Self::Kicked, Self::Prepared, Self::Ready];

    /// Describes the work that is done by then.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Decoded => "exit decoded",
            Self::Accessed => "access done by the vPMU",
            Self::Handled => "access counted",
            Self::Answered => "answer given to KVM",
            Self::Kicked => "kick looked at",
            Self::Prepared => "what is due done: PMIs, release",
            Self::Ready => "ready for KVM_RUN",
        }
    }
}

/// Most ticks that are distinguished.
const MOST: usize = 4096;

/// For each point, how often each number of ticks passed since the point before it.
type Steps = [Vec<u64>; Point::ALL.len()];

/// Sums over all vCPUs that handed theirs over.
static STEPS: Mutex<Option<Steps>> = Mutex::new(None);

/// The points of one vCPU.
#[derive(Debug)]
pub(super) struct Points {
    /// TSC at each point of the exit that is under way.
    at: [u64; Point::ALL.len()],
    steps: Steps,
}

impl Points {
    pub(super) fn new() -> Self {
        Self { at: [0; Point::ALL.len()], steps: std::array::from_fn(|_| vec![0; MOST]) }
    }

    /// Notes that the vCPU is at `point`.
    #[inline]
    pub(super) fn pass(&mut self, point: Point) {
        self.passed(point, sys::rdtsc());
    }

    /// Notes that it was there at TSC `at`.
    #[inline]
    pub(super) const fn passed(&mut self, point: Point, at: u64) {
        self.at[point as usize] = at;
    }

    /// Ends the exit, with KVM_RUN's return at `returned`.
    #[inline]
    pub(super) fn over(&mut self, returned: u64) {
        let mut before = returned;
        for (at, steps) in self.at.iter().zip(&mut self.steps) {
            let ticks = at.saturating_sub(std::mem::replace(&mut before, *at));
            steps[(ticks as usize).min(MOST - 1)] += 1;
        }
    }

    /// Adds its counts to the sum of all, and begins anew.
    pub(super) fn hand_over(&mut self) {
        let mut all = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(|| std::array::from_fn(|_| vec![0; MOST]));
        for (mine, all) in self.steps.iter_mut().zip(all) {
            mine.iter_mut().zip(all).for_each(|(mine, all)| *all += std::mem::take(mine));
        }
    }
}

/// Returns this CPU's time-stamp counter, as a point reads it.
pub fn now() -> u64 {
    sys::rdtsc()
}

/// Takes the ticks of a share of the steps to each point, in hundredths, over all that was handed over since the last call. `None`:
/// nothing.
pub fn take(shares: &[u64]) -> Option<Vec<(Point, u64, Vec<u64>)>> {
    let steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let quantiles = |(point, steps): (Point, &Vec<u64>)| {
        let count = steps.iter().sum();
        (point, count, shares.iter().map(|&share| quantile(steps, count, share)).collect())
    };
    Some(Point::ALL.into_iter().zip(&steps).map(quantiles).collect())
}

fn quantile(steps: &[u64], count: u64, share: u64) -> u64 {
    let wanted = count * share / 100;
    let mut seen = 0;
    let at = steps.iter().position(|times| {
        seen += times;
        seen > wanted
    });
    at.unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_since_the_point_before() {
        let mut points = Points::new();
        for end in [70, 70, 7000] {
            points.at = [10, 20, 30, 40, 50, 60, end];
            points.over(7);
        }
        points.hand_over();
        let table = take(&[50, 99]).unwrap();
        assert_eq!(table.first(), Some(&(Point::Decoded, 3, vec![3, 3])));
        assert_eq!(table[1..6].iter().map(|line| line.2[0]).collect::<Vec<_>>(), [10; 5]);
        assert_eq!(table.last(), Some(&(Point::Ready, 3, vec![10, 4095])));
        assert_eq!(take(&[50]), None);
    }
}
