//! Every system call and raw memory access of this crate that no library wraps safely.
#![expect(unsafe_code, reason = "the crate's only door to raw memory, signals and the kernel")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_irq_level, kvm_userspace_memory_region};
use kvm_ioctls::{VcpuFd, VmFd};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// Entries asked of KVM_GET_SUPPORTED_CPUID.
pub(crate) const MAX_CPUID: usize = KVM_MAX_CPUID_ENTRIES;

struct Kick {
    flag: AtomicBool,
    signals: AtomicU64,
    /// `kvm_run.immediate_exit` of the vCPU this thread runs; null when it runs none.
    immediate_exit: AtomicPtr<u8>,
}

thread_local! {
    static KICK: Kick = const {
        Kick { flag: AtomicBool::new(false), signals: AtomicU64::new(0), immediate_exit: AtomicPtr::new(std::ptr::null_mut()) }
    };
}

/// Runs in the middle of anything on the vCPU thread, so it uses only atomics that are initialised at compile time.
extern "C" fn on_kick(_signal: libc::c_int) {
    KICK.with(|kick| {
        kick.flag.store(true, Ordering::Relaxed);
        kick.signals.fetch_add(1, Ordering::Relaxed);
        let immediate_exit = kick.immediate_exit.load(Ordering::Relaxed);
        if !immediate_exit.is_null() {
            // SAFETY: it points into the kvm_run mapping of a vCPU that `KickGuard` keeps alive; the kernel reads it
            // when KVM_RUN is entered, on this same thread.
            unsafe { immediate_exit.write_volatile(1) };
        }
    });
}

/// Installs the kick's handler for `signal`, and lets it reach the calling thread and those that it starts, whatever
/// the process was started with.
pub(crate) fn install_kick_handler(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction; it outlives the call, and the handler is async-signal-safe.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (on_kick as *const () as usize, libc::SA_RESTART);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    vmm_sys_util::signal::unblock_signal(signal).map_err(|error| io::Error::other(format!("{error:?}")))
}

/// Confines the calling thread to what `filter` allows, until it ends.
///
/// With SECCOMP_FILTER_FLAG_SPEC_ALLOW: before Linux 5.16 a filter without it turns on the mitigations of speculative store
/// bypass for the thread, and so for the guest it runs, which would be measured along.
pub(crate) fn confine(filter: &[seccompiler::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the first call takes integers only; `program` and the instructions it points to, both crates' form of the
    // kernel's struct, outlive the second, which copies them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ties this thread's kicks to a vCPU until it is dropped.
#[derive(Debug)]
pub(crate) struct KickGuard(());

impl KickGuard {
    pub(crate) fn new(vcpu: &mut VcpuFd) -> Self {
        let immediate_exit = &raw mut vcpu.get_kvm_run().immediate_exit;
        KICK.with(|kick| {
            kick.flag.store(false, Ordering::Relaxed);
            kick.signals.store(0, Ordering::Relaxed);
            kick.immediate_exit.store(immediate_exit, Ordering::Relaxed);
        });
        Self(())
    }
}

impl Drop for KickGuard {
    fn drop(&mut self) {
        KICK.with(|kick| kick.immediate_exit.store(std::ptr::null_mut(), Ordering::Relaxed));
    }
}

/// Takes a kick of this thread before an entry; returns whether one came since the last call. A kick from now on ends
/// the next KVM_RUN.
///
/// `immediate_exit` is cleared before the flag is read: a kick before the clearing is seen in the flag, one after it is in both.
/// In the other order, a kick between the two would be in neither, and the guest would run on with its overflow unseen. The kick's
/// handler interrupts this thread, which sees its own accesses in program order, so it is the compiler alone that must not
/// exchange them: a compiler fence, no instruction. The kernel reads `immediate_exit` in a system call of this thread.
#[inline]
pub(crate) fn take_kick(vcpu: &mut VcpuFd) -> bool {
    vcpu.set_kvm_immediate_exit(0);
    compiler_fence(Ordering::SeqCst);
    // A signal between the load and the store stores true again after us or is seen by us: never lost.
    KICK.with(|kick| kick.flag.load(Ordering::Relaxed) && kick.flag.swap(false, Ordering::Relaxed))
}

/// Returns the kicks that reached this thread since its guard was made, or since it was last asked.
pub(crate) fn take_kicks() -> u64 {
    KICK.with(|kick| kick.signals.swap(0, Ordering::Relaxed))
}

/// Returns the calling thread's id.
pub(crate) fn gettid() -> libc::pid_t {
    // SAFETY: takes and keeps nothing.
    unsafe { libc::gettid() }
}

/// Sends `signal` to a thread of this process. A thread that is gone is no error.
pub(crate) fn signal_thread(tid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) };
}

