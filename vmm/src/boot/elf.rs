//! Reads the parts of an ELF file, 32 or 64 bits, that a loader needs, checked against the file's length.
//!
//! Only x86 executables at fixed addresses are taken. Source: System V ABI, chapters 4 and 5.

use std::ops::Range;

use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, elf};

use super::error::BootError;
use super::segment::{Segment, file_range};

/// Name and type of the note with the entry of PVH's boot protocol: XEN_ELFNOTE_PHYS32_ENTRY of Xen's public/elfnote.h.
const PVH_NOTE: (&[u8], u32) = (b"Xen", 18);

/// One run of machine code in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Bytes in the file.
    pub file: Range<usize>,
}

/// An executable taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// True if the container is ELF64; an ELF32 container can hold 64-bit code all the same.
    pub is_64: bool,
    /// Entry point as the header has it.
    pub entry: u64,
    /// Physical entry point of PVH, if there is a note of it.
    pub pvh_entry: Result<Option<u64>, BootError>,
    /// Segments to load.
    pub segments: Vec<Segment>,
    /// Executable sections, or the executable segments of a file without sections.
    pub code: Vec<Code>,
    /// Addresses of code symbols, ascending: each is the start of an instruction.
    pub symbols: Vec<u64>,
}

impl Elf {
    /// Returns whether the file claims to be ELF at all.
    pub fn is_elf(bytes: &[u8]) -> bool {
        bytes.starts_with(&elf::ELFMAG)
    }

    /// Takes `bytes` apart.
    ///
    /// # Errors
    /// [`BootError`] for anything cut short, malformed, not x86, not an executable, or position-independent.
    pub fn parse(bytes: &[u8]) -> Result<Self, BootError> {
        match bytes.get(4) {
            Some(1) if Self::is_elf(bytes) => parse_as::<elf::FileHeader32<Endianness>>(bytes),
            Some(2) if Self::is_elf(bytes) => parse_as::<elf::FileHeader64<Endianness>>(bytes),
            _ => Err(bad("its class is neither ELF32 nor ELF64")),
        }
    }

    /// Returns the physical address of the entry point, which files give as a virtual or as a physical address.
    pub(super) fn physical_entry(&self) -> Result<u64, BootError> {
        let entry = self.entry;
        let offset = |start: u64, size: u64| entry.checked_sub(start).filter(|&offset| offset < size);
        if self.segments.iter().any(|segment| offset(segment.address, segment.memory_size).is_some()) {
            return Ok(entry);
        }
        let mut segments = self.segments.iter();
        let physical = segments
            .find_map(|segment| segment.address.checked_add(offset(segment.virtual_address, segment.memory_size)?));
        physical.ok_or_else(|| entry_outside(entry))
    }
}

/// The error of an ELF file.
pub(crate) fn bad(why: &str) -> BootError {
    BootError(format!(
        "the ELF image cannot be loaded: {why}; give an ELF executable for x86, linked at fixed addresses (-no-pie)"
    ))
}

/// The error of an image with its entry point elsewhere.
pub(crate) fn entry_outside(entry: u64) -> BootError {
    BootError(format!("the entry point {entry:#x} is not in any loaded segment"))
}

fn parse_as<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Elf, BootError> {
    let malformed = |_| bad("its headers or its tables are cut short or malformed");
    let header = H::parse(bytes).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    if endian != Endianness::Little || !matches!(header.e_machine(endian), elf::EM_386 | elf::EM_X86_64) {
        return Err(bad("it is for another processor than x86"));
    }
    match header.e_type(endian) {
        elf::ET_EXEC => {}
        elf::ET_DYN => return Err(bad("it is position-independent")),
        _ => return Err(bad("it is not an executable")),
    }
    let (mut segments, mut pvh_entry) = (Vec::new(), Ok(None));
    for part in header.program_headers(endian, bytes).map_err(malformed)? {
        let (offset, size) = part.file_range(endian);
        let memory_size: u64 = part.p_memsz(endian).into();
        if part.p_type(endian) == elf::PT_NOTE {
            // Notes that cannot be read do not matter to an image that speaks another protocol.
            if pvh_entry == Ok(None) {
                pvh_entry = pvh_note::<H>(part, endian, bytes);
            }
        } else if part.p_type(endian) == elf::PT_LOAD && memory_size > 0 {
            if size > memory_size {
                return Err(bad("a segment is larger in the file than in memory"));
            }
            segments.push(Segment {
                address: part.p_paddr(endian).into(),
                virtual_address: part.p_vaddr(endian).into(),
                file: file_range(offset, size, bytes.len())?,
                memory_size,
                executable: part.p_flags(endian).contains(elf::PF_X),
            });
        }
    }
    if segments.is_empty() {
        return Err(bad("it has nothing to load"));
    }
    let (mut code, mut symbols) = (Vec::new(), Vec::new());
    for section in header.section_headers(endian, bytes).map_err(malformed)? {
        let flags = section.sh_flags(endian);
        match section.sh_type(endian) {
            elf::SHT_PROGBITS if flags.contains(elf::SHF_ALLOC) && flags.contains(elf::SHF_EXECINSTR) => {
                let (offset, size) = (section.sh_offset(endian).into(), section.sh_size(endian).into());
                let file = file_range(offset, size, bytes.len())?;
                code.push(Code { address: section.sh_addr(endian).into(), file });
            }
            // A file has one symbol table; more of them would be read for nothing.
            elf::SHT_SYMTAB if symbols.is_empty() => {
                let entries: &[H::Sym] = section.data_as_array(endian, bytes).map_err(malformed)?;
                // Only a function's symbol is sure to be an instruction: a symbol without type may mark data.
                let functions = entries.iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC);
                symbols = functions.map(|symbol| symbol.st_value(endian).into()).collect();
            }
            _ => {}
        }
    }
    symbols.sort_unstable();
    symbols.dedup();
    if code.is_empty() {
        let executable = segments.iter().filter(|segment| segment.executable);
        code.extend(executable.map(|part| Code { address: part.virtual_address, file: part.file.clone() }));
    }
    Ok(Elf { is_64: header.is_type_64(), entry: header.e_entry(endian).into(), pvh_entry, segments, code, symbols })
}

/// Returns the entry that the notes of a segment give: 4 or 8 bytes.
fn pvh_note<H: FileHeader<Endian = Endianness>>(
    part: &H::ProgramHeader,
    endian: Endianness,
    bytes: &[u8],
) -> Result<Option<u64>, BootError> {
    let malformed = |_| bad("its notes are cut short or malformed");
    let Some(mut notes) = part.notes(endian, bytes).map_err(malformed)? else { return Ok(None) };
    while let Some(note) = notes.next().map_err(malformed)? {
        if (note.name(), note.n_type(endian).0) == PVH_NOTE {
            return match note.desc() {
                desc @ ([_, _, _, _] | [_, _, _, _, _, _, _, _]) => {
                    Ok(Some(desc.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))))
                }
                _ => Err(bad("its PVH note has neither 4 nor 8 bytes")),
            };
        }
    }
    Ok(None)
}
