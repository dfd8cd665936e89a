//! Takes the samples of one vCPU, on its thread.

use std::sync::atomic::Ordering;

use host_pmu::sampler::Sampler;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::chain::{Frame, Others, Width, follow};
use super::queue::{Words, flag};
use super::sampling::{Channel, Sampling};
use super::space::Space;
use crate::sys;

const EFER_LMA: u64 = 1 << 10;

/// The sampling of one vCPU.
#[derive(Debug)]
pub(crate) struct VcpuSampler<'a> {
    sampling: &'a Sampling,
    channel: &'a Channel,
    memory: &'a GuestMemoryMmap,
    events: Sampler,
    words: Words,
    /// Signals of its events that are in no account yet.
    signals: u64,
}

impl<'a> VcpuSampler<'a> {
    /// Opens the events on the calling thread, that of vCPU `cpu`.
    ///
    /// # Errors
    /// The event that was refused, and why.
    pub(crate) fn open(sampling: &'a Sampling, cpu: usize, memory: &'a GuestMemoryMmap) -> Result<Self, String> {
        let channel = sampling.channels.get(cpu).ok_or("samples of a vCPU that the recording does not know")?;
        let events = Sampler::open(&sampling.events, sampling.rate)?;
        channel.tid.store(sys::gettid(), Ordering::Relaxed);
        Ok(Self { sampling, channel, memory, events, words: Words::new(), signals: 0 })
    }

    /// Takes a sample for each overflow since the last call, and says how many there were. `ran`: the kick ended KVM_RUN in the guest.
    pub(crate) fn take(&mut self, fd: &VcpuFd, ran: bool) -> u64 {
        let Self { sampling, channel, memory, events, words, .. } = self;
        let mut flags = None;
        let taken = events.take(|overflow| {
            // One look at the guest serves all overflows of this stop.
            let flags = *flags.get_or_insert_with(|| {
                let look = look(fd, memory, sampling, words);
                look | if ran { 0 } else { flag::AT_EXIT }
            });
            channel.queue.push(words.of(overflow.event, overflow.time, overflow.period, flags));
        });
        if taken.lost > 0 || taken.throttled > 0 {
            channel.queue.count(taken.lost, taken.throttled);
        }
        self.signals += taken.overflows;
        taken.overflows
    }

    /// Signals of its events since the last call.
    pub(crate) fn take_signals(&mut self) -> u64 {
        std::mem::take(&mut self.signals)
    }
}

/// Reads registers and chain into `words`; returns the sample's flags.
fn look(fd: &VcpuFd, memory: &GuestMemoryMmap, sampling: &Sampling, words: &mut Words) -> u64 {
    // Neither call fails on a vCPU that runs.
    let (Ok(regs), Ok(sregs)) = (fd.get_regs(), fd.get_sregs()) else {
        words.begin(0, 0);
        return flag::KERNEL_BROKEN;
    };
    walk(&regs, &sregs, memory, sampling, words)
}

fn walk(regs: &kvm_regs, sregs: &kvm_sregs, memory: &GuestMemoryMmap, sampling: &Sampling, words: &mut Words) -> u64 {
    // The privilege level is that of the stack segment (SDM vol. 3, 6.5).
    let user = sregs.ss.dpl == 3;
    let flags = if user { flag::USER } else { 0 };
    let ip = regs.rip.wrapping_add(if sregs.cs.l == 0 { sregs.cs.base } else { 0 });
    words.begin(ip, sregs.cr3);
    let width = match (sregs.efer & EFER_LMA != 0 && sregs.cs.l != 0, sregs.cs.db != 0) {
        (true, _) => Width::Bits64,
        (false, true) if sregs.cs.base == 0 && sregs.ss.base == 0 => Width::Bits32,
        // 16-bit code, or segments with a base: there is no chain.
        _ => {
            words.entry(user, ip);
            return flags | if user { flag::USER_BROKEN } else { flag::KERNEL_BROKEN };
        }
    };
    if !sampling.chains {
        return flags;
    }
    let frame = Frame { ip, sp: regs.rsp, bp: regs.rbp };
    let others = Others { dx: regs.rdx, di: regs.rdi, r10: regs.r10, r13: regs.r13 };
    let mut space = Space::new(memory, sregs);
    flags | follow(&mut space, sampling.orc.as_ref(), frame, others, user, width, words)
}
