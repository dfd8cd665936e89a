//! Tiny 32-bit guests, put together byte by byte: a multiboot image at 1 MiB with descriptor tables and fault handlers.
//!
//! Encodings: SDM vol. 2. Jumps are short and go to marks already set, or over what is assembled in between.

/// Load address of the image.
const BASE: u32 = 0x10_0000;
/// Offsets of what follows the code.
const GDT: usize = 0x1000;
const POINTERS: usize = 0x1100;
const IDT: usize = 0x2000;
const END: usize = 0x3000;
/// Top of the stack, above the image.
const STACK: u32 = 0x18_0000;

/// The vector of a PMI in fixed mode.
pub(crate) const PMI_VECTOR: usize = 0x40;

/// Local APIC registers.
pub(crate) const EOI: u32 = 0xfee0_00b0;
pub(crate) const SPURIOUS: u32 = 0xfee0_00f0;
pub(crate) const LVTPC: u32 = 0xfee0_0340;

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code(Vec<u8>);

/// A place to jump back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

impl Code {
    /// Bytes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn with(self, opcode: &[u8], value: u32) -> Self {
        self.raw(opcode).raw(&value.to_le_bytes())
    }

    pub(crate) fn eax(self, value: u32) -> Self {
        self.with(&[0xb8], value)
    }

    pub(crate) fn ecx(self, value: u32) -> Self {
        self.with(&[0xb9], value)
    }

    pub(crate) fn edx(self, value: u32) -> Self {
        self.with(&[0xba], value)
    }

    /// WRMSR of a constant.
    pub(crate) fn wrmsr(self, msr: u32, value: u64) -> Self {
        self.ecx(msr).eax(value as u32).edx((value >> 32) as u32).raw(&[0x0f, 0x30])
    }

    /// MOV dword [address], value.
    pub(crate) fn store(self, address: u32, value: u32) -> Self {
        self.with(&[0xc7, 0x05], address).raw(&value.to_le_bytes())
    }

    /// MOV EAX, [address].
    pub(crate) fn load(self, address: u32) -> Self {
        self.with(&[0xa1], address)
    }

    /// OUT DX, EAX.
    pub(crate) fn out(self, port: u16, value: u32) -> Self {
        self.edx(port.into()).eax(value).raw(&[0xef])
    }

    /// OUT DX, AL.
    pub(crate) fn out_byte(self, port: u16, value: u8) -> Self {
        self.edx(port.into()).raw(&[0xb0, value, 0xee])
    }

    /// Ends the run with `code`.
    pub(crate) fn exit(self, code: u32) -> Self {
        self.out(0xf4, code)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.0.len())
    }

    /// A short jump back by `opcode` (EB: always; 75: not zero; E2: LOOP).
    pub(crate) fn back(self, opcode: u8, to: Mark) -> Self {
        let distance = to.distance_from(&self, 2);
        let short = i8::try_from(distance).expect("a short jump");
        self.raw(&[opcode, short.cast_unsigned()])
    }

    /// JMP to itself.
    pub(crate) fn spin(self) -> Self {
        self.raw(&[0xeb, 0xfe])
    }

    /// The image: `self` runs with interrupts off; vector [`PMI_VECTOR`] runs `pmi` and returns with interrupts on; #GP skips the two bytes of WRMSR or RDMSR; any
    /// other exception ends the run with code 99.
    pub(crate) fn image(self, pmi: &Code) -> Vec<u8> {
        let address = |offset: usize| BASE + offset as u32;
        let entry = 32;
        let words =
            [0x1bad_b002, 1 << 16, 0_u32.wrapping_sub(0x1bad_b002 + (1 << 16)), BASE, BASE, 0, 0, address(entry)];
        let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let prologue = Code::default()
            .with(&[0x0f, 0x01, 0x15], address(POINTERS)) // LGDT
            .with(&[0x0f, 0x01, 0x1d], address(POINTERS + 8)) // LIDT
            .with(&[0xbc], STACK); // MOV ESP
        image.extend(prologue.0);
        image.extend(self.spin().0);
        let place = |image: &mut Vec<u8>, code: Code| {
            let at = address(image.len());
            image.extend(code.0);
            at
        };
        // A KVM that emulates ring 0 cannot do IRET in 32-bit mode: RET 8 drops CS and EFLAGS instead.
        // ADD ESP, 4 (the error code); ADD dword [ESP], 2; RET 8.
        let skip = place(&mut image, Code::default().raw(&[0x83, 0xc4, 4, 0x83, 0x04, 0x24, 2, 0xc2, 8, 0]));
        // PUSHA … POPA; STI; RET 8.
        let pmi = place(&mut image, Code::default().raw(&[0x60]).raw(&pmi.0).raw(&[0x61, 0xfb, 0xc2, 8, 0]));
        let stop = place(&mut image, Code::default().exit(99).spin());
        assert!(image.len() <= GDT, "the program is too long");
        image.resize(END, 0);
        for (i, entry) in [0, 0x00cf_9b00_0000_ffff_u64, 0x00cf_9300_0000_ffff].iter().enumerate() {
            image[GDT + 8 * i..][..8].copy_from_slice(&entry.to_le_bytes());
        }
        for (at, limit, table) in [(POINTERS, 23_u16, GDT), (POINTERS + 8, 0x7ff, IDT)] {
            image[at..at + 2].copy_from_slice(&limit.to_le_bytes());
            image[at + 2..at + 6].copy_from_slice(&address(table).to_le_bytes());
        }
        for vector in 0..256 {
            let handler = match vector {
                13 => skip,
                PMI_VECTOR => pmi,
                _ => stop,
            };
            let gate = u64::from(handler & 0xffff) | 0x08 << 16 | 0x8e00 << 32 | u64::from(handler >> 16) << 48;
            image[IDT + 8 * vector..][..8].copy_from_slice(&gate.to_le_bytes());
        }
        image
    }
}

impl Mark {
    /// Returns the operand of a near jump of `length` bytes at the end of `code` that goes back here.
    pub(crate) fn distance_from(self, code: &Code, length: usize) -> i32 {
        -i32::try_from(code.0.len() + length - self.0).expect("a short program")
    }
}
