//! Callers of user code by `.eh_frame`, from a copy of the registers and of the top of the stack.
//!
//! Distributions' libraries keep no frame pointers: a chain by these skips the very functions that block. The tables for exceptions
//! are in every x86-64 file, stripped ones included.

mod bytes;
mod rules;

use bytes::Reader;
use rules::{Factors, REGISTERS, RETURN, RSP, Rule, Rules, execute};

/// Registers in DWARF's order (x86-64 psABI, figure 3.36), the place in the code last; `None`: not known.
pub type Registers = [Option<u64>; REGISTERS];

/// Where RSP is in [`Registers`].
pub const STACK_POINTER: usize = RSP;
/// Where the place in the code is in [`Registers`].
pub const PLACE: usize = RETURN;

/// Rules of the functions of one file.
#[derive(Clone, Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    /// Functions by their start, ascending.
    functions: Vec<Function>,
}

#[derive(Clone, Debug)]
struct Function {
    start: u64,
    end: u64,
    factors: Factors,
    /// Instructions of the CIE and of the FDE, as ranges of `bytes`.
    common: (usize, usize),
    own: (usize, usize),
}

/// What a CIE says.
#[derive(Clone, Debug)]
struct Common {
    factors: Factors,
    code: (usize, usize),
    /// Whether FDEs have augmentation data.
    sized: bool,
}

/// The next outer frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and callers are the rule")]
pub enum Step {
    /// A caller, with its registers.
    Caller(Registers),
    /// There is none: the thread begins here.
    Bottom,
    /// Outside of what was copied of the stack.
    Beyond,
    /// No rules, or none that can be followed.
    Unknown,
}

impl Table {
    /// From the bytes of `.eh_frame`, which are loaded at `address` of the file's own addresses. Damaged entries are left out.
    #[must_use]
    pub fn new(bytes: Vec<u8>, address: u64) -> Self {
        let mut functions = Vec::new();
        let mut at = 0;
        while let Some((body, next)) = entry(&bytes, at) {
            if let Some(function) = function(&bytes[..next], body, address) {
                functions.push(function);
            }
            at = next;
        }
        functions.sort_by_key(|function| function.start);
        Self { bytes, functions }
    }

    /// How many functions have rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The caller of the frame with these registers. `place` is where it is, in the file's own addresses: of a caller, within the
    /// call. `memory` reads the stack.
    #[must_use]
    pub fn step(&self, place: u64, registers: &Registers, memory: impl Fn(u64) -> Option<u64>) -> Step {
        let Some(rules) = self.rules(place) else { return Step::Unknown };
        if rules.of[RETURN] == Rule::Undefined {
            return Step::Bottom;
        }
        let cfa = rules.cfa.and_then(|(register, offset)| {
            registers.get(register).copied().flatten().map(|value| value.wrapping_add_signed(offset))
        });
        let Some(cfa) = cfa else { return Step::Unknown };
        let mut caller = *registers;
        for (number, rule) in rules.of.iter().enumerate() {
            caller[number] = match *rule {
                Rule::Same => continue,
                Rule::Undefined | Rule::Expression => None,
                Rule::Offset(offset) => match memory(cfa.wrapping_add_signed(offset)) {
                    None if number == RETURN => return Step::Beyond,
                    value => value,
                },
                Rule::Value(offset) => Some(cfa.wrapping_add_signed(offset)),
                Rule::Register(other) => registers.get(other).copied().flatten(),
            };
        }
        caller[RSP] = Some(cfa);
        match caller[RETURN] {
            Some(0) => Step::Bottom,
            // The stack shrinks from frame to frame; what does not is no chain.
            Some(_) if registers[RSP].is_none_or(|before| cfa > before) => Step::Caller(caller),
            _ => Step::Unknown,
        }
    }

    fn rules(&self, place: u64) -> Option<Rules> {
        let at = self.functions.partition_point(|function| function.start <= place).checked_sub(1)?;
        let function = self.functions.get(at).filter(|function| place < function.end)?;
        let code = |(from, to): (usize, usize)| self.bytes.get(from..to);
        let initial = execute(code(function.common)?, function.factors, (0, u64::MAX), None, Rules::default())?;
        let place = (function.start, place);
        execute(code(function.own)?, function.factors, place, Some(&initial), initial.clone())
    }
}

/// The body of the entry at `at`, as its start, and where the next one begins. `None` at the end.
fn entry(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut reader = Reader::new(bytes, at);
    // 64-bit entries, of length 0xffff_ffff, occur in no file of x86-64.
    let length = reader.u32().filter(|&length| length != 0 && length != u32::MAX)?;
    let next = reader.at.checked_add(length as usize).filter(|&next| next <= bytes.len())?;
    Some((reader.at, next))
}

