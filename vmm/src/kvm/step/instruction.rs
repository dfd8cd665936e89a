//! One instruction: its successors, and whether it retired.

use host_pmu::backend::step::Retired;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

/// Longest instruction (SDM vol. 2, 2.3.11).
pub(super) const LONGEST_INSTRUCTION: usize = 15;

/// Instructions that single-stepping treats apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// No instruction, as far as its bytes could be read.
    Invalid,
    Halt,
    /// MOV SS, POP SS, STI: on some processors no trap comes before the next instruction is done (SDM vol. 3, 6.8.3).
    Shadows,
    /// INT n, INT3, INTO, INT1.
    SoftwareInterrupt,
    /// IRET; the size of a word of the frame that it pops.
    Iret(u8),
    /// SYSRET, SYSEXIT: to ring 3, with RFLAGS from R11 or as they are; the bits of RCX or RDX that are the target.
    Sysret(u64),
    Sysexit(u64),
    /// PUSHF, POPF; bytes of the word.
    Pushf(u8),
    Popf(u8),
    /// SYSCALL, SYSENTER: to an address in an MSR.
    Syscall,
    Sysenter,
}

/// A target of 32 bits.
const LOW_HALF: u64 = 0xffff_ffff;

/// The ways on from an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    /// The next instruction.
    Next,
    /// The next instruction, or the target.
    NextOr(u64),
    /// The target.
    To(u64),
    /// A target that is not in the instruction.
    Anywhere,
}

/// An instruction about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) rip: u64,
    pub(super) next: u64,
    pub(super) kind: Kind,
    pub(super) ring3: bool,
    /// It may write memory.
    pub(super) writes: bool,
    ways: Ways,
}

impl Before {
    /// Decodes the instruction at `rip` with these first bytes, in code of `bits` bits.
    pub(super) fn decode(bits: u32, bytes: &[u8], rip: u64, ring3: bool) -> Self {
        let instruction = Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE).decode();
        let mask = match bits {
            16 => 0xffff,
            32 => 0xffff_ffff,
            _ => u64::MAX,
        };
        let (kind, ways) = (kind(&instruction), ways(&instruction));
        Self { rip, next: instruction.next_ip() & mask, kind, ring3, writes: writes(&instruction), ways }
    }

    /// Returns the instruction as retired if it can have led to `after`. An interrupt, a fault or another turn of a REP
    /// leads elsewhere.
    pub(super) fn retired(&self, after: u64) -> Option<Retired> {
        let ring3 = self.ring3;
        let taken = Retired { branch: true, taken: true, ring3 };
        match self.ways {
            Ways::Next => (after == self.next).then_some(Retired { ring3, ..Retired::default() }),
            Ways::NextOr(target) if after == target && after != self.next => Some(taken),
            Ways::NextOr(_) => (after == self.next).then_some(Retired { taken: false, ..taken }),
            Ways::To(target) => (after == target).then_some(taken),
            Ways::Anywhere => Some(taken),
        }
    }

    /// Returns the number of bytes of the instruction.
    pub(super) fn length(&self) -> usize {
        let length = self.next.wrapping_sub(self.rip) & 0xf;
        if self.kind == Kind::Invalid || length == 0 { LONGEST_INSTRUCTION } else { length as usize }
    }

    /// Returns the instruction as retired by its own transfer of control.
    pub(super) const fn transferred(&self) -> Retired {
        Retired { branch: true, taken: true, ring3: self.ring3 }
    }
}

fn writes(instruction: &Instruction) -> bool {
    let reads_alone =
        |access| matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
    let mut factory = InstructionInfoFactory::new();
    instruction.is_invalid() || factory.info(instruction).used_memory().iter().any(|used| !reads_alone(used.access()))
}

fn kind(instruction: &Instruction) -> Kind {
    match instruction.mnemonic() {
        Mnemonic::INVALID => Kind::Invalid,
        Mnemonic::Hlt => Kind::Halt,
        Mnemonic::Sti => Kind::Shadows,
        Mnemonic::Mov | Mnemonic::Pop if instruction.op0_register() == Register::SS => Kind::Shadows,
        Mnemonic::Int | Mnemonic::Int1 | Mnemonic::Int3 | Mnemonic::Into => Kind::SoftwareInterrupt,
        Mnemonic::Syscall => Kind::Syscall,
        Mnemonic::Sysenter => Kind::Sysenter,
        Mnemonic::Sysret => Kind::Sysret(LOW_HALF),
        Mnemonic::Sysretq => Kind::Sysret(u64::MAX),
        Mnemonic::Sysexit => Kind::Sysexit(LOW_HALF),
        Mnemonic::Sysexitq => Kind::Sysexit(u64::MAX),
        Mnemonic::Pushf => Kind::Pushf(2),
        Mnemonic::Pushfd => Kind::Pushf(4),
        Mnemonic::Pushfq => Kind::Pushf(8),
        Mnemonic::Popf => Kind::Popf(2),
        Mnemonic::Popfd => Kind::Popf(4),
        Mnemonic::Popfq => Kind::Popf(8),
        _ => match instruction.code() {
            Code::Iretw => Kind::Iret(2),
            Code::Iretd => Kind::Iret(4),
            Code::Iretq => Kind::Iret(8),
            _ => Kind::Plain,
        },
    }
}

