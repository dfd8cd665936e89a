//! The stepping of one vCPU: its work before each entry and after each exit.

use std::ops::Range;

use host_pmu::backend::step::StepCounts;
use kvm_bindings::{KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, kvm_guest_debug, kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::super::exit::Exit;
use super::super::other_msrs::OneMsr;
use super::aim::{self, Aim, Target};
use super::gates;
use super::instruction::{Before, Kind, LONGEST_INSTRUCTION};
use super::registers::{
    ambiguous, complete, event_pending, failed, halt, has_single_step, is_halted, lost, other_mode, overlap, own_steps,
    ring, rip, take_single_step, undo,
};
use super::traps::{self, Trap, Traps};
use super::traps::{Frame, TF};
use super::view::{View, translation};
use crate::outcome::End;

/// Most entries of one run that are steps, whether their instructions retire or not: minutes, where a step is dear.
const BUDGET: u64 = 4_000_000;

/// Next step of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Go {
    /// Enter the guest.
    Enter,
    /// An instruction was finished without entering: look at the PMU again.
    Retired {
        /// A counter reached its period.
        due: bool,
    },
}

/// Owner of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Seen {
    /// The guest's: it is to be handled.
    Guest,
    /// The stepper's.
    Step {
        /// A counter reached its period.
        due: bool,
    },
}

/// The instruction that was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The guest runs without steps.
    Free,
    /// It is stepped. The second field is its target, where it is known from a frame or a register.
    Stepping(Before, Target),
    /// It exited in the middle; `None`: it began without a step.
    Within(Option<Before>),
}

/// The stepping of one vCPU.
#[derive(Debug)]
pub(in super::super) struct Stepper<'a> {
    memory: &'a GuestMemoryMmap,
    state: State,
    armed: bool,
    traps: Traps,
    /// The vector table and the registers that the traps were made from.
    table: Vec<u8>,
    made_from: Option<(u64, u16, u64)>,
    /// Memory may have changed since the traps and the table were compared with it.
    written: bool,
    scratch: Vec<u8>,
    aim: Aim,
    /// Steps so far.
    entries: u64,
    /// A counter reached its period in an instruction whose successor exited in the middle.
    due: bool,
    msr: OneMsr,
}

impl<'a> Stepper<'a> {
    pub(in super::super) fn new(memory: &'a GuestMemoryMmap) -> Self {
        Self {
            memory,
            state: State::Free,
            armed: false,
            traps: Traps::default(),
            table: Vec::new(),
            made_from: None,
            written: true,
            scratch: Vec::new(),
            aim: Aim::default(),
            entries: 0,
            due: false,
            msr: OneMsr::new(),
        }
    }

    /// Arms the next step, or prepares the completion of the instruction that exited in the middle.
    pub(in super::super) fn before_entry(&mut self, fd: &mut VcpuFd, counts: &mut StepCounts) -> Result<Go, End> {
        if !counts.wanted() {
            counts.abandon();
            self.state = State::Free;
            self.disarm(fd)?;
            return Ok(Go::Enter);
        }
        let sregs = fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        let regs = fd.get_regs().map_err(failed("KVM_GET_REGS"))?;
        if sregs.efer & EFER_LMA == 0 || sregs.cs.l == 0 {
            return Err(other_mode(regs.rip));
        }
        let ring = sregs.cs.selector & 3;
        if let State::Within(before) = self.state {
            let before = before.unwrap_or_else(|| self.decode(fd, ring, regs.rip));
            self.state = State::Within(Some(before));
            fd.set_kvm_immediate_exit(1);
            return Ok(Go::Enter);
        }
        self.entries += 1;
        if self.entries > BUDGET {
            return Err(End::Host(format!("single-stepping used up its {BUDGET} steps")));
        }
        // KVM hides the TF of its own steps.
        if !self.armed && regs.rflags & TF != 0 {
            return Err(own_steps(regs.rip));
        }
        self.set_traps(fd, &sregs)?;
        let before = self.decode(fd, ring, regs.rip);
        if before.kind == Kind::OtherReturn {
            return Err(other_mode(regs.rip));
        }
        // A vCPU that waits already, or to which an event comes first, is entered as it is.
        if before.kind == Kind::Halt && ring == 0 && !is_halted(fd)? && !event_pending(fd, regs.rflags)? {
            halt(fd, before.next, &regs)?;
            self.state = State::Free;
            return Ok(Go::Retired { due: counts.retire(before.retired(before.next).unwrap_or_default()) });
        }
        let target = self.aim(fd, &before, sregs.cs.selector, &regs)?;
        if (before.ring3 || target.ring3) && self.traps.debug_handler() == Some(true) && has_single_step(fd)? {
            return Err(ambiguous(before.rip));
        }
        open(self.memory, &mut self.traps, fd, &before);
        let debug =
            kvm_guest_debug { control: KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP, ..kvm_guest_debug::default() };
        fd.set_guest_debug(&debug).map_err(failed("KVM_SET_GUEST_DEBUG"))?;
        self.armed = true;
        self.state = State::Stepping(before, target);
        Ok(Go::Enter)
    }

