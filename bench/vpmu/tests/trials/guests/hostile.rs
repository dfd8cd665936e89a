//! The guests, and what each must end in.

use arch_pmu::spec::Vendor;
use vmm::kvm::msr_filter;

// Tiny 32-bit guests, put together byte by byte: a multiboot image at 1 MiB with descriptor tables and fault handlers.
//
// Encodings: SDM vol. 2. Jumps are short and go to marks already set, or over what is assembled in between.

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

    /// The image: `self` runs with interrupts off; vector [`PMI_VECTOR`] runs `pmi` and returns with interrupts on; #GP
    /// skips the two bytes of WRMSR or RDMSR; any other exception ends the run with code 99.
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

/// Required end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The guest ends itself, with code 0.
    Itself,
    /// The time limit ends it.
    TimeLimit,
    /// A fault that KVM reports ends it: which one depends on whether ring 0 is emulated.
    Fault,
}

/// A guest.
#[derive(Clone, Debug)]
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) image: Vec<u8>,
    pub(crate) ending: Ending,
    pub(crate) arguments: &'static [&'static str],
    /// Further words that the report must have.
    pub(crate) says: &'static str,
}

const GLOBAL_CTRL: u32 = 0x38f;
const OVF_CTRL: u32 = 0x390;
const FIXED_CTR_CTRL: u32 = 0x38d;
/// EN, INT, OS, USR, unhalted core cycles.
const CYCLES_INT: u64 = 0x53_003c;
const ALL_COUNTERS: u64 = 0x7_0000_000f;

/// Every counter at one before its overflow, with interrupts.
fn period_one(mut code: Code) -> Code {
    for n in 0..4 {
        code = code.wrmsr(0x4c1 + n, 0xffff_ffff_ffff).wrmsr(0x186 + n, CYCLES_INT);
    }
    for n in 0..3 {
        code = code.wrmsr(0x309 + n, 0xffff_ffff_ffff);
    }
    code.wrmsr(FIXED_CTR_CTRL, 0xbbb).wrmsr(GLOBAL_CTRL, ALL_COUNTERS)
}

/// The handler that makes the storm worse: re-arms one counter, acknowledges, unmasks.
fn rearm() -> Code {
    Code::default()
        .wrmsr(OVF_CTRL, ALL_COUNTERS)
        .wrmsr(0xc1, 0xffff_ffff)
        .store(LVTPC, PMI_VECTOR as u32)
        .store(EOI, 0)
        .wrmsr(GLOBAL_CTRL, ALL_COUNTERS)
}

/// Random values to every register of the PMU, and reads of them: `passes` times over.
fn garbage(passes: u32) -> Code {
    let mut code = Code::default().raw(&[0xbe]).raw(&0x1234_5678_u32.to_le_bytes()); // MOV ESI, seed
    code = code.raw(&[0xbf]).raw(&passes.to_le_bytes()); // MOV EDI, passes
    let pass = code.mark();
    code = code.raw(&[0xb9]).raw(&0_u32.to_le_bytes()); // MOV ECX, 0: replaced at once
    let registers: Vec<u32> = (0..0x1000).filter(|&msr| msr_filter::exits(Vendor::Intel, msr)).collect();
    for run in runs(&registers) {
        code = code.ecx(run.0).raw(&[0xbb]).raw(&run.1.to_le_bytes()); // MOV EBX, count
        let next = code.mark();
        code = code
            .raw(&[0x69, 0xf6, 0x0d, 0x66, 0x19, 0x00]) // IMUL ESI, ESI, 1664525
            .raw(&[0x81, 0xc6, 0x5f, 0xf3, 0x6e, 0x3c]) // ADD ESI, 1013904223
            .raw(&[0x89, 0xf0, 0x89, 0xf2, 0xc1, 0xca, 13]) // MOV EAX, ESI; MOV EDX, ESI; ROR EDX, 13
            .raw(&[0x81, 0xe2, 0x07, 0x00, 0x00, 0x00]) // AND EDX, 7: some values get past the reserved bits
            .raw(&[0x0f, 0x30, 0x0f, 0x32]) // WRMSR; RDMSR
            .raw(&[0x41, 0x4b]) // INC ECX; DEC EBX
            .back(0x75, next);
    }
    // DEC EDI; JZ over the jump; JMP near back.
    code = code.raw(&[0x4f, 0x74, 5]);
    let distance = pass.distance_from(&code, 5);
    code.raw(&[0xe9]).raw(&distance.to_le_bytes()).exit(0)
}

/// First and length of each run of consecutive numbers.
fn runs(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == number => *length += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

/// All of them.
pub(crate) fn all() -> Vec<Hostile> {
    let none = Code::default;
    let guest = |name, code: Code, pmi: &Code, ending| Hostile {
        name,
        image: code.image(pmi),
        ending,
        arguments: &[],
        says: "",
    };
    let flood = {
        let code = period_one(none());
        let again = code.mark();
        code.wrmsr(GLOBAL_CTRL, 0).wrmsr(GLOBAL_CTRL, ALL_COUNTERS).back(0xeb, again)
    };
    let unassigned = {
        let code = none().ecx(200);
        let again = code.mark();
        let code = code.load(0xd000_0000).store(0xd000_0000, 1).load(0xfed0_0000);
        // IN EAX, DX from PCI's data port, OUT to a port that nobody has; LOOP.
        let code = code.edx(0xcfc).raw(&[0xed]).out(0xbad, 7).back(0xe2, again);
        code.exit(0)
    };
    let serial = {
        let code = none().out_byte(0x3f8, b'x');
        let again = code.mark();
        code.raw(&[0xee]).back(0xeb, again)
    };
    vec![
        guest("garbage_in_every_pmu_register", garbage(60), &none(), Ending::Itself),
        guest("global_ctrl_flood", flood, &none(), Ending::TimeLimit),
        Hostile {
            says: "masked",
            ..guest(
                "lvtpc_masked_for_ever",
                period_one(none().store(LVTPC, 0x1_0400)).spin(),
                &none(),
                Ending::TimeLimit,
            )
        },
        guest(
            "period_one_on_all_counters",
            period_one(none().store(SPURIOUS, 0x1ff).store(LVTPC, PMI_VECTOR as u32)).raw(&[0xfb]).spin(), // STI
            &rearm(),
            Ending::TimeLimit,
        ),
        // An empty IDT, then an undefined instruction.
        guest(
            "triple_fault",
            none().raw(&[0x0f, 0x01, 0x1d]).raw(&0x10_1110_u32.to_le_bytes()).raw(&[0x0f, 0x0b]),
            &none(),
            Ending::Fault,
        ),
        guest("interrupts_off_for_ever", none().raw(&[0xfa]).spin(), &none(), Ending::TimeLimit),
        guest("halted_for_ever", none().raw(&[0xfa, 0xf4]), &none(), Ending::TimeLimit),
        Hostile {
            says: "does not have",
            ..guest("memory_and_ports_that_are_not_there", unassigned, &none(), Ending::Itself)
        },
        // JMP to where nothing is.
        guest("runs_where_nothing_is", none().eax(0xd000_0000).raw(&[0xff, 0xe0]), &none(), Ending::Fault),
        guest("serial_flood", serial, &none(), Ending::TimeLimit),
        Hostile {
            arguments: &["--vcpus", "2"],
            ..guest("a_vcpu_that_is_never_started", none().exit(0), &none(), Ending::Itself)
        },
    ]
}
