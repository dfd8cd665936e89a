//! Takes the samples of one vCPU, on its thread.

use std::sync::atomic::Ordering;

use host_pmu::sampler::Sampler;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;
use rustix::time::{ClockId, clock_gettime};
use vm_memory::GuestMemoryMmap;

use super::chain::{Frame, KERNEL, Others, Tables, Width, follow};
use super::event::{Countdown, Event, ExitKind, ExitKinds};
use super::queue::{Words, flag};
use super::sampling::{Channel, Sampling};
use super::sampling::{EVERY_NS, LiveCounts};
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
    /// The number in the recording of each of them.
    numbers: Vec<usize>,
    pmis: Option<Countdown>,
    exits: Vec<(ExitKinds, Countdown)>,
    words: Words,
    /// Signals of its events that are in no account yet.
    signals: u64,
    since_exit: SinceExit,
    /// Time at which counts were published last, ns.
    published: Option<u64>,
}

impl<'a> VcpuSampler<'a> {
    /// Opens the events on the calling thread, that of vCPU `cpu`.
    ///
    /// # Errors
    /// The event that was refused, and why.
    pub(crate) fn open(
        sampling: &'a Sampling,
        cpu: usize,
        memory: &'a GuestMemoryMmap,
        tsc_khz: u64,
    ) -> Result<Self, String> {
        let channel = sampling.channels.get(cpu).ok_or("samples of a vCPU that the recording does not know")?;
        let (mut host, mut numbers, mut pmis, mut exits) = (Vec::new(), Vec::new(), None, Vec::new());
        for (number, event) in sampling.events.iter().enumerate() {
            let countdown = Countdown::new(number, event.rate(sampling.rate).0);
            match event {
                Event::Host(event) => {
                    host.push(event.clone());
                    numbers.push(number);
                }
                Event::Pmi => pmis = Some(countdown),
                Event::Exit(kinds) => exits.push((*kinds, countdown)),
            }
        }
        let events = Sampler::open(&host, sampling.rate)?;
        channel.tid.store(sys::gettid(), Ordering::Relaxed);
        sampling.has_memory(memory);
        channel.tsc_khz.store(tsc_khz, Ordering::Relaxed);
        Ok(Self {
            sampling,
            channel,
            memory,
            events,
            numbers,
            pmis,
            exits,
            words: Words::new(),
            signals: 0,
            since_exit: SinceExit::default(),
            published: None,
        })
    }

    /// Takes a sample for each overflow since the last call, and says how many there were. `ran`: the kick ended
    /// KVM_RUN in the guest.
    pub(crate) fn take(&mut self, fd: &VcpuFd, ran: bool) -> u64 {
        let Self { sampling, channel, memory, events, numbers, words, since_exit, .. } = self;
        let past = since_exit.past(ran);
        let mut flags = None;
        let taken = events.take(
            |overflow| {
                // One look at the guest serves all overflows of this stop.
                let flags = *flags.get_or_insert_with(|| {
                    let look = look(fd, memory, sampling, channel, past, words);
                    look | if ran { 0 } else { flag::AT_EXIT }
                });
                channel.queue.push(words.of(numbers[overflow.event], overflow.time, overflow.period, flags));
            },
            |event, lost| channel.queue.lost_by_kernel(numbers[event], lost),
        );
        if taken.throttled > 0 {
            channel.queue.throttled(taken.throttled);
        }
        self.signals += taken.overflows;
        taken.overflows
    }

    /// Samples a PMI on its way into the guest, at the place at which the guest takes it. Returns whether that is a sample.
    #[inline]
    pub(crate) fn pmi(&mut self, fd: &VcpuFd) -> bool {
        let Some(countdown) = &mut self.pmis else { return false };
        let event = countdown.event;
        let Some(period) = countdown.count() else { return false };
        self.now(fd, event, period, Past::No);
        true
    }

    /// Notes that KVM_RUN was interrupted: in the guest, or before it `ran`.
    #[inline]
    pub(crate) fn interrupted(&mut self, ran: bool) {
        self.since_exit.interrupted(ran);
    }

    /// Samples an exit of the guest, if it is one of those asked for. Returns whether that is a sample.
    #[inline]
    pub(crate) fn exit(&mut self, fd: &VcpuFd, kind: ExitKind, past: Past) -> bool {
        self.since_exit = SinceExit(Some(past));
        let mut sampled = false;
        for at in 0..self.exits.len() {
            let (kinds, countdown) = &mut self.exits[at];
            let event = countdown.event;
            if kinds.has(kind)
                && let Some(period) = countdown.count()
            {
                self.now(fd, event, period, past);
                sampled = true;
            }
        }
        sampled
    }

