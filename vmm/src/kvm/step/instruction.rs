//! One instruction: its successors, and whether it retired.

use host_pmu::backend::step::Retired;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
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
    /// IRETQ.
    Iret,
    /// A way into ring 0 or out of it that is not counted: SYSCALL, SYSENTER and their returns, a return by a frame of another size,
    /// or to other code than that of 64 bits.
    OtherWay,
    /// PUSHF, POPF; bytes of the word.
    Pushf(u8),
    Popf(u8),
}

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
    /// Decodes the instruction at `rip` with these first bytes.
    pub(super) fn decode(bytes: &[u8], rip: u64, ring3: bool) -> Self {
        let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
        let (kind, ways) = (kind(&instruction), ways(&instruction));
        Self { rip, next: instruction.next_ip(), kind, ring3, writes: writes(&instruction), ways }
    }

    /// Returns the instruction as retired if it can have led to `after`. An interrupt, a fault or another iteration of a REP
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
        Mnemonic::Iretq => Kind::Iret,
        Mnemonic::Iret
        | Mnemonic::Iretd
        | Mnemonic::Syscall
        | Mnemonic::Sysenter
        | Mnemonic::Sysretq
        | Mnemonic::Sysexitq
        | Mnemonic::Sysret
        | Mnemonic::Sysexit => Kind::OtherWay,
        Mnemonic::Pushf => Kind::Pushf(2),
        Mnemonic::Pushfq => Kind::Pushf(8),
        Mnemonic::Popf => Kind::Popf(2),
        Mnemonic::Popfq => Kind::Popf(8),
        _ => Kind::Plain,
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
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    /// `instructions.txt` has instructions by their bytes at 0x1000, each with addresses that may be next; behind the arrow its kind,
    /// whether it may write memory, and as what it retires towards each of them.
    #[test]
    fn instructions_are_what_they_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kvm/step/instructions.txt");
        let mut found = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let given = line.split(" -> ").next().unwrap();
            let words = given.split(": ").nth(1).unwrap().split(' ');
            let numbers = |of: &str| u64::from_str_radix(of, 16).unwrap();
            let bytes: Vec<u8> =
                words.clone().take_while(|word| *word != "to").map(|byte| numbers(byte) as u8).collect();
            let before = Before::decode(&bytes, 0x1000, false);
            write!(found, "{given} -> {:?}{}", before.kind, if before.writes { ", writes" } else { "" }).unwrap();
            for after in words.skip(bytes.len() + 1) {
                let as_what = match before.retired(numbers(after)) {
                    None => "not retired",
                    Some(Retired { branch: false, .. }) => "retired",
                    Some(Retired { taken, .. }) => {
                        if taken {
                            "taken"
                        } else {
                            "not taken"
                        }
                    }
                };
                write!(found, ", {as_what}").unwrap();
            }
            found.push('\n');
        }
        trials::golden(&path, &found);
        let in_ring3 = Before::decode(&[0x90], 0x1000, true);
        assert_eq!(in_ring3.retired(0x1001), Some(Retired { ring3: true, ..Retired::default() }));
    }
}
