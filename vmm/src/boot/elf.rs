//! Reads the parts of an ELF file, 32 or 64 bits, that a loader needs, checked against the file's length.
//!
//! Only x86 executables at fixed addresses are taken. Source: System V ABI, chapters 4 and 5.

use std::ops::Range;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _, Sym as _};

use super::segment::{LoadError, MAX_PARTS, Segment};

/// One `PT_LOAD` program header with a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Address the code is linked for.
    pub virtual_address: u64,
    /// Address to load at.
    pub physical_address: u64,
    /// Bytes in the file.
    pub file: Range<usize>,
    /// Size in memory, at least the size in the file; the rest is zero.
    pub memory_size: u64,
    /// True if it may be executed.
    pub executable: bool,
}

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
    /// Segments to load.
    pub loads: Vec<Load>,
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
    /// [`LoadError`] for anything cut short, malformed, not x86, not an executable, or position-independent.
    pub fn parse(bytes: &[u8]) -> Result<Self, LoadError> {
        if !Self::is_elf(bytes) {
            return Err(LoadError::NotAnImage);
        }
        match bytes.get(4) {
            Some(1) => parse_as::<elf::FileHeader32<Endianness>>(bytes),
            Some(2) => parse_as::<elf::FileHeader64<Endianness>>(bytes),
            _ => Err(LoadError::Elf("its class is neither ELF32 nor ELF64")),
        }
    }
}

fn parse_as<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Elf, LoadError> {
    let header = H::parse(bytes).map_err(|_| LoadError::Elf("its header is cut short or malformed"))?;
    let endian = header.endian().map_err(|_| LoadError::Elf("its byte order is unknown"))?;
    let machine = header.e_machine(endian);
    if endian != Endianness::Little || (machine != elf::EM_386 && machine != elf::EM_X86_64) {
        return Err(LoadError::Elf("it is for another processor than x86"));
    }
    let kind = header.e_type(endian);
    if kind == elf::ET_DYN {
        return Err(LoadError::Elf("it is position-independent; link it at a fixed address (-no-pie)"));
    }
    if kind != elf::ET_EXEC {
        return Err(LoadError::Elf("it is not an executable; link it first"));
    }
    let loads = loads::<H>(header, endian, bytes)?;
    let (code, symbols) = code::<H>(header, endian, bytes)?;
    let code = if code.is_empty() {
        let executable = loads.iter().filter(|load| load.executable);
        executable.map(|load| Code { address: load.virtual_address, file: load.file.clone() }).collect()
    } else {
        code
    };
    Ok(Elf { is_64: header.is_type_64(), entry: header.e_entry(endian).into(), loads, code, symbols })
}

fn loads<H: FileHeader<Endian = Endianness>>(
    header: &H,
    endian: Endianness,
    bytes: &[u8],
) -> Result<Vec<Load>, LoadError> {
    let table = header
        .program_headers(endian, bytes)
        .map_err(|_| LoadError::Elf("its program headers are cut short or malformed"))?;
    let mut loads = Vec::new();
    for segment in table {
        let memory_size: u64 = segment.p_memsz(endian).into();
        if segment.p_type(endian) != elf::PT_LOAD || memory_size == 0 {
            continue;
        }
        let (offset, size) = segment.file_range(endian);
        if size > memory_size {
            return Err(LoadError::Elf("a segment is larger in the file than in memory"));
        }
        if loads.len() == MAX_PARTS {
            return Err(LoadError::TooManyParts);
        }
        loads.push(Load {
            virtual_address: segment.p_vaddr(endian).into(),
            physical_address: segment.p_paddr(endian).into(),
            file: file_range(offset, size, bytes.len())?,
            memory_size,
            executable: segment.p_flags(endian).contains(elf::PF_X),
        });
    }
    if loads.is_empty() {
        return Err(LoadError::Elf("it has nothing to load"));
    }
    Ok(loads)
}

fn code<H: FileHeader<Endian = Endianness>>(
    header: &H,
    endian: Endianness,
    bytes: &[u8],
) -> Result<(Vec<Code>, Vec<u64>), LoadError> {
    let malformed = |_| LoadError::Elf("its section headers are cut short or malformed");
    let table = header.section_headers(endian, bytes).map_err(malformed)?;
    let mut code = Vec::new();
    let mut symbols = Vec::new();
    for section in table {
        let kind = section.sh_type(endian);
        let flags = section.sh_flags(endian);
        let is_code = flags.contains(elf::SHF_ALLOC) && flags.contains(elf::SHF_EXECINSTR);
        if kind == elf::SHT_PROGBITS && is_code {
            if code.len() == MAX_PARTS {
                return Err(LoadError::TooManyParts);
            }
            code.push(Code {
                address: section.sh_addr(endian).into(),
                file: file_range(section.sh_offset(endian).into(), section.sh_size(endian).into(), bytes.len())?,
            });
        }
        // A file has one symbol table; more of them would be read for nothing.
        if kind == elf::SHT_SYMTAB && symbols.is_empty() {
            let entries: &[H::Sym] =
                section.data_as_array(endian, bytes).map_err(|_| LoadError::Elf("its symbol table is cut short"))?;
            // Only a function's symbol is sure to be an instruction: a symbol without type may mark data.
            let functions = entries.iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC);
            symbols = functions.map(|symbol| symbol.st_value(endian).into()).collect();
        }
    }
    symbols.sort_unstable();
    symbols.dedup();
    Ok((code, symbols))
}

/// Returns `offset..offset + size` if it lies within the file.
fn file_range(offset: u64, size: u64, length: usize) -> Result<Range<usize>, LoadError> {
    if size == 0 {
        return Ok(0..0);
    }
    let end = offset.checked_add(size);
    match end.and_then(|end| Some((usize::try_from(offset).ok()?, usize::try_from(end).ok()?))) {
        Some((start, end)) if end <= length => Ok(start..end),
        _ => Err(LoadError::CutShort { offset, size, length }),
    }
}

/// Returns an ELF file's segments at their physical addresses.
pub(super) fn elf_segments(elf: &Elf) -> Vec<Segment> {
    let loads = elf.loads.iter();
    loads
        .map(|load| Segment {
            address: load.physical_address,
            virtual_address: load.virtual_address,
            file: load.file.clone(),
            memory_size: load.memory_size,
        })
        .collect()
}

/// Returns the physical address of the entry point, which files give as a virtual or as a physical address.
pub(super) fn physical_entry(elf: &Elf) -> Result<u64, LoadError> {
    let entry = elf.entry;
    let within = |start: u64, size: u64| entry.checked_sub(start).filter(|&offset| offset < size);
    let mut loads = elf.loads.iter();
    if loads.any(|load| within(load.physical_address, load.memory_size).is_some()) {
        return Ok(entry);
    }
    let mut loads = elf.loads.iter();
    loads
        .find_map(|load| {
            let offset = within(load.virtual_address, load.memory_size)?;
            load.physical_address.checked_add(offset)
        })
        .ok_or(LoadError::Entry { entry })
}
