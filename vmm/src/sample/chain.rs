//! The call chain of a sample: in a Linux kernel by its ORC tables, elsewhere by frame pointers.
//!
//! Every step moves up the stack, so that a stack of the guest's making ends the walk; it is marked as broken unless it ends
//! where a chain ends: at a frame pointer or a return address of 0, or at ORC's end.

use super::orc::{Base, Kind, Orc, Rule};
use super::queue::{Words, flag};
use crate::linear::Space;

/// Most steps, entries or not.
const MOST_STEPS: usize = 256;
/// Most bytes between two frames by frame pointers.
const MOST_APART: u64 = 1 << 20;
/// Start of the kernel's half of linear addresses.
const KERNEL: u64 = 1 << 63;

/// Linux's segment of 64-bit programs (__USER_CS).
const USER_CS: u64 = 0x33;

/// Offsets in `struct pt_regs`.
mod at {
    pub(super) const R13: u64 = 16;
    pub(super) const BP: u64 = 32;
    pub(super) const R10: u64 = 56;
    pub(super) const DX: u64 = 96;
    pub(super) const DI: u64 = 112;
    pub(super) const IP: u64 = 128;
    pub(super) const CS: u64 = 136;
    pub(super) const SP: u64 = 152;
}

/// The registers that a walk begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// Registers of ORC's bases beside SP and BP, where they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) dx: u64,
    pub(super) di: u64,
    pub(super) r10: u64,
    pub(super) r13: u64,
}

/// Adds the chain of the sample in `words` to it; returns the flags of the broken parts. `frame` says where the stack
/// is: the sample's own instruction may be the one before.
pub(super) fn follow(
    space: &Space<'_>,
    tables: Option<&Orc>,
    frame: Frame,
    others: Others,
    user: bool,
    words: &mut Words,
) -> u64 {
    let broken = |user: bool| if user { flag::USER_BROKEN } else { flag::KERNEL_BROKEN };
    if !words.first(user) {
        return broken(user);
    }
    match tables {
        Some(tables) if !user && frame.ip >= KERNEL || tables.code().contains(&frame.ip) => {
            match by_orc(space, tables, frame, others, user, words) {
                Ended::Complete => 0,
                Ended::Broken(user) => broken(user),
                Ended::NoTable => flag::KERNEL_BROKEN | flag::NO_TABLE,
                Ended::User(frame) if words.entry(true, frame.ip) && by_frame_pointers(space, frame, true, words) => 0,
                Ended::User(_) => flag::USER_BROKEN,
            }
        }
        _ if by_frame_pointers(space, frame, user, words) => 0,
        _ => broken(user),
    }
}

/// Follows frame pointers from the last entry on; returns whether the chain has an end.
fn by_frame_pointers(space: &Space<'_>, frame: Frame, user: bool, words: &mut Words) -> bool {
    let (mut bp, mut least) = (frame.bp, frame.sp);
    // The innermost function may not have its frame yet, or no more.
    match edge(space, frame.ip) {
        Edge::Inside => {}
        Edge::NoFrame => {
            let Some(caller) = space.u64(frame.sp) else { return false };
            if caller == 0 {
                return true;
            }
            if !words.entry(user, caller) {
                return false;
            }
        }
        Edge::Pushed => {
            let (Some(saved), Some(caller)) = (space.u64(frame.sp), space.u64(frame.sp.wrapping_add(8))) else {
                return false;
            };
            if caller == 0 {
                return true;
            }
            if !words.entry(user, caller) {
                return false;
            }
            bp = saved;
        }
    }
    for _ in 0..MOST_STEPS {
        if bp == 0 {
            return true;
        }
        if bp < least || bp - least > MOST_APART || bp % 8 != 0 {
            return false;
        }
        let (Some(saved), Some(caller)) = (space.u64(bp), space.u64(bp.wrapping_add(8))) else { return false };
        if caller == 0 {
            return true;
        }
        if !words.entry(user, caller) {
            return false;
        }
        let Some(above) = bp.checked_add(16) else { return false };
        least = above;
        bp = saved;
    }
    false
}

/// Place of an instruction in its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// The frame pointer is the function's.
    Inside,
    /// The return address is at the stack pointer, the frame pointer is the caller's.
    NoFrame,
    /// The caller's frame pointer was pushed, and the function's is not set.
    Pushed,
}

