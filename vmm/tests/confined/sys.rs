//! Raw system calls of a confined thread.
#![expect(unsafe_code, reason = "calls that no library makes")]

use std::ptr::{null, null_mut, without_provenance_mut};

use host_pmu::kick::Owner;

/// A page that may hold the owner of a vCPU's events.
const OWNER: usize = Owner::END - PAGE;
const PAGE: usize = 4096;

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

/// `execve` of no file.
pub(crate) fn execve(_: u32) -> bool {
    // SAFETY: the kernel checks the pointers.
    unsafe { libc::syscall(libc::SYS_execve, null::<u8>(), null::<u8>(), null::<u8>()) == 0 }
}

/// `socket(AF_INET, SOCK_DGRAM)`.
pub(crate) fn socket(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0) >= 0 }
}

/// `tgkill` of the first thread of this process, which is under no filter, by signal 0.
pub(crate) fn tgkill_the_first_thread(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::getpid(), 0) == 0 }
}

/// `rt_sigaction(SIGUSR1, null, null)`.
pub(crate) fn sigaction(_: u32) -> bool {
    // SAFETY: without structures it changes and tells nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, libc::SIGUSR1, null::<u8>(), null_mut::<u8>(), 8) == 0 }
}

/// F_SETOWN_EX with another process as owner, of a descriptor that is not there.
pub(crate) fn set_owner(process: u32) -> bool {
    let owner = [1, process];
    // SAFETY: the structure outlives the call.
    unsafe { libc::syscall(libc::SYS_fcntl, -1, Owner::COMMAND, owner.as_ptr()) == 0 }
}

/// F_SETSIG of a descriptor that is not there.
pub(crate) fn set_signal(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_fcntl, -1, 10, libc::SIGKILL) == 0 }
}

/// F_SETFL with O_ASYNC of stdin.
pub(crate) fn signal_of_stdin(_: u32) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_fcntl, 0, libc::F_SETFL, libc::O_ASYNC) == 0 }
}

/// `mprotect` of an owner's page.
pub(crate) fn unprotect_owner(_: u32) -> bool {
    // SAFETY: nothing of this process is there, or an owner, which nobody refers to.
    unsafe { libc::syscall(libc::SYS_mprotect, OWNER, PAGE, libc::PROT_WRITE) == 0 }
}

/// `munmap` of an owner's page.
pub(crate) fn unmap_owner(_: u32) -> bool {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_munmap, OWNER, PAGE) == 0 }
}

/// `mremap` of a page that is not there to that of an owner.
pub(crate) fn remap_over_owner(_: u32) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_mremap, 1_usize << 40, PAGE, PAGE, flags, OWNER) != -1 }
}

/// `mmap` of a page over that of an owner.
pub(crate) fn map_over_owner(_: u32) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: as above.
    unsafe { libc::mmap(without_provenance_mut(OWNER), PAGE, libc::PROT_WRITE, flags, -1, 0) != libc::MAP_FAILED }
}

/// TIOCSTI on a descriptor that is not there.
pub(crate) fn type_a_key(_: u32) -> bool {
    // SAFETY: fails before it reads anything.
    unsafe { libc::syscall(libc::SYS_ioctl, -1, libc::TIOCSTI, null::<u8>()) == 0 }
}