    /// Takes a sample where the guest stands now. It did not fall into the handling of an exit by chance, as one of a
    /// host event does.
    #[cold]
    fn now(&mut self, fd: &VcpuFd, event: usize, period: u64, past: Past) {
        let time = monotonic_ns();
        let flags = look(fd, self.memory, self.sampling, self.channel, past, &mut self.words);
        self.channel.queue.push(self.words.of(event, time, period, flags));
    }

    /// Returns whether it is time to publish counts, at time `ns` of the caller's clock.
    pub(crate) fn is_due(&mut self, ns: u64) -> bool {
        let due = self.published.is_none_or(|before| ns.saturating_sub(before) >= EVERY_NS);
        if due {
            self.published = Some(ns);
        }
        due
    }

    /// Publishes counts.
    pub(crate) fn publish(&self, counts: &LiveCounts) {
        self.channel.live.publish(counts);
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

/// Position of RIP relative to the instruction that made an exit: where KVM emulates a write it moves RIP before the
/// exit, elsewhere after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// It is at the instruction.
    No,
    /// It is behind it.
    Yes,
    /// It is behind it unless an OUT or OUTS is there.
    UnlessOut,
}

impl Past {
    /// Returns the number of bytes to go back: into the instruction's last one, as from a return address.
    fn back(self, space: &mut Space<'_>, ip: u64) -> u64 {
        match self {
            Self::No => 0,
            // Between two writes of a repeated store RIP stays at it.
            Self::Yes => u64::from(!is_instruction(space, ip, |opcode| matches!(opcode, 0xa4 | 0xa5 | 0xaa | 0xab))),
            Self::UnlessOut => u64::from(!is_instruction(space, ip, |opcode| {
                matches!(opcode, 0xe6 | 0xe7 | 0xee | 0xef | 0x6e | 0x6f)
            })),
        }
    }
}

/// Most prefixes of an OUT or a store of a string: operand size, address size, REP, segment, REX.
const PREFIXES: u64 = 5;

/// Returns whether the instruction at `ip` has such an opcode of one byte (SDM vol. 2: OUT, OUTS, MOVS, STOS).
fn is_instruction(space: &mut Space<'_>, ip: u64, wanted: impl Fn(u8) -> bool) -> bool {
    for at in 0..=PREFIXES {
        match space.u8(ip.wrapping_add(at)) {
            Some(opcode) if wanted(opcode) => return true,
            Some(0x66 | 0x67 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f) => {}
            _ => return false,
        }
    }
    false
}

/// Reads registers and chain into `words`; returns the sample's flags.
fn look(
    fd: &VcpuFd,
    memory: &GuestMemoryMmap,
    sampling: &Sampling,
    channel: &Channel,
    past: Past,
    words: &mut Words,
) -> u64 {
    // Neither call fails on a vCPU that runs.
    let (Ok(regs), Ok(sregs)) = (fd.get_regs(), fd.get_sregs()) else {
        words.begin(0, 0);
        return flag::KERNEL_BROKEN;
    };
    if regs.rip >= KERNEL && sregs.ss.dpl == 0 && sregs.efer & EFER_LMA != 0 {
        channel.kernel_space.store(Space::packed(&sregs), Ordering::Relaxed);
    }
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
    let mut space = Space::new(memory, sregs);
    let ip = regs.rip.wrapping_add(if sregs.cs.l == 0 { sregs.cs.base } else { 0 });
    // The sample is at the instruction that made the exit; the stack is that of the next one.
    words.begin(ip.wrapping_sub(past.back(&mut space, ip)), sregs.cr3);
    let width = match (sregs.efer & EFER_LMA != 0 && sregs.cs.l != 0, sregs.cs.db != 0) {
        (true, _) => Width::Bits64,
        (false, true) if sregs.cs.base == 0 && sregs.ss.base == 0 => Width::Bits32,
        // 16-bit code, or segments with a base: there is no chain.
        _ => {
            words.first(user);
            return flags | if user { flag::USER_BROKEN } else { flag::KERNEL_BROKEN };
        }
    };
    if !sampling.chains {
        return flags;
    }
    let frame = Frame { ip, sp: regs.rsp, bp: regs.rbp };
    let others = Others { dx: regs.rdx, di: regs.rdi, r10: regs.r10, r13: regs.r13 };
    let tables = sampling.orc.as_ref().map(|kernel| Tables { kernel, modules: sampling.modules() });
    flags | follow(&mut space, tables, frame, others, user, width, words)
}

/// Returns CLOCK_MONOTONIC, ns: the time of samples.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The host's time-stamp counter.
    pub tsc: u64,
    /// CLOCK_MONOTONIC, ns.
    pub ns: u64,
}

impl Moment {
    /// Reads both clocks now.
    pub fn now() -> Self {
        let before = sys::rdtsc();
        let ns = monotonic_ns();
        Self { tsc: before.midpoint(sys::rdtsc()), ns }
    }