/// Looks at the code at `ip`: `push %rbp`, `mov %rsp,%rbp`, `ret`.
fn edge(space: &Space<'_>, ip: u64) -> Edge {
    let mut code = [0; 5];
    for (at, byte) in code.iter_mut().enumerate() {
        // After the last page there is no code.
        *byte = space.u8(ip.wrapping_add(at as u64)).unwrap_or(0);
    }
    match code {
        [0x55 | 0xc3 | 0xc2, ..] | [0xf3, 0x0f, 0x1e, 0xfa | 0xfb, 0x55] => Edge::NoFrame,
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => Edge::Pushed,
        _ => Edge::Inside,
    }
}

/// End of a walk through the kernel.
enum Ended {
    Complete,
    /// In code of the user's, or of the kernel's.
    Broken(bool),
    /// It ended at code of which no table is known.
    NoTable,
    /// It ended at the entry from a user task with these registers.
    User(Frame),
}

/// Follows ORC's rules from the last entry on as arch/x86/kernel/unwind_orc.c does.
fn by_orc(
    space: &Space<'_>,
    tables: &Orc,
    mut frame: Frame,
    others: Others,
    mut user: bool,
    words: &mut Words,
) -> Ended {
    let (mut others, mut interrupted, mut least) = (Some(others), true, frame.sp);
    for _ in 0..MOST_STEPS {
        // A return address may be behind the end of its function.
        let Some(rule) = tables.rule(frame.ip - u64::from(!interrupted)) else {
            return if frame.ip >= KERNEL { Ended::NoTable } else { Ended::Broken(user) };
        };
        match rule.kind {
            Kind::End => return Ended::Complete,
            Kind::Undefined => return Ended::Broken(user),
            Kind::Call | Kind::Registers | Kind::PartialRegisters => {}
        }
        let Some(sp) = stack_pointer(space, rule, frame, others) else { return Ended::Broken(user) };
        let base = frame.bp;
        let before = frame;
        match rule.kind {
            Kind::Call => {
                let Some(ip) = space.u64(sp.wrapping_sub(8)) else { return Ended::Broken(user) };
                frame = Frame { ip, sp, ..frame };
                (others, interrupted) = (None, false);
            }
            Kind::Registers | Kind::PartialRegisters => {
                let full = rule.kind == Kind::Registers;
                // An interrupt's frame alone lacks the rest of `pt_regs` below it.
                let registers = if full { sp } else { sp.wrapping_sub(at::IP) };
                let get = |offset: u64| space.u64(registers.wrapping_add(offset));
                let (Some(ip), Some(cs), Some(next)) = (get(at::IP), get(at::CS), get(at::SP)) else {
                    return Ended::Broken(user);
                };
                frame = Frame { ip, sp: next, ..frame };
                if full {
                    let (Some(bp), Some(dx), Some(di), Some(r10), Some(r13)) =
                        (get(at::BP), get(at::DX), get(at::DI), get(at::R10), get(at::R13))
                    else {
                        return Ended::Broken(user);
                    };
                    frame.bp = bp;
                    others = Some(Others { dx, di, r10, r13 });
                } else {
                    others = None;
                }
                interrupted = true;
                // Tables of all rings lead on, on another stack.
                if cs & 3 != 0 && tables.code().contains(&frame.ip) {
                    (user, least) = (true, frame.sp);
                } else if cs & 3 != 0 {
                    // The stack of a 32-bit program is not followed.
                    return if cs & 0xffff == USER_CS { Ended::User(frame) } else { Ended::Broken(true) };
                }
            }
            Kind::Undefined | Kind::End => return Ended::Broken(user),
        }
        let saved = match rule.bp.0 {
            Base::PreviousSp => Some(sp.wrapping_add_signed(rule.bp.1.into())),
            Base::Bp => Some(base.wrapping_add_signed(rule.bp.1.into())),
            _ => None,
        };
        if let Some(place) = saved {
            let Some(bp) = space.u64(place) else { return Ended::Broken(user) };
            frame.bp = bp;
        }
        if frame.ip == 0 {
            return Ended::Complete;
        }
        // One stack is left upwards only; a jump to another stack is a change to another task's or an interrupt's.
        let same_stack = frame.sp ^ before.sp < 0x4000 && frame.sp >= least;
        if frame == before || (frame.sp >> 14 == least >> 14 && frame.sp < least && !same_stack) {
            return Ended::Broken(user);
        }
        least = frame.sp;
        if !words.entry(user, frame.ip) {
            return Ended::Broken(user);
        }
    }
    Ended::Broken(user)
}

