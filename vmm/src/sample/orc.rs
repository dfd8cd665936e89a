//! ORC: the unwind tables that objtool puts into a Linux kernel (arch/x86/include/asm/orc_types.h). They say for each
//! instruction where the caller's stack pointer and frame pointer are.

use std::ops::Range;

use object::read::File;
use object::{Object as _, ObjectSection as _};
use thiserror::Error;

/// Reason why a kernel has no usable tables.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OrcError {
    /// It has none.
    #[error("the kernel has no ORC tables (CONFIG_UNWINDER_ORC)")]
    Absent,
    /// They make no sense.
    #[error("the kernel's ORC tables are damaged: {0}")]
    Damaged(&'static str),
}

/// Bytes of an entry of `.orc_unwind`.
const ENTRY: usize = 6;

/// A base register of an entry (ORC_REG_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Undefined,
    PreviousSp,
    Dx,
    Di,
    Bp,
    Sp,
    R10,
    R13,
    BpIndirect,
    SpIndirect,
}

/// Content at the caller's stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that is known.
    Undefined,
    /// The outermost frame.
    End,
    /// A return address below it.
    Call,
    /// `struct pt_regs`.
    Registers,
    /// An interrupt's frame alone.
    PartialRegisters,
}

/// The rule of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) sp: (Base, i16),
    pub(super) bp: (Base, i16),
    pub(super) kind: Kind,
}

/// The caller of the instructions from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerRule {
    /// Nothing is known.
    Unknown,
    /// There is none.
    Outermost,
    /// An interrupt came in here: the frame of the interrupted code is so far from the stack pointer.
    Interrupt(i16),
    /// A function.
    Call {
        /// Its stack pointer is counted from the frame pointer, not from the stack pointer.
        by_bp: bool,
        /// The distance of its stack pointer.
        sp: i16,
        /// Distance from there of its frame pointer, if that is saved.
        bp: Option<i16>,
    },
}

/// The layout of an entry's bits, which changed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Up to 6.2: `type:2, end:1`.
    EndAtBit10,
    /// 6.3: `type:2, signal:1, end:1`.
    EndAtBit11,
    /// `type:3`, from 6.4 on.
    TypeOf3Bits,
}

impl Layout {
    fn of(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
            version if version >= (6, 4) => Self::TypeOf3Bits,
            (6, 3) => Self::EndAtBit11,
            _ => Self::EndAtBit10,
        }
    }
}

/// The tables of a kernel at its link address.
#[derive(Clone, Debug)]
pub struct Orc {
    /// Addresses from which each rule holds, ascending.
    addresses: Vec<u64>,
    rules: Vec<[u8; ENTRY]>,
    layout: Layout,
}

impl Orc {
    /// Reads the tables of the ELF `image` of a kernel of this release.
    ///
    /// # Errors
    /// [`OrcError`].
    pub fn of_kernel(image: &[u8], release: &str) -> Result<Self, OrcError> {
        let file = File::parse(image).map_err(|_| OrcError::Damaged("it is no ELF file"))?;
        let section = |name: &str| file.section_by_name(name).ok_or(OrcError::Absent);
        let (unwind, ip) = (section(".orc_unwind")?, section(".orc_unwind_ip")?);
        let data = |section: &object::Section<'_, '_>| -> Result<Vec<u8>, OrcError> {
            section.data().map(<[u8]>::to_vec).map_err(|_| OrcError::Damaged("a section lies outside of the file"))
        };
        Self::new(&data(&ip)?, ip.address(), &data(&unwind)?, Layout::of(release))
    }

