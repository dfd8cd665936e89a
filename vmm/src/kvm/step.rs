//! Single-stepping: which instruction retires, told to a host side that counts them (backend `step`).
//!
//! KVM's guest debugging is armed anew for each instruction, and only while a counter runs. It traps by RFLAGS.TF, so it
//! works where the guest cannot take TF away: **in ring 0**. At an IRETQ to ring 3 the flags come from the stack and the
//! steps are lost until the next exit; nothing is counted there.
//!
//! An exit for an MSR comes in the middle of its instruction. It is finished by a KVM_RUN with `immediate_exit`, so that
//! the next instruction is stepped from its start; whether the instruction retired shows in RIP (a #GP leaves it).
//! A HLT is carried out here (KVM_SET_MP_STATE), for KVM would sleep before it tells of the step.
//! An interrupt's delivery clears TF; breakpoints on the handlers catch what begins there.

use host_pmu::backend::step::{Retired, StepCounts};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use kvm_bindings::{
    KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, KVM_GUESTDBG_USE_HW_BP, KVM_MP_STATE_HALTED, kvm_guest_debug,
    kvm_mp_state, kvm_regs,
};
use kvm_ioctls::{VcpuExit, VcpuFd};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::outcome::End;

/// Steps of one run at most: minutes, where a step is dear.
const BUDGET: u64 = 4_000_000;
/// Vectors whose handlers have a breakpoint: NMI, #GP, the payload's timer and its PMI.
const VECTORS: [u64; 4] = [2, 13, guest::abi::VECTOR_TIMER, guest::abi::VECTOR_PMI];
/// DR7: local and global exact, and one enable per breakpoint; their kinds are 0, execution.
const DR7: u64 = 0x400;

/// The longest instruction.
const LONGEST: usize = 15;

/// What the loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    /// Enter the guest.
    Enter,
    /// An instruction was finished without entering: look at the PMU again.
    Retired {
        /// A counter reached its period.
        due: bool,
    },
}

/// An instruction about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    next: u64,
    /// A direct branch's target.
    target: Option<u64>,
    flow: FlowControl,
    ring3: bool,
    halts: bool,
}

impl Before {
    fn decode(bytes: &[u8], rip: u64, ring3: bool) -> Self {
        let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
        let flow = instruction.flow_control();
        let direct =
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call);
        let target = (direct && !instruction.is_invalid()).then(|| instruction.near_branch_target());
        Self { next: instruction.next_ip(), target, flow, ring3, halts: instruction.mnemonic() == Mnemonic::Hlt }
    }

    /// The instruction as retired if it can have led to `after`. An interrupt, a fault or another turn of a REP
    /// leads elsewhere.
    fn retired(&self, after: u64) -> Option<Retired> {
        let ring3 = self.ring3;
        let taken = Retired { branch: true, taken: true, ring3 };
        match self.flow {
            FlowControl::ConditionalBranch if after == self.next => Some(Retired { taken: false, ..taken }),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
                (self.target == Some(after)).then_some(taken)
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return => Some(taken),
            _ => (after == self.next).then_some(Retired { ring3, ..Retired::default() }),
        }
    }
}

/// The stepping of one vCPU. The guest's memory is identity-mapped, as the payloads' is.
#[derive(Debug)]
pub(crate) struct Stepper<'a> {
    memory: &'a GuestMemoryMmap,
    armed: bool,
    within: bool,
    before: Option<Before>,
}

impl<'a> Stepper<'a> {
    pub(crate) const fn new(memory: &'a GuestMemoryMmap) -> Self {
        Self { memory, armed: false, within: false, before: None }
    }

    /// KVM_RUN returned in the middle of an instruction.
    pub(crate) fn left_within(&mut self, counts: &mut StepCounts) {
        self.within = true;
        counts.begin();
    }