    /// Looks at an exit before the guest's handling of it.
    pub(in super::super) fn after_exit(
        &mut self,
        exit: Exit,
        fd: &mut VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<Seen, End> {
        let state = self.state;
        let mut trap = None;
        if let State::Stepping(..) = state {
            if matches!(exit, Exit::PortOut { port: traps::PORT } | Exit::Interrupted) {
                trap = self.reached_trap(exit, fd)?;
            }
            self.traps.close(self.memory);
        }
        let msr = matches!(exit, Exit::Rdmsr { .. } | Exit::Wrmsr { .. });
        match (state, exit) {
            (State::Free, _) => {
                if msr {
                    counts.begin();
                    self.state = State::Within(None);
                }
                Ok(Seen::Guest)
            }
            (State::Within(before), Exit::Debug | Exit::Interrupted) => {
                self.state = State::Free;
                let after = rip(fd)?;
                let due = count(counts, before.and_then(|before| before.retired(after)));
                Ok(Seen::Step { due: due | std::mem::take(&mut self.due) })
            }
            (State::Stepping(before, target), Exit::PortOut { port: traps::PORT }) => {
                if let Some(trap) = trap {
                    self.state = State::Free;
                    complete(fd)?;
                    let due = self.arrived(&trap, &before, target, fd, counts)?;
                    return Ok(Seen::Step { due });
                }
                self.within(before, fd, counts)
            }
            (State::Stepping(before, target), Exit::Debug) => {
                self.state = State::Free;
                let after = rip(fd)?;
                let due = self.settle(&before, target, after, fd, counts)?;
                // One instruction ran, without an event, and wrote nothing.
                let alone =
                    before.kind == Kind::Plain && target == Target::default() && before.retired(after).is_some();
                self.written = before.writes || !alone;
                Ok(Seen::Step { due })
            }
            (State::Stepping(before, target), Exit::Interrupted) => {
                self.state = State::Free;
                let after = rip(fd)?;
                if after == before.rip {
                    counts.abandon();
                    self.withdraw(&before, fd)?;
                    return Ok(Seen::Step { due: false });
                }
                if trap.is_none() && before.kind == Kind::Shadows {
                    // HLT after STI: the vCPU sleeps in KVM.
                    return Ok(Seen::Step { due: self.settle(&before, target, after, fd, counts)? });
                }
                // A host that emulates deliveries: the handler's first instruction has not begun.
                let trap = trap.ok_or_else(|| lost(&before, after))?;
                Ok(Seen::Step { due: self.arrived(&trap, &before, target, fd, counts)? })
            }
            (State::Stepping(before, _), _) if msr || is_access(exit) => self.within(before, fd, counts),
            (State::Stepping(before, target), Exit::Shutdown)
                if (before.ring3 || target.ring3) && self.traps.debug_handler().is_none() =>
            {
                Err(End::Host(format!(
                    "backend step cannot count ring 3 on this host: the guest triple-faulted at a step from {:#x}; this KVM \
                     delivers the step's #DB to the guest, which must have a gate for vector 1",
                    before.rip
                )))
            }
            _ => Ok(Seen::Guest),
        }
    }

    /// Acts on an instruction that exited in the middle.
    fn within(&mut self, before: Before, fd: &VcpuFd, counts: &mut StepCounts) -> Result<Seen, End> {
        let at = rip(fd)?;
        let before = match before {
            // The instruction after one that had no trap of its own.
            Before { kind: Kind::Shadows, next, .. } if at == next => {
                self.due |= counts.retire(before.retired(next).unwrap_or_default());
                self.decode(fd, ring(fd)?, at)
            }
            // KVM's emulator has moved RIP on already at an OUT.
            before if at == before.rip || at == before.next => before,
            before => return Err(lost(&before, at)),
        };
        counts.begin();
        self.state = State::Within(Some(before));
        Ok(Seen::Guest)
    }

    /// Counts the step, which ended with RIP at `after`.
    fn settle(
        &self,
        before: &Before,
        target: Target,
        after: u64,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        if let Some(target) = target.rip {
            return if after == target { Ok(counts.retire(before.transferred())) } else { Err(lost(before, after)) };
        }
        if let Some((due, last)) = self.led_to(before, after, ring(fd)?, fd, counts) {
            self.clean(last, fd)?.ok_or_else(|| lost(before, after))?;
            return Ok(due);
        }
        if after == before.rip {
            // Another turn of a REP.
            counts.abandon();
            return Ok(false);
        }
        Err(lost(before, after))
    }

    /// Counts the instruction if it can have led to `after`, with the next one where only both have. Returns whether a
    /// counter reached its period, and the kind of the last instruction.
    fn led_to(
        &self,
        before: &Before,
        after: u64,
        ring: u16,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Option<(bool, Kind)> {
        if let Some(retired) = before.retired(after) {
            return Some((counts.retire(retired), before.kind));
        }
        let first = before.retired(before.next).filter(|_| before.kind == Kind::Shadows)?;
        let second = self.decode(fd, ring, before.next);
        let retired = second.retired(after)?;
        Some((counts.retire(first) | counts.retire(retired), second.kind))
    }

    /// Clears the step's TF where an instruction that retired has saved it. `None`: the stack is not in memory.
    fn clean(&self, last: Kind, fd: &VcpuFd) -> Result<Option<()>, End> {
        let regs = || fd.get_regs().map_err(failed("KVM_GET_REGS"));
        match last {
            Kind::Pushf(word) => {
                let translate = translation(fd);
                let view = View::new(self.memory, &translate);
                Ok(aim::clear_pushed(regs()?.rsp, word, &view))
            }
            Kind::Syscall => {
                let mut regs = regs()?;
                regs.r11 &= !TF;
                fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;
                Ok(Some(()))
            }
            _ => Ok(Some(())),
        }
    }

    /// Takes back TF from what an instruction that has not begun would load.
    fn withdraw(&mut self, before: &Before, fd: &VcpuFd) -> Result<(), End> {
        let mut regs = fd.get_regs().map_err(failed("KVM_GET_REGS"))?;
        let translate = translation(fd);
        let view = View::new(self.memory, &translate);
        self.aim.withdraw(before.kind, &mut regs, &view).ok_or_else(|| lost(before, before.rip))?;
        fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))
    }