    fn new(ip: &[u8], ip_address: u64, unwind: &[u8], layout: Layout) -> Result<Self, OrcError> {
        let (offsets, []) = ip.as_chunks::<4>() else { return Err(OrcError::Damaged("addresses are cut short")) };
        let (rules, []) = unwind.as_chunks::<ENTRY>() else { return Err(OrcError::Damaged("rules are cut short")) };
        if offsets.len() != rules.len() || rules.is_empty() {
            return Err(OrcError::Damaged("there is not one rule to each address"));
        }
        let address = |(at, offset): (usize, &[u8; 4])| {
            let place = ip_address.wrapping_add(4 * at as u64);
            place.wrapping_add_signed(i32::from_le_bytes(*offset).into())
        };
        let addresses: Vec<u64> = offsets.iter().enumerate().map(address).collect();
        if addresses.is_sorted() {
            return Ok(Self { addresses, rules: rules.to_vec(), layout });
        }
        // Kernels before 5.6 sort them as they boot.
        let mut pairs: Vec<_> = addresses.into_iter().zip(rules.iter().copied()).collect();
        pairs.sort_by_key(|pair| pair.0);
        let (addresses, rules) = pairs.into_iter().unzip();
        Ok(Self { addresses, rules, layout })
    }

    /// Builds tables of code that is no Linux kernel's, of all rings, from (address, caller) in ascending order; `None`
    /// if they have no code.
    pub fn of_callers(callers: &[(u64, CallerRule)]) -> Option<Self> {
        let entry = |rule: &CallerRule| {
            let base = |by_bp: bool| if by_bp { 4 } else { 5_u16 };
            let (sp, bp, bits) = match *rule {
                CallerRule::Unknown => (0, 0, 0),
                CallerRule::Outermost => (0, 0, 1 << 8),
                CallerRule::Interrupt(sp) => (sp, 0, 5 | 4 << 8),
                CallerRule::Call { by_bp, sp, bp: None } => (sp, 0, base(by_bp) | 2 << 8),
                CallerRule::Call { by_bp, sp, bp: Some(bp) } => (sp, bp, base(by_bp) | 1 << 4 | 2 << 8),
            };
            let mut entry = [0; ENTRY];
            entry[..2].copy_from_slice(&i16::to_le_bytes(sp));
            entry[2..4].copy_from_slice(&i16::to_le_bytes(bp));
            entry[4..].copy_from_slice(&u16::to_le_bytes(bits));
            entry
        };
        let (addresses, rules): (Vec<u64>, _) = callers.iter().map(|(address, rule)| (*address, entry(rule))).unzip();
        let sound = addresses.is_sorted() && addresses.first() < addresses.last();
        sound.then_some(Self { addresses, rules, layout: Layout::TypeOf3Bits })
    }

    /// Returns the range from the first entry to the last, which is where the code ends.
    pub(super) fn code(&self) -> Range<u64> {
        self.addresses.first().copied().unwrap_or(0)..self.addresses.last().copied().unwrap_or(0)
    }

    /// Returns the rule at an address; `None` where there is no code of the kernel's image.
    pub(super) fn rule(&self, address: u64) -> Option<Rule> {
        let at = self.addresses.partition_point(|&start| start <= address).checked_sub(1)?;
        // After the last rule there are modules, whose tables are not read.
        if at + 1 == self.addresses.len() && address - self.addresses[at] > 0x1_0000 {
            return None;
        }
        let entry = self.rules[at];
        let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let bits = word(4);
        let kind = match (self.layout, bits >> 8 & 3, bits >> 8 & 7) {
            (Layout::TypeOf3Bits, _, kind) => match kind {
                1 => Kind::End,
                2 => Kind::Call,
                3 => Kind::Registers,
                4 => Kind::PartialRegisters,
                _ => Kind::Undefined,
            },
            (Layout::EndAtBit10, ..) if bits >> 10 & 1 != 0 => Kind::End,
            (Layout::EndAtBit11, ..) if bits >> 11 & 1 != 0 => Kind::End,
            (_, 0, _) if base(bits) == Base::Undefined => Kind::Undefined,
            (_, 0, _) => Kind::Call,
            (_, 1, _) => Kind::Registers,
            (_, 2, _) => Kind::PartialRegisters,
            _ => Kind::Undefined,
        };
        Some(Rule { sp: (base(bits), word(0).cast_signed()), bp: (base(bits >> 4), word(2).cast_signed()), kind })
    }
}

