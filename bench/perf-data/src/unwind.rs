//! Callers by `.eh_frame`, the tables of exceptions that compilers put into ELF files.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection as _,
};
use object::read::File;
use object::{Object as _, ObjectSection as _};

/// Most functions of a file whose tables are kept.
const MOST: usize = 1 << 20;
/// DWARF's number of the stack pointer, and of the instruction pointer, which stands for the return address.
pub const SP: usize = 7;
/// See [`SP`].
pub const IP: usize = 16;

/// Registers by DWARF's numbers.
pub type Registers = [u64; 17];

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The registers are the caller's; after a `signal` its instruction is the next one, not one behind a call.
    Caller {
        /// The function is the frame of a signal or an interrupt.
        signal: bool,
    },
    /// It has no caller.
    End,
}

/// The tables of a file.
#[derive(Clone, Debug)]
pub struct Callers {
    section: Vec<u8>,
    bases: BaseAddresses,
    /// First address, bytes and entry of each function, ascending.
    functions: Vec<(u64, u64, usize)>,
}

impl Callers {
    /// Reads them; `None` if the file has none.
    #[must_use]
    pub fn of_elf(bytes: &[u8]) -> Option<Self> {
        let file = File::parse(bytes).ok()?;
        let section = file.section_by_name(".eh_frame")?;
        let text = file.section_by_name(".text").map_or(0, |text| text.address());
        let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
        let section = section.data().ok()?.to_vec();
        let frames = EhFrame::new(&section, LittleEndian);
        let (mut entries, mut functions) = (frames.entries(&bases), Vec::new());
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else { continue };
            functions.push((entry.initial_address(), entry.len(), entry.offset()));
            if functions.len() == MOST {
                break;
            }
        }
        functions.sort_unstable();
        Some(Self { section, bases, functions })
    }

    /// Goes from the registers in the function at `address` of the file to its caller's, whose stack `read` has.
    pub fn step(&self, address: u64, regs: &mut Registers, read: impl Fn(u64) -> Option<u64>) -> Option<Step> {
        let at = self.functions.partition_point(|&(start, ..)| start <= address).checked_sub(1)?;
        let (start, length, entry) = self.functions[at];
        if address - start >= length {
            return None;
        }
        let frames = EhFrame::new(&self.section, LittleEndian);
        let entry = frames.fde_from_offset(&self.bases, EhFrameOffset(entry), EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&frames, &self.bases, &mut context, address).ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let cfa = regs.get(usize::from(register.0))?.wrapping_add_signed(offset);
        // Every step leaves a piece of the stack, so that one of a stranger's making ends.
        if cfa <= regs[SP] {
            return None;
        }
        let mut callers = *regs;
        callers[SP] = cfa;
        for (number, value) in (0..).zip(&mut callers) {
            *value = match row.register(Register(number)) {
                Some(RegisterRule::Undefined) if usize::from(number) == IP => return Some(Step::End),
                Some(RegisterRule::Offset(offset)) => read(cfa.wrapping_add_signed(offset))?,
                Some(RegisterRule::ValOffset(offset)) => cfa.wrapping_add_signed(offset),
                Some(RegisterRule::Register(other)) => *regs.get(usize::from(other.0))?,
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) if usize::from(number) != IP => continue,
                _ => return None,
            };
        }
        *regs = callers;
        if regs[IP] == 0 {
            return Some(Step::End);
        }
        Some(Step::Caller { signal: entry.is_signal_trampoline() })
    }
}