    /// Acts on a vCPU at the first instruction of a handler, which has not begun.
    fn arrived(
        &mut self,
        trap: &Trap,
        before: &Before,
        target: Target,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        let sregs = fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        let mut regs = fd.get_regs().map_err(failed("KVM_GET_REGS"))?;
        regs.rip = trap.rip;
        // SYSCALL saved RFLAGS in R11.
        if before.kind == Kind::Syscall {
            regs.r11 &= !TF;
        }
        // The target may be another's handler, too: the stack says whether an event has pushed a frame.
        if target.is_reached(before.kind, trap.rip, regs.rsp) {
            fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;
            return Ok(counts.retire(before.transferred()));
        }
        if trap.target {
            return Err(lost(before, trap.rip));
        }
        let translate = translation(fd);
        let view = View::new(self.memory, &translate);
        let frames = [false, true]
            .map(|code| trap.error_code[usize::from(code)].then(|| Frame::of_event(regs.rsp, code, &view)).flatten());
        // A handler of vectors with and without an error code: the frame is the one that follows from the instruction.
        let fits = |frame: &Frame| {
            let rip = frame.rip;
            rip == before.rip || rip == before.next || target.rip == Some(rip) || before.retired(rip).is_some()
        };
        let frame = frames.iter().flatten().find(|frame| fits(frame)).or_else(|| frames.iter().flatten().next());
        let Some(frame) = frame.copied() else { return Err(lost(before, trap.rip)) };
        // Other vectors may share the handler of #DB.
        if trap.debug && frame.cs & 3 == 3 && take_single_step(fd)? {
            undo(fd, &sregs, &mut regs, &frame, &view)?;
            return self.settle_ring3(before, target, frame.rip, fd, counts);
        }
        if frame.rip == before.rip {
            // The event came before the instruction: TF is cleared in what it would have loaded, because no step may follow.
            self.aim.withdraw(before.kind, &mut regs, &view).ok_or_else(|| lost(before, trap.rip))?;
        }
        if !frame.set_tf(false, &view) {
            return Err(lost(before, trap.rip));
        }
        fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;
        let retired = match target.rip {
            Some(target) => (frame.rip == target).then(|| before.transferred()),
            None if before.kind == Kind::SoftwareInterrupt => (frame.rip == before.next).then(|| before.transferred()),
            None if frame.rip == before.rip => None,
            // The event came after the instruction.
            None => {
                let ring = if before.ring3 { 3 } else { 0 };
                let led = self.led_to(before, frame.rip, ring, fd, counts);
                let (due, last) = led.ok_or_else(|| lost(before, frame.rip))?;
                self.aim.clean(last, &view).ok_or_else(|| lost(before, frame.rip))?;
                return Ok(due);
            }
        };
        if retired.is_none() && frame.rip != before.rip {
            return Err(lost(before, frame.rip));
        }
        Ok(count(counts, retired))
    }

