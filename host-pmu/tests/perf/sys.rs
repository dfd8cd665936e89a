//! Signals of the calling thread.
#![expect(unsafe_code, reason = "signal masks have no safe interface in libc")]

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
