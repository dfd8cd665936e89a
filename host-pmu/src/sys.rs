//! Every system call and raw memory access of this crate.
#![expect(unsafe_code, reason = "the crate's only door to the kernel")]

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_header, perf_event_mmap_page};
use vmm_sys_util::signal::create_sigset;

// From <fcntl.h>; the libc crate lacks them for glibc.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// The kernel takes a pointer, where perf-event-open-sys 7.1 passes the value.
const IOC_PERIOD: libc::Ioctl = perf_event_open_sys::bindings::PERIOD as libc::Ioctl;

#[repr(C)]
struct FOwnerEx {
    type_: libc::c_int,
    pid: libc::pid_t,
}

fn checked(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Opens an event on the calling thread, any CPU, in the group of `leader` if there is one.
pub(crate) fn open_on_this_thread(mut attr: perf_event_attr, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let (group, flags) = (leader.map_or(-1, AsRawFd::as_raw_fd), u64::from(PERF_FLAG_FD_CLOEXEC) as _);
    // SAFETY: `attr` outlives the call and its size field is that of the structure; the kernel keeps no pointer to it.
    let fd = checked(unsafe { perf::perf_event_open(&raw mut attr, 0, -1, group, flags) })?;
    // SAFETY: the kernel just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Enables an event (IOC_ENABLE); one in error state is scheduled again.
pub(crate) fn enable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the ioctl takes no pointer.
    checked(unsafe { perf::ioctls::ENABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Disables an event (IOC_DISABLE).
pub(crate) fn disable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the ioctl takes no pointer.
    checked(unsafe { perf::ioctls::DISABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Returns the kernel's number of an event (IOC_ID).
pub(crate) fn event_id(fd: &OwnedFd) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the kernel writes one u64 to a pointer valid for the call.
    checked(unsafe { perf::ioctls::ID(fd.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Sets the period of an event (IOC_PERIOD).
pub(crate) fn set_period(fd: &OwnedFd, period: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one u64 from a pointer valid for the call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_PERIOD, &raw const period) }).map(drop)
}

/// Sends the records of `fd` to the buffer of `ring` (IOC_SET_OUTPUT).
pub(crate) fn set_output(fd: &OwnedFd, ring: &OwnedFd) -> io::Result<()> {
    // SAFETY: the ioctl takes a descriptor, not a pointer.
    checked(unsafe { perf::ioctls::SET_OUTPUT(fd.as_raw_fd(), ring.as_raw_fd()) }).map(drop)
}

/// Reads an event: its count, or of a group (PERF_FORMAT_GROUP | PERF_FORMAT_ID) the number of events, then the count and id of
/// each. Gives the u64s that were read; 0 at end of file, which is how a pinned event in error state reads.
pub(crate) fn read(fd: &OwnedFd, into: &mut [u64]) -> io::Result<usize> {
    // SAFETY: the buffer is that many writable bytes.
    let got = unsafe { libc::read(fd.as_raw_fd(), into.as_mut_ptr().cast(), size_of_val(into)) };
    usize::try_from(got).map(|bytes| bytes / size_of::<u64>()).map_err(|_| io::Error::last_os_error())
}

/// Has overflows of `fd` raise SIGIO on the calling thread.
///
/// F_SETOWN, whose argument a filter can read, will not do: its signal is the process's, of which one pends at most, so
/// the overflow of a second thread would be lost.
pub(crate) fn signal_this_thread(fd: &OwnedFd) -> io::Result<()> {
    let locked = OWNER.get();
    let unlocked = FOwnerEx { type_: F_OWNER_TID, pid: if locked == 0 { gettid() } else { 0 } };
    let owner = if locked == 0 { &raw const unlocked } else { std::ptr::with_exposed_provenance(locked) };
    // SAFETY: both calls take an integer or a pointer to a structure that outlives them; the kernel refuses an address without one.
    unsafe {
        checked(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC))?;
        checked(libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, owner))?;
    }
    Ok(())
}

thread_local! {
    /// Address of the calling thread's [`Owner`]; 0 without one.
    static OWNER: Cell<usize> = const { Cell::new(0) };
}

/// Addresses of all owner pages: below the code, data and mappings of any process, so one comparison tells a range that may touch
/// them. There are more pages than a VM may have vCPUs.
const OWNER_PAGES: Range<usize> = 0x10_0000..0x40_0000;

/// Distance of two owner pages.
const OWNER_PAGE: usize = 4096;

/// Pages that no thread has. They stay mapped: a thread under a filter cannot unmap its own.
static PAGES: LazyLock<Mutex<Vec<usize>>> =
    LazyLock::new(|| Mutex::new(OWNER_PAGES.step_by(OWNER_PAGE).filter_map(map_owner_page).collect()));

/// The calling thread as the owner of the events that it opens from now on, in memory that a thread under a filter cannot change.
///
/// The signal of an event goes to its owner, whom F_SETOWN_EX takes from memory, and a filter sees registers alone. So
/// the filter admits one address, at which nothing can be written, and no call that would put other memory there.
#[derive(Debug)]
pub struct Owner(usize);

impl Owner {
    /// The command of fcntl that sets it.
    pub const COMMAND: i32 = F_SETOWN_EX;

    /// Owners are below this address. Calls that change mappings must stay above.
    pub const END: usize = OWNER_PAGES.end;

    /// Makes the calling thread, which has no such owner yet, the owner of its events.
    ///
    /// # Errors
    /// No memory at a low address: `vm.mmap_min_addr` is above it, or too many threads have owners.
    pub fn this_thread() -> io::Result<Self> {
        let page = PAGES.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let page = Self(page.ok_or(io::ErrorKind::OutOfMemory)?);
        protect(page.0, libc::PROT_READ | libc::PROT_WRITE)?;
        let owner = FOwnerEx { type_: F_OWNER_TID, pid: gettid() };
        // SAFETY: the page is mapped for good, writable now, and this thread's alone until it is dropped.
        unsafe { std::ptr::with_exposed_provenance_mut::<FOwnerEx>(page.0).write(owner) };
        protect(page.0, libc::PROT_READ)?;
        OWNER.set(page.0);
        Ok(page)
    }

    /// Returns the address of its `struct f_owner_ex`.
    pub fn address(&self) -> usize {
        self.0
    }
}

impl Drop for Owner {
    /// Leaves the page to the next thread.
    fn drop(&mut self) {
        OWNER.set(0);
        PAGES.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// Maps an owner page, unless something else is there.
fn map_owner_page(page: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let page = std::ptr::without_provenance_mut(page);
    // SAFETY: with MAP_FIXED_NOREPLACE nothing is mapped over.
    let at = unsafe { libc::mmap(page, OWNER_PAGE, libc::PROT_READ, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

fn protect(page: usize, protection: libc::c_int) -> io::Result<()> {
    // SAFETY: the page is an owner page, to which there are no references.
    checked(unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(page), OWNER_PAGE, protection) }).map(drop)
}

/// Takes a pending kick of the calling thread, on which the signal is blocked; returns whether there was one.
///
/// # Errors
/// sigtimedwait(2) fails.
pub fn take_signal() -> io::Result<bool> {
    let (set, no_wait) = (create_sigset(&[libc::SIGIO])?, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set and the time outlive the call, which keeps nothing.
    match checked(unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const no_wait) }) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        taken => taken.map(|_| true),
    }
}

fn gettid() -> libc::pid_t {
    rustix::thread::gettid().as_raw_pid()
}

/// Counts the switches of the calling thread, and its sleeps: those by its own will.
pub(crate) fn switches_and_sleeps() -> (u64, u64) {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which cannot fail for RUSAGE_THREAD.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    ((usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned(), usage.ru_nvcsw.cast_unsigned())
}

/// Returns the nanoseconds of a cheap system call on this host, the fastest of eight: the measure of a signal's cost,
/// which is some tens of it. It grows on nested and emulated hosts, and under a tracer.
pub(crate) fn cheapest_call_ns() -> u64 {
    let call = || {
        let begin = Instant::now();
        std::hint::black_box(switches_and_sleeps());
        u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    (0..8).map(|_| call()).min().unwrap_or(0)
}

/// Returns CLOCK_MONOTONIC, ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // rustix is not used, because its first call makes others that a filter refuses.
    // SAFETY: the structure outlives the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Reads this CPU's time-stamp counter.
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every x86-64 has it, and Linux leaves it to user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A POSIX timer on CLOCK_MONOTONIC that signals the thread that made it.
#[derive(Debug)]
pub struct ThreadTimer(libc::timer_t);

impl ThreadTimer {
    pub(crate) fn by(signal: libc::c_int) -> io::Result<Self> {
        // SAFETY: all-zero is a valid sigevent; its fields are set next.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = gettid();
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers outlive the call.
        checked(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) })?;
        Ok(Self(id))
    }

    /// Fires after `ns` and then every `every` ns; 0 disarms.
    pub fn arm(&self, ns: u64, every: u64) {
        let time = |ns: u64| libc::timespec {
            tv_sec: (ns / 1_000_000_000).cast_signed(),
            tv_nsec: (ns % 1_000_000_000).cast_signed(),
        };
        let spec = libc::itimerspec { it_value: time(ns), it_interval: time(every) };
        // SAFETY: the id is ours and alive, so no value is refused; `spec` outlives the call.
        unsafe { libc::timer_settime(self.0, 0, &raw const spec, std::ptr::null_mut()) };
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the id is ours and is not used after this.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The user page and ring of a perf event.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) fd: OwnedFd,
    page: NonNull<perf_event_mmap_page>,
    data: usize,
    size: usize,
}

impl Ring {
    /// Maps `data_pages` (a power of two) pages of ring behind the user page of `fd`.
    pub(crate) fn map(fd: OwnedFd, data_pages: usize) -> io::Result<Self> {
        // SAFETY: sysconf takes no pointer.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
        let (data, size) = (page, data_pages * page);
        let (at, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; the descriptor is an open perf event.
        let at = unsafe { libc::mmap(at, data + size, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap gave the zero page"))?;
        Ok(Self { fd, page, data, size })
    }

    /// Returns the end of the records that the kernel wrote.
    fn head(&self) -> &AtomicU64 {
        // SAFETY: the page stays mapped as long as `self`; the kernel writes the aligned field, hence the atomic.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) }
    }

    /// Returns the end of the records that were read.
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as above; the field is written by us alone.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) }
    }

    /// Hands the type of each new record and the first three u64 behind its header (0 where there are none) to `visit`, until that
    /// returns `false`. Returns the end of them all.
    #[inline]
    fn visit(&self, mut visit: impl FnMut(u32, [u64; 3]) -> bool) -> u64 {
        let page = self.page.as_ptr();
        let head = self.head().load(Ordering::Acquire);
        let mut at = self.tail().load(Ordering::Relaxed);
        let offset = |at: u64| self.data + (at as usize & (self.size - 1));
        while at < head {
            // SAFETY: the ring is a power of two and records are 8-byte aligned and 8 bytes at least, so a header never
            // wraps: it lies inside the mapping and the kernel is done writing it (head was acquired).
            let header = unsafe { page.byte_add(offset(at)).cast::<perf_event_header>().read() };
            let word = |n: u64| {
                let behind = size_of::<perf_event_header>() as u64 + 8 * n;
                if behind + 8 > u64::from(header.size) {
                    return 0;
                }
                // SAFETY: inside the record, aligned, and so inside the mapping: an aligned u64 never wraps either.
                unsafe { page.byte_add(offset(at + behind)).cast::<u64>().read() }
            };
            if usize::from(header.size) < size_of::<perf_event_header>()
                || !visit(header.type_, [word(0), word(1), word(2)])
            {
                break;
            }
            at += u64::from(header.size);
        }
        head
    }

    /// Hands each new record to `visit`, and frees its space. Returns the most bytes in use before it was freed.
    #[inline]
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(u32, [u64; 3])) -> u64 {
        let tail = self.tail().load(Ordering::Relaxed);
        let head = self.visit(|type_, words| {
            visit(type_, words);
            true
        });
        if tail == head {
            return 0;
        }
        self.tail().store(head, Ordering::Release);
        // Interrupts of this thread, which write records, come before the store or after it: the compiler alone must not move the
        // load before it.
        compiler_fence(Ordering::SeqCst);
        self.head().load(Ordering::Relaxed) - tail
    }

    /// Returns whether there are new records.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.tail().load(Ordering::Relaxed) != self.head().load(Ordering::Relaxed)
    }

    /// Returns whether there is a new record of a type that is `wanted`.
    pub(crate) fn any(&self, wanted: impl Fn(u32) -> bool) -> bool {
        let mut found = false;
        self.visit(|type_, _| {
            found = wanted(type_);
            !found
        });
        found
    }

    /// Bytes for records.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped; no reference into it outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.data + self.size) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the sample period of an attribute.
    pub(crate) fn sample_period(attr: &perf_event_attr) -> u64 {
        // SAFETY: both members of the union are u64.
        unsafe { attr.__bindgen_anon_1.sample_period }
    }

    impl Ring {
        /// Makes it a ring of no event, with one record of `type_` without a body: user mode does not write that of an event.
        pub(crate) fn forge(self, type_: u32) -> Self {
            const PAGE: usize = 4096;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let at =
                unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let page = NonNull::new(at.cast::<perf_event_mmap_page>()).expect("not the zero page");
            let header = perf_event_header { type_, misc: 0, size: size_of::<perf_event_header>() as u16 };
            // SAFETY: both lie inside the mapping, which is zeroed, aligned, and nobody else's.
            unsafe {
                page.byte_add(PAGE).cast::<perf_event_header>().write(header);
                (*page.as_ptr()).data_head = header.size.into();
            }
            let fd = self.fd.try_clone().expect("a descriptor");
            Self { fd, page, data: PAGE, size: PAGE }
        }
    }
}
