//! Signals of the calling thread.
#![expect(unsafe_code, reason = "signal masks and waits have no safe interface in libc")]

/// Blocks `signal` on the calling thread and on the threads it starts.
pub(crate) fn block_signal(signal: libc::c_int) {
    // SAFETY: all-zero is a valid sigset_t, which outlives the calls; nothing else is taken.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Takes what pends of the blocked `signal`, and returns how many there were.
pub(crate) fn take_signals(signal: libc::c_int) -> u64 {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut taken = 0;
    // SAFETY: all-zero is a valid sigset_t; it and the time outlive the calls, which keep nothing.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        while libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) == signal {
            taken += 1;
        }
    }
    taken
}
