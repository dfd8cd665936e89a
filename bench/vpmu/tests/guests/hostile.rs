//! The guests, and what each must end in.

use arch_pmu::spec::Vendor;
use vmm::kvm::msr_filter;

use super::asm::{Code, EOI, LVTPC, PMI_VECTOR, SPURIOUS};

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
