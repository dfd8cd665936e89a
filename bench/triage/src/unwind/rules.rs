//! Where a function has put its caller's registers: the call frame instructions of DWARF 5, 6.4.2, up to a place in the code.

use super::bytes::Reader;

/// Registers of x86-64 in DWARF's order; the last stands for the return address.
pub(super) const REGISTERS: usize = 17;
/// Number of the return address.
pub(super) const RETURN: usize = 16;
/// Number of RSP.
pub(super) const RSP: usize = 7;
/// Nested DW_CFA_remember_state that are followed.
const DEEPEST: usize = 16;

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// In the register itself.
    #[default]
    Same,
    /// Nowhere; of the return address: there is no caller.
    Undefined,
    /// In memory at CFA + n.
    Offset(i64),
    /// It is CFA + n.
    Value(i64),
    /// In another register.
    Register(usize),
    /// Given by an expression, which is not evaluated.
    Expression,
}

/// Rules that hold at one place of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// The canonical frame address: a register and an offset; `None`: an expression.
    pub(super) cfa: Option<(usize, i64)>,
    pub(super) of: [Rule; REGISTERS],
}

/// Factors of a CIE.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    pub(super) code: u64,
    pub(super) data: i64,
    /// Encoding of pointers.
    pub(super) pointers: u8,
}

/// Carries out instructions from `rules`, which hold at `start`, until the place is beyond `target`. `initial` are those of the CIE.
/// `None`: unknown or damaged instructions.
pub(super) fn execute(
    code: &[u8],
    factors: Factors,
    (start, target): (u64, u64),
    initial: Option<&Rules>,
    mut rules: Rules,
) -> Option<Rules> {
    let (mut reader, mut place, mut kept) = (Reader::new(code, 0), start, Vec::new());
    while !reader.is_empty() {
        let byte = reader.u8()?;
        let low = usize::from(byte & 0x3f);
        let advance = match (byte & 0xc0, byte) {
            (0x40, _) => Some(low as u64),
            (_, 0x02) => Some(reader.u8()?.into()),
            (_, 0x03) => Some(reader.u16()?.into()),
            (_, 0x04) => Some(reader.u32()?.into()),
            _ => None,
        };
        if let Some(delta) = advance {
            place = place.checked_add(delta.checked_mul(factors.code)?)?;
            if place > target {
                return Some(rules);
            }
            continue;
        }
        let data = |n: i64| n.checked_mul(factors.data);
        let unsigned = |reader: &mut Reader<'_>| i64::try_from(reader.uleb()?).ok();
        match (byte & 0xc0, byte) {
            (0x80, _) => set(&mut rules, low, Rule::Offset(data(unsigned(&mut reader)?)?)),
            (0xc0, _) => set(&mut rules, low, of(initial, low)),
            // DW_CFA_nop
            (_, 0x00) => {}
            // DW_CFA_set_loc: absolute; no compiler of x86-64 writes it.
            (_, 0x01) => return reader.pointer(factors.pointers).and(None),
            // DW_CFA_offset_extended
            (_, 0x05) => {
                let register = register(&mut reader)?;
                set(&mut rules, register, Rule::Offset(data(unsigned(&mut reader)?)?));
            }
            // DW_CFA_restore_extended
            (_, 0x06) => {
                let register = register(&mut reader)?;
                set(&mut rules, register, of(initial, register));
            }
            // DW_CFA_undefined
            (_, 0x07) => set(&mut rules, register(&mut reader)?, Rule::Undefined),
            // DW_CFA_same_value
            (_, 0x08) => set(&mut rules, register(&mut reader)?, Rule::Same),
            // DW_CFA_register
            (_, 0x09) => {
                let of = register(&mut reader)?;
                set(&mut rules, of, Rule::Register(register(&mut reader)?));
            }
            // DW_CFA_remember_state
            (_, 0x0a) => {
                if kept.len() == DEEPEST {
                    return None;
                }
                kept.push(rules.clone());
            }
            // DW_CFA_restore_state
            (_, 0x0b) => rules = kept.pop()?,
            // DW_CFA_def_cfa
            (_, 0x0c) => rules.cfa = Some((register(&mut reader)?, unsigned(&mut reader)?)),
            // DW_CFA_def_cfa_register
            (_, 0x0d) => rules.cfa = Some((register(&mut reader)?, rules.cfa?.1)),
            // DW_CFA_def_cfa_offset
            (_, 0x0e) => rules.cfa = Some((rules.cfa?.0, unsigned(&mut reader)?)),
            // DW_CFA_def_cfa_expression
            (_, 0x0f) => {
                let length = reader.uleb()?;
                reader.skip(length)?;
                rules.cfa = None;
            }
            // DW_CFA_expression, DW_CFA_val_expression
            (_, 0x10 | 0x16) => {
                let (register, length) = (register(&mut reader)?, reader.uleb()?);
                reader.skip(length)?;
                set(&mut rules, register, Rule::Expression);
            }
            // DW_CFA_offset_extended_sf
            (_, 0x11) => {
                let register = register(&mut reader)?;
                set(&mut rules, register, Rule::Offset(data(reader.sleb()?)?));
            }
            // DW_CFA_def_cfa_sf
            (_, 0x12) => rules.cfa = Some((register(&mut reader)?, data(reader.sleb()?)?)),
            // DW_CFA_def_cfa_offset_sf
            (_, 0x13) => rules.cfa = Some((rules.cfa?.0, data(reader.sleb()?)?)),
            // DW_CFA_val_offset
            (_, 0x14) => {
                let register = register(&mut reader)?;
                set(&mut rules, register, Rule::Value(data(unsigned(&mut reader)?)?));
            }
            // DW_CFA_val_offset_sf
            (_, 0x15) => {
                let register = register(&mut reader)?;
                set(&mut rules, register, Rule::Value(data(reader.sleb()?)?));
            }
            // DW_CFA_GNU_args_size
            (_, 0x2e) => {
                reader.uleb()?;
            }
            _ => return None,
        }
    }
    Some(rules)
}

