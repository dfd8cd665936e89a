//! A queue of samples from a vCPU's thread to one reader. Neither side waits or allocates.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a queue: a second of samples at 4 kHz with chains of thirty.
const WORDS: usize = 1 << 17;
/// Most entries of a call chain, over both parts.
pub const MOST_ENTRIES: usize = 126;
/// Most events of a recording: each has its count of losses.
pub const MOST_EVENTS: usize = 64;
/// Words ahead of the entries.
const FIXED: usize = 5;
/// Most words of a sample.
pub(super) const MOST_WORDS: usize = FIXED + MOST_ENTRIES;

/// Flags of a sample.
pub(super) mod flag {
    /// The vCPU was at privilege level 3.
    pub(in crate::sample) const USER: u64 = 1;
    /// The overflow came while the host handled an exit of the guest.
    pub(in crate::sample) const AT_EXIT: u64 = 2;
    /// The chain's part at level 0 was not followed to its end.
    pub(in crate::sample) const KERNEL_BROKEN: u64 = 4;
    /// Flag of a chain that broke off at level 3.
    pub(in crate::sample) const USER_BROKEN: u64 = 8;
    /// The part at level 0 ended at code that no unwind table is known of.
    pub(in crate::sample) const NO_TABLE: u64 = 16;
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The event's number.
    pub event: usize,
    /// Time of the overflow, CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// Counts since the overflow before.
    pub period: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// True if the vCPU was at privilege level 3.
    pub user: bool,
    /// True if the host was handling an exit at this instruction.
    pub at_exit: bool,
    /// For each part of the chain, level 0 and level 3, whether it was followed to its end.
    pub complete: [bool; 2],
    /// The part at level 0 is broken since code of the kernel has no unwind table that is known.
    pub no_table: bool,
    /// The chain, innermost first, from `rip` on: level 0, then level 3.
    pub chain: [Vec<u64>; 2],
}

/// Samples of one vCPU.
#[derive(Debug)]
pub struct Queue {
    words: Box<[AtomicU64]>,
    /// Words ever written, and ever read.
    head: AtomicU64,
    tail: AtomicU64,
    /// For each event, samples that found no room, and overflows for which the kernel had no room.
    lost: [[AtomicU64; 2]; MOST_EVENTS],
    /// Times the kernel throttled an event.
    throttled: AtomicU64,
}

impl Default for Queue {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            words: (0..WORDS).map(|_| zero()).collect(),
            head: zero(),
            tail: zero(),
            lost: std::array::from_fn(|_| [zero(), zero()]),
            throttled: zero(),
        }
    }
}

impl Queue {
    /// Adds a sample of these words; one without room is counted. For one thread.
    pub(super) fn push(&self, words: &[u64]) {
        let head = self.head.load(Ordering::Relaxed);
        let used = head - self.tail.load(Ordering::Acquire);
        if used as usize + words.len() > WORDS {
            let event = words.first().map_or(0, |&first| first as u32 as usize);
            self.lose(event, 0, 1);
            return;
        }
        for (at, &word) in words.iter().enumerate() {
            self.words[(head as usize + at) % WORDS].store(word, Ordering::Relaxed);
        }
        self.head.store(head + words.len() as u64, Ordering::Release);
    }

    fn lose(&self, event: usize, by: usize, count: u64) {
        self.lost[event.min(MOST_EVENTS - 1)][by].fetch_add(count, Ordering::Relaxed);
    }

    /// Notes overflows of an event that the kernel had no room for.
    pub(super) fn lost_by_kernel(&self, event: usize, count: u64) {
        self.lose(event, 1, count);
    }

    /// Notes how often the kernel throttled an event.
    pub(super) fn throttled(&self, times: u64) {
        self.throttled.fetch_add(times, Ordering::Relaxed);
    }

    /// Takes the oldest sample. For one thread.
    pub fn pop(&self) -> Option<Sample> {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail == self.head.load(Ordering::Acquire) {
            return None;
        }
        let word = |at: usize| self.words[(tail as usize + at) % WORDS].load(Ordering::Relaxed);
        let (first, lengths) = (word(0), word(4));
        let (kernel, user) = (lengths as u32 as usize, (lengths >> 32) as usize);
        let flags = first >> 32;
        let part = |from: usize, length: usize| (from..from + length).map(|at| word(FIXED + at)).collect();
        let sample = Sample {
            event: first as u32 as usize,
            time: word(1),
            period: word(2),
            rip: word(3),
            user: flags & flag::USER != 0,
            at_exit: flags & flag::AT_EXIT != 0,
            complete: [flags & flag::KERNEL_BROKEN == 0, flags & flag::USER_BROKEN == 0],
            no_table: flags & flag::NO_TABLE != 0,
            chain: [part(0, kernel), part(kernel, user)],
        };
        self.tail.store(tail + (FIXED + kernel + user) as u64, Ordering::Release);
        Some(sample)
    }

