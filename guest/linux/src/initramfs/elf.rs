//! Requests of an ELF file to the dynamic loader.

use std::path::Path;

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, DynamicTag, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind, StringTable};

use super::error::InitramfsError;

/// An x86-64 ELF file's wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// PT_INTERP.
    pub(super) interpreter: Option<String>,
    /// DT_NEEDED, in order.
    pub(super) needed: Vec<String>,
    /// The folders of DT_RPATH.
    pub(super) rpath: Vec<String>,
    /// The folders of DT_RUNPATH.
    pub(super) runpath: Vec<String>,
}

/// Returns whether a file begins as ELF files do.
pub(super) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Returns whether a shared library is for the guest's processor.
pub(super) fn fits(bytes: &[u8]) -> bool {
    matches!(FileKind::parse(bytes), Ok(FileKind::Elf64))
        && FileHeader64::<Endianness>::parse(bytes).is_ok_and(|header| {
            header.endian().is_ok_and(|endian| endian == Endianness::Little && header.e_machine(endian) == EM_X86_64)
        })
}

/// Reads the dynamic section of an ELF file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Elf, InitramfsError> {
    let wrong = |what: String| InitramfsError::Architecture { path: path.to_owned(), what };
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => {}
        Ok(kind) => return Err(wrong(format!("{kind:?}"))),
        Err(error) => return Err(InitramfsError::Damaged { path: path.to_owned(), what: error.to_string() }),
    }
    let damaged = |error: object::Error| InitramfsError::Damaged { path: path.to_owned(), what: error.to_string() };
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    if endian != Endianness::Little || machine != EM_X86_64 {
        return Err(wrong(format!("machine {machine}")));
    }
    let segments = header.program_headers(endian, bytes).map_err(damaged)?;
    let mut elf = Elf::default();
    let mut tags = Vec::new();
    for segment in segments {
        if let Some(interpreter) = segment.interpreter(endian, bytes).map_err(damaged)? {
            elf.interpreter = Some(text(path, interpreter)?);
        }
        if let Some(dynamic) = segment.dynamic(endian, bytes).map_err(damaged)? {
            tags.extend(dynamic.iter().map(|entry| (entry.d_tag(endian), entry.d_val(endian))));
        }
    }
    let value = |tag: DynamicTag| tags.iter().find(|&&(t, _)| t == tag).map(|&(_, value)| value);
    let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Ok(elf) };
    let strings = segments.iter().find_map(|segment| segment.data_range(endian, bytes, table, size).ok().flatten());
    let strings = StringTable::new(strings.unwrap_or_default(), 0, size);
    for (tag, offset) in tags {
        if ![DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(&tag) {
            continue;
        }
        let string = u32::try_from(offset).ok().and_then(|offset| strings.get(offset).ok());
        let string = text(
            path,
            string.ok_or_else(|| InitramfsError::Damaged {
                path: path.to_owned(),
                what: "a name is not in its table of strings".to_owned(),
            })?,
        )?;
        let folders = || string.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned);
        match tag {
            DT_NEEDED => elf.needed.push(string),
            DT_RPATH => elf.rpath.extend(folders()),
            _ => elf.runpath.extend(folders()),
        }
    }
    // The loader ignores RPATH where there is a RUNPATH.
    if !elf.runpath.is_empty() {
        elf.rpath.clear();
    }
    Ok(elf)
}

fn text(path: &Path, bytes: &[u8]) -> Result<String, InitramfsError> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8(bytes.to_vec())
        .map_err(|_| InitramfsError::Damaged { path: path.to_owned(), what: "a name is not UTF-8".to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_test_names_its_loader_and_its_libraries() {
        let path = std::env::current_exe().unwrap();
        let elf = parse(&path, &std::fs::read(&path).unwrap()).unwrap();
        assert!(elf.interpreter.unwrap().contains("ld-linux"));
        assert!(elf.needed.iter().any(|name| name == "libc.so.6"), "{:?}", elf.needed);
    }

    #[test]
    fn the_init_needs_nothing() {
        assert_eq!(parse(Path::new("/init"), crate::INIT).unwrap(), Elf::default());
        assert!(fits(crate::INIT));
    }

    #[test]
    fn another_processor_is_named() {
        let mut arm = crate::INIT.to_vec();
        arm[18] = 183;
        let error = parse(Path::new("x"), &arm).unwrap_err();
        assert!(error.to_string().contains("machine 183"), "{error}");
        assert!(!fits(&arm));
        let mut narrow = crate::INIT.to_vec();
        narrow[4] = 1;
        assert!(matches!(parse(Path::new("x"), &narrow), Err(InitramfsError::Architecture { .. })));
        assert!(!fits(&narrow) && !fits(b"\x7fELF") && !fits(b"#!/bin/sh"));
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_an_error_or_less(at in 0_usize..4096, value: u8, cut in 0_usize..8192) {
            let path = std::env::current_exe().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] = value;
            let _ = parse(&path, &bytes);
            bytes.truncate(cut);
            let _ = parse(&path, &bytes);
        }
    }
}
