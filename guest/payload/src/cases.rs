//! The conformance cases: `cases.txt`, whose head has its syntax, and the steps by which the payload plays them.

use alloc::vec::Vec;

use crate::abi::{
    CONFORMANCE_PASS, CONFORMANCE_SKIP, CaseState, FLAG_COUNTS_EVENTS, FLAG_COUNTS_EXACT, FLAG_PERFMON_V2,
    FLAG_PMU_AMD, FLAG_PMU_V4, PLAY_ABOVE, PLAY_AT_LEAST, PLAY_AT_MOST, PLAY_AWAY, PLAY_BELOW, PLAY_CASE, PLAY_CLI,
    PLAY_CPUID, PLAY_EQUAL, PLAY_FAULTS, PLAY_FRESH, PLAY_HALT, PLAY_HAS, PLAY_HLT, PLAY_KEEP, PLAY_KEPT, PLAY_LOOP,
    PLAY_NEAR, PLAY_NOPS, PLAY_PMI, PLAY_RDPMC, PLAY_READ, PLAY_RING3, PLAY_SPEND, PLAY_STATE, PLAY_STI, PLAY_TAKEN,
    PLAY_TEXT_SHIFT, PLAY_TRY, PLAY_WAIT, PLAY_WRITE, Step,
};

const TEXT: &str = include_str!("../cases.txt");

/// What a case can ask for: its word, and the reason why the case is skipped elsewhere.
pub const NEEDS: [(&str, &str); 7] = [
    ("counts", "needs backend step or hardware: a stand-in counts something else"),
    ("exact", "needs backend step: only it is exact to the instruction"),
    ("cycles", "backend step knows no cycles"),
    ("v4", "needs a version 4 PMU"),
    ("v2", "needs a PMU below version 4"),
    ("perfmon", "needs PerfMonV2"),
    ("core", "needs a PMU without PerfMonV2"),
];

/// Operators by how strongly they bind.
const OPERATORS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<"], &["+", "-"], &["*"]];
const SHIFT: usize = 3;

const COMPARISONS: [(&str, u64); 6] = [
    ("==", PLAY_EQUAL),
    ("<", PLAY_BELOW),
    (">", PLAY_ABOVE),
    ("<=", PLAY_AT_MOST),
    (">=", PLAY_AT_LEAST),
    ("has", PLAY_HAS),
];

/// Operations by their words, and whether a place follows.
const OPERATIONS: [(&str, u64, bool); 16] = [
    ("keep", PLAY_KEEP, true),
    ("wait", PLAY_WAIT, true),
    ("try", PLAY_TRY, true),
    ("rdpmc", PLAY_RDPMC, true),
    ("cpuid", PLAY_CPUID, true),
    ("loop", PLAY_LOOP, true),
    ("nops", PLAY_NOPS, true),
    ("halt", PLAY_HALT, true),
    ("pmi", PLAY_PMI, true),
    ("spend", PLAY_SPEND, false),
    ("fresh", PLAY_FRESH, false),
    ("sti", PLAY_STI, false),
    ("cli", PLAY_CLI, false),
    ("hlt", PLAY_HLT, false),
    ("away", PLAY_AWAY, false),
    ("ring3", PLAY_RING3, false),
];

/// A word or sign, where it stands in the text.
type Token = &'static str;

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its stable name.
    pub key: &'static str,
    /// Statement that holds if the case passes.
    pub claim: &'static str,
    /// Source of the rule.
    pub source: &'static str,
    /// Numbers in `docs/pitfalls.md` of the bugs it would show.
    pub pitfalls: Vec<&'static str>,
}

impl Case {
    /// Returns whether it is of an AMD's PMU.
    pub fn is_amd(&self) -> bool {
        is_amd(self.key)
    }
}

fn is_case(head: &str) -> bool {
    head.contains(" | ")
}

fn is_amd(head: &str) -> bool {
    head.starts_with("amd-")
}

/// Returns the cases in their order, those of an AMD's PMU last.
pub fn cases() -> Vec<Case> {
    let parts = parts().into_iter();
    let case = |head: &'static str| {
        let mut fields = head.split(" | ");
        let [key, claim, source, pitfalls] = [(); 4].map(|()| fields.next().unwrap_or_default());
        Case { key, claim, source, pitfalls: pitfalls.split_whitespace().collect() }
    };
    parts.filter(|(head, _)| is_case(head)).map(|(head, _)| case(head)).collect()
}