/// Binds the calling thread to `cpu`.
pub(crate) fn pin_this_thread(cpu: usize) -> io::Result<()> {
    // As many as Linux's largest CONFIG_NR_CPUS; a cpu_set_t has 1024.
    let mut set = [0_u64; 8192 / 64];
    let Some(word) = set.get_mut(cpu / 64) else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    *word = 1 << (cpu % 64);
    // SAFETY: the kernel reads the size given from the set, which outlives the call; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Reads this CPU's time-stamp counter.
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every x86-64 has it, and Linux leaves it to user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Gives `memory` to the VM.
pub(crate) fn map_guest_memory(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), kvm_ioctls::Error> {
    for (slot, region) in memory.iter().enumerate() {
        let mapping = kvm_userspace_memory_region {
            slot: slot as u32,
            flags: 0,
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
        };
        // SAFETY: the region is mapped for its whole length; the caller (`machine::run`) keeps the memory alive as long as the VM.
        unsafe { vm.set_user_memory_region(mapping)? };
    }
    Ok(())
}

/// Answers an MSR exit: the value read (ignored for a write), or #GP.
pub(crate) fn answer_msr(vcpu: &mut VcpuFd, value: Option<u64>) {
    // SAFETY: called after an MSR exit, so this member of the union is the one KVM filled and will read.
    let msr = unsafe { &mut vcpu.get_kvm_run().__bindgen_anon_1.msr };
    msr.error = u8::from(value.is_none());
    msr.data = value.unwrap_or(0);
}

/// Returns the bytes of a port access: all units of a string instruction.
pub(crate) fn port_data(vcpu: &mut VcpuFd) -> &mut [u8] {
    let run = vcpu.get_kvm_run();
    // SAFETY: called after a port exit, so this member of the union is the one KVM filled.
    let io = unsafe { run.__bindgen_anon_1.io };
    let length = usize::from(io.size) * io.count as usize;
    // SAFETY: KVM puts the data into the vCPU's mapping, `data_offset` bytes from its start, and the borrow of the vCPU
    // covers the mapping.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(run).cast::<u8>().add(io.data_offset as usize), length) }
}

/// Returns the bytes of a memory access.
pub(crate) fn memory_data(vcpu: &mut VcpuFd) -> &mut [u8] {
    // SAFETY: called after an MMIO exit, so this member of the union is the one KVM filled.
    let mmio = unsafe { &mut vcpu.get_kvm_run().__bindgen_anon_1.mmio };
    let length = (mmio.len as usize).min(mmio.data.len());
    &mut mmio.data[..length]
}

/// Returns whether this host's processor is QEMU's software emulation, by the hypervisor's signature (CPUID leaf 0x40000000).
pub(crate) fn emulated_host() -> bool {
    #[expect(clippy::allow_attributes, reason = "safe only since Rust 1.9x, and older compilers are supported")]
    #[allow(unused_unsafe, reason = "see above")]
    // SAFETY: every x86-64 has CPUID.
    let (features, leaf) = unsafe { (core::arch::x86_64::__cpuid(1), core::arch::x86_64::__cpuid(0x4000_0000)) };
    let signature = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    features.ecx >> 31 & 1 != 0 && signature == b"TCGTCGTCGTCG"
}

/// Returns whether this host's processor has VMX or SVM (CPUID leaves 1 and 0x80000001).
pub(crate) fn hardware_virtualization() -> bool {
    #[expect(clippy::allow_attributes, reason = "safe only since Rust 1.9x, and older compilers are supported")]
    #[allow(unused_unsafe, reason = "see above")]
    // SAFETY: every x86-64 has both leaves.
    let (intel, amd) = unsafe { (core::arch::x86_64::__cpuid(1), core::arch::x86_64::__cpuid(0x8000_0001)) };
    intel.ecx >> 5 & 1 != 0 || amd.ecx >> 2 & 1 != 0
}

/// An interrupt line of a VM.
#[derive(Debug)]
pub(crate) struct IrqLine {
    vm: OwnedFd,
    gsi: u32,
}

impl IrqLine {
    /// Takes line `gsi` of `vm`.
    pub(crate) fn new(vm: &VmFd, gsi: u32) -> io::Result<Self> {
        // SAFETY: the VM's descriptor is open as long as it is borrowed.
        let vm = unsafe { BorrowedFd::borrow_raw(vm.as_raw_fd()) }.try_clone_to_owned()?;
        Ok(Self { vm, gsi })
    }

    /// Drives it.
    pub(crate) fn set(&self, level: bool) {
        /// KVM_IRQ_LINE of <linux/kvm.h>.
        const KVM_IRQ_LINE: libc::c_ulong = 0x4008_ae61;
        let mut line = kvm_irq_level { level: level.into(), ..kvm_irq_level::default() };
        line.__bindgen_anon_1.irq = self.gsi;
        // SAFETY: the structure outlives the call, which only reads it. It cannot fail: the VM has its interrupt controllers.
        unsafe { libc::ioctl(self.vm.as_raw_fd(), KVM_IRQ_LINE, &raw const line) };
    }
}

/// Returns KVM's suberror and the instruction bytes it could not emulate, after an internal error.
pub(crate) fn internal_error(vcpu: &mut VcpuFd) -> (u32, Vec<u8>) {
    // SAFETY: the exit reason is KVM_EXIT_INTERNAL_ERROR, so this member of the union is the one KVM filled.
    let internal = unsafe { vcpu.get_kvm_run().__bindgen_anon_1.internal };
    // struct emulation_failure lies over ndata and data: flags in data[0], then a length byte and up to 15 bytes.
    let words: Vec<u8> = internal.data[1..3].iter().flat_map(|word| word.to_le_bytes()).collect();
    let has_bytes = internal.suberror == 1 && internal.ndata >= 3 && internal.data[0] & 1 != 0;
    let bytes = if has_bytes { words[1..=usize::from(words[0]).min(15)].to_vec() } else { Vec::new() };
    (internal.suberror, bytes)
}
