//! Raw system calls of a confined thread.
#![expect(unsafe_code, reason = "calls that no library makes")]

/// `tgkill(process, this thread, signal 0)`: nothing is sent, but whether it may be is checked.
pub(crate) fn tgkill(process: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_tgkill, process, libc::gettid(), 0) == 0 }
}

/// `kill(process, 0)`.
pub(crate) fn kill(process: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_kill, process, 0) == 0 }
}

/// `tkill(this thread, 0)`.
pub(crate) fn tkill(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_tkill, libc::gettid(), 0) == 0 }
}

/// `rt_sigqueueinfo(process, 0, null)`, which would fail anyway.
pub(crate) fn sigqueue(process: u32) -> bool {
    // SAFETY: the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, 0, std::ptr::null::<u8>()) == 0 }
}

/// KVM_SET_USER_MEMORY_REGION on a descriptor that is not there.
pub(crate) fn set_user_memory_region(_: u32) -> bool {
    // SAFETY: fails before it reads anything.
    unsafe { libc::syscall(libc::SYS_ioctl, -1, 0x4020_ae46, std::ptr::null::<u8>()) == 0 }
}
