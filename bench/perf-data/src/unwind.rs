//! Callers of user code by `.eh_frame`, from a copy of the registers and of the top of the stack.
//!
//! Distributions' libraries keep no frame pointers: a chain by these skips the very functions that block. The tables for exceptions
//! are in every x86-64 file, stripped ones included. `gimli` reads them; no caller is guessed when they do not say one.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, Encoding, EndianSlice, EvaluationResult, LittleEndian,
    Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, Value, X86_64,
};

/// Registers in DWARF's order (x86-64 psABI, figure 3.36), the place in the code last; `None`: not known.
pub type Registers = [Option<u64>; REGISTERS];

/// The sixteen general registers and the return address.
const REGISTERS: usize = 17;
/// Place of RSP in [`Registers`].
pub const STACK_POINTER: usize = X86_64::RSP.0 as usize;
/// Place of RBP in [`Registers`].
pub const FRAME_POINTER: usize = X86_64::RBP.0 as usize;
/// Place of the return address in [`Registers`].
pub const PLACE: usize = X86_64::RA.0 as usize;
/// Operations of one expression that are carried out; the longest of a C library has about ten.
const MOST_OPERATIONS: u32 = 1000;

/// Rules of the functions of one file.
#[derive(Clone, Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    bases: BaseAddresses,
    /// Begin of each function and place of its entry, ascending.
    functions: Vec<(u64, usize)>,
}

/// The rule of a stretch of code, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its addresses.
    pub code: (u64, u64),
    /// Register and distance of the caller's stack pointer.
    pub cfa: (usize, i64),
    /// Distance from there of the frame pointer, if it is saved.
    pub frame_pointer: Option<i64>,
    /// An interrupt came in here.
    pub interrupted: bool,
    /// It has no caller.
    pub outermost: bool,
}

/// The next outer frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its registers.
    pub registers: Registers,
    /// A signal interrupted it at its place; all others are at the instruction after their call.
    pub interrupted: bool,
}

/// Why a frame has no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The thread begins here.
    Bottom,
    /// Outside of what was copied of the stack.
    Beyond,
    /// No rules, or none that can be followed.
    Unknown,
}

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;

impl Table {
    /// Reads the bytes of `.eh_frame`, which are loaded at `address` of the file's own addresses. Damaged entries are left out.
    pub fn new(bytes: Vec<u8>, address: u64) -> Self {
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut functions = Vec::new();
        let mut entries = Section::new(&bytes, LittleEndian).entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(entry) = entry
                && let Ok(function) = entry.parse(Section::cie_from_offset)
            {
                functions.push((function.initial_address(), function.offset()));
            }
        }
        functions.sort_unstable();
        Self { bytes, bases, functions }
    }

    /// Returns the rules of all functions, ascending, but those that take an expression.
    pub fn rows(&self) -> Vec<Row> {
        let (section, mut all) = (Section::new(&self.bytes, LittleEndian), Vec::new());
        for &(_, entry) in &self.functions {
            let function = section.fde_from_offset(&self.bases, EhFrameOffset(entry), Section::cie_from_offset);
            let (Ok(function), mut context) = (function, UnwindContext::new()) else { continue };
            let Ok(mut rows) = function.rows(&section, &self.bases, &mut context) else { continue };
            while let Ok(Some(row)) = rows.next_row() {
                let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { continue };
                let saved = row.register(X86_64::RBP);
                all.push(Row {
                    code: (row.start_address(), row.end_address()),
                    cfa: (register.0.into(), offset),
                    frame_pointer: if let Some(RegisterRule::Offset(at)) = saved { Some(at) } else { None },
                    interrupted: function.is_signal_trampoline(),
                    outermost: row.register(X86_64::RA) == Some(RegisterRule::Undefined),
                });
            }
        }
        all
    }

    /// Finds the caller of the frame with these registers. `place` is where it is, in the file's own addresses: of a
    /// caller, within the call. `memory` reads the stack.
    ///
    /// # Errors
    /// The reason if there is none.
    pub fn caller(
        &self,
        place: u64,
        registers: &Registers,
        memory: impl Fn(u64) -> Option<u64>,
    ) -> Result<Caller, End> {
        let section = Section::new(&self.bytes, LittleEndian);
        let at = self.functions.partition_point(|(start, _)| *start <= place).checked_sub(1).ok_or(End::Unknown)?;
        let function = section
            .fde_from_offset(&self.bases, EhFrameOffset(self.functions[at].1), Section::cie_from_offset)
            .map_err(|_| End::Unknown)?;
        let mut context = UnwindContext::new();
        let row =
            function.unwind_info_for_address(&section, &self.bases, &mut context, place).map_err(|_| End::Unknown)?;
        let frame = Frame { section, encoding: function.cie().encoding(), registers, memory };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => frame.register(*register)?.wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => frame.evaluate(expression, None)?,
        };
        let mut caller = *registers;
        caller[STACK_POINTER] = Some(cfa);
        for (Register(number), rule) in row.registers() {
            // Registers beyond those followed, such as vector registers, are passed over.
            let Some(slot) = caller.get_mut(usize::from(*number)) else { continue };
            *slot = match frame.value(rule, Register(*number), cfa) {
                Err(end) if *number == X86_64::RA.0 => return Err(end),
                value => value.ok(),
            };
        }
        let interrupted = function.is_signal_trampoline();
        match (row.register(X86_64::RA), caller[PLACE]) {
            (Some(_), Some(0)) => Err(End::Bottom),
            // The stack shrinks from frame to frame; what does not is no chain. A signal may have a stack of its own.
            (Some(_), Some(_)) if interrupted || registers[STACK_POINTER].is_none_or(|before| cfa > before) => {
                Ok(Caller { registers: caller, interrupted })
            }
            _ => Err(End::Unknown),
        }
    }
}

