//! The payload's code, instruction by instruction: general registers, the flags that the code reads, and memory.

use std::collections::HashMap;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use object::{Object, ObjectSegment, ObjectSymbol};

/// Start and size of the memory that holds the payload and its data.
const BASE: u64 = 0x10_0000;
const BYTES: usize = 0x34_0000;
/// Above the payload's own memory.
pub(crate) const BOOT_PAGE: u64 = 0x30_0000;
pub(crate) const REPORT: u64 = 0x30_2000;
pub(crate) const USER_PAGE: u64 = 0x30_4000;
const STACK: u64 = 0x31_0000;
const NMI_STACK: u64 = 0x31_8000;
const INTERRUPT_STACK: u64 = 0x32_0000;
pub(crate) const LOG: u64 = 0x33_0000;
pub(crate) const LOG_BYTES: u64 = BASE + BYTES as u64 - LOG;

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RBX: usize = 3;
const RSP: usize = 4;
const RDI: usize = 7;
/// Interrupt flag.
const IF: u64 = 0x200;
const CS_KERNEL: u64 = 0x08;

/// Operations of the code that need the machine around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Rdmsr(u32),
    Wrmsr(u32, u64),
    Rdtsc,
    Out(u16, u32),
    Cpuid,
    Halt,
    /// IRETQ has been executed; to ring 3 if the flag says so.
    Returned {
        to_user: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    carry: bool,
    zero: bool,
    sign: bool,
    overflow: bool,
    parity: bool,
}

pub(crate) struct Machine {
    regs: [u64; 16],
    rip: u64,
    flags: Flags,
    pub(crate) interrupts: bool,
    cs: u64,
    memory: Vec<u8>,
    decoded: HashMap<u64, Instruction>,
    /// Instructions executed: an access before it exits, RDTSC when it is answered.
    pub(crate) executed: u64,
    handlers: Vec<u64>,
}

impl Machine {
    /// Creates a machine at the payload's first instruction.
    pub(crate) fn new() -> Self {
        let elf = object::File::parse(guest::PMU_PAYLOAD).expect("the payload is an ELF");
        let mut memory = vec![0; BYTES];
        for segment in elf.segments() {
            let at = (segment.address() - BASE) as usize;
            let data = segment.data().expect("a segment's data");
            assert!(segment.address() + segment.size() <= BOOT_PAGE, "the payload is larger than its place here");
            memory[at..at + data.len()].copy_from_slice(data);
        }
        let table = elf.symbols().find(|symbol| symbol.name() == Ok("isr_table")).expect("symbol isr_table").address();
        let mut machine = Self {
            regs: [0; 16],
            rip: elf.entry(),
            flags: Flags::default(),
            interrupts: false,
            cs: CS_KERNEL,
            memory,
            decoded: HashMap::new(),
            executed: 0,
            handlers: Vec::new(),
        };
        machine.handlers = (0..guest::abi::ISR_COUNT as u64).map(|n| machine.load(table + 8 * n, 8)).collect();
        machine.regs[RSP] = STACK;
        machine.regs[RDI] = BOOT_PAGE;
        machine
    }

