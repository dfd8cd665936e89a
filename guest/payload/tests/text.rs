//! Ring-0 code may be run by KVM's instruction emulator: it may hold only what every emulator knows.

use guest::abi::{ISR_COUNT, MAX_VCPUS};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, elf};

/// Ends in KVM_EXIT_INTERNAL_ERROR, or hangs, on a host without hardware virtualization.
const NOT_EMULATED: &[Mnemonic] = &[
    Mnemonic::Int3,
    Mnemonic::Wait,
    Mnemonic::Ldmxcsr,
    Mnemonic::Vldmxcsr,
    Mnemonic::Cmpxchg16b,
    Mnemonic::Xrstor,
    Mnemonic::Xrstor64,
    Mnemonic::Popcnt,
    Mnemonic::Clac,
    Mnemonic::Vmcall,
];

/// Faults under a vPMU in userspace.
const FAULTS: &[Mnemonic] = &[Mnemonic::Rdpmc];

/// The interrupt stubs leave out CLD because nothing sets the direction flag.
const SETS_DIRECTION: &[Mnemonic] = &[Mnemonic::Std, Mnemonic::Popfq, Mnemonic::Popf];

fn parse(payload: &'static [u8]) -> object::File<'static> {
    object::File::parse(payload).expect("the payload is an ELF")
}

fn symbol(elf: &object::File<'_>, name: &str) -> u64 {
    elf.symbols().find(|s| s.name() == Ok(name)).unwrap_or_else(|| panic!("symbol {name}")).address()
}

fn instructions(elf: &object::File<'_>, section: &str) -> Vec<Instruction> {
    let section = elf.section_by_name(section).expect("section");
    let code = section.data().expect("section data");
    Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE).iter().collect()
}

fn check(payload: &'static [u8], section: &str, forbidden: &[&[Mnemonic]], at_least: usize) {
    let code = instructions(&parse(payload), section);
    assert!(code.len() >= at_least, "{section}: only {} instructions", code.len());
    let mut factory = InstructionInfoFactory::new();
    for insn in code {
        let (at, mnemonic) = (insn.ip(), insn.mnemonic());
        assert_ne!(mnemonic, Mnemonic::INVALID, "{section}: {at:#x}");
        assert!(!forbidden.iter().any(|set| set.contains(&mnemonic)), "{section}: {mnemonic:?} at {at:#x}");
        let wide = factory.info(&insn).used_registers().iter().find(|used| {
            let r = used.register();
            r.is_vector_register() || r.is_mm() || r.is_st() || r.is_k() || r.is_tmm()
        });
        assert!(wide.is_none(), "{section}: {mnemonic:?} at {at:#x}");
    }
}

#[test]
fn ring_0_uses_general_registers_and_emulated_instructions() {
    check(guest::PMU_PAYLOAD, ".text", &[NOT_EMULATED, FAULTS, SETS_DIRECTION], 500);
}

/// The conformance payload also asks for the faults.
#[test]
fn the_conformance_payload_is_as_plain() {
    check(guest::CONFORMANCE_PAYLOAD, ".text", &[NOT_EMULATED, SETS_DIRECTION], 1000);
}

/// Its exact windows hold what their formulas say: between the two WRMSRs of `counted_loop` one turn is 4 instructions.
#[test]
fn the_counted_code_is_what_the_cases_count() {
    let elf = parse(guest::CONFORMANCE_PAYLOAD);
    let code = instructions(&elf, ".text");
    let between = |name: &str| {
        let start = code.iter().position(|i| i.ip() == symbol(&elf, name)).expect("code");
        let window: Vec<_> = code[start..].iter().map(Instruction::mnemonic).collect();
        let first = window.iter().position(|m| *m == Mnemonic::Wrmsr).expect("WRMSR") + 1;
        let length = window[first..].iter().position(|m| *m == Mnemonic::Wrmsr).expect("WRMSR");
        window[first..first + length].to_vec()
    };
    let looped = between("counted_loop");
    assert_eq!(looped.len(), 5 + 4, "{looped:?}");
    assert_eq!(looped[2..6], [Mnemonic::Test, Mnemonic::Je, Mnemonic::Dec, Mnemonic::Jne]);
    let row = between("counted_nops");
    assert_eq!(row.iter().filter(|m| **m == Mnemonic::Nop).count(), guest::abi::CONFORMANCE_NOPS);
}