/// Returns the caller's stack pointer.
fn stack_pointer(space: &Space<'_>, rule: Rule, frame: Frame, others: Option<Others>) -> Option<u64> {
    let (base, offset) = rule.sp;
    let add = |register: u64| register.wrapping_add_signed(offset.into());
    Some(match base {
        Base::Sp => add(frame.sp),
        Base::Bp => add(frame.bp),
        Base::SpIndirect => add(space.u64(frame.sp)?),
        Base::BpIndirect => space.u64(add(frame.bp))?,
        Base::R10 => others?.r10,
        Base::R13 => others?.r13,
        Base::Di => others?.di,
        Base::Dx => others?.dx,
        Base::Undefined | Base::PreviousSp => return None,
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::super::orc::tests::tables;
    use super::super::queue::{Queue, Words};
    use super::*;
    use crate::linear::tests::long_mode;

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

    fn put(memory: &GuestMemoryMmap, at: u64, words: &[u64]) {
        for (n, word) in words.iter().enumerate() {
            memory.write_obj(*word, GuestAddress(at % 0x20_0000 + 8 * n as u64)).unwrap();
        }
    }

    fn chain(memory: &GuestMemoryMmap, orc: Option<&Orc>, frame: Frame, user: bool) -> ([Vec<u64>; 2], [bool; 2]) {
        let sregs = long_mode(0x1000);
        let space = Space::new(memory, &sregs);
        let mut words = Words::new();
        words.begin(frame.ip);
        let flags = follow(&space, orc, frame, Others::default(), user, &mut words);
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
            assert_eq!(
                chain(&memory, None, frame, true),
                ([vec![], vec![0x5000, 0x5001]], [true, false]),
                "{saved:#x}"
            );
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
        // push; endbr64, push; ret; mov %rsp,%rbp; another instruction, whose frame is set.
        for (code, stack, all) in [
            (&[0x55, 0, 0, 0][..], &[0x5001][..], true),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], &[0x5001], true),
            (&[0xc3, 0, 0, 0, 0], &[0x5001], true),
            (&[0x48, 0x89, 0xe5], &[0x10_0000, 0x5001], true),
            (&[0x90, 0x90, 0x90], &[0x5001], false),
        ] {
            memory.write_slice(code, GuestAddress(0x5000)).unwrap();
            put(&memory, 0x0f_ff00, stack);
            let found = chain(&memory, None, Frame { ip: 0x5000, sp: 0x0f_ff00, bp: 0x10_0000 }, false).0[0].clone();
            let expected = if all { vec![0x5000, 0x5001, 0x5002] } else { vec![0x5000, 0x5002] };
            assert_eq!(found, expected, "{code:x?}");
        }
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
        // The stack of a 32-bit program is not followed.
        put(&memory, bp + 16 + 8 * 17, &[0x23]);
        assert_eq!(chain(&memory, Some(&orc), frame, false), ([whole.0[0].clone(), vec![]], [true, false]));
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
    fn a_chain_without_a_table_says_so_and_a_circle_ends() {
        let memory = memory();
        let sregs = long_mode(0x1000);
        let leaf = tables(&[(TEXT, 5, 8, 0, 0, 2), (TEXT + 0x100, 0, 0, 0, 0, 1)]);
        // Every instruction: the caller's stack pointer is in memory, and leads here again.
        let circle = tables(&[(TEXT, 8, 0, 0, 0, 2), (TEXT + 0x1000, 0, 0, 0, 0, 1)]);
        let no_table = flag::KERNEL_BROKEN | flag::NO_TABLE;
        for (orc, stack, flags, what) in [
            (&leaf, &[0xffff_ffff_c000_0010][..], no_table, "a module's code"),
            (&leaf, &[0x5000], flag::KERNEL_BROKEN, "no code of the kernel"),
            (&leaf, &[TEXT + 0x110], 0, "the end"),
            (&circle, &[STACK + 16, TEXT + 8], flag::KERNEL_BROKEN, "a circle"),
        ] {
            put(&memory, STACK, stack);
            let mut words = Words::new();
            words.begin(TEXT);
            let frame = Frame { ip: TEXT, sp: STACK, bp: STACK };
            let space = Space::new(&memory, &sregs);
            assert_eq!(follow(&space, Some(orc), frame, Others::default(), false, &mut words), flags, "{what}");
        }
    }
}