    /// Returns the samples that were lost so far, by this queue and by the kernel's rings, and how often the kernel
    /// throttled an event.
    pub fn lost(&self) -> (u64, u64, u64) {
        let all = (0..MOST_EVENTS).map(|event| self.lost_of(event));
        let [lost, by_kernel] = all.fold([0, 0], |sum, lost| [sum[0] + lost[0], sum[1] + lost[1]]);
        (lost, by_kernel, self.throttled.load(Ordering::Relaxed))
    }

    /// Returns the losses of one event, by its number: in this queue, and in the kernel's ring.
    pub fn lost_of(&self, event: usize) -> [u64; 2] {
        self.lost.get(event).map_or([0; 2], |lost| lost.each_ref().map(|by| by.load(Ordering::Relaxed)))
    }
}

/// A sample as words, for a fixed place in memory.
#[derive(Debug)]
pub(super) struct Words {
    all: [u64; MOST_WORDS],
    kernel: usize,
    user: usize,
}

/// First entry of a chain that perf takes for a mark (`PERF_CONTEXT_MAX`).
const MARKS: u64 = (-4095_i64).cast_unsigned();
/// No system maps code at its first page.
const LEAST: u64 = 0x1000;
/// The upper half is the kernel's, with four levels of page tables and with five.
const LAST_OF_USER: u64 = i64::MAX as u64;

impl Words {
    pub(super) const fn new() -> Self {
        Self { all: [0; MOST_WORDS], kernel: 0, user: 0 }
    }

    pub(super) const fn begin(&mut self, rip: u64) {
        (self.kernel, self.user) = (0, 0);
        self.all[3] = rip;
    }

    /// Adds the sample's own instruction as the first entry; returns whether it was added.
    pub(super) fn first(&mut self, user: bool) -> bool {
        self.entry(user, self.all[3])
    }

    /// Adds an entry; `false`: there is no room, or no code of that ring can be there. To perf the highest addresses are marks.
    pub(super) fn entry(&mut self, user: bool, address: u64) -> bool {
        if !(LEAST..MARKS).contains(&address) || (user && address > LAST_OF_USER) {
            return false;
        }
        let Some(place) = self.all.get_mut(FIXED + self.kernel + self.user) else { return false };
        *place = address;
        if user {
            self.user += 1;
        } else {
            self.kernel += 1;
        }
        true
    }

    /// Returns the sample of one overflow.
    pub(super) fn of(&mut self, event: usize, time: u64, period: u64, flags: u64) -> &[u64] {
        self.all[0] = event as u64 | flags << 32;
        self.all[1] = time;
        self.all[2] = period;
        self.all[4] = self.kernel as u64 | (self.user as u64) << 32;
        &self.all[..FIXED + self.kernel + self.user]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_as_they_went_in_and_none_is_lost_silently() {
        let queue = Queue::default();
        let mut words = Words::new();
        words.begin(10);
        assert!(words.entry(false, 0x1010) && words.entry(false, 0x1011) && words.entry(true, 0x1012));
        queue.push(words.of(3, 5, 7, flag::AT_EXIT | flag::USER_BROKEN | flag::NO_TABLE));
        let sample = Sample {
            event: 3,
            time: 5,
            period: 7,
            rip: 10,
            user: false,
            at_exit: true,
            complete: [true, false],
            no_table: true,
            chain: [vec![0x1010, 0x1011], vec![0x1012]],
        };
        assert_eq!((queue.pop(), queue.pop()), (Some(sample), None));
        let length = words.of(0, 0, 0, 0).len();
        let fit = WORDS / length;
        for at in 0..fit + 5 {
            queue.push(words.of(if at < fit { 0 } else { 2 }, 0, 0, 0));
        }
        let taken = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!((taken, queue.lost()), (fit, (5, 0, 0)));
        queue.lost_by_kernel(1, 7);
        queue.throttled(2);
        assert_eq!([0, 1, 2, MOST_EVENTS].map(|event| queue.lost_of(event)), [[0, 0], [0, 7], [5, 0], [0, 0]]);
        assert_eq!(queue.lost(), (5, 7, 2));
        // Around the end of the ring.
        queue.push(words.of(1, 2, 3, 0));
        assert_eq!(queue.pop().unwrap().chain, [vec![0x1010, 0x1011], vec![0x1012]]);
    }

    #[test]
    fn a_chain_is_bounded() {
        let mut words = Words::new();
        words.begin(0);
        let room = (0x1000..0x2000).take_while(|&n| words.entry(true, n)).count();
        assert_eq!((room, words.of(0, 0, 0, 0).len()), (MOST_ENTRIES, MOST_WORDS));
    }

    #[test]
    fn what_is_no_code_ends_a_chain() {
        let mut words = Words::new();
        words.begin(0x1010);
        for mark in [0, 0xfff, u64::MAX, (-128_i64).cast_unsigned(), (-4095_i64).cast_unsigned()] {
            assert!(!words.entry(true, mark) && !words.entry(false, mark), "{mark:#x}");
        }
        assert!(!words.entry(true, 1 << 63) && words.entry(false, 1 << 63) && words.entry(true, 1 << 56));
    }
}