#[test]
fn ring_3_uses_general_registers_and_no_privilege() {
    check(
        guest::PMU_PAYLOAD,
        ".user.text",
        &[
            NOT_EMULATED,
            FAULTS,
            SETS_DIRECTION,
            &[Mnemonic::Rdmsr, Mnemonic::Wrmsr, Mnemonic::Hlt, Mnemonic::Cli, Mnemonic::Sti],
        ],
        60,
    );
}

/// Executable segments are never writable, and only the part for ring 3 holds the workloads' code and tables.
#[test]
fn segments_have_the_permissions_the_vmm_maps() {
    let elf = parse(guest::PMU_PAYLOAD);
    let (start, end) = (symbol(&elf, "user_start"), symbol(&elf, "user_end"));
    assert_eq!((start % 4096, end % 4096), (0, 0));
    let inside = |a: u64| (start..end).contains(&a);
    for name in ["ring3_ftest", "ring3_io"] {
        assert!(inside(symbol(&elf, name)), "{name}");
    }
    let mut executable = 0;
    for segment in elf.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
            panic!("ELF segment flags");
        };
        let p_flags = p_flags.0;
        assert_ne!(p_flags & (elf::PF_W.0 | elf::PF_X.0), elf::PF_W.0 | elf::PF_X.0, "{:#x}", segment.address());
        let last = segment.address() + segment.size() - 1;
        assert_eq!(inside(segment.address()), inside(last), "a segment crosses the border of ring 3");
        executable += u32::from(p_flags & elf::PF_X.0 != 0);
    }
    assert_eq!(executable, 2, "one for each ring");
    for section in elf.sections() {
        if inside(section.address()) {
            assert!(section.name().is_ok_and(|n| n.starts_with(".user.") || n.is_empty()), "{:?}", section.name());
        }
    }
}

#[test]
fn every_vector_has_a_handler_in_ring_0() {
    let elf = parse(guest::PMU_PAYLOAD);
    let text = elf.section_by_name(".text").expect(".text");
    let text = text.address()..text.address() + text.size();
    let rodata = elf.section_by_name(".rodata").expect(".rodata");
    let table = rodata
        .data_range(symbol(&elf, "isr_table"), 8 * ISR_COUNT as u64)
        .expect("section data")
        .expect("isr_table is in .rodata");
    let handlers: Vec<u64> =
        table.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
    assert!(handlers.iter().all(|a| text.contains(a)), "{handlers:#x?}");
    let mut distinct = handlers.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ISR_COUNT, "each vector can be told from the others");
    // A stub begins with PUSH, or with MOV EDI where the CPU pushes an error code.
    let code = instructions(&elf, ".text");
    for (vector, address) in handlers.iter().enumerate().take(32).filter(|(v, _)| *v != 2) {
        let first = code.iter().find(|i| i.ip() == *address).expect("stub");
        let pushed = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
        let expected = if pushed { Mnemonic::Mov } else { Mnemonic::Push };
        assert_eq!(first.mnemonic(), expected, "vector {vector}");
    }
}

#[test]
fn each_vcpu_has_a_state_page_of_its_own() {
    let elf = parse(guest::PMU_PAYLOAD);
    let cpus = elf.symbols().find(|s| s.name() == Ok("cpus")).expect("symbol cpus");
    let each = cpus.size() / MAX_VCPUS as u64;
    assert_eq!((each % 4096, cpus.address() % 4096, symbol(&elf, "pmi_handler") < cpus.address()), (0, 0, true));
    assert!(each.is_power_of_two(), "{each}: it is found by a shift, not by a multiplication");
}

/// The straight path of one overflow, between the TSC reads: where ring 0 is emulated its length is the latency.
#[test]
fn the_pmi_path_is_short() {
    let elf = parse(guest::PMU_PAYLOAD);
    let code = instructions(&elf, ".text");
    let from = |name: &str| {
        let address = symbol(&elf, name);
        code.iter().position(|i| i.ip() == address).expect("code")
    };
    let until_rdtsc = |start: usize| code[start..].iter().position(|i| i.mnemonic() == Mnemonic::Rdtsc).expect("RDTSC");
    let stub = from("nmi");
    let after_tsc =
        code[stub + until_rdtsc(stub)..].iter().position(|i| i.mnemonic() == Mnemonic::Call).expect("CALL") + 1;
    let handler = until_rdtsc(from("pmi")) + 1;
    assert!(after_tsc + handler <= 120, "{after_tsc} + {handler}");
}
