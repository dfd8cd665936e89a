//! Raw system calls of a confined thread.
#![expect(unsafe_code, reason = "calls that no library makes")]

/// Makes system call `number`; returns whether it succeeded. The arguments are of calls that change nothing: their
/// descriptors, files and processes are not there, or they name memory of which nothing refers to.
pub(crate) fn call(number: i64, with: [i64; 6]) -> bool {
    // SAFETY: the kernel checks every pointer, and none of the calls changes memory that is in use.
    unsafe { libc::syscall(number, with[0], with[1], with[2], with[3], with[4], with[5]) >= 0 }
}

/// Returns the calling thread's id.
pub(crate) fn gettid() -> i64 {
    // SAFETY: takes and keeps nothing.
    unsafe { libc::gettid() }.into()
}