    pub(crate) fn load(&self, at: u64, bytes: usize) -> u64 {
        let from = at.checked_sub(BASE).expect("an address of the payload") as usize;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.memory[from..from + bytes]);
        u64::from_le_bytes(word)
    }

    pub(crate) fn store(&mut self, at: u64, bytes: usize, value: u64) {
        let from = at.checked_sub(BASE).expect("an address of the payload") as usize;
        self.memory[from..from + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// The value of the RDMSR or RDTSC that exited.
    pub(crate) fn answer(&mut self, value: u64) {
        self.regs[RAX] = value & 0xffff_ffff;
        self.regs[RDX] = value >> 32;
    }

    pub(crate) fn answer_cpuid(&mut self, [a, b, c, d]: [u32; 4]) {
        for (register, value) in [(RAX, a), (RBX, b), (RCX, c), (RDX, d)] {
            self.regs[register] = u64::from(value);
        }
    }

    pub(crate) fn cpuid_leaf(&self) -> u32 {
        self.regs[RAX] as u32
    }

    /// Takes an interrupt: an NMI on its own stack, others from ring 3 on RSP0.
    pub(crate) fn interrupt(&mut self, vector: u64) {
        let stack = match vector {
            2 => NMI_STACK,
            _ if self.cs & 3 != 0 => INTERRUPT_STACK,
            _ => self.regs[RSP] & !15,
        };
        let frame = [0x10 | self.cs & 3, self.regs[RSP], self.rflags(), self.cs, self.rip];
        self.regs[RSP] = stack;
        for word in frame {
            self.push(word);
        }
        (self.cs, self.interrupts) = (CS_KERNEL, false);
        self.rip = self.handlers[vector as usize];
    }

    fn rflags(&self) -> u64 {
        let f = &self.flags;
        let bits = [(f.carry, 0), (f.parity, 2), (f.zero, 6), (f.sign, 7), (f.overflow, 11), (self.interrupts, 9)];
        bits.iter().fold(2, |all, &(set, bit)| all | u64::from(set) << bit)
    }

    fn set_rflags(&mut self, value: u64) {
        let bit = |n: u64| value >> n & 1 != 0;
        self.flags = Flags { carry: bit(0), parity: bit(2), zero: bit(6), sign: bit(7), overflow: bit(11) };
        self.interrupts = value & IF != 0;
    }

    fn push(&mut self, value: u64) {
        self.regs[RSP] -= 8;
        self.store(self.regs[RSP], 8, value);
    }

    fn pop(&mut self) -> u64 {
        let value = self.load(self.regs[RSP], 8);
        self.regs[RSP] += 8;
        value
    }

    fn fetch(&mut self) -> Instruction {
        if let Some(found) = self.decoded.get(&self.rip) {
            return *found;
        }
        let from = (self.rip - BASE) as usize;
        let code = &self.memory[from..(from + 15).min(BYTES)];
        let found = Decoder::with_ip(64, code, self.rip, DecoderOptions::NONE).decode();
        self.decoded.insert(self.rip, found);
        found
    }

    /// Runs up to the next exit.
    pub(crate) fn run(&mut self) -> Exit {
        loop {
            let insn = self.fetch();
            self.rip = insn.next_ip();
            let msr = self.regs[RCX] as u32;
            let value = self.regs[RDX] << 32 | self.regs[RAX] & 0xffff_ffff;
            if !matches!(insn.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Hlt) {
                self.executed += 1;
            }
            match insn.mnemonic() {
                Mnemonic::Rdmsr => return Exit::Rdmsr(msr),
                Mnemonic::Wrmsr => return Exit::Wrmsr(msr, value),
                Mnemonic::Rdtsc => return Exit::Rdtsc,
                Mnemonic::Out => return Exit::Out(self.regs[RDX] as u16, self.regs[RAX] as u32),
                Mnemonic::Cpuid => return Exit::Cpuid,
                Mnemonic::Hlt => return Exit::Halt,
                Mnemonic::Iretq => {
                    self.rip = self.pop();
                    self.cs = self.pop();
                    let flags = self.pop();
                    self.set_rflags(flags);
                    let rsp = self.pop();
                    self.regs[RSP] = rsp;
                    return Exit::Returned { to_user: self.cs & 3 != 0 };
                }
                _ => self.step(&insn),
            }
        }
    }

    fn address(&self, insn: &Instruction) -> u64 {
        let segment = if insn.segment_prefix() == Register::GS { BOOT_PAGE } else { 0 };
        let part = |register: Register| match register {
            Register::None | Register::RIP => 0,
            register => self.register(register),
        };
        let index = part(insn.memory_index()).wrapping_mul(u64::from(insn.memory_index_scale()));
        part(insn.memory_base()).wrapping_add(index).wrapping_add(insn.memory_displacement64()).wrapping_add(segment)
    }

    fn register(&self, register: Register) -> u64 {
        let full = self.regs[number(register)];
        match register.size() {
            8 => full,
            4 => full & 0xffff_ffff,
            2 => full & 0xffff,
            _ if is_high(register) => full >> 8 & 0xff,
            _ => full & 0xff,
        }
    }

    fn set_register(&mut self, register: Register, value: u64) {
        let full = &mut self.regs[number(register)];
        *full = match register.size() {
            8 => value,
            4 => value & 0xffff_ffff,
            2 => *full & !0xffff | value & 0xffff,
            _ if is_high(register) => *full & !0xff00 | (value & 0xff) << 8,
            _ => *full & !0xff | value & 0xff,
        };
    }

    /// Bytes of an operand.
    fn bytes(insn: &Instruction, operand: u32) -> usize {
        match insn.op_kind(operand) {
            OpKind::Register => insn.op_register(operand).size(),
            OpKind::Memory => insn.memory_size().size(),
            _ if operand == 0 => 8,
            _ => Self::bytes(insn, 0),
        }
    }

    fn get(&self, insn: &Instruction, operand: u32) -> u64 {
        match insn.op_kind(operand) {
            OpKind::Register => self.register(insn.op_register(operand)),
            OpKind::Memory => self.load(self.address(insn), Self::bytes(insn, operand)),
            _ => insn.immediate(operand),
        }
    }

    fn set(&mut self, insn: &Instruction, operand: u32, value: u64) {
        match insn.op_kind(operand) {
            OpKind::Register => self.set_register(insn.op_register(operand), value),
            OpKind::Memory => self.store(self.address(insn), Self::bytes(insn, operand), value),
            other => panic!("{other:?} as a target at {:#x}", insn.ip()),
        }
    }

    fn holds(&self, condition: ConditionCode) -> bool {
        let f = &self.flags;
        match condition {
            ConditionCode::o => f.overflow,
            ConditionCode::no => !f.overflow,
            ConditionCode::b => f.carry,
            ConditionCode::ae => !f.carry,
            ConditionCode::e => f.zero,
            ConditionCode::ne => !f.zero,
            ConditionCode::be => f.carry || f.zero,
            ConditionCode::a => !f.carry && !f.zero,
            ConditionCode::s => f.sign,
            ConditionCode::ns => !f.sign,
            ConditionCode::p => f.parity,
            ConditionCode::np => !f.parity,
            ConditionCode::l => f.sign != f.overflow,
            ConditionCode::ge => f.sign == f.overflow,
            ConditionCode::le => f.zero || f.sign != f.overflow,
            ConditionCode::g => !f.zero && f.sign == f.overflow,
            ConditionCode::None => true,
        }
    }

    /// Zero, sign and parity of a result; returns it in its width.
    fn result(&mut self, value: u64, bytes: usize) -> u64 {
        let value = value & mask(bytes);
        self.flags.zero = value == 0;
        self.flags.sign = value >> (8 * bytes - 1) & 1 != 0;
        self.flags.parity = (value as u8).count_ones().is_multiple_of(2);
        value
    }

    fn logic(&mut self, value: u64, bytes: usize) -> u64 {
        (self.flags.carry, self.flags.overflow) = (false, false);
        self.result(value, bytes)
    }

    fn add(&mut self, a: u64, b: u64, carry: bool, bytes: usize) -> u64 {
        let sum = u128::from(a & mask(bytes)) + u128::from(b & mask(bytes)) + u128::from(carry);
        self.flags.carry = sum >> (8 * bytes) != 0;
        let value = self.result(sum as u64, bytes);
        self.flags.overflow = ((a ^ value) & (b ^ value)) >> (8 * bytes - 1) & 1 != 0;
        value
    }

    fn sub(&mut self, a: u64, b: u64, borrow: bool, bytes: usize) -> u64 {
        let (a, b) = (a & mask(bytes), b & mask(bytes));
        let value = self.result(a.wrapping_sub(b).wrapping_sub(u64::from(borrow)), bytes);
        self.flags.carry = u128::from(b) + u128::from(borrow) > u128::from(a);
        self.flags.overflow = ((a ^ b) & (a ^ value)) >> (8 * bytes - 1) & 1 != 0;
        value
    }

    fn step(&mut self, insn: &Instruction) {
        let bytes = if insn.op_count() > 0 { Self::bytes(insn, 0) } else { 8 };
        match insn.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Pause | Mnemonic::Cld => {}
            Mnemonic::Cli => self.interrupts = false,
            Mnemonic::Sti => self.interrupts = true,
            Mnemonic::Jmp => self.rip = self.target(insn),
            Mnemonic::Call => {
                let target = self.target(insn);
                self.push(self.rip);
                self.rip = target;
            }
            Mnemonic::Ret => self.rip = self.pop(),
            Mnemonic::Push => {
                let value = self.get(insn, 0);
                self.push(value);
            }
            Mnemonic::Pop => {
                let value = self.pop();
                self.set(insn, 0, value);
            }
            Mnemonic::Lea => self.set(insn, 0, self.address(insn)),
            Mnemonic::Mov | Mnemonic::Movzx => self.set(insn, 0, self.get(insn, 1)),
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = sign_extended(self.get(insn, 1), Self::bytes(insn, 1));
                self.set(insn, 0, value);
            }
            Mnemonic::Cdqe => self.regs[RAX] = sign_extended(self.regs[RAX], 4),
            Mnemonic::Cqo => self.regs[RDX] = (self.regs[RAX].cast_signed() >> 63).cast_unsigned(),
            Mnemonic::Xchg => {
                let (a, b) = (self.get(insn, 0), self.get(insn, 1));
                self.set(insn, 0, b);
                self.set(insn, 1, a);
            }
            _ if insn.condition_code() != ConditionCode::None => self.conditional(insn),
            _ => self.arithmetic(insn, bytes),
        }
    }

    fn target(&self, insn: &Instruction) -> u64 {
        match insn.op_kind(0) {
            OpKind::NearBranch64 => insn.near_branch64(),
            _ => self.get(insn, 0),
        }
    }

    fn conditional(&mut self, insn: &Instruction) {
        let holds = self.holds(insn.condition_code());
        if insn.is_jcc_short_or_near() {
            if holds {
                self.rip = insn.near_branch64();
            }
        } else if insn.op_count() == 1 {
            self.set(insn, 0, u64::from(holds)); // SETcc
        } else {
            // CMOVcc; of 32 bits it clears the upper half either way.
            let value = self.get(insn, u32::from(holds));
            self.set(insn, 0, value);
        }
    }

    fn arithmetic(&mut self, insn: &Instruction, bytes: usize) {
        let a = self.get(insn, 0);
        let b = if insn.op_count() > 1 { self.get(insn, 1) } else { 0 };
        let carry = self.flags.carry;
        let bits = 8 * bytes as u64;
        // Counts of shifts are taken modulo the width, as processors do with 32 and 64 bits.
        let count = b & (bits.max(32) - 1);
        let value = match insn.mnemonic() {
            Mnemonic::Add => self.add(a, b, false, bytes),
            Mnemonic::Adc => self.add(a, b, carry, bytes),
            Mnemonic::Sub => self.sub(a, b, false, bytes),
            Mnemonic::Sbb => self.sub(a, b, carry, bytes),
            Mnemonic::And => self.logic(a & b, bytes),
            Mnemonic::Or => self.logic(a | b, bytes),
            Mnemonic::Xor => self.logic(a ^ b, bytes),
            Mnemonic::Not => !a,
            Mnemonic::Neg => self.sub(0, a, false, bytes),
            Mnemonic::Inc | Mnemonic::Dec => {
                let value = match insn.mnemonic() {
                    Mnemonic::Inc => self.add(a, 1, false, bytes),
                    _ => self.sub(a, 1, false, bytes),
                };
                self.flags.carry = carry;
                value
            }
            Mnemonic::Cmp => {
                self.sub(a, b, false, bytes);
                return;
            }
            Mnemonic::Test => {
                self.logic(a & b, bytes);
                return;
            }
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar if count == 0 => return,
            Mnemonic::Shl => {
                self.flags.carry = a >> (bits - count) & 1 != 0;
                self.result(a << count, bytes)
            }
            Mnemonic::Shr => {
                self.flags.carry = a >> (count - 1) & 1 != 0;
                self.result(a >> count, bytes)
            }
            Mnemonic::Sar => {
                self.flags.carry = a >> (count - 1) & 1 != 0;
                self.result((sign_extended(a, bytes).cast_signed() >> count).cast_unsigned(), bytes)
            }
            Mnemonic::Rol if bytes == 8 => a.rotate_left(count as u32),
            Mnemonic::Ror if bytes == 8 => a.rotate_right(count as u32),
            Mnemonic::Imul if insn.op_count() == 3 => self.get(insn, 1).wrapping_mul(self.get(insn, 2)),
            Mnemonic::Imul if insn.op_count() == 2 => a.wrapping_mul(b),
            Mnemonic::Mul if bytes == 8 => {
                let product = u128::from(self.regs[RAX]) * u128::from(a);
                (self.regs[RAX], self.regs[RDX]) = (product as u64, (product >> 64) as u64);
                return;
            }
            Mnemonic::Div if bytes == 8 => {
                let divided = u128::from(self.regs[RDX]) << 64 | u128::from(self.regs[RAX]);
                let quotient = u64::try_from(divided / u128::from(a)).expect("#DE in the payload");
                (self.regs[RAX], self.regs[RDX]) = (quotient, (divided % u128::from(a)) as u64);
                return;
            }
            Mnemonic::Bsf | Mnemonic::Tzcnt => {
                self.flags.zero = b == 0;
                if b == 0 { a } else { u64::from(b.trailing_zeros()) }
            }
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr if insn.op_kind(0) == OpKind::Register => {
                let bit = 1 << (b & (bits - 1));
                self.flags.carry = a & bit != 0;
                match insn.mnemonic() {
                    Mnemonic::Bt => return,
                    Mnemonic::Bts => a | bit,
                    _ => a & !bit,
                }
            }
            Mnemonic::Xadd => {
                let sum = self.add(a, b, false, bytes);
                self.set(insn, 1, a);
                sum
            }
            other => panic!("{other:?} at {:#x} is not among the instructions of tests/payload/machine.rs", insn.ip()),
        };
        self.set(insn, 0, value);
    }
}

fn number(register: Register) -> usize {
    match register {
        Register::AH => RAX,
        Register::CH => RCX,
        Register::DH => RDX,
        Register::BH => RBX,
        other if other.is_gpr() => other.full_register().number(),
        other => panic!("register {other:?} in the payload"),
    }
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

fn mask(bytes: usize) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

fn sign_extended(value: u64, bytes: usize) -> u64 {
    let unused = 64 - 8 * bytes as u32;
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}