const fn base(bits: u16) -> Base {
    match bits & 15 {
        1 => Base::PreviousSp,
        2 => Base::Dx,
        3 => Base::Di,
        4 => Base::Bp,
        5 => Base::Sp,
        6 => Base::R10,
        7 => Base::R13,
        8 => Base::BpIndirect,
        9 => Base::SpIndirect,
        _ => Base::Undefined,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Tables of (address, sp base, sp offset, bp base, bp offset, type bits), by the layout of 6.4.
    pub(in crate::sample) fn tables(rules: &[(u64, u16, i16, u16, i16, u16)]) -> Orc {
        let base = 0xffff_ffff_8200_0000_u64;
        let (mut ip, mut unwind) = (Vec::new(), Vec::new());
        for (at, &(address, sp, sp_offset, bp, bp_offset, kind)) in rules.iter().enumerate() {
            let place = base + 4 * at as u64;
            ip.extend((address.wrapping_sub(place) as i32).to_le_bytes());
            unwind.extend(sp_offset.to_le_bytes());
            unwind.extend(bp_offset.to_le_bytes());
            unwind.extend((sp | bp << 4 | kind << 8).to_le_bytes());
        }
        Orc::new(&ip, base, &unwind, Layout::TypeOf3Bits).unwrap()
    }

    #[test]
    fn a_rule_holds_up_to_the_next() {
        let start = 0xffff_ffff_8100_0000;
        let orc = tables(&[(start + 16, 4, 16, 1, -16, 2), (start, 5, 8, 0, 0, 2), (start + 32, 0, 0, 0, 0, 1)]);
        let at = |offset: u64| orc.rule(start + offset);
        let call = Rule { sp: (Base::Sp, 8), bp: (Base::Undefined, 0), kind: Kind::Call };
        assert_eq!((at(0), at(15)), (Some(call), Some(call)));
        assert_eq!(at(16).unwrap().bp, (Base::PreviousSp, -16));
        assert_eq!((at(40).unwrap().kind, orc.rule(start - 1), at(1 << 20)), (Kind::End, None, None));
    }

    #[test]
    fn layouts_follow_the_release_and_damage_is_refused() {
        let layout = |release: &str| Layout::of(release);
        assert_eq!([layout("5.10.0-28-amd64"), layout("6.1.0-50-amd64"), layout("6.2")], [Layout::EndAtBit10; 3]);
        assert_eq!(
            (layout("6.3.1"), layout("6.4-rc1"), layout("7.0.2")),
            (Layout::EndAtBit11, Layout::TypeOf3Bits, Layout::TypeOf3Bits)
        );
        let kind = |layout, bits: u16| {
            let unwind = [&[8, 0, 0, 0][..], &u16::to_le_bytes(bits)].concat();
            Orc::new(&[0; 4], 0x1000, &unwind, layout).unwrap().rule(0x1000).unwrap().kind
        };
        assert_eq!((kind(Layout::EndAtBit10, 0x405), kind(Layout::EndAtBit11, 0x805)), (Kind::End, Kind::End));
        assert_eq!((kind(Layout::EndAtBit11, 0x405), kind(Layout::EndAtBit10, 0x105)), (Kind::Call, Kind::Registers));
        assert_eq!(
            (kind(Layout::EndAtBit10, 0), kind(Layout::TypeOf3Bits, 0x405)),
            (Kind::Undefined, Kind::PartialRegisters)
        );
        assert!(matches!(Orc::of_kernel(b"x", "6.1"), Err(OrcError::Damaged(_))));
        for (ip, unwind) in [(&[0; 4][..], &[0; 5][..]), (&[0; 5], &[0; 6]), (&[0; 8], &[0; 6]), (&[], &[])] {
            assert!(Orc::new(ip, 0, unwind, Layout::EndAtBit10).is_err());
        }
    }
}
