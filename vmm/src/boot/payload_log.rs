//! The log of a payload that runs, for a reader beside it. No vCPU's thread takes part.

use guest::abi::{LOG_NMI, LogEntry, Words as _};
use vm_memory::GuestMemoryMmap;

use super::layout::Layout;
use super::payload::read;

/// Most entries of one look: few, since most looks find few.
const MOST: u64 = 64;

/// The logs of a payload's vCPUs in its memory. Whatever the guest writes is data to be distrusted.
#[derive(Clone, Debug)]
pub struct PayloadLog {
    memory: GuestMemoryMmap,
    layout: Layout,
}

impl PayloadLog {
    pub(crate) fn new(memory: &GuestMemoryMmap, layout: Layout) -> Self {
        Self { memory: memory.clone(), layout }
    }

    /// Returns the ticks of the NMI handler's runs that vCPU `cpu` logged from entry `next` on, which moves behind them. An entry that is
    /// half written is left for the next look.
    pub fn handler_ticks(&self, cpu: usize, next: &mut u64) -> Vec<u64> {
        let room = self.layout.log_entries().saturating_sub(*next).min(MOST);
        let at = self.layout.log(cpu) + *next * (LogEntry::COUNT * 8) as u64;
        if room == 0 || cpu >= self.layout.vcpus() {
            return Vec::new();
        }
        let Ok(entries) = read::<LogEntry>(&self.memory, at, room as usize) else { return Vec::new() };
        let written = entries.into_iter().take_while(|entry| entry.kind != 0 && entry.tsc_exit != 0 && entry.rip != 0);
        let seen = written.inspect(|_| *next += 1).filter(|entry| entry.kind == LOG_NMI);
        seen.filter_map(|entry| entry.tsc_exit.checked_sub(entry.tsc_entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::payload::{allocate, write_words};
    use super::*;

    #[test]
    fn entries_are_read_once_and_half_written_ones_later() {
        let layout = Layout::new(2, 3);
        let memory = allocate(&layout).unwrap();
        let log = PayloadLog::new(&memory, layout);
        let put = |n: u64, entry: LogEntry| {
            let mut words = Vec::new();
            entry.for_each_word(&mut |word| words.push(word));
            write_words(&memory, layout.log(1) + n * 8 * LogEntry::COUNT as u64, &words).unwrap();
        };
        let nmi = LogEntry { kind: LOG_NMI, tsc_entry: 100, tsc_exit: 130, rip: 1, ..LogEntry::default() };
        let mut next = 0;
        assert!(log.handler_ticks(1, &mut next).is_empty());
        put(0, nmi);
        put(1, LogEntry { tsc_exit: 0, ..nmi });
        assert_eq!((log.handler_ticks(1, &mut next), next), (vec![30], 1));
        put(1, LogEntry { kind: 2, ..nmi });
        put(2, LogEntry { tsc_entry: 0, ..nmi });
        assert_eq!((log.handler_ticks(1, &mut next), next), (vec![130], 3), "rotations are no NMIs");
        assert!(log.handler_ticks(1, &mut next).is_empty() && next == 3, "the log is full");
        assert!(log.handler_ticks(0, &mut 0).is_empty() && log.handler_ticks(9, &mut 0).is_empty());
        // A handler that ended before it began is none.
        put(0, LogEntry { tsc_entry: 200, ..nmi });
        assert!(log.handler_ticks(1, &mut 0).len() == 1);
    }
}
