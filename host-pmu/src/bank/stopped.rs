//! Decides when counters whose event stopped itself at its overflow are started again.

use arch_pmu::spec::{CounterId, CounterSet};

/// Counters with a stopped event. They stay so for one entry with a PMI: its handler is expected to turn the counter off first of
/// all, which makes a restart a waste.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stopped {
    /// Counters whose event stopped since the last entry.
    new: CounterSet,
    /// Counters left stopped at the last entry.
    left: CounterSet,
}

impl Stopped {
    /// Notes that the counter overflowed and its event stopped.
    pub(super) fn insert(&mut self, counter: CounterId) {
        self.new.insert(counter);
    }

    /// Has the counter started again before the next entry, with or without a PMI.
    pub(super) fn restart(&mut self, counter: CounterId) {
        self.left.insert(counter);
    }

    /// Forgets the counter, which is reprogrammed.
    pub(super) fn remove(&mut self, counter: CounterId) {
        self.new.remove(counter);
        self.left.remove(counter);
    }

    /// Returns whether there is none.
    pub(super) const fn is_empty(self) -> bool {
        self.new.is_empty() && self.left.is_empty()
    }

    /// Takes the counters to start again at an entry that delivers a PMI, or none.
    pub(super) const fn due(&mut self, pmi: bool) -> CounterSet {
        let mut due = std::mem::replace(&mut self.left, CounterSet::EMPTY);
        let new = std::mem::replace(&mut self.new, CounterSet::EMPTY);
        if pmi {
            self.left = new;
        } else {
            due.extend(new);
        }
        due
    }

    /// Takes the counters to start again after all, because no handler starts at this entry.
    pub(super) const fn pmi_not_handled(&mut self) -> CounterSet {
        std::mem::replace(&mut self.left, CounterSet::EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(counters: impl IntoIterator<Item = usize>) -> CounterSet {
        counters.into_iter().filter_map(CounterId::gp).collect()
    }

    fn stopped(n: usize) -> Stopped {
        let mut stopped = Stopped::default();
        stopped.insert(CounterId::gp(n).unwrap());
        stopped
    }

    #[test]
    fn one_entry_with_a_pmi_leaves_a_counter_stopped() {
        let mut stopped = stopped(1);
        assert_eq!([stopped.due(true), stopped.due(true), stopped.due(true)], [set([]), set([1]), set([])]);
    }

    #[test]
    fn without_a_pmi_or_its_handler_nothing_waits() {
        assert_eq!(stopped(1).due(false), set([1]));
        let mut unhandled = stopped(2);
        assert_eq!((unhandled.due(true), unhandled.pmi_not_handled()), (set([]), set([2])));
        assert_eq!(unhandled.due(false), set([]));
    }

    #[test]
    fn a_counter_that_was_reprogrammed_is_not_due() {
        let mut stopped = stopped(3);
        stopped.restart(CounterId::gp(0).unwrap());
        stopped.remove(CounterId::gp(3).unwrap());
        assert_eq!(stopped.due(true), set([0]), "a restart waits for no handler");
        assert_eq!(stopped.due(false), set([]));
    }
}
