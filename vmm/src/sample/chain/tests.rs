//! Call chains through guest memory that tests lay out.

use kvm_bindings::kvm_sregs;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::super::orc::tests::tables;
use super::super::queue::{Queue, Words};
use super::*;

const TEXT: u64 = 0xffff_ffff_8100_0000;
/// The kernel's stack, which is mapped at 2 MiB of each half of linear addresses.
const STACK: u64 = 0xffff_ffff_8020_4000;

/// Memory with a page table: the last GiB, and the first, are the first 2 MiB of memory, again and again.
fn memory() -> GuestMemoryMmap {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x20_0000)]).unwrap();
    let put = |at: u64, value: u64| memory.write_obj(value, GuestAddress(at)).unwrap();
    for (entry, of) in [(0, 0), (511, 510)] {
        put(0x1000 + 8 * entry, 0x2001);
        put(0x2000 + 8 * of, 0x3001);
    }
    for entry in 0..512 {
        put(0x3000 + 8 * entry, 0x81);
    }
    memory
}

fn sregs() -> kvm_sregs {
    kvm_sregs { cr0: 1 << 31, cr3: 0x1000, cr4: 1 << 5, efer: 1 << 10, ..kvm_sregs::default() }
}

fn put(memory: &GuestMemoryMmap, at: u64, words: &[u64]) {
    for (n, word) in words.iter().enumerate() {
        memory.write_obj(*word, GuestAddress(at % 0x20_0000 + 8 * n as u64)).unwrap();
    }
}

fn chain(memory: &GuestMemoryMmap, orc: Option<&Orc>, frame: Frame, user: bool) -> ([Vec<u64>; 2], [bool; 2]) {
    let sregs = sregs();
    let mut space = Space::new(memory, &sregs);
    let mut words = Words::new();
    words.begin(frame.ip, 0);
    let tables = orc.map(|kernel| Tables { kernel, modules: None });
    let flags = follow(&mut space, tables, frame, Others::default(), user, Width::Bits64, &mut words);
    let queue = Queue::default();
    queue.push(words.of(0, 0, 0, flags));
    let sample = queue.pop().unwrap();
    (sample.chain, sample.complete)
}

#[test]
fn frame_pointers_are_followed_to_their_end() {
    let memory = memory();
    put(&memory, 0x10_0000, &[0x10_0020, 0x5001, 0, 0, 0, 0x5002]);
    let frame = Frame { ip: 0x5000, sp: 0x0f_fff0, bp: 0x10_0000 };
    let whole = ([vec![], vec![0x5000, 0x5001, 0x5002]], [true, true]);
    assert_eq!(chain(&memory, None, frame, true), whole);
    // Down the stack, unaligned, not mapped, in a circle: broken.
    for saved in [0x0f_0000, 0x10_0021, 0x7fff_ffff_f000, 0x10_0000] {
        put(&memory, 0x10_0000, &[saved]);
        assert_eq!(chain(&memory, None, frame, true), ([vec![], vec![0x5000, 0x5001]], [true, false]), "{saved:#x}");
    }
}

#[test]
fn a_frame_at_the_end_of_addresses_ends_the_chain() {
    let memory = memory();
    // The last GiB is mapped, too.
    put(&memory, 0x2000 + 8 * 511, &[0x3001]);
    let bp = 0_u64.wrapping_sub(16);
    put(&memory, 0x1f_fff0, &[bp, TEXT]);
    let frame = Frame { ip: TEXT, sp: bp, bp };
    assert_eq!(chain(&memory, None, frame, false), ([vec![TEXT, TEXT], vec![]], [false, true]));
}

#[test]
fn a_function_without_its_frame_has_its_caller() {
    let memory = memory();
    put(&memory, 0x10_0000, &[0, 0x5002]);
    let chain = |code: &[u8], stack: &[u64]| {
        memory.write_slice(code, GuestAddress(0x5000)).unwrap();
        put(&memory, 0x0f_ff00, stack);
        chain(&memory, None, Frame { ip: 0x5000, sp: 0x0f_ff00, bp: 0x10_0000 }, false).0[0].clone()
    };
    let whole = [0x5000, 0x5001, 0x5002];
    assert_eq!(chain(&[0x55, 0, 0, 0], &[0x5001]), whole, "push");
    assert_eq!(chain(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], &[0x5001]), whole, "endbr64, push");
    assert_eq!(chain(&[0xc3, 0, 0, 0, 0], &[0x5001]), whole, "ret");
    assert_eq!(chain(&[0x48, 0x89, 0xe5], &[0x10_0000, 0x5001]), whole, "mov");
    assert_eq!(chain(&[0x90, 0x90, 0x90], &[0x5001]), [0x5000, 0x5002]);
}

