//! Takes the samples of one vCPU, on its thread.

use std::sync::atomic::{AtomicI32, Ordering};

use host_pmu::sampler::{Rate, SampledEvent, Sampler};
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::chain::{Frame, Others, follow};
use super::orc::Orc;
use super::queue::{Queue, Words, flag};
use crate::linear::Space;
use crate::sys;

const EFER_LMA: u64 = 1 << 10;

/// Events to sample, and the channels that take the samples.
#[derive(Debug)]
pub struct Sampling {
    /// Events that sample.
    pub events: Vec<SampledEvent>,
    /// Rate of the samples.
    pub rate: Rate,
    /// True if samples have call chains.
    pub chains: bool,
    /// The unwind tables of the guest's kernel.
    pub orc: Option<Orc>,
    /// One of each vCPU.
    pub channels: Vec<Channel>,
}

/// The channel through which the samples of a vCPU leave it.
#[derive(Debug, Default)]
pub struct Channel {
    /// Samples.
    pub queue: Queue,
    /// The vCPU's thread; 0 before it has begun.
    pub tid: AtomicI32,
}

impl Sampling {
    /// Creates the sampling of so many vCPUs.
    pub fn new(events: Vec<SampledEvent>, rate: Rate, chains: bool, vcpus: usize) -> Self {
        Self { events, rate, chains, orc: None, channels: (0..vcpus).map(|_| Channel::default()).collect() }
    }
}

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
    since_exit: SinceExit,
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
        let (words, since_exit) = (Words::new(), SinceExit::default());
        Ok(Self { sampling, channel, memory, events, words, signals: 0, since_exit })
    }

    /// Takes a sample for each overflow since the last call, and says how many there were. `ran`: the kick ended
    /// KVM_RUN in the guest.
    pub(crate) fn take(&mut self, fd: &VcpuFd, ran: bool) -> u64 {
        let Self { sampling, channel, memory, events, words, since_exit, .. } = self;
        let past = since_exit.past(ran);
        let mut flags = None;
        let taken = events.take(
            |overflow| {
                // One look at the guest serves all overflows of this stop.
                let flags = *flags.get_or_insert_with(|| {
                    let look = look(fd, memory, sampling, past, words);
                    look | if ran { 0 } else { flag::AT_EXIT }
                });
                channel.queue.push(words.of(overflow.event, overflow.time, overflow.period, flags));
            },
            |event, lost| channel.queue.lost_by_kernel(event, lost),
        );
        if taken.throttled > 0 {
            channel.queue.throttled(taken.throttled);
        }
        self.signals += taken.overflows;
        taken.overflows
    }

    /// Notes that KVM_RUN was interrupted: in the guest, or before it `ran`.
    #[inline]
    pub(crate) fn interrupted(&mut self, ran: bool) {
        self.since_exit.interrupted(ran);
    }

    /// Notes an exit that the guest made.
    #[inline]
    pub(crate) fn exited(&mut self, past: Past) {
        self.since_exit = SinceExit(Some(past));
    }

    /// Takes the number of signals of its events since the last call.
    pub(crate) fn take_signals(&mut self) -> u64 {
        std::mem::take(&mut self.signals)
    }
}

/// Position of RIP relative to the exiting instruction, if the guest has made an exit since it last ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SinceExit(Option<Past>);

impl SinceExit {
    /// Notes that a KVM_RUN that ended before the guest ran has completed the instruction of the exit before it.
    fn interrupted(&mut self, ran: bool) {
        self.0 = self.0.filter(|_| !ran).map(|_| Past::Yes);
    }

    /// Returns the position for a sample now. A sample that interrupted the guest stands where it stands.
    fn past(self, ran: bool) -> Past {
        self.0.filter(|_| !ran).unwrap_or(Past::No)
    }
}

/// Position of RIP relative to the instruction that made an exit: where KVM emulates a write to memory it moves RIP before the exit,
/// elsewhere after it. An OUT has moved RIP on some hosts alone, and a repeated store leaves it where it is between two writes: neither
/// is decoded here, so that their samples may be charged to the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// It is at the instruction.
    No,
    /// It is behind it.
    Yes,
}

/// Reads registers and chain into `words`; returns the sample's flags.
fn look(fd: &VcpuFd, memory: &GuestMemoryMmap, sampling: &Sampling, past: Past, words: &mut Words) -> u64 {
    // Neither call fails on a vCPU that runs.
    let (Ok(regs), Ok(sregs)) = (fd.get_regs(), fd.get_sregs()) else {
        words.begin(0);
        return flag::KERNEL_BROKEN;
    };
    walk(&regs, &sregs, memory, sampling, past, words)
}

fn walk(
    regs: &kvm_regs,
    sregs: &kvm_sregs,
    memory: &GuestMemoryMmap,
    sampling: &Sampling,
    past: Past,
    words: &mut Words,
) -> u64 {
    // The privilege level is that of the stack segment (SDM vol. 3, 6.5).
    let user = sregs.ss.dpl == 3;
    let flags = if user { flag::USER } else { 0 };
    let space = Space::new(memory, sregs);
    let long = sregs.efer & EFER_LMA != 0 && sregs.cs.l != 0;
    let ip = regs.rip.wrapping_add(if long { 0 } else { sregs.cs.base });
    // A sample past the instruction that made the exit is put at that one's last byte, as a return address is. Within a
    // repeated store that is the byte before it. The stack is that of the next instruction.
    words.begin(ip.wrapping_sub(u64::from(past == Past::Yes)));
    // No chain is followed in code that is not 64-bit code.
    if !long {
        words.first(user);
        return flags | if user { flag::USER_BROKEN } else { flag::KERNEL_BROKEN };
    }
    if !sampling.chains {
        return flags;
    }
    let frame = Frame { ip, sp: regs.rsp, bp: regs.rbp };
    let others = Others { dx: regs.rdx, di: regs.rdi, r10: regs.r10, r13: regs.r13 };
    flags | follow(&space, sampling.orc.as_ref(), frame, others, user, words)
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;

    #[test]
    fn the_stack_is_read_by_the_instruction_after_the_exit() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).unwrap();
        let sampling = Sampling::new(Vec::new(), Rate::Hertz(1), true, 1);
        // The first 2 MiB are mapped; the frame is set up, and the stack holds something other than a return address.
        for (at, value) in [(0x1000, 0x2001), (0x2000, 0x3001), (0x3000, 0x81), (0x8000, 0x6666), (0x8018, 0x5555)] {
            memory.write_obj::<u64>(value, GuestAddress(at)).unwrap();
        }
        let mut sregs = kvm_sregs { cr0: 1 << 31, cr3: 0x1000, efer: EFER_LMA, ..kvm_sregs::default() };
        sregs.cs.l = 1;
        let regs = kvm_regs { rip: 0x5003, rsp: 0x8000, rbp: 0x8010, ..kvm_regs::default() };
        // mov %eax, displacement(%rbx): a last byte as of `push %rbp` or `ret`.
        for displacement in [0x55, 0xc3] {
            memory.write_slice(&[0x89, 0x43, displacement, 0x90], GuestAddress(0x5000)).unwrap();
            let mut words = Words::new();
            let flags = walk(&regs, &sregs, &memory, &sampling, Past::Yes, &mut words);
            let queue = Queue::default();
            queue.push(words.of(0, 0, 0, flags));
            let sample = queue.pop().unwrap();
            assert_eq!((sample.rip, &sample.chain[0]), (0x5002, &vec![0x5002, 0x5555]), "{displacement:#x}");
            assert_eq!(sample.complete, [true; 2]);
        }
    }
}
