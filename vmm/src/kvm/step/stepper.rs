//! The stepping of one vCPU: its work before each entry and after each exit.

use host_pmu::backend::step::StepCounts;
use kvm_bindings::{KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, kvm_guest_debug};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::super::exit::Exit;
use super::super::host::ioctl_failed;
use super::aim::{self, Aim, Target};
use super::gates;
use super::instruction::{Before, Kind, LONGEST_INSTRUCTION};
use super::registers::{
    At, ambiguous, complete, event_pending, halt, is_halted, lost, other_way, overlap, own_steps, single_step, undo,
};
use super::traps::{self, Trap, Traps};
use super::traps::{Frame, TF};
use crate::linear::Space;
use crate::outcome::End;

/// Most entries of one run that are steps, whether their instructions retire or not: minutes, where a step is dear.
const BUDGET: u64 = 4_000_000;

/// The instruction that was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The guest runs without steps.
    Free,
    /// It is stepped. The second field is its target, where it is known from a frame.
    Stepping(Before, Target),
    /// It exited in the middle; `None`: it began without a step.
    Within(Option<Before>),
}

/// The vCPU does this next.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Step {
    /// The guest's part: it is to be entered, or its exit is to be handled.
    Guest,
    /// Nothing: an instruction was finished, or is to be stepped again. `due`: a counter reached its period in it.
    Done { due: bool },
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
        }
    }

    /// Arms the next step, or prepares the completion of the instruction that exited in the middle. The step is done if its
    /// instruction was finished without entering.
    pub(in super::super) fn before_entry(&mut self, fd: &mut VcpuFd, counts: &mut StepCounts) -> Result<Step, End> {
        if !counts.wanted() {
            counts.abandon();
            self.state = State::Free;
            self.disarm(fd)?;
            return Ok(Step::Guest);
        }
        let at = At::of(fd)?;
        let rip = at.regs.rip;
        if at.sregs.efer & EFER_LMA == 0 || at.sregs.cs.l == 0 {
            return Err(other_way(rip));
        }
        if let State::Within(before) = self.state {
            let before = before.unwrap_or_else(|| self.decode(&at, at.in_ring3(), rip));
            self.state = State::Within(Some(before));
            fd.set_kvm_immediate_exit(1);
            return Ok(Step::Guest);
        }
        self.entries += 1;
        if self.entries > BUDGET {
            return Err(End::Host(format!("single-stepping used up its {BUDGET} steps")));
        }
        // KVM hides the TF of its own steps.
        if !self.armed && at.regs.rflags & TF != 0 {
            return Err(own_steps(rip));
        }
        self.set_traps(&at)?;
        let before = self.counted(&at, at.in_ring3(), rip)?;
        // A vCPU that waits already, or to which an event comes first, is entered as it is.
        if before.kind == Kind::Halt && at.ring() == 0 && !is_halted(fd)? && !event_pending(fd, at.regs.rflags)? {
            halt(fd, before.next, at)?;
            self.state = State::Free;
            let due = counts.retire(before.retired(before.next).unwrap_or_default());
            return Ok(Step::Done { due });
        }
        let target = self.aim(&before, &at)?;
        if (before.ring3 || target.ring3) && self.traps.debug_handler() == Some(true) && single_step(fd, false)? {
            return Err(ambiguous(before.rip));
        }
        let space = at.space(self.memory);
        let pages = space.pages(before.rip, before.length());
        let ranges = pages.filter_map(|(part, at)| at.map(|at| at..at + part.len() as u64));
        self.traps.open(&ranges.collect::<Vec<_>>(), self.memory);
        let debug =
            kvm_guest_debug { control: KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP, ..kvm_guest_debug::default() };
        fd.set_guest_debug(&debug).map_err(ioctl_failed("KVM_SET_GUEST_DEBUG"))?;
        self.armed = true;
        self.state = State::Stepping(before, target);
        Ok(Step::Guest)
    }

    /// Looks at an exit before the guest's handling of it. The step is done if the exit was the step's.
    pub(in super::super) fn after_exit(
        &mut self,
        exit: Exit,
        fd: &mut VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<Step, End> {
        let state = self.state;
        let msr = matches!(exit, Exit::Rdmsr(_) | Exit::Wrmsr { .. });
        if state == State::Free {
            if msr {
                counts.begin();
                self.state = State::Within(None);
            }
            return Ok(Step::Guest);
        }
        let at = At::of(fd)?;
        let after = at.regs.rip;
        let mut trap = None;
        if let State::Stepping(..) = state {
            if matches!(exit, Exit::PortOut(traps::PORT) | Exit::Interrupted) {
                trap = self.reached_trap(exit, after);
            }
            self.traps.close(self.memory);
        }
        match (state, exit) {
            (State::Within(before), Exit::Debug | Exit::Interrupted) => {
                self.state = State::Free;
                let due = count(counts, before.and_then(|before| before.retired(after)));
                Ok(Step::Done { due: due | std::mem::take(&mut self.due) })
            }
            (State::Stepping(before, target), Exit::PortOut(traps::PORT)) => {
                if let Some(trap) = trap {
                    self.state = State::Free;
                    complete(fd)?;
                    let due = self.arrived(&trap, &before, target, fd, counts)?;
                    return Ok(Step::Done { due });
                }
                self.within(before, &at, counts)
            }
            (State::Stepping(before, target), Exit::Debug) => {
                self.state = State::Free;
                let due = self.settle(&before, target, &at, counts)?;
                // One instruction ran, without an event, and wrote nothing.
                let alone =
                    before.kind == Kind::Plain && target == Target::default() && before.retired(after).is_some();
                self.written = before.writes || !alone;
                Ok(Step::Done { due })
            }
            (State::Stepping(before, target), Exit::Interrupted) => {
                self.state = State::Free;
                if after == before.rip {
                    counts.abandon();
                    self.withdraw(&before, &at)?;
                    return Ok(Step::Done { due: false });
                }
                if trap.is_none() && before.kind == Kind::Shadows {
                    // It was a HLT after STI, and the vCPU sleeps in KVM.
                    return Ok(Step::Done { due: self.settle(&before, target, &at, counts)? });
                }
                // A host that emulates deliveries stops before the handler's first instruction.
                let trap = trap.ok_or_else(|| lost(&before, after))?;
                Ok(Step::Done { due: self.arrived(&trap, &before, target, fd, counts)? })
            }
            (State::Stepping(before, _), _) if msr || is_access(exit) => self.within(before, &at, counts),
            (State::Stepping(before, target), Exit::Shutdown)
                if (before.ring3 || target.ring3) && self.traps.debug_handler().is_none() =>
            {
                Err(End::Host(format!(
                    "backend step cannot count ring 3 on this host: the guest triple-faulted at a step from {:#x}; this KVM \
                     delivers the step's #DB to the guest, which must have a gate for vector 1",
                    before.rip
                )))
            }
            _ => Ok(Step::Guest),
        }
    }

    /// Acts on an instruction that exited in the middle.
    fn within(&mut self, before: Before, at: &At, counts: &mut StepCounts) -> Result<Step, End> {
        let rip = at.regs.rip;
        let before = match before {
            // This is the instruction after one that had no trap of its own.
            Before { kind: Kind::Shadows, next, .. } if rip == next => {
                self.due |= counts.retire(before.retired(next).unwrap_or_default());
                self.decode(at, at.in_ring3(), rip)
            }
            // KVM's emulator has moved RIP on already at an OUT.
            before if rip == before.rip || rip == before.next => before,
            before => return Err(lost(&before, rip)),
        };
        counts.begin();
        self.state = State::Within(Some(before));
        Ok(Step::Guest)
    }

    /// Counts the step, which ended `at` these registers.
    fn settle(&self, before: &Before, target: Target, at: &At, counts: &mut StepCounts) -> Result<bool, End> {
        let after = at.regs.rip;
        if let Some(target) = target.rip {
            return if after == target { Ok(counts.retire(before.transferred())) } else { Err(lost(before, after)) };
        }
        if let Some((due, last)) = self.led_to(before, after, at.in_ring3(), at, counts)? {
            self.clean(last, at).ok_or_else(|| lost(before, after))?;
            return Ok(due);
        }
        if after == before.rip {
            // The instruction is a REP with iterations left.
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
        ring3: bool,
        at: &At,
        counts: &mut StepCounts,
    ) -> Result<Option<(bool, Kind)>, End> {
        if let Some(retired) = before.retired(after) {
            return Ok(Some((counts.retire(retired), before.kind)));
        }
        let Some(first) = before.retired(before.next).filter(|_| before.kind == Kind::Shadows) else { return Ok(None) };
        let second = self.counted(at, ring3, before.next)?;
        let retired = second.retired(after);
        Ok(retired.map(|retired| (counts.retire(first) | counts.retire(retired), second.kind)))
    }

    /// Clears the step's TF where an instruction that retired has saved it. `None`: the stack is not in memory.
    fn clean(&self, last: Kind, at: &At) -> Option<()> {
        let Kind::Pushf(word) = last else { return Some(()) };
        aim::clear_pushed(at.regs.rsp, word, &at.space(self.memory))
    }

    /// Takes back TF from what an instruction that has not begun would load.
    fn withdraw(&mut self, before: &Before, at: &At) -> Result<(), End> {
        self.aim.withdraw(&at.space(self.memory)).ok_or_else(|| lost(before, before.rip))
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
        let mut at = At::of(fd)?;
        at.regs.rip = trap.rip;
        // The target may be another's handler, too: the stack says whether an event has pushed a frame.
        if target.is_reached(trap.rip, at.regs.rsp) {
            at.set_regs(fd)?;
            return Ok(counts.retire(before.transferred()));
        }
        if trap.target {
            return Err(lost(before, trap.rip));
        }
        let space = at.space(self.memory);
        let frames = [false, true].map(|code| {
            trap.error_code[usize::from(code)].then(|| Frame::of_event(at.regs.rsp, code, &space)).flatten()
        });
        // A handler of vectors with and without an error code: the frame is the one that follows from the instruction.
        let fits = |frame: &Frame| {
            let rip = frame.rip;
            rip == before.rip || rip == before.next || target.rip == Some(rip) || before.retired(rip).is_some()
        };
        let frame = frames.iter().flatten().find(|frame| fits(frame)).or_else(|| frames.iter().flatten().next());
        let Some(frame) = frame.copied() else { return Err(lost(before, trap.rip)) };
        // Other vectors may share the handler of #DB.
        if trap.debug && frame.cs & 3 == 3 && single_step(fd, true)? {
            undo(fd, &mut at, &frame, &space)?;
            return self.settle_ring3(before, target, &at, counts);
        }
        if frame.rip == before.rip {
            // The event came before the instruction: TF is cleared in what it would have loaded, because no step may follow.
            self.aim.withdraw(&space).ok_or_else(|| lost(before, trap.rip))?;
        }
        if !frame.set_tf(false, &space) {
            return Err(lost(before, trap.rip));
        }
        at.set_regs(fd)?;
        let retired = match target.rip {
            Some(target) => (frame.rip == target).then(|| before.transferred()),
            None if before.kind == Kind::SoftwareInterrupt => (frame.rip == before.next).then(|| before.transferred()),
            None if frame.rip == before.rip => None,
            // The event came after the instruction.
            None => {
                let led = self.led_to(before, frame.rip, before.ring3, &at, counts)?;
                let (due, last) = led.ok_or_else(|| lost(before, frame.rip))?;
                self.aim.clean(last, &space).ok_or_else(|| lost(before, frame.rip))?;
                return Ok(due);
            }
        };
        if retired.is_none() && frame.rip != before.rip {
            return Err(lost(before, frame.rip));
        }
        Ok(count(counts, retired))
    }

    /// Counts a step in ring 3 whose #DB went to the guest and was undone: the instruction before that has retired,
    /// and with an IRET both it and the instruction at its target.
    fn settle_ring3(&self, before: &Before, target: Target, at: &At, counts: &mut StepCounts) -> Result<bool, End> {
        let Some(to) = target.rip else { return self.settle(before, target, at, counts) };
        let due = counts.retire(before.transferred());
        let first = self.counted(at, at.in_ring3(), to)?;
        Ok(self.settle(&first, Target::default(), at, counts)? | due)
    }

    /// Returns the instruction's target, and sets TF in what it loads.
    fn aim(&mut self, before: &Before, at: &At) -> Result<Target, End> {
        let space = at.space(self.memory);
        let target = self.aim.take(before, at.sregs.cs.selector, at.regs.rsp, &space)?;
        if let Some(rip) = target.trap {
            self.traps.add_target(rip, &space, self.memory).map_err(overlap)?;
        }
        Ok(target)
    }

    /// Makes the traps anew if the vector table, or what it is read by, has changed. Both, and the traps, are compared with memory
    /// unless nothing can have been written there.
    fn set_traps(&mut self, at: &At) -> Result<(), End> {
        let sregs = &at.sregs;
        let from = Some((sregs.idt.base, sregs.idt.limit, sregs.cr3));
        if !std::mem::replace(&mut self.written, true) && self.made_from == from {
            return Ok(());
        }
        let space = at.space(self.memory);
        gates::table(sregs, &space, &mut self.scratch);
        if self.made_from == from && self.table == self.scratch && self.traps.intact(&space, self.memory) {
            return Ok(());
        }
        self.traps.replace(&gates::handlers(&self.scratch), &space, self.memory).map_err(overlap)?;
        std::mem::swap(&mut self.table, &mut self.scratch);
        self.made_from = from;
        Ok(())
    }

    /// Decodes the instruction at `rip`, unless it is one that is not counted.
    fn counted(&self, at: &At, ring3: bool, rip: u64) -> Result<Before, End> {
        let before = self.decode(at, ring3, rip);
        if before.kind == Kind::OtherWay { Err(other_way(rip)) } else { Ok(before) }
    }

    /// Decodes the instruction at `rip`, as the guest wrote it.
    fn decode(&self, at: &At, ring3: bool, rip: u64) -> Before {
        let mut bytes = [0; LONGEST_INSTRUCTION];
        let got = read(rip, &mut bytes, &self.traps, &at.space(self.memory));
        Before::decode(&bytes[..got], rip, ring3)
    }

    /// Returns the trap at which the vCPU is: at its OUT, or before it.
    fn reached_trap(&self, exit: Exit, rip: u64) -> Option<Trap> {
        // KVM's emulator has moved RIP on already.
        let behind = || self.traps.at(rip.wrapping_sub(2)).filter(|_| exit != Exit::Interrupted);
        self.traps.at(rip).or_else(behind).cloned()
    }

    fn disarm(&mut self, fd: &VcpuFd) -> Result<(), End> {
        if std::mem::take(&mut self.armed) {
            self.traps.lift(self.memory);
            self.made_from = None;
            fd.set_guest_debug(&kvm_guest_debug::default()).map_err(ioctl_failed("KVM_SET_GUEST_DEBUG"))?;
        }
        Ok(())
    }
}

const fn is_access(exit: Exit) -> bool {
    matches!(exit, Exit::PortOut(_) | Exit::PortIn(_) | Exit::MemoryRead(_) | Exit::MemoryWrite(_))
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

const EFER_LMA: u64 = 1 << 10;

/// Reads code from `linear` on, without the traps. Returns how many bytes were read.
fn read(linear: u64, bytes: &mut [u8], traps: &Traps, space: &Space<'_>) -> usize {
    let got = space.read(linear, bytes);
    for (part, physical) in space.pages(linear, got) {
        if let Some(physical) = physical {
            traps.hide(physical, &mut bytes[part]);
        }
    }
    got
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;
    use crate::kvm::step::gates::Handler;
    use crate::linear::tests::long_mode;

    #[test]
    fn traps_are_hidden_in_their_own_page_only() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0xa000)]).unwrap();
        let put = |at: u64, entry: u64| memory.write_obj(entry, GuestAddress(at)).unwrap();
        // Linear 0x1000 is physical 0x1000, linear 0x2000 is physical 0x4000. The trap is at physical 0x2000, linear 0x9000.
        for (at, entry) in [(0x6000, 0x7001), (0x7000, 0x8001), (0x8000, 0x5001), (0x5008, 0x1001), (0x5010, 0x4001)] {
            put(at, entry);
        }
        put(0x5048, 0x2001);
        let space = Space::new(&memory, &long_mode(0x6000));
        memory.write_slice(&[1, 2], GuestAddress(0x1ffe)).unwrap();
        memory.write_slice(&[3, 4], GuestAddress(0x4000)).unwrap();
        memory.write_slice(&[0xaa, 0xbb], GuestAddress(0x2000)).unwrap();
        let mut traps = Traps::default();
        traps.replace(&[Handler { vector: 6, rip: 0x9000 }], &space, &memory).unwrap();
        let mut bytes = [0; 4];
        assert_eq!((read(0x1ffe, &mut bytes, &traps, &space), bytes), (4, [1, 2, 3, 4]));
        assert_eq!((read(0x9000, &mut bytes[..2], &traps, &space), &bytes[..2]), (2, &[0xaa, 0xbb][..]));
    }
}