/// Returns why a case was skipped, for what its result says.
pub fn why_skipped(need: u64) -> &'static str {
    let need = usize::try_from(need).ok().and_then(|at| NEEDS.get(at));
    need.map_or("the guest gave no reason this tool knows", |(_, reason)| reason)
}

/// Returns the line, and the words, of the step that begins at a byte of the text.
pub fn step_at(byte: u64) -> (usize, &'static str) {
    let (before, rest) = usize::try_from(byte).ok().and_then(|at| TEXT.split_at_checked(at)).unwrap_or_default();
    let step = rest.split([';', '{', '}', '\n']).next().unwrap_or_default();
    (1 + before.matches('\n').count(), step.split('#').next().unwrap_or_default().trim())
}

/// Returns the parts of the text, which begin in the first column, each with what is below it.
fn parts() -> Vec<(&'static str, Vec<Token>)> {
    let mut parts: Vec<(_, Vec<_>)> = Vec::new();
    for line in TEXT.lines() {
        let mut rest = line;
        if !line.is_empty() && !line.starts_with([' ', '#']) {
            let (name, value) = line.split_once(" := ").unwrap_or((line, ""));
            parts.push((name, Vec::new()));
            rest = value;
        }
        let Some((_, tokens)) = parts.last_mut() else { continue };
        rest = rest.split('#').next().unwrap_or_default().trim();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else {
                1 + usize::from(["==", "<=", ">=", "<<"].iter().any(|sign| rest.starts_with(sign)))
            };
            let (token, after) = rest.split_at(length);
            tokens.push(token);
            rest = after.trim_start();
        }
        tokens.push(";");
    }
    parts
}

/// Returns what the payload plays for the PMU and counts of these flags of its boot page.
pub fn steps(flags: u64) -> Vec<Step> {
    let parts = parts();
    let is_amd = flags & FLAG_PMU_AMD != 0;
    let (reset, stop) = if is_amd { ("@amd_reset", "@amd_stop") } else { ("@reset", "@stop") };
    let mut script = Script { flags, parts: &parts, locals: Vec::new(), steps: Vec::new() };
    let cases = parts.iter().filter(|(head, _)| is_case(head) && self::is_amd(head) == is_amd);
    for (number, (_, tokens)) in cases.enumerate() {
        let needs = match tokens[..] {
            [_, "needs", word, ..] => NEEDS.iter().position(|(need, _)| *need == word),
            _ => None,
        };
        let missing = needs.filter(|at| script.known(NEEDS[*at].0) == Some(0));
        let value = if missing.is_some() { CONFORMANCE_SKIP } else { CONFORMANCE_PASS };
        script.steps.push(Step { what: PLAY_CASE | number as u64, value, think: missing.unwrap_or_default() as u64 });
        if missing.is_none() {
            // The first case looks at what RESET leaves.
            if number > 0 {
                script.part(reset);
            }
            script.statements(&tokens[if needs.is_some() { 3 } else { 0 }..]);
            script.part(stop);
        }
    }
    script.steps
}

/// A value: bits, periods that are soon over, and whether it is relative to what was kept.
#[derive(Clone, Copy, Default)]
struct Value {
    fixed: u64,
    near: u64,
    kept: bool,
}

struct Script<'a> {
    flags: u64,
    parts: &'a [(&'static str, Vec<Token>)],
    locals: Vec<(&'static str, u64)>,
    steps: Vec<Step>,
}

fn take(tokens: &mut &[Token]) -> Token {
    let (first, rest) = tokens.split_first().expect("a statement ends with its line");
    *tokens = rest;
    first
}

fn accept(tokens: &mut &[Token], wanted: &str) -> bool {
    let is_there = tokens.first().is_some_and(|token| *token == wanted);
    if is_there {
        take(tokens);
    }
    is_there
}

