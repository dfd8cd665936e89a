//! The serial output's way from the vCPU threads, which may not write to files, to the thread that writes it.

use std::io::Write;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::oops::{Complaints, Watch};
use super::output::{OUTPUT_LIMIT, Output};

/// Bytes that wait at most; then the guest waits.
const WAITING_MAX: usize = 64 << 10;

#[derive(Debug)]
struct State {
    waiting: Vec<u8>,
    /// No more bytes come.
    closed: bool,
    /// The run stops: the guest no longer waits for room.
    abandoned: bool,
    /// The writing thread waits for bytes.
    idle: bool,
}

/// Bytes on their way to the console.
#[derive(Debug)]
pub struct Console {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
}

impl Default for Console {
    fn default() -> Self {
        let state = State { waiting: Vec::with_capacity(WAITING_MAX), closed: false, abandoned: false, idle: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), drained: Condvar::new() }
    }
}

impl Console {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking holder leaves whole bytes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the input: [`write_to`](Self::write_to) ends.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    /// Lets the guest no longer wait for room; what has none is lost.
    pub fn abandon(&self) {
        self.lock().abandoned = true;
        self.drained.notify_all();
    }

    /// Takes a byte of the guest's, which waits for room.
    pub(super) fn put(&self, byte: u8) {
        let mut state = self.lock();
        while state.waiting.len() == WAITING_MAX && !state.abandoned {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push(byte);
        }
        if mem::take(&mut state.idle) {
            self.filled.notify_one();
        }
    }

    /// Writes at most [`OUTPUT_LIMIT`] bytes to `out` until the console is closed. Returns the state of the output and what a Linux
    /// kernel complained about.
    pub fn write_to(&self, out: &mut dyn Write) -> (Output, Complaints) {
        self.write_up_to(OUTPUT_LIMIT, out)
    }

    fn write_up_to(&self, mut left: u64, out: &mut dyn Write) -> (Output, Complaints) {
        let (mut output, mut watch) = (Output::default(), Watch::default());
        let mut bytes = Vec::with_capacity(WAITING_MAX);
        while self.next(&mut bytes) {
            watch.read(&bytes);
            let passed = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            left -= passed as u64;
            output.dropped += (bytes.len() - passed) as u64;
            if output.error.is_none() && passed > 0 {
                output.error = out.write_all(&bytes[..passed]).and_then(|()| out.flush()).err();
            }
        }
        (output, watch.finish())
    }

    /// Waits for bytes and takes them; `false` when no more come.
    fn next(&self, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            state.idle = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle = false;
        mem::swap(&mut state.waiting, bytes);
        self.drained.notify_all();
        !bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(console: &Console, bytes: &[u8]) {
        for byte in bytes {
            console.put(*byte);
        }
    }

    #[test]
    fn all_bytes_arrive_although_few_can_wait() {
        let (console, mut out) = (Console::default(), Vec::new());
        let text: Vec<u8> = (0..3 * WAITING_MAX).map(|n| n as u8).collect();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| console.write_to(&mut out));
            put(&console, &text);
            console.close();
            let (output, complaints) = thread.join().unwrap();
            assert!(output.error.is_none() && output.dropped == 0 && complaints.is_empty());
        });
        assert_eq!(out, text);
    }

    #[test]
    fn a_run_that_stops_does_not_wait_for_room() {
        let console = Console::default();
        put(&console, &vec![1; WAITING_MAX]);
        std::thread::scope(|scope| {
            let guest = scope.spawn(|| put(&console, &[2; 9]));
            console.abandon();
            guest.join().unwrap();
        });
        console.close();
        let mut out = Vec::new();
        let (output, _) = console.write_up_to(10, &mut out);
        assert_eq!((out, output.dropped), (vec![1; 10], WAITING_MAX as u64 - 10), "a flood is cut");
    }

    #[test]
    fn an_error_of_the_output_is_kept_and_the_guest_goes_on() {
        let (console, mut none) = (Console::default(), [0; 4]);
        put(&console, b"[    1.000000] Dazed and confused");
        console.close();
        let (output, complaints) = console.write_to(&mut &mut none[..]);
        assert!(output.error.is_some());
        assert_eq!(complaints.lines().len(), 1);
    }
}
