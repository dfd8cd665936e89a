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

/// `recvfrom(-1, null, 0)`: fails before it receives.
pub(crate) fn receive_from_another(_: u32) -> bool {
    // SAFETY: there is no room to write to.
    unsafe { libc::syscall(libc::SYS_recvfrom, -1, std::ptr::null_mut::<u8>(), 0, 0, 0, 0) == 0 }
}

/// `perf_event_open` without an attribute, for this thread.
pub(crate) fn perf_event_open(_: u32) -> bool {
    // SAFETY: the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::null::<u8>(), 0, -1, -1, 0) >= 0 }
}

/// KVM_RUN on a descriptor that is not there.
pub(crate) fn kvm_run(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_ioctl, -1, 0xae80, 0) == 0 }
}
