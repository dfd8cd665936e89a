//! Programs of classic BPF that decide on system calls.
//!
//! The kernel runs every program of a thread at each call whose arguments some program reads, so rules stand in the order of how often they
//! are asked, and one program gives all answers.

use libc::sock_filter;

/// AUDIT_ARCH_X86_64 of <linux/audit.h>.
const X86_64: u32 = 0xc000_003e;
/// Numbers from here on are those of the x32 ABI: the same calls once more.
const X32: u32 = 0x4000_0000;

// Offsets in struct seccomp_data.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

// Instructions of <linux/bpf_common.h>.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Stands for the way to the next alternative until that is known.
const FAIL: u8 = u8::MAX;

/// Answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// It fails with this error number.
    Refuse(u16),
    /// SIGSYS to the thread.
    Trap,
    /// The process ends at once.
    Kill,
}

impl Verdict {
    const fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Refuse(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Self::Trap => libc::SECCOMP_RET_TRAP,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A condition on one argument, by its position.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// An int is one of these.
    OneOf(u8, Vec<u32>),
    /// None of these bits is set.
    Lacks(u8, u32),
    /// An int, unsigned, has at least this value.
    AtLeast(u8, u32),
    /// An address is this one or above.
    From(u8, u32),
    /// An address is exactly this one.
    At(u8, u32),
}

/// A decision on one call: `then` if all tests of some alternative hold, else `otherwise`. Without alternatives always `then`.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) call: i64,
    pub(super) any: Vec<Vec<Test>>,
    pub(super) then: Verdict,
    pub(super) otherwise: Verdict,
}

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn answer(verdict: Verdict) -> sock_filter {
    instruction(RETURN, verdict.code(), 0, 0)
}

/// Returns the offset of the lower half of an argument; the upper one is behind it.
const fn argument(position: u8) -> u32 {
    16 + 8 * position as u32
}

impl Test {
    fn compile(&self, into: &mut Vec<sock_filter>) {
        match self {
            Self::OneOf(position, values) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                for (number, &value) in values.iter().enumerate() {
                    let after = values.len() - number - 1;
                    into.push(instruction(IF_EQUAL, value, after as u8, if after == 0 { FAIL } else { 0 }));
                }
            }
            Self::Lacks(position, bits) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_ANY_BIT, *bits, FAIL, 0));
            }
            Self::AtLeast(position, value) => {
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_AT_LEAST, *value, 0, FAIL));
            }
            Self::From(position, value) => {
                into.push(instruction(LOAD, argument(*position) + 4, 0, 0));
                into.push(instruction(IF_EQUAL, 0, 0, 2));
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_AT_LEAST, *value, 0, FAIL));
            }
            Self::At(position, value) => {
                into.push(instruction(LOAD, argument(*position) + 4, 0, 0));
                into.push(instruction(IF_EQUAL, 0, 0, FAIL));
                into.push(instruction(LOAD, argument(*position), 0, 0));
                into.push(instruction(IF_EQUAL, *value, 0, FAIL));
            }
        }
    }
}

impl Rule {
    /// Instructions that always answer.
    fn compile(&self) -> Vec<sock_filter> {
        let mut all = Vec::new();
        for alternative in &self.any {
            let begin = all.len();
            for test in alternative {
                test.compile(&mut all);
            }
            let end = all.len();
            for (at, jump) in all.iter_mut().enumerate().skip(begin).filter(|(_, one)| one.code != LOAD) {
                let over = (end - at) as u8;
                for way in [&mut jump.jt, &mut jump.jf] {
                    *way = if *way == FAIL { over } else { *way };
                }
            }
            all.push(answer(self.then));
        }
        all.push(answer(if self.any.is_empty() { self.then } else { self.otherwise }));
        all
    }
}