fn register(reader: &mut Reader<'_>) -> Option<usize> {
    usize::try_from(reader.uleb()?).ok()
}

fn of(initial: Option<&Rules>, register: usize) -> Rule {
    initial.and_then(|rules| rules.of.get(register)).copied().unwrap_or_default()
}

/// Registers beyond those followed, such as vector registers, are passed over.
fn set(rules: &mut Rules, register: usize, rule: Rule) {
    if let Some(slot) = rules.of.get_mut(register) {
        *slot = rule;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTORS: Factors = Factors { code: 1, data: -8, pointers: 0x1b };

    fn at(code: &[u8], target: u64) -> Option<Rules> {
        // def_cfa rsp + 8; return address at CFA - 8.
        let initial = execute(&[0x0c, 7, 8, 0x90, 1], FACTORS, (0, u64::MAX), None, Rules::default()).unwrap();
        execute(code, FACTORS, (0x100, target), Some(&initial), initial.clone())
    }

    #[test]
    fn rules_hold_from_their_place_on() {
        // push rbp after 1 byte, mov rsp, rbp after 3 more, then the epilogue at +20 behind a remembered state.
        let code = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 16, 0x0a, 0x0c, 7, 8, 0xc6, 0x41, 0x0b];
        assert_eq!(at(&code, 0x100).unwrap().cfa, Some((7, 8)));
        assert_eq!(at(&code, 0x101).unwrap().cfa, Some((7, 16)));
        let body = at(&code, 0x110).unwrap();
        assert_eq!((body.cfa, body.of[6], body.of[RETURN]), (Some((6, 16)), Rule::Offset(-16), Rule::Offset(-8)));
        let epilogue = at(&code, 0x114).unwrap();
        assert_eq!((epilogue.cfa, epilogue.of[6]), (Some((7, 8)), Rule::Same));
        assert_eq!(at(&code, 0x115).unwrap().cfa, Some((6, 16)));
    }

    #[test]
    fn expressions_are_passed_over_and_damage_is_noticed() {
        let rules = at(&[0x0f, 2, 0x77, 0x08, 0x10, 3, 1, 0x30], 0x100).unwrap();
        assert_eq!((rules.cfa, rules.of[3]), (None, Rule::Expression));
        assert_eq!(at(&[0x07, 16], 0x100).unwrap().of[RETURN], Rule::Undefined);
        for damaged in [&[0x0b][..], &[0x0e], &[0x3f], &[0x0f, 200, 1], &[0x0a; 40]] {
            assert_eq!(at(damaged, 0x100), None, "{damaged:x?}");
        }
    }
}