    /// Arms the next step, or finishes the instruction that left the guest.
    pub(crate) fn before_entry(&mut self, fd: &mut VcpuFd, counts: &mut StepCounts) -> Result<Go, End> {
        let failed = |what: &str, error: kvm_ioctls::Error| End::Host(format!("single-stepping: {what}: {error}"));
        if !counts.wanted() {
            counts.abandon();
            (self.within, self.before) = (false, None);
            if std::mem::take(&mut self.armed) {
                fd.set_guest_debug(&kvm_guest_debug::default()).map_err(|e| failed("KVM_SET_GUEST_DEBUG", e))?;
            }
            return Ok(Go::Enter);
        }
        if counts.steps() >= BUDGET {
            return Err(End::Host(format!("single-stepping used up its {BUDGET} steps")));
        }
        let sregs = fd.get_sregs().map_err(|e| failed("KVM_GET_SREGS", e))?;
        let regs = fd.get_regs().map_err(|e| failed("KVM_GET_REGS", e))?;
        let rip = regs.rip;
        let before = self.at(rip, sregs.cs.selector & 3 == 3);
        if std::mem::take(&mut self.within) {
            fd.set_kvm_immediate_exit(1);
            match fd.run() {
                Ok(VcpuExit::Debug(_) | VcpuExit::Intr) => {}
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
                Ok(other) => return Err(End::UnknownExit(format!("{other:?} while an instruction was finished"))),
                Err(error) => return Err(failed("KVM_RUN", error)),
            }
            let after = fd.get_regs().map_err(|e| failed("KVM_GET_REGS", e))?.rip;
            let due = if let Some(retired) = before.retired(after) {
                counts.retire(retired)
            } else {
                counts.abandon();
                false
            };
            return Ok(Go::Retired { due });
        }
        if before.halts && !before.ring3 {
            // Inside KVM it would sleep before it says that the HLT was stepped, and its own count could not wake it.
            fd.set_regs(&kvm_regs { rip: before.next, ..regs }).map_err(|e| failed("KVM_SET_REGS", e))?;
            let halted = kvm_mp_state { mp_state: KVM_MP_STATE_HALTED };
            fd.set_mp_state(halted).map_err(|e| failed("KVM_SET_MP_STATE", e))?;
            return Ok(Go::Retired { due: counts.retire(Retired::default()) });
        }
        let handlers = VECTORS.map(|vector| self.handler(sregs.idt.base, sregs.idt.limit, vector));
        let mut debug =
            kvm_guest_debug { control: KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP, ..kvm_guest_debug::default() };
        // KVM's emulator looks at no resume flag: a breakpoint where RIP stands would hit for ever.
        if !handlers.contains(&Some(rip)) {
            debug.control |= KVM_GUESTDBG_USE_HW_BP;
            debug.arch.debugreg[7] = DR7;
            for (i, handler) in handlers.into_iter().enumerate() {
                if let Some(handler) = handler {
                    debug.arch.debugreg[i] = handler;
                    debug.arch.debugreg[7] |= 2 << (2 * i);
                }
            }
        }
        fd.set_guest_debug(&debug).map_err(|e| failed("KVM_SET_GUEST_DEBUG", e))?;
        self.armed = true;
        self.before = Some(before);
        Ok(Go::Enter)
    }

    /// KVM_RUN returned for a step or a breakpoint, with RIP at `after`. Returns whether a counter reached its period.
    pub(crate) fn stepped(&mut self, after: u64, counts: &mut StepCounts) -> bool {
        let retired = self.before.take().and_then(|before| before.retired(after));
        retired.is_some_and(|retired| counts.retire(retired))
    }

    fn at(&self, rip: u64, ring3: bool) -> Before {
        let mut bytes = [0; LONGEST];
        // At the end of memory fewer are there; what is missing decodes as no branch of any kind.
        let got = self.memory.read(&mut bytes, GuestAddress(rip)).unwrap_or(0);
        Before::decode(&bytes[..got], rip, ring3)
    }

    fn handler(&self, idt: u64, limit: u16, vector: u64) -> Option<u64> {
        if vector * 16 + 15 > u64::from(limit) {
            return None;
        }
        let mut gate = [0; 16];
        self.memory.read_slice(&mut gate, GuestAddress(idt.checked_add(vector * 16)?)).ok()?;
        let gate = u128::from_le_bytes(gate);
        let present = gate >> 47 & 1 == 1;
        let offset = (gate & 0xffff) | (gate >> 48 & 0xffff) << 16 | (gate >> 64 & 0xffff_ffff) << 32;
        present.then_some(offset as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::long_mode;

    fn before(bytes: &[u8]) -> Before {
        Before::decode(bytes, 0x1000, false)
    }

    #[test]
    fn an_instruction_retires_only_towards_its_successors() {
        let plain = Some(Retired::default());
        let taken = Some(Retired { branch: true, taken: true, ring3: false });
        let nop = before(&[0x90]);
        assert_eq!((nop.retired(0x1001), nop.retired(0x1000), nop.retired(0x5000)), (plain, None, None));
        let jnz = before(&[0x75, 0x10]);
        let not_taken = Some(Retired { branch: true, taken: false, ring3: false });
        assert_eq!((jnz.retired(0x1002), jnz.retired(0x1012), jnz.retired(0x5000)), (not_taken, taken, None));
        let call = before(&[0xe8, 0, 1, 0, 0]);
        assert_eq!((call.retired(0x1105), call.retired(0x1005)), (taken, None));
        assert_eq!(before(&[0xc3]).retired(0x7777), taken);
        assert_eq!(before(&[0x48, 0xcf]).retired(0x7777), taken, "IRETQ");
        let wrmsr = before(&[0x0f, 0x30]);
        assert_eq!((wrmsr.retired(0x1002), wrmsr.retired(0x1000)), (plain, None), "a #GP leaves RIP");
        let stos = before(&[0xf3, 0xaa]);
        assert_eq!((stos.retired(0x1000), stos.retired(0x1002)), (None, plain));
        let in_ring3 = Before::decode(&[0x90], 0x1000, true);
        assert_eq!(in_ring3.retired(0x1001), Some(Retired { ring3: true, ..Retired::default() }));
        assert_eq!(before(&[]).retired(0x5000), None);
    }

    #[test]
    fn handlers_come_from_the_guests_gates() {
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let words = long_mode::gate(2, 0x11_2233_4455);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write_slice(&bytes, GuestAddress(0x1000 + 32)).unwrap();
        let stepper = Stepper::new(&memory);
        assert_eq!(stepper.handler(0x1000, 0xfff, 2), Some(0x11_2233_4455));
        assert_eq!(stepper.handler(0x1000, 0xfff, 13), None, "not present");
        assert_eq!(stepper.handler(0x1000, 46, 2), None, "beyond the limit");
        assert_eq!(stepper.handler(u64::MAX, 0xfff, 2), None);
    }
}
