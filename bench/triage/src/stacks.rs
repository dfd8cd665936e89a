//! Call chains folded to stacks, and where most of them leave the program.

use std::collections::HashMap;
use std::hash::Hash;

use crate::account::{Broken, Found, Leaf, Sampling, Stack};
use crate::sampling::{Chain, Ended, Losses, STACK};
use crate::symbols::Frame;

/// Stacks, and functions, that an account keeps.
const MOST: usize = 20;
const MOST_FUNCTIONS: usize = 200;
/// The scheduler's functions, which are below every wait, and those on the way into the kernel: by their beginning.
const COMMON: [&str; 17] = [
    "__schedule",
    "schedule",
    "preempt_schedule",
    "__cond_resched",
    "io_schedule",
    "do_sched_yield",
    "perf_",
    "__perf_",
    "__traceiter",
    "asm_",
    "sysvec_",
    "irqentry_",
    "exit_to_user_mode",
    "syscall_",
    "do_syscall_64",
    "entry_SYSCALL",
    "ret_from_fork",
];

/// Counts the places of the chains. `program` is the name of the workload's own file.
pub fn fold(event: &str, period: u64, chains: &[Chain], losses: Losses, program: &str) -> Sampling {
    let stacks = counted(chains.iter().map(|chain| &chain.frames));
    let broken = counted(chains.iter().filter_map(|chain| end(&chain.ended)));
    let leaving: Vec<Leaving> = chains.iter().map(|chain| leaving(&chain.frames, program)).collect();
    let all = chains.len();
    Sampling {
        event: event.to_owned(),
        period,
        samples: all,
        lost: losses.lost,
        damaged: losses.damaged,
        throttled: losses.throttled,
        complete: all - broken.iter().map(|(_, samples)| samples).sum::<usize>(),
        broken: broken.into_iter().map(|(at, samples)| Broken { at, samples }).collect(),
        stacks: stacks
            .into_iter()
            .take(MOST)
            .map(|(frames, samples)| Stack { samples, frames: frames.clone() })
            .collect(),
        functions: counted(chains.iter().filter_map(|chain| chain.frames.first()))
            .into_iter()
            .take(MOST_FUNCTIONS)
            .map(|(function, samples)| Leaf { samples, function: function.clone() })
            .collect(),
        found: found(&leaving),
    }
}

/// Counts each item, the most frequent first; equals in their own order.
fn counted<T: Hash + Eq + Ord>(items: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    counts
}

fn end(ended: &Ended) -> Option<String> {
    match ended {
        Ended::Bottom | Ended::Kernel => None,
        Ended::Beyond => Some(format!("the end of the {STACK} bytes of stack that are copied")),
        Ended::Broken(frame) => Some(format!("{} ({})", frame.symbol, frame.module)),
    }
}

/// Finds the most frequent way out of the program, and what the kernel does most often below it.
fn found(all: &[Leaving]) -> Option<Found> {
    let (way, samples) = counted(all.iter().map(|(way, _)| way)).into_iter().next()?;
    let below = all.iter().filter(|(other, _)| other == way).filter_map(|(_, kernel)| kernel.as_ref());
    let (kernel, kernel_samples) = counted(below).into_iter().next().unzip();
    let (called, program) = way.clone();
    let kernel_samples = kernel_samples.unwrap_or(0);
    Some(Found { samples, called, program, kernel: kernel.cloned(), kernel_samples })
}

/// The library's and the program's function; the kernel's.
type Leaving = ((Option<Frame>, Option<Frame>), Option<Frame>);

/// Finds the library's function that the program calls, the program's innermost function, and what the kernel does below.
fn leaving(frames: &[Frame], program: &str) -> Leaving {
    let at = frames.iter().position(|frame| frame.module == program);
    let called = at.and_then(|at| at.checked_sub(1)).map(|before| &frames[before]).filter(|frame| !frame.in_kernel());
    let is_common = |frame: &Frame| COMMON.iter().any(|name| frame.symbol.starts_with(name));
    let kernel = frames.iter().take_while(|frame| frame.in_kernel()).find(|frame| !is_common(frame));
    ((called.cloned(), at.map(|at| frames[at].clone())), kernel.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::KERNEL;

    fn chain(names: &[(&str, &str)], ended: Ended) -> Chain {
        let frame = |(symbol, module): &(&str, &str)| Frame { symbol: (*symbol).into(), module: (*module).into() };
        Chain { frames: names.iter().map(frame).collect(), ended }
    }

    #[test]
    fn the_way_out_of_the_program_is_named() {
        let waits = [
            ("__schedule", KERNEL),
            ("schedule", KERNEL),
            ("futex_wait", KERNEL),
            ("do_syscall_64", KERNEL),
            ("__lll_lock_wait_private", "libc.so.6"),
            ("random", "libc.so.6"),
            ("rand", "libc.so.6"),
            ("draw_shared", "vpmu"),
            ("start_thread", "libc.so.6"),
        ];
        let spins = [("spin_lock", "vpmu"), ("start_thread", "libc.so.6")];
        let broken = Ended::Broken(Frame { symbol: "f".into(), module: "x.so".into() });
        let preempted = [&[("schedule", KERNEL), ("irqentry_exit_to_user_mode", KERNEL)], &waits[5..]].concat();
        let chains = [
            chain(&waits, Ended::Bottom),
            chain(&spins, Ended::Beyond),
            chain(&waits, Ended::Bottom),
            chain(&preempted, Ended::Bottom),
            chain(&[("f", "x.so")], broken),
        ];
        let found = fold("context-switches", 7, &chains, Losses { lost: 3, ..Losses::default() }, "vpmu");
        assert_eq!((found.samples, found.complete, found.lost, found.period), (5, 3, 3, 7));
        assert_eq!((found.stacks[0].samples, found.stacks[0].frames.len()), (2, 9));
        let names: Vec<_> = found.broken.iter().map(|broken| broken.at.as_str()).collect();
        assert_eq!(names, ["f (x.so)", "the end of the 8192 bytes of stack that are copied"]);
        let leaves: Vec<_> = found.functions.iter().map(|leaf| (leaf.function.symbol.as_str(), leaf.samples)).collect();
        assert_eq!(leaves, [("__schedule", 2), ("f", 1), ("schedule", 1), ("spin_lock", 1)]);
        let most = found.found.unwrap();
        let name = |frame: &Option<Frame>| frame.as_ref().map(|frame| frame.symbol.clone()).unwrap_or_default();
        assert_eq!(
            (name(&most.called), name(&most.program), name(&most.kernel)),
            ("rand".into(), "draw_shared".into(), "futex_wait".into())
        );
        assert_eq!((most.samples, most.kernel_samples), (3, 2));
    }

    #[test]
    fn a_program_in_its_own_code_calls_nothing() {
        let found = leaving(&chain(&[("spin_lock", "vpmu"), ("main", "vpmu")], Ended::Bottom).frames, "vpmu");
        let ((called, own), kernel) = found;
        assert!(called.is_none() && own.unwrap().symbol == "spin_lock" && kernel.is_none());
        let fault = leaving(&chain(&[("clear_page", KERNEL), ("touch", "vpmu")], Ended::Bottom).frames, "vpmu");
        assert!(fault.0.0.is_none() && fault.1.unwrap().symbol == "clear_page");
        assert!(fold("cpu-clock", 1, &[], Losses::default(), "vpmu").found.is_none());
    }
}
