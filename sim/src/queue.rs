//! Order in which the vCPUs of one host are simulated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// vCPUs by virtual time, then by number.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Queue {
    /// Adds `vcpu` at `time`.
    pub fn push(&mut self, time: u64, vcpu: usize) {
        self.next.push(Reverse((time, vcpu)));
    }

    /// Removes and returns the earliest.
    pub fn pop(&mut self) -> Option<usize> {
        self.next.pop().map(|Reverse((_, vcpu))| vcpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_times_and_lower_numbers_go_first() {
        let mut queue = Queue::default();
        for (time, vcpu) in [(5, 0), (3, 2), (3, 1), (9, 3)] {
            queue.push(time, vcpu);
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [1, 2, 0, 3]);
    }
}