#[test]
fn orc_leads_through_calls_and_an_interrupt_to_the_user_task() {
    let memory = memory();
    let orc = tables(&[
        // A leaf without a frame; a function with one; an interrupt's entry; the end.
        (TEXT, 5, 8, 0, 0, 2),
        (TEXT + 0x100, 4, 16, 1, -16, 2),
        (TEXT + 0x200, 5, 0, 0, 0, 3),
        (TEXT + 0x300, 0, 0, 0, 0, 1),
    ]);
    // The leaf's return address, then the frame at BP: BP and return address; then pt_regs.
    let bp = STACK + 0x20;
    put(&memory, STACK, &[TEXT + 0x110, 0, 0, 0, 0x7777, TEXT + 0x210]);
    let mut registers = [0; 21];
    (registers[4], registers[16], registers[17], registers[19]) = (0x10_0000, 0x5000, 0x33, 0x0f_ff00);
    put(&memory, bp + 16, &registers);
    put(&memory, 0x10_0000, &[0, 0x5002]);
    let frame = Frame { ip: TEXT + 4, sp: STACK, bp };
    let kernel = vec![TEXT + 4, TEXT + 0x110, TEXT + 0x210];
    let whole = ([kernel, vec![0x5000, 0x5002]], [true, true]);
    assert_eq!(chain(&memory, Some(&orc), frame, false), whole);
    // A 32-bit program has words of 32 bits.
    put(&memory, 0x10_0000, &[0x5002 << 32]);
    assert_eq!(chain(&memory, Some(&orc), frame, false).1, [true, false]);
    put(&memory, bp + 16 + 8 * 17, &[0x23]);
    assert_eq!(chain(&memory, Some(&orc), frame, false), whole);
    // From a kernel thread: the end.
    put(&memory, bp + 8, &[TEXT + 0x310]);
    let ended = ([vec![TEXT + 4, TEXT + 0x110, TEXT + 0x310], vec![]], [true, true]);
    assert_eq!(chain(&memory, Some(&orc), frame, false), ended);
    // Code without a rule.
    put(&memory, bp + 8, &[0xffff_ffff_c000_0000]);
    assert_eq!(chain(&memory, Some(&orc), frame, false).1, [false, true]);
    // A user task at the time of the sample has no kernel part.
    let user = Frame { ip: 0x5000, sp: 0x0f_ff00, bp: 0 };
    assert_eq!(chain(&memory, Some(&orc), user, true), ([vec![], vec![0x5000]], [true, true]));
}

#[test]
fn a_chain_without_a_table_says_so() {
    let memory = memory();
    let orc = tables(&[(TEXT, 5, 8, 0, 0, 2), (TEXT + 0x100, 0, 0, 0, 0, 1)]);
    put(&memory, STACK, &[0xffff_ffff_c000_0010, TEXT + 0x110]);
    let sregs = sregs();
    let none = ModuleTables::default();
    let flags = |modules: Option<&ModuleTables>, stack: u64| {
        put(&memory, STACK, &[stack]);
        let mut words = Words::new();
        words.begin(TEXT, 0);
        let frame = Frame { ip: TEXT, sp: STACK, bp: 0 };
        let tables = Some(Tables { kernel: &orc, modules });
        let mut space = Space::new(&memory, &sregs);
        follow(&mut space, tables, frame, Others::default(), false, Width::Bits64, &mut words)
    };
    let module = 0xffff_ffff_c000_0010;
    assert_eq!(flags(None, module), flag::KERNEL_BROKEN | flag::NO_TABLE | flag::NO_MODULES);
    assert_eq!(flags(Some(&none), module), flag::KERNEL_BROKEN | flag::NO_TABLE);
    assert_eq!(flags(None, 0x5000), flag::KERNEL_BROKEN, "no code of the kernel");
    assert_eq!(flags(None, TEXT + 0x110), 0);
}

#[test]
fn a_stack_that_leads_back_to_itself_ends_the_walk() {
    let memory = memory();
    // Every instruction: the caller's stack pointer is in memory, and leads here again.
    let orc = tables(&[(TEXT, 8, 0, 1, 0, 2), (TEXT + 0x1000, 8, 0, 1, 0, 2)]);
    put(&memory, STACK, &[STACK + 8, TEXT + 8, TEXT + 8, TEXT + 8]);
    let (chain, complete) = chain(&memory, Some(&orc), Frame { ip: TEXT, sp: STACK, bp: STACK }, false);
    assert!(chain[0].len() <= 126 && !complete[0], "{chain:x?}");
}
