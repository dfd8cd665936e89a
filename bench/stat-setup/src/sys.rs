//! System calls and raw memory accesses of this crate.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};

/// Words of a CPU mask: the maximum of CONFIG_NR_CPUS is 8192, and the kernel refuses a mask shorter than its own.
const MASK_LONGS: usize = 8192 / 64;

fn checked(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Calls `perf_event_open` for everything on one CPU, close-on-exec.
pub(crate) fn open(attr: &perf_event_attr, cpu: u32, leader: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    let group = leader.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: `attr` outlives the call and its size field is that of the structure; the kernel keeps no pointer to it.
    let fd = checked(unsafe {
        perf::perf_event_open(&raw mut attr, -1, cpu.cast_signed(), group, u64::from(PERF_FLAG_FD_CLOEXEC) as _)
    })?;
    // SAFETY: the kernel just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls IOC_ENABLE.
pub(crate) fn enable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the ioctl takes no pointer.
    checked(unsafe { perf::ioctls::ENABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Calls IOC_DISABLE.
pub(crate) fn disable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the ioctl takes no pointer.
    checked(unsafe { perf::ioctls::DISABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Reads an event; returns the number of complete words.
pub(crate) fn read(fd: &OwnedFd, words: &mut [u64]) -> io::Result<usize> {
    // SAFETY: the buffer is `size_of_val(words)` writable bytes, and any bytes are valid u64s.
    let got = unsafe { libc::read(fd.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(words)) };
    usize::try_from(got).map(|bytes| bytes / size_of::<u64>()).map_err(|_| io::Error::last_os_error())
}

/// Closes one descriptor and returns the result.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: `into_raw_fd` gave up the ownership; nothing uses the number after this.
    checked(unsafe { libc::close(fd.into_raw_fd()) }).map(drop)
}

/// Closes descriptors, consecutive numbers with one call.
pub(crate) fn close_all(fds: impl IntoIterator<Item = OwnedFd>) {
    let mut raw: Vec<libc::c_int> = fds.into_iter().map(IntoRawFd::into_raw_fd).collect();
    raw.sort_unstable();
    let mut rest = raw.as_slice();
    while let [first, ..] = *rest {
        let run = rest.iter().zip(first..).take_while(|&(&fd, expected)| fd == expected).count();
        let last = rest[run - 1];
        // SAFETY: every number from `first` to `last` is a descriptor of `fds`, whose ownership was given up above.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        rest = &rest[run..];
    }
}

/// Gives the calling thread a private descriptor table with the standard streams only.
pub(crate) fn own_descriptor_table() -> io::Result<()> {
    const UNSHARE: libc::c_uint = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: takes no pointer; descriptors of other threads stay open in their table, of which only the standard
    // streams are copied.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, UNSHARE) };
    if closed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the calling thread's descriptor table large enough for `more` descriptors, at once rather than by doubling.
pub(crate) fn make_room(more: usize) {
    let last = libc::c_int::try_from(more + 16).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes no pointer. Without a standard error, or above the limit, the table grows as it is filled.
    let fd = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, last) };
    if fd >= 0 {
        // SAFETY: the kernel just returned this descriptor; nothing else knows it.
        unsafe { libc::close(fd) };
    }
}

/// A CPU set in the kernel's layout.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Mask([u64; MASK_LONGS]);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..8192_u32).filter(|&cpu| self.has(cpu))).finish()
    }
}

impl Mask {
    /// Makes a set of one CPU. A number beyond the mask gives the empty set, which the kernel refuses.
    pub(crate) fn one(cpu: u32) -> Self {
        let mut mask = Self([0; MASK_LONGS]);
        if let Some(long) = mask.0.get_mut(cpu as usize / 64) {
            *long |= 1 << (cpu % 64);
        }
        mask
    }

    /// Returns whether the set contains `cpu`.
    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|long| long >> (cpu % 64) & 1 == 1)
    }
}

/// Returns the calling thread's CPU mask.
pub(crate) fn affinity() -> io::Result<Mask> {
    let mut mask = Mask([0; MASK_LONGS]);
    // SAFETY: the kernel writes at most the size given into `mask`.
    unsafe { checked(libc::sched_getaffinity(0, size_of_val(&mask.0), mask.0.as_mut_ptr().cast())) }?;
    Ok(mask)
}

/// Binds the calling thread.
pub(crate) fn set_affinity(mask: &Mask) -> io::Result<()> {
    // SAFETY: the kernel reads the size given from `mask`.
    unsafe { checked(libc::sched_setaffinity(0, size_of_val(&mask.0), mask.0.as_ptr().cast())) }.map(drop)
}

/// Returns the CPU the calling thread is on.
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: takes no pointer.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Returns soft and hard RLIMIT_NOFILE.
pub(crate) fn file_limit() -> io::Result<(u64, u64)> {
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `value` is a valid rlimit for the kernel to fill.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut value) })?;
    Ok((value.rlim_cur, value.rlim_max))
}

/// Sets the soft RLIMIT_NOFILE.
pub(crate) fn set_file_limit(soft: u64, hard: u64) -> io::Result<()> {
    let value = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `value` is a valid rlimit that outlives the call.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const value) }).map(drop)
}

/// Touches `pages` new pages: as many minor faults on the current CPU.
pub(crate) fn fault_pages(pages: usize) -> io::Result<()> {
    // SAFETY: sysconf takes no pointer.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
    let len = page * pages;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping at an address chosen by the kernel.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: accesses and unmaps only the range mapped above.
    unsafe {
        libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
        for i in 0..pages {
            at.cast::<u8>().add(i * page).write_volatile(1);
        }
        libc::munmap(at, len);
    }
    Ok(())
}