/// The function of an FDE; `None`: a CIE, or damage. `bytes` end with the entry.
fn function(bytes: &[u8], body: usize, address: u64) -> Option<Function> {
    let mut reader = Reader::new(bytes, body);
    let back = reader.u32().filter(|&back| back != 0)?;
    let cie = body.checked_sub(back as usize)?;
    let (cie_body, cie_end) = entry(bytes, cie)?;
    let common = common(bytes.get(..cie_end)?, cie_body)?;
    let encoding = common.factors.pointers;
    let here = address.checked_add(reader.at as u64)?;
    let pointer = reader.pointer(encoding)?;
    let start = match encoding & 0x70 {
        0x00 => pointer,
        0x10 => here.wrapping_add(pointer),
        _ => return None,
    };
    let length = reader.pointer(encoding & 0x0f)?;
    if common.sized {
        let size = reader.uleb()?;
        reader.skip(size)?;
    }
    let own = (reader.at, bytes.len());
    Some(Function { start, end: start.checked_add(length)?, factors: common.factors, common: common.code, own })
}

/// A CIE; `bytes` end with it.
fn common(bytes: &[u8], body: usize) -> Option<Common> {
    let mut reader = Reader::new(bytes, body);
    if reader.u32()? != 0 {
        return None;
    }
    let version = reader.u8()?;
    let augmentation = reader.until_zero()?;
    let (code, data) = (reader.uleb()?, reader.sleb()?);
    // The number of the return address' register: 16.
    let _ = if version == 1 { reader.u8()?.into() } else { reader.uleb()? };
    let (mut pointers, mut sized) = (0, false);
    let mut end = reader.at;
    for letter in augmentation {
        match letter {
            b'z' => {
                let size = reader.uleb()?;
                end = reader.at.checked_add(usize::try_from(size).ok()?)?;
                sized = true;
            }
            b'R' => pointers = reader.u8()?,
            b'L' => {
                reader.u8()?;
            }
            b'P' => {
                let encoding = reader.u8()?;
                reader.pointer(encoding)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    let from = if sized { end } else { reader.at };
    Some(Common { factors: Factors { code, data, pointers }, code: (from, bytes.len()), sized })
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};
    use proptest::prelude::*;

    use super::*;

    /// A CIE with "zR", then an FDE of 32 bytes at 0x2000: `push rbx` after one byte. The section is at 0x1000.
    fn planted() -> Vec<u8> {
        let mut cie = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1];
        cie.resize(cie.len().next_multiple_of(4), 0);
        let mut bytes = (cie.len() as u32).to_le_bytes().to_vec();
        bytes.extend(cie);
        let body = bytes.len() as u32 + 4;
        let mut fde = body.to_le_bytes().to_vec();
        fde.extend((0x2000_u32 - 0x1000 - body - 4).to_le_bytes());
        fde.extend(32_u32.to_le_bytes());
        fde.extend([0, 0x41, 0x0e, 16, 0x83, 2, 0, 0]);
        bytes.extend((fde.len() as u32).to_le_bytes());
        bytes.extend(fde);
        bytes.extend([0; 4]);
        bytes
    }

    fn registers(rsp: u64) -> Registers {
        let mut registers = [Some(0); REGISTERS];
        registers[RSP] = Some(rsp);
        registers
    }

    #[test]
    fn a_caller_is_found_with_its_saved_registers() {
        let table = Table::new(planted(), 0x1000);
        assert_eq!(table.len(), 1);
        let memory = |at: u64| match at {
            0x7000 => Some(0xb0b),
            0x7008 => Some(0x4444),
            _ => None,
        };
        let Step::Caller(caller) = table.step(0x2010, &registers(0x7000), memory) else { panic!("no caller") };
        assert_eq!((caller[3], caller[RSP], caller[RETURN]), (Some(0xb0b), Some(0x7010), Some(0x4444)));
        let Step::Caller(early) = table.step(0x2000, &registers(0x7008), memory) else { panic!("no caller") };
        assert_eq!((early[3], early[RSP]), (Some(0), Some(0x7010)));
        assert_eq!(table.step(0x2020, &registers(0x7000), memory), Step::Unknown);
        assert_eq!(table.step(0x2010, &registers(0x9000), memory), Step::Beyond);
        assert_eq!(table.step(0x2010, &registers(0x7000), |_| Some(0)), Step::Bottom);
    }

    #[test]
    fn this_program_has_rules() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let file = object::read::File::parse(&*program).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        assert!(Table::new(section.data().unwrap().to_vec(), section.address()).len() > 100);
    }

    proptest! {
        /// Damaged tables give no rules or some, and always an answer.
        #[test]
        fn any_bytes_are_read(cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), place in 0x1f00_u64..0x2100) {
            let mut bytes = planted();
            for (at, byte) in cuts {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let table = Table::new(bytes, 0x1000);
            let _ = table.step(place, &registers(0x7000), |at| Some(at ^ 0x55));
        }
    }
}
