//! Hand-made ELF files for the loaders' tests.

/// One segment, and the section that covers its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) virtual_address: u64,
    pub(crate) physical_address: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory_size: u64,
    pub(crate) executable: bool,
}

/// A file to be.
#[derive(Clone, Debug)]
pub(crate) struct TestElf {
    pub(crate) is_64: bool,
    pub(crate) machine: u16,
    pub(crate) kind: u16,
    pub(crate) entry: u64,
    pub(crate) parts: Vec<Part>,
    /// True if there are section headers.
    pub(crate) sections: bool,
    /// Function symbols.
    pub(crate) symbols: Vec<u64>,
}

impl TestElf {
    pub(crate) fn new(is_64: bool, entry: u64) -> Self {
        Self {
            is_64,
            machine: if is_64 { 62 } else { 3 },
            kind: 2,
            entry,
            parts: Vec::new(),
            sections: true,
            symbols: Vec::new(),
        }
    }

    /// Adds executable bytes at an address.
    pub(crate) fn code(mut self, address: u64, bytes: &[u8]) -> Self {
        self.parts.push(Part {
            virtual_address: address,
            physical_address: address,
            bytes: bytes.to_vec(),
            memory_size: bytes.len() as u64,
            executable: true,
        });
        self
    }

    pub(crate) fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the file offset of the bytes of part `index`.
    pub(crate) fn offset(&self, index: usize) -> usize {
        let before: usize = self.parts[..index].iter().map(|part| part.bytes.len()).sum();
        self.header_size() + self.parts.len() * self.segment_size() + before
    }

    fn header_size(&self) -> usize {
        if self.is_64 { 64 } else { 52 }
    }

    fn segment_size(&self) -> usize {
        if self.is_64 { 56 } else { 32 }
    }

    /// Returns the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let symbols_at = self.offset(self.parts.len());
        let symbol_size = if self.is_64 { 24 } else { 16 };
        let sections_at = symbols_at + symbol_size * self.symbols.len();
        let section_size: u16 = if self.is_64 { 64 } else { 40 };
        let section_count = if self.sections { self.parts.len() as u16 + 2 } else { 0 };

        let mut file = Vec::new();
        file.extend_from_slice(b"\x7fELF");
        file.extend_from_slice(&[1 + u8::from(self.is_64), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut out = Out { is_64: self.is_64, file };
        out.half(self.kind).half(self.machine).word(1).long(self.entry);
        out.long(self.header_size() as u64);
        out.long(if self.sections { sections_at as u64 } else { 0 });
        out.word(0).half(self.header_size() as u16).half(self.segment_size() as u16);
        out.half(self.parts.len() as u16);
        out.half(if self.sections { section_size } else { 0 });
        out.half(section_count).half(0);
        for (i, part) in self.parts.iter().enumerate() {
            let flags = 4 | u32::from(part.executable);
            let (offset, size) = (self.offset(i) as u64, part.bytes.len() as u64);
            out.word(1);
            if self.is_64 {
                out.word(flags);
            }
            out.long(offset).long(part.virtual_address).long(part.physical_address);
            out.long(size).long(part.memory_size);
            if !self.is_64 {
                out.word(flags);
            }
            out.long(1);
        }
        for part in &self.parts {
            out.file.extend_from_slice(&part.bytes);
        }
        for &symbol in &self.symbols {
            // Name, type FUNC, section 1.
            if self.is_64 {
                out.word(0).half(2).half(1).long(symbol).long(0);
            } else {
                out.word(0).long(symbol).long(0).half(2).half(1);
            }
        }
        if self.sections {
            out.section(0, 0, 0, 0, 0, 0);
            for (i, part) in self.parts.iter().enumerate() {
                let flags = 2 | if part.executable { 4 } else { 0 };
                out.section(1, flags, part.virtual_address, self.offset(i), part.bytes.len(), 0);
            }
            out.section(2, 0, 0, symbols_at, symbol_size * self.symbols.len(), symbol_size);
        }
        out.file
    }
}

struct Out {
    is_64: bool,
    file: Vec<u8>,
}

impl Out {
    fn half(&mut self, value: u16) -> &mut Self {
        self.file.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.file.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Writes a field as wide as the class.
    fn long(&mut self, value: u64) -> &mut Self {
        if self.is_64 {
            self.file.extend_from_slice(&value.to_le_bytes());
        } else {
            self.word(value as u32);
        }
        self
    }

    fn section(&mut self, kind: u32, flags: u64, address: u64, offset: usize, size: usize, entry: usize) {
        self.word(0).word(kind).long(flags).long(address).long(offset as u64);
        self.long(size as u64).word(0).word(0).long(1).long(entry as u64);
    }
}