fn ways(instruction: &Instruction) -> Ways {
    let near = instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Ways::NextOr(near),
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Ways::To(near),
        FlowControl::Call if instruction.is_call_near() => Ways::To(near),
        FlowControl::UnconditionalBranch
        | FlowControl::Call
        | FlowControl::IndirectBranch
        | FlowControl::IndirectCall
        | FlowControl::Return => match instruction.mnemonic() {
            // Not a branch: the hypervisor's part of it lies between it and the next instruction.
            Mnemonic::Vmcall | Mnemonic::Vmmcall => Ways::Next,
            _ => Ways::Anywhere,
        },
        _ => Ways::Next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(bytes: &[u8]) -> Before {
        Before::decode(64, bytes, 0x1000, false)
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
        let in_ring3 = Before::decode(64, &[0x90], 0x1000, true);
        assert_eq!(in_ring3.retired(0x1001), Some(Retired { ring3: true, ..Retired::default() }));
        assert_eq!((before(&[]).retired(0x5000), before(&[]).kind), (None, Kind::Invalid));
    }

    #[test]
    fn bytes_are_decoded_by_the_size_of_code() {
        // INC EAX; DEC EAX in 32-bit code, a REX prefix and NOP in 64-bit code.
        let bytes = [0x40, 0x48, 0x90];
        assert_eq!(Before::decode(32, &bytes, 0x1000, false).next, 0x1001);
        assert_eq!(Before::decode(64, &bytes, 0x1000, false).next, 0x1003);
        // MOV EAX, imm32; MOV AX, imm16.
        let bytes = [0xb8, 1, 2, 3, 4];
        assert_eq!(Before::decode(32, &bytes, 0, false).next, 5);
        assert_eq!(Before::decode(16, &bytes, 0xfffe, false).next, 1, "IP wraps at 64 KiB");
        let taken = Before::decode(16, &[0xeb, 0xfe], 0x20, false);
        assert!(taken.retired(0x20).is_some_and(|retired| retired.taken), "a jump to itself");
    }

    #[test]
    fn what_may_write_memory_is_known() {
        for (bytes, writes) in [
            (&[0x90][..], false),
            (&[0x48, 0x8b, 0x00], false),      // MOV RAX, [RAX]
            (&[0x48, 0x89, 0x00], true),       // MOV [RAX], RAX
            (&[0xf0, 0x48, 0xff, 0x00], true), // LOCK INC [RAX]
            (&[0x48, 0x0f, 0xb1, 0x00], true), // CMPXCHG [RAX], RAX
            (&[0x50], true),                   // PUSH
            (&[0xe8, 0, 0, 0, 0], true),       // CALL
            (&[0x75, 0x10], false),            // JNE
            (&[0xf3, 0xaa], true),             // REP STOSB
            (&[0xa6], false),                  // CMPSB
            (&[0x6c], true),                   // INSB
            (&[0xc8, 8, 0, 1], true),          // ENTER
            (&[0x0f, 0xae, 0x00], true),       // FXSAVE
            (&[0x0f, 0x01, 0x00], true),       // SGDT
            (&[0x48, 0x8d, 0x00], false),      // LEA
            (&[], true),
        ] {
            assert_eq!(before(bytes).writes, writes, "{bytes:x?}");
        }
    }

    #[test]
    fn what_needs_care_is_recognised() {
        for (bits, bytes, kind) in [
            (64, &[0xf4][..], Kind::Halt),
            (64, &[0x8e, 0xd0], Kind::Shadows),
            (32, &[0x17], Kind::Shadows),
            (64, &[0xfb], Kind::Shadows),
            (64, &[0x8e, 0xd8], Kind::Plain),
            (64, &[0xcd, 0x80], Kind::SoftwareInterrupt),
            (64, &[0x48, 0xcf], Kind::Iret(8)),
            (32, &[0xcf], Kind::Iret(4)),
            (16, &[0xcf], Kind::Iret(2)),
            (64, &[0x0f, 0x05], Kind::Syscall),
            (64, &[0x48, 0x0f, 0x07], Kind::Sysret(u64::MAX)),
            (64, &[0x0f, 0x07], Kind::Sysret(0xffff_ffff)),
            (32, &[0x0f, 0x34], Kind::Sysenter),
            (64, &[0x0f, 0x35], Kind::Sysexit(0xffff_ffff)),
            (64, &[0x48, 0x0f, 0x35], Kind::Sysexit(u64::MAX)),
            (64, &[0x9c], Kind::Pushf(8)),
            (32, &[0x9c], Kind::Pushf(4)),
            (16, &[0x9d], Kind::Popf(2)),
            (64, &[0x9d], Kind::Popf(8)),
            (64, &[0x06], Kind::Invalid),
        ] {
            assert_eq!(Before::decode(bits, bytes, 0, false).kind, kind, "{bytes:x?}");
        }
        // Far transfers lead where their operand says; VMCALL is no branch.
        assert!(Before::decode(32, &[0xea, 0, 0, 1, 0, 8, 0], 0, false).retired(0x1_0000).is_some());
        assert_eq!(before(&[0x0f, 0x01, 0xc1]).retired(0x1003), Some(Retired::default()));
    }
}