/// Takes a block in braces.
fn block<'t>(tokens: &mut &'t [Token]) -> &'t [Token] {
    assert!(accept(tokens, "{"), "a block begins with {{, not {tokens:?}");
    let inside = *tokens;
    let mut depth = 1;
    while depth > 0 {
        match take(tokens) {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    &inside[..inside.len() - tokens.len() - 1]
}

impl Script<'_> {
    fn part(&mut self, name: &str) {
        let (_, tokens) = self.parts.iter().find(|(head, _)| *head == name).unwrap_or_else(|| panic!("no {name}"));
        self.statements(tokens);
    }

    fn known(&self, word: &str) -> Option<u64> {
        let is = |flag| u64::from(self.flags & flag != 0);
        Some(match word {
            "v4" => is(FLAG_PMU_V4),
            "v2" => 1 - is(FLAG_PMU_V4),
            "perfmon" => is(FLAG_PERFMON_V2),
            "core" => 1 - is(FLAG_PERFMON_V2),
            "exact" => is(FLAG_COUNTS_EXACT),
            "cycles" => 1 - is(FLAG_COUNTS_EXACT),
            "counts" => is(FLAG_COUNTS_EXACT | FLAG_COUNTS_EVENTS),
            _ => return None,
        })
    }

    fn atom(&mut self, tokens: &mut &[Token]) -> Value {
        let word = take(tokens);
        let fixed = match word {
            "(" => {
                let value = self.expression(tokens, 0);
                assert!(accept(tokens, ")"), "a parenthesis is open before {tokens:?}");
                return value;
            }
            "-" => {
                let Value { fixed, near, kept } = self.atom(tokens);
                return Value { fixed: fixed.wrapping_neg(), near: near.wrapping_neg(), kept };
            }
            "~" => !self.atom(tokens).fixed,
            "near" => return Value { near: 1, ..Value::default() },
            "kept" => return Value { kept: true, ..Value::default() },
            _ => {
                let digits = word.strip_prefix("0x");
                let number = digits.map_or_else(|| word.parse(), |digits| u64::from_str_radix(digits, 16)).ok();
                let local = || self.locals.iter().rev().find(|(name, _)| *name == word).map(|(_, value)| *value);
                number.or_else(local).or_else(|| self.known(word)).or_else(|| state(word)).unwrap_or_else(|| {
                    let part = self.parts.iter().find(|(name, _)| *name == word);
                    let (_, tokens) = part.unwrap_or_else(|| panic!("what is {word} before {tokens:?}?"));
                    self.expression(&mut &tokens[..], 0).fixed
                })
            }
        };
        Value { fixed, ..Value::default() }
    }

    /// Takes an expression of operators that bind at least so strongly.
    fn expression(&mut self, tokens: &mut &[Token], least: usize) -> Value {
        let mut left = self.atom(tokens);
        while let Some(&sign) = tokens.first()
            && let Some(strength) = OPERATORS.iter().position(|signs| signs.contains(&sign))
            && strength >= least
        {
            take(tokens);
            let right = self.expression(tokens, strength + 1);
            let apply = |left: u64, right: u64| match sign {
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "<<" => left << right,
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
            let near = if sign == "*" { left.fixed.wrapping_mul(right.near) } else { apply(left.near, right.near) };
            left = Value { fixed: apply(left.fixed, right.fixed), near, kept: left.kept || right.kept };
        }
        left
    }

    fn statements(&mut self, mut tokens: &[Token]) {
        while let Some(&word) = tokens.first() {
            match (word, tokens.get(1)) {
                (";", _) => {
                    take(&mut tokens);
                }
                ("@", Some(name)) => {
                    tokens = &tokens[2..];
                    let part = self.parts.iter().find(|(head, _)| head.strip_prefix('@') == Some(name));
                    let (_, part) = part.unwrap_or_else(|| panic!("what is @{name}?"));
                    self.statements(part);
                }
                ("if", _) => {
                    take(&mut tokens);
                    let condition = self.expression(&mut tokens, 0).fixed;
                    let inside = block(&mut tokens);
                    if condition != 0 {
                        self.statements(inside);
                    }
                }
                (name, Some(&"of")) => {
                    tokens = &tokens[2..];
                    let set = self.expression(&mut tokens, 0).fixed;
                    let inside = block(&mut tokens);
                    for bit in (0..64).filter(|bit| set >> bit & 1 == 1) {
                        self.locals.push((name, bit));
                        self.statements(inside);
                        self.locals.pop();
                    }
                }
                _ => self.step(&mut tokens),
            }
        }
    }

    /// Takes what a step writes or is compared with.
    fn value(&mut self, tokens: &mut &[Token], step: &mut Step) {
        let Value { fixed, near, kept } = self.expression(tokens, 0);
        step.value = fixed;
        if near != 0 {
            step.think = near;
            step.what |= PLAY_NEAR;
        }
        if kept {
            step.what |= PLAY_KEPT;
        }
    }

    fn step(&mut self, tokens: &mut &[Token]) {
        let word = tokens[0];
        let byte = (word.as_ptr().addr() - TEXT.as_ptr().addr()) as u64;
        let named = OPERATIONS.iter().find(|(name, ..)| *name == word);
        let mut step = Step { what: byte << PLAY_TEXT_SHIFT, ..Step::default() };
        if named.is_some() {
            take(tokens);
        }
        if named.is_none_or(|(.., has_place)| *has_place) {
            let place = self.expression(tokens, SHIFT);
            step.what |= if place.kept { state("kept").unwrap_or_default() } else { place.fixed & 0xffff_ffff };
        }
        if accept(tokens, "&") {
            step.think = !self.expression(tokens, SHIFT).fixed;
        }
        let named = named.map(|(_, operation, _)| *operation);
        let compared = COMPARISONS.iter().find(|(sign, _)| accept(tokens, sign));
        let is_about = accept(tokens, "about");
        let is_write = accept(tokens, "=");
        step.what |= named.unwrap_or(if is_write { PLAY_WRITE } else { PLAY_READ });
        step.what |= compared.map_or(0, |(_, comparison)| *comparison);
        if compared.is_some() || is_about || is_write {
            self.value(tokens, &mut step);
        }
        if accept(tokens, ",") {
            step.think = self.expression(tokens, 0).fixed;
        }
        for (word, flag) in [("faults", PLAY_FAULTS), ("taken", PLAY_TAKEN)] {
            step.what |= if accept(tokens, word) { flag } else { 0 };
        }
        let at = self.steps.len();
        if !is_about {
            self.steps.push(step);
        } else if self.known("exact") == Some(1) {
            self.steps.push(Step { what: step.what | PLAY_EQUAL, ..step });
        } else {
            // Hardware starts and stops with the exits around the WRMSRs, so a few instructions of slack.
            self.steps.push(Step { what: step.what | PLAY_AT_LEAST, ..step });
            let most = step.value + step.value / 50 + 50;
            self.steps.push(Step { what: step.what | PLAY_AT_MOST, value: most, ..step });
        }
        if named == Some(PLAY_PMI) {
            self.statements(block(tokens));
            self.steps[at].think = (self.steps.len() - at - 1) as u64;
        }
        assert!(tokens.is_empty() || accept(tokens, ";"), "the step ends before {tokens:?}");
    }
}

/// Returns the place of a word that a case can read and write.
fn state(word: &str) -> Option<u64> {
    let field = CaseState::OFFSETS.iter().find(|(name, _)| *name == word);
    field.map(|(_, offset)| PLAY_STATE + *offset as u64 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{CONFORMANCE_CASES, PLAY_COMPARISON, PLAY_OPERATION};

    /// Every PMU and every kind of counts: nothing is written in a way that the script does not know.
    #[test]
    fn every_case_has_steps() {
        for pmu in [0, FLAG_PMU_V4, FLAG_PMU_AMD, FLAG_PMU_AMD | FLAG_PERFMON_V2] {
            for counts in [0, FLAG_COUNTS_EXACT, FLAG_COUNTS_EVENTS] {
                let steps = steps(pmu | counts);
                let begins = |step: &Step| step.what & PLAY_OPERATION == PLAY_CASE;
                let is_bare = |two: &[Step]| begins(&two[0]) && two[0].value == CONFORMANCE_PASS && begins(&two[1]);
                assert!(steps.len() > 400 && !steps.windows(2).any(is_bare) && !begins(steps.last().unwrap()));
            }
        }
        assert!(cases().len() <= CONFORMANCE_CASES && TEXT.len() < 1 << 16);
    }

    fn played(text: &str) -> Vec<Step> {
        let steps = steps(FLAG_COUNTS_EVENTS);
        let first = TEXT.find(text).unwrap() as u64;
        let of_line = first..first + text.len() as u64;
        steps.into_iter().filter(|step| of_line.contains(&(step.what >> PLAY_TEXT_SHIFT))).collect()
    }

    #[test]
    fn a_step_is_what_its_line_says() {
        let text = "PERFEVTSEL = COUNT; GLOBAL_CTRL = 1; spend; PERFEVTSEL = BOTH; keep PMC > 0; spend; PMC == kept";
        let words = |what: u64, value| Step { what, value, think: 0 };
        let bare = |step: Step| Step { what: step.what & ((1 << PLAY_TEXT_SHIFT) - 1), ..step };
        let found: Vec<_> = played(text).into_iter().map(bare).collect();
        assert_eq!(
            found,
            [
                words(PLAY_WRITE | 0x186, 0x43_00c0),
                words(PLAY_WRITE | 0x38f, 1),
                words(PLAY_SPEND, 0),
                words(PLAY_WRITE | 0x186, 0x3_00c0),
                words(PLAY_KEEP | PLAY_ABOVE | 0xc1, 0),
                words(PLAY_SPEND, 0),
                words(PLAY_READ | PLAY_EQUAL | PLAY_KEPT | 0xc1, 0),
            ]
        );
        let (line, keep) = step_at(played(text)[4].what >> PLAY_TEXT_SHIFT);
        assert_eq!((keep, step_at(u64::MAX)), ("keep PMC > 0", (1, "")));
        assert!(TEXT.lines().nth(line - 1).unwrap().ends_with(text));
        // A loop, a period below the overflow, and slack.
        let near = played("n of 3 { PERFEVTSEL+n = COUNT; A_PMC+n = -near }");
        let places: Vec<_> = near.iter().map(|step| step.what as u32).collect();
        assert_eq!(places, [0x186, 0x4c1, 0x187, 0x4c2]);
        assert_eq!((near[1].value, near[1].think, near[1].what & PLAY_NEAR), (0, u64::MAX, PLAY_NEAR));
        let slack = played("FIXED_CTR_CTRL = 1; loop GLOBAL_CTRL = 1<<32, 100; FIXED_CTR about 405");
        let slack: Vec<_> = slack.iter().map(|step| (step.what & PLAY_COMPARISON, step.value, step.think)).collect();
        assert_eq!(slack, [(0, 1, 0), (0, 1 << 32, 100), (PLAY_AT_LEAST, 405, 0), (PLAY_AT_MOST, 463, 0)]);
        // The steps of a handler follow it.
        let orders = played("pmi 7 { GLOBAL_CTRL = 0; OVF_CTRL = 1; A_PMC = -near; LVTPC = NMI; GLOBAL_CTRL = 1 }")[0];
        assert_eq!((orders.what & PLAY_OPERATION, orders.what as u32, orders.think), (PLAY_PMI, 7, 5));
    }

    /// What a case needs is why it is skipped.
    #[test]
    fn a_case_that_cannot_be_decided_says_why() {
        let is_skipped = |step: &Step| step.what & PLAY_OPERATION == PLAY_CASE && step.value == CONFORMANCE_SKIP;
        let skipped = |flags| {
            let skipped = steps(flags).into_iter().filter(is_skipped);
            skipped.map(|step| NEEDS[usize::try_from(step.think).unwrap()].0).collect::<Vec<_>>()
        };
        let count = |flags, word| skipped(flags).iter().filter(|need| **need == word).count();
        let (intel, _) = TEXT.split_once("\namd-").unwrap();
        let asked = |word| intel.lines().filter(|line| line.trim().strip_prefix("needs ") == Some(word)).count();
        for word in ["counts", "exact", "v4"] {
            assert_eq!((count(0, word), asked(word) > 0), (asked(word), true), "{word}");
        }
        assert_eq!(count(0, "v2"), 0);
        assert_eq!(skipped(FLAG_PMU_V4 | FLAG_COUNTS_EXACT), ["v2", "cycles", "cycles", "v2"]);
        assert_eq!(skipped(FLAG_PMU_AMD | FLAG_PERFMON_V2 | FLAG_COUNTS_EXACT), ["core"]);
    }
}
