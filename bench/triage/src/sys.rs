//! System calls, calls of the C library and raw memory accesses of this crate.
#![expect(unsafe_code, reason = "system calls, rand(), shared memory of perf")]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};

unsafe extern "C" {
    /// rand(3): one generator for the process, behind a lock.
    safe fn rand() -> libc::c_int;
    /// Calls rand_r(3): the generator is the caller's.
    fn rand_r(seed: *mut libc::c_uint) -> libc::c_int;
}

/// Draws a number of the process's generator.
pub(crate) fn shared_random() -> i32 {
    rand()
}

/// Draws a number of the caller's own generator.
pub(crate) fn own_random(seed: &mut u32) -> i32 {
    // SAFETY: `seed` is a valid, exclusive pointer for the call.
    unsafe { rand_r(seed) }
}

/// Opens an event of a process on any CPU (-1) or on one, close-on-exec.
pub(crate) fn open(attr: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    // SAFETY: `attr` outlives the call and its size field is that of the structure; the kernel keeps no pointer to it.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, pid, cpu, -1, u64::from(PERF_FLAG_FD_CLOEXEC) as _) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets an event count, in every task that has inherited it as well.
pub(crate) fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: an ioctl without a pointer on a descriptor of perf.
    if unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Times that the threads of this process gave up their CPU by themselves.
pub(crate) fn voluntary_switches() -> u64 {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which cannot fail for this process.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_nvcsw.cast_unsigned()
}

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes no pointer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn map(len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap gave the zero page"))
}

/// New private pages, none of them present yet.
#[derive(Debug)]
pub(crate) struct Pages {
    at: NonNull<u8>,
    len: usize,
}

impl Pages {
    /// Maps `count` pages, and never as huge ones.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let len = count * page_size();
        let at = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        // SAFETY: the range was mapped above. A kernel without huge pages refuses, which changes nothing.
        unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        Ok(Self { at, len })
    }

    /// Writes to each page: a fault each, the first time.
    #[inline(never)]
    pub(crate) fn touch(&mut self) {
        for at in (0..self.len).step_by(page_size()) {
            // SAFETY: within the mapping, which this value owns.
            unsafe { self.at.as_ptr().add(at).write_volatile(1) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference into it exists.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// The buffer of a sampled event: a page of the kernel's, then a ring of 2^n pages.
#[derive(Debug)]
pub(crate) struct Ring {
    at: NonNull<u8>,
    page: usize,
    size: usize,
}

impl Ring {
    /// Maps the buffer of `fd` with a ring of `pages`, a power of two.
    pub(crate) fn new(fd: &OwnedFd, pages: usize) -> io::Result<Self> {
        let page = page_size();
        let at = map(page * (1 + pages), libc::MAP_SHARED, fd.as_raw_fd())?;
        Ok(Self { at, page, size: page * pages })
    }

    /// Moves what the kernel has written to the end of `into`.
    pub(crate) fn drain(&mut self, into: &mut Vec<u8>) {
        let head = self.position(std::mem::offset_of!(perf_event_mmap_page, data_head));
        let tail = self.position(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        // Acquire: the records up to the head were written before it.
        let (end, begin) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let length = usize::try_from(end.wrapping_sub(begin)).unwrap_or(usize::MAX).min(self.size);
        let first = begin as usize % self.size;
        let until_wrap = length.min(self.size - first);
        for (from, count) in [(first, until_wrap), (0, length - until_wrap)] {
            // SAFETY: both ranges are within the ring, and the kernel writes none of it before the tail moves.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.at.as_ptr().add(self.page + from), count)
            });
        }
        // Release: the copies were made before the kernel may overwrite.
        tail.store(end, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page of the mapping.
        let at = unsafe { self.at.add(offset) }.cast::<AtomicU64>();
        debug_assert!(at.is_aligned(), "the offset of a u64 of a page");
        // SAFETY: an aligned u64 of the mapping, which lives as long as `self`; the kernel and this process access it
        // as a whole only.
        unsafe { at.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference into it exists.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.page + self.size) };
    }
}