    /// Counts a step in ring 3 whose #DB went to the guest and was undone: the instruction before `after` has retired,
    /// and with an IRET or SYSRET both it and the instruction at its target.
    fn settle_ring3(
        &self,
        before: &Before,
        target: Target,
        after: u64,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        let Some(to) = target.rip else { return self.settle(before, target, after, fd, counts) };
        let due = counts.retire(before.transferred());
        let first = self.decode(fd, ring(fd)?, to);
        Ok(self.settle(&first, Target::default(), after, fd, counts)? | due)
    }

    /// Returns the instruction's target, and sets TF in what it loads.
    fn aim(&mut self, fd: &VcpuFd, before: &Before, cs: u16, regs: &kvm_regs) -> Result<Target, End> {
        let translate = translation(fd);
        let view = View::new(self.memory, &translate);
        let mut armed = *regs;
        let (msr, traps) = (&mut self.msr, &mut self.traps);
        let target = self.aim.take(before, cs, &mut armed, &view, |index| msr.read(fd, index))?;
        if let Some(rip) = target.trap {
            traps.add_target(rip, &view, self.memory).map_err(overlap)?;
        }
        if armed.r11 != regs.r11 {
            fd.set_regs(&armed).map_err(failed("KVM_SET_REGS"))?;
        }
        Ok(target)
    }

    /// Makes the traps anew if the vector table, or what it is read by, has changed. Both, and the traps, are compared with memory
    /// unless nothing can have been written there.
    fn set_traps(&mut self, fd: &VcpuFd, sregs: &kvm_sregs) -> Result<(), End> {
        let from = Some((sregs.idt.base, sregs.idt.limit, sregs.cr3));
        if !std::mem::replace(&mut self.written, true) && self.made_from == from {
            return Ok(());
        }
        let translate = translation(fd);
        let view = View::new(self.memory, &translate);
        gates::table(sregs, &view, &mut self.scratch);
        if self.made_from == from && self.table == self.scratch && self.traps.intact(&view, self.memory) {
            return Ok(());
        }
        self.traps.replace(&gates::handlers(&self.scratch), &view, self.memory).map_err(overlap)?;
        std::mem::swap(&mut self.table, &mut self.scratch);
        self.made_from = from;
        Ok(())
    }

    /// Decodes the instruction at `rip`, as the guest wrote it.
    fn decode(&self, fd: &VcpuFd, ring: u16, rip: u64) -> Before {
        let translate = translation(fd);
        let view = View::new(self.memory, &translate);
        let mut bytes = [0; LONGEST_INSTRUCTION];
        let got = read(rip, &mut bytes, &self.traps, &view);
        Before::decode(&bytes[..got], rip, ring == 3)
    }