/// Builds a program of `rules` in their order; `rest` for all other calls, and `foreign` for those of another ABI.
pub(super) fn program(rules: &[Rule], rest: Verdict, foreign: Verdict) -> Vec<sock_filter> {
    let mut all = vec![
        instruction(LOAD, ARCHITECTURE, 0, 0),
        instruction(IF_EQUAL, X86_64, 1, 0),
        answer(foreign),
        instruction(LOAD, NUMBER, 0, 0),
    ];
    for rule in rules {
        let body = rule.compile();
        let over = u8::try_from(body.len()).expect("a rule shorter than the longest jump");
        all.push(instruction(IF_EQUAL, rule.call.cast_unsigned() as u32, 0, over));
        all.extend(body);
    }
    all.extend([instruction(IF_AT_LEAST, X32, 0, 1), answer(foreign), answer(rest)]);
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the answer of `program` to a call, and the number of instructions it took.
    pub(in super::super) fn decide(program: &[sock_filter], call: i64, arguments: [u64; 6]) -> (u32, usize) {
        let mut data = vec![call.cast_unsigned() as u32, X86_64, 0, 0];
        data.extend(arguments.iter().flat_map(|value| [*value as u32, (value >> 32) as u32]));
        let (mut at, mut loaded) = (0, 0);
        for steps in 1.. {
            let sock_filter { code, jt, jf, k } = program[at];
            let holds = match code {
                LOAD => {
                    loaded = data[k as usize / 4];
                    at += 1;
                    continue;
                }
                RETURN => return (k, steps),
                IF_EQUAL => loaded == k,
                IF_AT_LEAST => loaded >= k,
                IF_ANY_BIT => loaded & k != 0,
                _ => panic!("instruction {code:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
        unreachable!("a program ends")
    }

    #[test]
    fn each_test_reads_its_argument_and_alternatives_are_tried_in_turn() {
        let rule = |any| Rule { call: 7, any, then: Verdict::Allow, otherwise: Verdict::Kill };
        let allows = |any: Vec<Vec<Test>>, arguments: [u64; 3]| {
            let program = program(&[rule(any)], Verdict::Trap, Verdict::Kill);
            let [a, b, c] = arguments;
            decide(&program, 7, [a, b, c, 0, 0, 0]).0 == Verdict::Allow.code()
        };
        let high = 1 << 32;
        let one_of = || vec![vec![Test::OneOf(1, vec![3, 5, 9])]];
        for (value, allowed) in [(3, true), (5, true), (9, true), (4, false), (high | 5, true)] {
            assert_eq!(allows(one_of(), [5, value, 5]), allowed, "{value}");
        }
        for (value, allowed) in [(0, true), (2, true), (4, false), (7, false)] {
            assert_eq!(allows(vec![vec![Test::Lacks(2, 4)]], [4, 4, value]), allowed, "{value}");
        }
        for (value, allowed) in [(2, false), (3, true), (u64::MAX, true)] {
            assert_eq!(allows(vec![vec![Test::AtLeast(0, 3)]], [value, 0, 0]), allowed, "{value}");
        }
        for (value, allowed) in [(0x3f_ffff, false), (0x40_0000, true), (high, true)] {
            assert_eq!(allows(vec![vec![Test::From(0, 0x40_0000)]], [value, 0, 0]), allowed, "{value:#x}");
        }
        for (value, allowed) in [(0x10_0000, true), (high | 0x10_0000, false), (0x10_0008, false)] {
            assert_eq!(allows(vec![vec![Test::At(2, 0x10_0000)]], [0, 0, value]), allowed, "{value:#x}");
        }
        let both = || vec![vec![Test::OneOf(0, vec![1]), Test::Lacks(1, 1)], vec![Test::AtLeast(0, 8)]];
        for (arguments, allowed) in [([1, 0, 0], true), ([1, 1, 0], false), ([8, 1, 0], true), ([2, 0, 0], false)] {
            assert_eq!(allows(both(), arguments), allowed, "{arguments:?}");
        }
    }

    #[test]
    fn calls_without_a_rule_and_those_of_another_abi_are_told_apart() {
        let rule = Rule { call: 7, any: Vec::new(), then: Verdict::Refuse(13), otherwise: Verdict::Allow };
        let program = program(&[rule], Verdict::Allow, Verdict::Kill);
        let of = |call| decide(&program, call, [0; 6]).0;
        assert_eq!([of(7), of(8)], [Verdict::Refuse(13).code(), Verdict::Allow.code()]);
        assert_eq!(of(i64::from(X32) | 8), Verdict::Kill.code());
    }
}