    /// Returns the samples' time at a time-stamp, on the line through this moment and a `later` one; `None` if they are not apart.
    pub fn ns_at(self, later: Self, tsc: u64) -> Option<u64> {
        let (ticks, ns) = (later.tsc.checked_sub(self.tsc).filter(|&ticks| ticks > 0)?, later.ns.checked_sub(self.ns)?);
        let since = i128::from(tsc) - i128::from(self.tsc);
        u64::try_from(i128::from(self.ns) + since * i128::from(ns) / i128::from(ticks)).ok()
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;

    #[test]
    fn a_sample_goes_back_into_the_instruction_that_made_the_exit() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let mut space = Space::new(&memory, &kvm_sregs::default());
        let mut back = |past: Past, code: &[u8]| {
            memory.write_slice(code, GuestAddress(0x100)).unwrap();
            past.back(&mut space, 0x100)
        };
        let (nop, out, outs) = (&[0x90, 0x90][..], &[0xef][..], &[0xf3, 0x66, 0x6f][..]);
        assert_eq!([nop, out, outs].map(|code| back(Past::UnlessOut, code)), [1, 0, 0]);
        let (stos, movs) = (&[0xf3, 0x48, 0xab][..], &[0xf3, 0xa4][..]);
        assert_eq!([nop, out, stos, movs].map(|code| back(Past::Yes, code)), [1, 1, 0, 0]);
        assert_eq!([nop, stos].map(|code| back(Past::No, code)), [0, 0]);
        // Prefixes alone, and the end of memory.
        assert_eq!(back(Past::Yes, &[0x66; 8]), 1);
        assert_eq!(Past::Yes.back(&mut space, 0xfff), 1);
    }

    #[test]
    fn a_sample_in_the_handling_of_an_exit_knows_where_its_instruction_is() {
        let mut since = SinceExit::default();
        assert_eq!(since.past(false), Past::No, "there was no exit");
        for exit in [Past::No, Past::Yes, Past::UnlessOut] {
            since = SinceExit(Some(exit));
            assert_eq!([since.past(false), since.past(true)], [exit, Past::No]);
            since.interrupted(false);
            assert_eq!(since.past(false), Past::Yes, "the next KVM_RUN completed it");
            since.interrupted(true);
            since.interrupted(false);
            assert_eq!(since.past(false), Past::No, "the guest ran since");
        }
    }

    #[test]
    fn the_stack_is_read_by_the_instruction_after_the_exit() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).unwrap();
        let mut sampling = Sampling::new(Vec::new(), host_pmu::sampler::Rate::Hertz(1), true, 1);
        sampling.orc = None;
        // The frame is set up, and the stack holds something other than a return address.
        let words_of = |at: u64, words: &[u32]| {
            words.iter().zip(0..).for_each(|(word, n)| memory.write_obj(*word, GuestAddress(at + 4 * n)).unwrap());
        };
        words_of(0x8000, &[0x6666, 0, 0, 0, 0, 0x5555]);
        let mut sregs = kvm_sregs { cr0: 1, ..kvm_sregs::default() };
        sregs.cs.db = 1;
        let regs = kvm_regs { rip: 0x2003, rsp: 0x8000, rbp: 0x8010, ..kvm_regs::default() };
        // mov %eax, displacement(%ebx): a last byte as of `push %ebp` or `ret`.
        for displacement in [0x55, 0xc3] {
            memory.write_slice(&[0x89, 0x43, displacement, 0x90], GuestAddress(0x2000)).unwrap();
            let mut words = Words::new();
            let flags = walk(&regs, &sregs, &memory, &sampling, Past::Yes, &mut words);
            let queue = super::super::queue::Queue::default();
            queue.push(words.of(0, 0, 0, flags));
            let sample = queue.pop().unwrap();
            assert_eq!((sample.rip, &sample.chain[0]), (0x2002, &vec![0x2002, 0x5555]), "{displacement:#x}");
            assert_eq!(sample.complete, [true; 2]);
        }
    }

    #[test]
    fn a_time_stamp_between_two_moments_is_between_their_times() {
        let (first, later) = (Moment { tsc: 1000, ns: 50 }, Moment { tsc: 3000, ns: 1050 });
        assert_eq!([1000, 2000, 3000, 4000].map(|tsc| first.ns_at(later, tsc)), [50, 550, 1050, 1550].map(Some));
        assert_eq!((first.ns_at(later, 0), first.ns_at(first, 1000), later.ns_at(first, 1000)), (None, None, None));
        let (first, later) = (Moment::now(), Moment::now());
        assert!(first.tsc <= later.tsc && first.ns <= later.ns);
    }
}
