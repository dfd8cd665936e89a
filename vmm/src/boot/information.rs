//! The boot information that a kernel is given: its command line, its modules and the map of its memory.
//!
//! Sources: "The Multiboot Specification version 0.6.96", section 3.3; struct hvm_start_info of Xen's
//! public/arch-x86/hvm/start_info.h.

use super::error::{BootError, refused};
use super::image::Protocol;

/// A file given to the kernel beside its image.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name or command line.
    pub name: String,
    /// Its bytes, for instance `NR_CPUS=2\n`.
    pub contents: Vec<u8>,
}

/// The boot information of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Information<'a> {
    /// The protocol whose structures it has.
    pub protocol: Protocol,
    /// Size of the guest's memory, from address 0.
    pub ram: u64,
    /// The kernel's name, by custom the first word of a multiboot command line.
    pub program: &'a str,
    /// The rest of the command line.
    pub arguments: &'a str,
    /// Modules.
    pub modules: &'a [Module],
}

const PAGE: usize = 0x1000;
/// Size of the fixed part of multiboot's, the longer one; its fields from offset 88 on (frame buffer) stay zero.
const FIXED: usize = 120;
/// End of low memory: where the EBDA would start.
const LOW_END: u64 = 0x9_fc00;
const MIB: u64 = 1 << 20;

/// Multiboot's `flags`: memory sizes, command line, modules, memory map, boot loader name.
const FLAGS: u64 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;
/// PVH's magic and the version with a memory map.
const PVH: u64 = 0x336e_c578 | 1 << 32;

impl Information<'_> {
    /// Returns the number of bytes that [`Information::build`] makes, wherever they go.
    ///
    /// # Errors
    /// As [`Information::build`].
    pub fn size(&self) -> Result<u64, BootError> {
        Ok(self.build(0)?.len() as u64)
    }

    /// Builds the information structure and all it points to, in one piece to be placed at the page-aligned address `at`,
    /// with its end below 4 GiB.
    ///
    /// # Errors
    /// [`BootError`] if a text has a NUL byte.
    pub fn build(&self, at: u32) -> Result<Vec<u8>, BootError> {
        let is_multiboot = self.protocol == Protocol::Multiboot;
        let mut piece = Piece { at: at.into(), bytes: vec![0; FIXED] };
        let map = piece.here();
        let areas = [(0, LOW_END.min(self.ram), 1), (LOW_END, MIB.min(self.ram), 2), (MIB, self.ram, 1)];
        let areas: Vec<_> = areas.into_iter().filter(|(start, end, _)| start < end).collect();
        for &(start, end, kind) in &areas {
            if is_multiboot {
                piece.put(&20_u32.to_le_bytes());
                piece.longs(&[start, end - start]);
                piece.put(&u32::to_le_bytes(kind));
            } else {
                piece.longs(&[start, end - start, kind.into()]);
            }
        }
        let map_end = piece.here();
        let line = if is_multiboot { &[self.program, " ", self.arguments][..] } else { &[self.arguments] };
        let command_line = piece.text(line)?;
        let loader = piece.text(&["vpmu"])?;
        let mut modules = Vec::new();
        for module in self.modules {
            let name = piece.text(&[&module.name])?;
            piece.align(PAGE);
            modules.push((piece.here(), module.contents.len() as u64, name));
            piece.put(&module.contents);
        }
        piece.align(16);
        let list = piece.here();
        let count = modules.len() as u64;
        for (start, size, name) in modules {
            if is_multiboot {
                piece.longs(&[start | (start + size) << 32, name]);
            } else {
                piece.longs(&[start, size, name, 0]);
            }
        }
        let kib = |bytes: u64| (bytes / 1024).min(u32::MAX.into());
        let fields: &[(usize, u64)] = if is_multiboot {
            &[
                (0, FLAGS | kib(self.ram.min(LOW_END)) << 32),
                (8, kib(self.ram.saturating_sub(MIB))),
                (16, command_line | count << 32),
                (24, list),
                (44, (map_end - map) | map << 32),
                (64, loader),
            ]
        } else {
            &[(0, PVH), (8, count << 32), (16, list), (24, command_line), (40, map), (48, areas.len() as u64)]
        };
        for (offset, value) in fields {
            piece.bytes[*offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        Ok(piece.bytes)
    }
}

struct Piece {
    at: u64,
    bytes: Vec<u8>,
}

impl Piece {
    /// Returns the guest-physical address of the next byte.
    fn here(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn longs(&mut self, values: &[u64]) {
        for value in values {
            self.put(&value.to_le_bytes());
        }
    }

    /// Adds a NUL-terminated text and returns its address.
    fn text(&mut self, parts: &[&str]) -> Result<u64, BootError> {
        let at = self.here();
        let text = parts.concat();
        if text.contains('\0') {
            return refused("a command line or module name holds a NUL byte, which would end it");
        }
        self.put(text.as_bytes());
        self.put(&[0]);
        Ok(at)
    }
}
