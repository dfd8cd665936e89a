//! The stepping of one vCPU: what comes before each entry and after each exit.

use host_pmu::backend::step::StepCounts;
use kvm_bindings::{KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, kvm_guest_debug, kvm_regs, kvm_sregs};
use kvm_ioctls::VcpuFd;
use vm_memory::GuestMemoryMmap;

use super::super::exit::{Exit, LONGEST_INSTRUCTION};
use super::super::foreign::OneMsr;
use super::frame::{Frame, TF};
use super::gates;
use super::instruction::{Before, Kind};
use super::mode::{Mode, VectorTable};
use super::registers::{complete, failed, halt, lost, mode, overlap, rip, take_single_step, undo};
use super::traps::{self, Trap, Traps};
use super::view::{View, translation};
use crate::outcome::End;

/// Most steps of one run: minutes, where a step is dear.
const BUDGET: u64 = 4_000_000;
const PAGE: u64 = 0x1000;

const MSR_STAR_LSTAR: u32 = 0xc000_0082;
const MSR_CSTAR: u32 = 0xc000_0083;
const MSR_SYSENTER_EIP: u32 = 0x176;

/// What the loop does next.
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

/// Whose an exit is.
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
    Stepping(Before, Option<u64>),
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
    made_from: Option<[u64; 8]>,
    scratch: Vec<u8>,
    /// The frame of an IRET to ring 3, with TF set in it.
    planted: Option<Frame>,
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
            scratch: Vec::new(),
            planted: None,
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
        if counts.steps() >= BUDGET {
            return Err(End::Host(format!("single-stepping used up its {BUDGET} steps")));
        }
        let sregs = fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        let regs = fd.get_regs().map_err(failed("KVM_GET_REGS"))?;
        let mode = Mode::of(&sregs, regs.rflags);
        if let State::Within(before) = self.state {
            let before = before.unwrap_or_else(|| self.decode(fd, mode, regs.rip));
            self.state = State::Within(Some(before));
            fd.set_kvm_immediate_exit(1);
            return Ok(Go::Enter);
        }
        self.set_traps(fd, &sregs, mode)?;
        let before = self.decode(fd, mode, regs.rip);
        if before.kind == Kind::Halt && !before.ring3 {
            halt(fd, before.next, &regs)?;
            self.state = State::Free;
            return Ok(Go::Retired { due: counts.retire(before.retired(before.next).unwrap_or_default()) });
        }
        let target = self.aim(fd, &before, mode, &regs)?;
        self.open(fd, mode, &before);
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
                Ok(Seen::Step { due: count(counts, before.and_then(|before| before.retired(after))) })
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
                Ok(Seen::Step { due: self.settle(&before, target, after, fd, counts)? })
            }
            (State::Stepping(before, target), Exit::Interrupted) => {
                self.state = State::Free;
                let after = rip(fd)?;
                if after == before.rip {
                    counts.abandon();
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
            (State::Stepping(before, _), Exit::Shutdown)
                if before.ring3 || before.kind == Kind::Sysret || is_iret(&before) =>
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

    /// The instruction exited in the middle.
    fn within(&mut self, before: Before, fd: &VcpuFd, counts: &mut StepCounts) -> Result<Seen, End> {
        let at = rip(fd)?;
        let before = match before {
            // The instruction after one that had no trap of its own.
            Before { kind: Kind::Shadows, next, .. } if at == next => {
                counts.retire(before.retired(next).unwrap_or_default());
                self.decode(fd, mode(fd)?, at)
            }
            // KVM's emulator has moved RIP on already at an OUT.
            before if at == before.rip || at == before.next => before,
            before => return Err(lost(&before, at)),
        };
        counts.begin();
        self.state = State::Within(Some(before));
        Ok(Seen::Guest)
    }

    /// The step ended with RIP at `after`.
    fn settle(
        &self,
        before: &Before,
        target: Option<u64>,
        after: u64,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        if let Some(target) = target {
            return if after == target { Ok(counts.retire(before.transferred())) } else { Err(lost(before, after)) };
        }
        if let Some(due) = self.led_to(before, after, mode(fd)?, fd, counts) {
            return Ok(due);
        }
        if after == before.rip {
            // Another turn of a REP.
            counts.abandon();
            return Ok(false);
        }
        Err(lost(before, after))
    }

    /// Counts the instruction if it can have led to `after`, with the next one where only both have.
    fn led_to(&self, before: &Before, after: u64, mode: Mode, fd: &VcpuFd, counts: &mut StepCounts) -> Option<bool> {
        if let Some(retired) = before.retired(after) {
            return Some(counts.retire(retired));
        }
        let first = before.retired(before.next).filter(|_| before.kind == Kind::Shadows)?;
        let second = self.decode(fd, mode, before.next).retired(after)?;
        Some(counts.retire(first) | counts.retire(second))
    }

    /// The vCPU is at the first instruction of a handler, which has not begun.
    fn arrived(
        &mut self,
        trap: &Trap,
        before: &Before,
        target: Option<u64>,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        let sregs = fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        let mut regs = fd.get_regs().map_err(failed("KVM_GET_REGS"))?;
        regs.rip = trap.rip;
        if trap.word == 0 {
            // SYSCALL saved RFLAGS in R11.
            if before.kind == Kind::Syscall {
                regs.r11 &= !TF;
            }
            fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;
            return match before.kind {
                Kind::Syscall | Kind::Sysenter | Kind::Iret(_) => Ok(counts.retire(before.transferred())),
                _ => Err(lost(before, trap.rip)),
            };
        }
        let mode = Mode::of(&sregs, regs.rflags);
        let translate = translation(fd, mode.paging);
        let view = View::new(self.memory, &translate);
        let stack = mode.stack(regs.rsp);
        let frames = [false, true].map(|code| {
            trap.error_code[usize::from(code)].then(|| Frame::of_event(stack, trap.word, code, &view)).flatten()
        });
        // A handler of vectors with and without an error code: the frame is the one that follows from the instruction.
        let fits = |frame: &Frame| {
            let rip = frame.rip;
            rip == before.rip || rip == before.next || target == Some(rip) || before.retired(rip).is_some()
        };
        let frame = frames.iter().flatten().find(|frame| fits(frame)).or_else(|| frames.iter().flatten().next());
        let Some(frame) = frame.copied() else { return Err(lost(before, trap.rip)) };
        // Other vectors may share the handler of #DB.
        if trap.debug && frame.cs & 3 == 3 && take_single_step(fd)? {
            undo(fd, &sregs, &mut regs, &frame, &view)?;
            return self.settle_ring3(before, target, frame.rip, fd, counts);
        }
        if frame.rip == before.rip {
            // The event came before the instruction: TF goes from what it would have loaded, as no step may follow.
            if let Some(planted) = self.planted.take()
                && !planted.restore(&view)
            {
                return Err(lost(before, trap.rip));
            }
            if before.kind == Kind::Sysret {
                regs.r11 &= !TF;
            }
        }
        if !frame.set_tf(false, &view) {
            return Err(lost(before, trap.rip));
        }
        fd.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;
        let retired = match target {
            Some(target) => (frame.rip == target).then(|| before.transferred()),
            None if before.kind == Kind::SoftwareInterrupt => (frame.rip == before.next).then(|| before.transferred()),
            None if frame.rip == before.rip => None,
            // The event came after the instruction.
            None => {
                let due = self.led_to(before, frame.rip, mode.in_ring3(before.ring3), fd, counts);
                return due.ok_or_else(|| lost(before, frame.rip));
            }
        };
        if retired.is_none() && frame.rip != before.rip {
            return Err(lost(before, frame.rip));
        }
        Ok(count(counts, retired))
    }

    /// A ring-3 step's #DB went to the guest and was undone: the instruction before `after` has retired, and with an IRET
    /// or SYSRET both it and the instruction at its target.
    fn settle_ring3(
        &self,
        before: &Before,
        target: Option<u64>,
        after: u64,
        fd: &VcpuFd,
        counts: &mut StepCounts,
    ) -> Result<bool, End> {
        let Some(target) = target else { return self.settle(before, None, after, fd, counts) };
        let due = counts.retire(before.transferred());
        let first = self.decode(fd, mode(fd)?, target);
        Ok(self.settle(&first, None, after, fd, counts)? | due)
    }

    /// The target of a transfer that loads RFLAGS or changes the ring; sets TF in what it loads.
    fn aim(&mut self, fd: &VcpuFd, before: &Before, mode: Mode, regs: &kvm_regs) -> Result<Option<u64>, End> {
        let translate = translation(fd, mode.paging);
        let view = View::new(self.memory, &translate);
        self.planted = None;
        match before.kind {
            Kind::Iret(word) => {
                let Some(frame) = Frame::read(mode.stack(regs.rsp), word, &view) else { return Ok(None) };
                if mode.vectors != VectorTable::RealMode && frame.cs & 3 > u16::from(mode.ring) {
                    if !frame.set_tf(true, &view) {
                        return Err(lost(before, frame.rip));
                    }
                    self.planted = Some(frame);
                } else if frame.cs == mode.cs {
                    // KVM without hardware virtualization traps one instruction late.
                    let linear = mode.code(frame.rip);
                    self.traps.add_target(linear, frame.rip, &view, self.memory).map_err(overlap)?;
                }
                Ok(Some(frame.rip))
            }
            Kind::Sysret => {
                let armed = kvm_regs { r11: regs.r11 | TF, ..*regs };
                fd.set_regs(&armed).map_err(failed("KVM_SET_REGS"))?;
                Ok(Some(regs.rcx))
            }
            Kind::Sysexit => Ok(Some(regs.rdx)),
            Kind::Syscall | Kind::Sysenter => {
                let index = match before.kind {
                    Kind::Sysenter => MSR_SYSENTER_EIP,
                    _ if mode.bits == 64 => MSR_STAR_LSTAR,
                    _ => MSR_CSTAR,
                };
                if let Some(entry) = self.msr.read(fd, index) {
                    self.traps.add_target(entry, entry, &view, self.memory).map_err(overlap)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Makes the traps anew if the vector table, or what it is read by, has changed.
    fn set_traps(&mut self, fd: &VcpuFd, sregs: &kvm_sregs, mode: Mode) -> Result<(), End> {
        let from = [
            sregs.idt.base,
            sregs.idt.limit.into(),
            sregs.gdt.base,
            sregs.cr0,
            sregs.cr3,
            sregs.cr4,
            sregs.efer,
            mode.vectors as u64,
        ];
        let translate = translation(fd, mode.paging);
        let view = View::new(self.memory, &translate);
        gates::table(sregs, mode, &view, &mut self.scratch);
        if self.made_from == Some(from) && self.table == self.scratch {
            return Ok(());
        }
        let handlers = gates::handlers(&self.scratch, sregs, mode, &view);
        self.traps.replace(&handlers, &view, self.memory).map_err(overlap)?;
        std::mem::swap(&mut self.table, &mut self.scratch);
        self.made_from = Some(from);
        Ok(())
    }

    /// The instruction at `rip`, as the guest wrote it.
    fn decode(&self, fd: &VcpuFd, mode: Mode, rip: u64) -> Before {
        let translate = translation(fd, mode.paging);
        let view = View::new(self.memory, &translate);
        let mut bytes = [0; LONGEST_INSTRUCTION];
        let linear = mode.code(rip);
        let got = view.read(linear, &mut bytes);
        for (from, physical) in pages(linear, got, &view) {
            self.traps.hide(physical, &mut bytes[from..got]);
        }
        Before::decode(mode.bits, &bytes[..got], rip, mode.ring3())
    }

    /// Removes the traps from an instruction.
    fn open(&mut self, fd: &VcpuFd, mode: Mode, before: &Before) {
        let translate = translation(fd, mode.paging);
        let view = View::new(self.memory, &translate);
        let (linear, length) = (mode.code(before.rip), before.length());
        let ranges = pages(linear, length, &view).map(|(from, physical)| {
            let left = (length - from) as u64;
            physical..physical + left.min(PAGE - physical % PAGE)
        });
        let ranges: Vec<_> = ranges.collect();
        self.traps.open(&ranges, self.memory);
    }

    /// The trap at which the vCPU is: at its OUT, or before it.
    fn reached_trap(&self, exit: Exit, fd: &VcpuFd) -> Result<Option<Trap>, End> {
        let (at, mode) = (rip(fd)?, mode(fd)?);
        let here = self.traps.at(mode.code(at));
        // KVM's emulator has moved RIP on already.
        let behind = || self.traps.at(mode.code(at.wrapping_sub(2))).filter(|_| exit != Exit::Interrupted);
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

const fn is_iret(before: &Before) -> bool {
    matches!(before.kind, Kind::Iret(_))
}

/// Counts an instruction that retired; `None`: it did not.
fn count(counts: &mut StepCounts, retired: Option<host_pmu::backend::step::Retired>) -> bool {
    match retired {
        Some(retired) => counts.retire(retired),
        None => {
            counts.abandon();
            false
        }
    }
}

/// For each page of `length` bytes from `linear` on: the offset of its first byte, and that byte's physical address.
fn pages<'v>(linear: u64, length: usize, view: &'v View<'_>) -> impl Iterator<Item = (usize, u64)> + 'v {
    let second = (PAGE - linear % PAGE) as usize;
    let starts = [Some(0), (second < length).then_some(second)];
    starts.into_iter().flatten().filter_map(move |from| Some((from, view.physical(linear.wrapping_add(from as u64))?)))
}