    /// Returns the trap at which the vCPU is: at its OUT, or before it.
    fn reached_trap(&self, exit: Exit, fd: &VcpuFd) -> Result<Option<Trap>, End> {
        let at = rip(fd)?;
        let here = self.traps.at(at);
        // KVM's emulator has moved RIP on already.
        let behind = || self.traps.at(at.wrapping_sub(2)).filter(|_| exit != Exit::Interrupted);
        Ok(here.or_else(behind).cloned())
    }

    fn disarm(&mut self, fd: &VcpuFd) -> Result<(), End> {
        if std::mem::take(&mut self.armed) {
            self.traps.lift(self.memory);
            self.made_from = None;
            fd.set_guest_debug(&kvm_guest_debug::default()).map_err(failed("KVM_SET_GUEST_DEBUG"))?;
        }
        Ok(())
    }
}

const fn is_access(exit: Exit) -> bool {
    matches!(exit, Exit::PortOut { .. } | Exit::PortIn { .. } | Exit::MemoryRead { .. } | Exit::MemoryWrite { .. })
}

/// Counts an instruction that retired (`None`: it did not); returns whether a counter reached its period with it.
fn count(counts: &mut StepCounts, retired: Option<host_pmu::backend::step::Retired>) -> bool {
    match retired {
        Some(retired) => counts.retire(retired),
        None => {
            counts.abandon();
            false
        }
    }
}

const PAGE: u64 = 0x1000;
const EFER_LMA: u64 = 1 << 10;

/// Reads code from `linear` on, without the traps. Returns how many bytes were read.
fn read(linear: u64, bytes: &mut [u8], traps: &Traps, view: &View<'_>) -> usize {
    let got = view.read(linear, bytes);
    for (part, physical) in pages(linear, got, view) {
        traps.hide(physical, &mut bytes[part]);
    }
    got
}

/// Removes the traps from an instruction.
fn open(memory: &GuestMemoryMmap, traps: &mut Traps, fd: &VcpuFd, before: &Before) {
    let translate = translation(fd);
    let view = View::new(memory, &translate);
    let ranges = pages(before.rip, before.length(), &view);
    let ranges: Vec<_> = ranges.map(|(part, physical)| physical..physical + part.len() as u64).collect();
    traps.open(&ranges, memory);
}

/// Returns for each page of `length` bytes from `linear` on the bytes that lie in it, and the first one's physical address.
fn pages<'v>(linear: u64, length: usize, view: &'v View<'_>) -> impl Iterator<Item = (Range<usize>, u64)> + use<'v> {
    let second = ((PAGE - linear % PAGE) as usize).min(length);
    let parts = [0..second, second..length];
    let translate = view.translate();
    parts.into_iter().filter(|part| !part.is_empty()).filter_map(move |part| {
        let physical = translate(linear.wrapping_add(part.start as u64))?;
        Some((part, physical))
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;
    use crate::kvm::step::gates::Handler;

    #[test]
    fn traps_are_hidden_in_their_own_page_only() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x5000)]).unwrap();
        // Linear 0x1000 is physical 0x1000, linear 0x2000 is physical 0x4000. The trap is at physical 0x2000.
        let code = |linear: u64| Some(if linear < 0x2000 { linear } else { linear + 0x2000 });
        let handlers = |linear: u64| Some(linear - 0x7000);
        memory.write_slice(&[1, 2], GuestAddress(0x1ffe)).unwrap();
        memory.write_slice(&[3, 4], GuestAddress(0x4000)).unwrap();
        memory.write_slice(&[0xaa, 0xbb], GuestAddress(0x2000)).unwrap();
        let mut traps = Traps::default();
        let handler = Handler { vector: 6, rip: 0x9000 };
        traps.replace(&[handler], &View::new(&memory, &handlers), &memory).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(read(0x1ffe, &mut bytes, &traps, &View::new(&memory, &code)), 4);
        assert_eq!(bytes, [1, 2, 3, 4]);
        let parts: Vec<_> = pages(0x1ffe, 4, &View::new(&memory, &code)).collect();
        assert_eq!(parts, [(0..2, 0x1ffe), (2..4, 0x4000)]);
        let one: Vec<_> = pages(0x1000, 3, &View::new(&memory, &code)).collect();
        assert_eq!(one, [(0..3, 0x1000)]);
    }
}