/// A frame, as the rules for its caller read it.
struct Frame<'a, M> {
    section: Section<'a>,
    encoding: Encoding,
    registers: &'a Registers,
    memory: M,
}

impl<M: Fn(u64) -> Option<u64>> Frame<'_, M> {
    fn register(&self, register: Register) -> Result<u64, End> {
        self.registers.get(usize::from(register.0)).copied().flatten().ok_or(End::Unknown)
    }

    fn memory(&self, address: u64) -> Result<u64, End> {
        (self.memory)(address).ok_or(End::Beyond)
    }

    /// Computes the caller's value of a register.
    fn value(&self, rule: &RegisterRule<usize>, register: Register, cfa: u64) -> Result<u64, End> {
        match rule {
            RegisterRule::Undefined => Err(End::Bottom),
            RegisterRule::SameValue => self.register(register),
            RegisterRule::Offset(offset) => self.memory(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Ok(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => self.register(*other),
            RegisterRule::Expression(expression) => self.memory(self.evaluate(expression, Some(cfa))?),
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa)),
            _ => Err(End::Unknown),
        }
    }

    /// Computes the result of an expression, which has `first` on its stack at its start (DWARF 5, 6.4.2).
    fn evaluate(&self, expression: &UnwindExpression<usize>, first: Option<u64>) -> Result<u64, End> {
        let expression = expression.get(&self.section).map_err(|_| End::Unknown)?;
        let mut evaluation = expression.evaluation(self.encoding);
        evaluation.set_max_iterations(MOST_OPERATIONS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| End::Unknown)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.memory(address)?))
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?))
                }
                _ => return Err(End::Unknown),
            }
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                _ => Err(End::Unknown),
            },
            _ => Err(End::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `push rbx` after one byte.
    const PUSHED: &[u8] = &[0x41, 0x0e, 16, 0x83, 2];

    /// Builds a CIE with "zR", then an FDE of 32 bytes at 0x2000. The section is at 0x1000.
    fn planted(code: &[u8]) -> Vec<u8> {
        with_augmentation(b"zR", code)
    }

    fn with_augmentation(augmentation: &[u8], code: &[u8]) -> Vec<u8> {
        let mut cie = [&[0, 0, 0, 0, 1], augmentation, &[0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1]].concat();
        cie.resize(cie.len().next_multiple_of(4), 0);
        let mut bytes = (cie.len() as u32).to_le_bytes().to_vec();
        bytes.extend(cie);
        let body = bytes.len() as u32 + 4;
        let mut fde = body.to_le_bytes().to_vec();
        fde.extend((0x2000_u32 - 0x1000 - body - 4).to_le_bytes());
        fde.extend(32_u32.to_le_bytes());
        fde.push(0);
        fde.extend(code);
        fde.resize(fde.len().next_multiple_of(4), 0);
        bytes.extend((fde.len() as u32).to_le_bytes());
        bytes.extend(fde);
        bytes.extend([0; 4]);
        bytes
    }

    fn registers(rsp: u64) -> Registers {
        let mut registers = [Some(0); REGISTERS];
        registers[STACK_POINTER] = Some(rsp);
        registers
    }

    #[test]
    fn a_caller_is_found_with_its_saved_registers() {
        let table = Table::new(planted(PUSHED), 0x1000);
        assert_eq!(table.functions.len(), 1);
        let memory = |at: u64| match at {
            0x7000 => Some(0xb0b),
            0x7008 => Some(0x4444),
            _ => None,
        };
        let caller = table.caller(0x2010, &registers(0x7000), memory).unwrap().registers;
        assert_eq!((caller[3], caller[STACK_POINTER], caller[PLACE]), (Some(0xb0b), Some(0x7010), Some(0x4444)));
        let early = table.caller(0x2000, &registers(0x7008), memory).unwrap().registers;
        assert_eq!((early[3], early[STACK_POINTER]), (Some(0), Some(0x7010)));
        assert_eq!(table.caller(0x2020, &registers(0x7000), memory), Err(End::Unknown));
        assert_eq!(table.caller(0x2010, &registers(0x9000), memory), Err(End::Beyond));
        assert_eq!(table.caller(0x2010, &registers(0x7000), |_| Some(0)), Err(End::Bottom));
        let outermost = Table::new(planted(&[0x07, 16]), 0x1000);
        assert_eq!(outermost.caller(0x2010, &registers(0x7000), memory), Err(End::Bottom));
    }

    /// What compilers and libraries write: the rule of ld for a slot of its linkage table, a push after the second instruction; a
    /// stack that GCC aligns to 32 bytes, with the former RSP below RBP; and `__restore_rt`, whose ucontext has RSP and RIP
    /// of the interrupted code, here on a stack below.
    #[test]
    fn rules_with_expressions_lead_to_the_caller() {
        let slot: &[u8] = &[0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        let aligned: &[u8] = &[0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];
        let restored: &[u8] = &[0x0f, 4, 0x77, 0xa0, 1, 0x06, 0x10, 7, 3, 0x77, 0xa0, 1, 0x10, 16, 3, 0x77, 0xa8, 1];
        let of_aligned: &[(u64, u64)] = &[(0x6fe8, 0x7020), (0x6ff0, 0xb0b), (0x7018, 0x4444)];
        for (code, interrupted, place, memory, cfa) in [
            (slot, false, 0x2006, &[(0x7000, 0x4444)][..], 0x7008),
            (slot, false, 0x200b, &[(0x7008, 0x4444)], 0x7010),
            (aligned, false, 0x2010, of_aligned, 0x7020),
            (restored, true, 0x2010, &[(0x70a0, 0x5000), (0x70a8, 0x4444)], 0x5000),
        ] {
            let augmentation: &[u8] = if interrupted { b"zRS" } else { b"zR" };
            let table = Table::new(with_augmentation(augmentation, code), 0x1000);
            let mut frame = registers(0x7000);
            (frame[PLACE], frame[FRAME_POINTER]) = (Some(place), Some(0x6ff0));
            let read = |at: u64| memory.iter().find(|(address, _)| *address == at).map(|(_, value)| *value);
            let found = table.caller(place, &frame, read).unwrap();
            let saved = if code == aligned { 0xb0b } else { 0x6ff0 };
            let expected = (Some(saved), Some(cfa), Some(0x4444), interrupted);
            let [frame_pointer, stack, caller] = [FRAME_POINTER, STACK_POINTER, PLACE].map(|at| found.registers[at]);
            assert_eq!((frame_pointer, stack, caller, found.interrupted), expected, "{place:#x}");
            assert_eq!(table.caller(place, &frame, |_| None), Err(End::Beyond));
        }
    }

    /// An expression that jumps back for ever, one that is cut, one of unknown operations.
    #[test]
    fn an_expression_without_result_is_no_rule() {
        for code in [&[0x0f, 3, 0x2f, 0xfd, 0xff][..], &[0x0f, 3, 0x77], &[0x0f, 1, 0xff], &[0x0f, 0], &[0x0f, 1, 0x12]]
        {
            let table = Table::new(planted(code), 0x1000);
            assert_eq!(table.caller(0x2010, &registers(0x7000), |_| Some(1)), Err(End::Unknown), "{code:x?}");
        }
    }
}
