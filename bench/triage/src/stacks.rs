//! Call chains folded to stacks, and where most of them leave the program.

use std::collections::HashMap;
use std::hash::Hash;

use results::table::layout;

use crate::records::Losses;
use crate::sampling::{Chain, Ended, STACK};
use crate::symbols::Frame;

/// Stacks and broken ends that are said, and frames of a stack.
const STACKS: usize = 2;
const FRAMES: usize = 8;
/// Functions of the kernel that are a spin lock, or wait for one, have one of these in their names; those of a kernel that hides its
/// addresses are all of another name.
const SPIN_LOCK: [&str; 2] = ["spin_lock", "queued_spin"];
const HIDDEN: &str = "(hidden)";

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

/// Samples by their chains, the most frequent first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Chains that reach the begin of their thread.
    pub complete: usize,
    /// Functions that the other chains end in, each with its samples.
    pub broken: Vec<(String, usize)>,
    /// The stacks, innermost first.
    pub stacks: Vec<(Vec<Frame>, usize)>,
    /// The functions that samples are in.
    pub functions: Vec<(Frame, usize)>,
    /// The most frequent way out of the program.
    pub way_out: Option<WayOut>,
}

impl Folded {
    /// Returns the samples in spin locks of the kernel; `None` of one that hides its functions.
    pub fn in_spin_locks(&self) -> Option<u64> {
        if self.functions.is_empty() || self.functions.iter().any(|(frame, _)| frame.symbol == HIDDEN) {
            return None;
        }
        let locks = self
            .functions
            .iter()
            .filter(|(frame, _)| frame.in_kernel() && SPIN_LOCK.iter().any(|name| frame.symbol.contains(name)));
        Some(locks.map(|(_, samples)| *samples as u64).sum())
    }

    /// Says what the samples are, the answer first.
    pub fn said(&self, samples: usize, rate: &str, losses: Losses) -> Vec<String> {
        let percent = |part: usize, whole: usize| format!("{} %", layout::percent(part as f64 / whole.max(1) as f64));
        let share = |part: usize| percent(part, samples);
        let mut notes = Vec::new();
        if let Some(WayOut { samples, called, program, kernel }) = &self.way_out {
            let mut place = match (called, program) {
                (Some(called), Some(program)) => format!("in {called}, called by {program}"),
                (None, Some(program)) => format!("in {program}"),
                (_, None) => "outside of the program".to_owned(),
            };
            if let Some((below, part)) = kernel {
                let part = percent(*part, *samples);
                place = format!("{place}; in the kernel they are most often in {} ({part} of these)", below.symbol);
            }
            notes.push(format!("{} of the samples are {place}", share(*samples)));
        }
        let Losses { lost, damaged, throttled } = losses;
        let mut line = vec![format!("{rate}, {lost} lost")];
        line.extend((damaged > 0).then(|| format!("{damaged} not readable")));
        line.extend((throttled > 0).then(|| format!("throttled by the kernel: {throttled}")));
        let whole = (samples > 0).then(|| format!("; {} of the chains are complete", share(self.complete)));
        notes.push(line.join(", ") + &whole.unwrap_or_default());
        notes.extend(self.broken.iter().take(STACKS).map(|(at, count)| format!("{count} chains are broken at {at}")));
        notes.extend(self.stacks.iter().take(STACKS).map(|(frames, count)| {
            let mut names: Vec<String> = frames.iter().take(FRAMES).map(ToString::to_string).collect();
            names.extend((frames.len() > FRAMES).then(|| "…".to_owned()));
            format!("{} of the samples: {}", share(*count), names.join(" < "))
        }));
        notes
    }
}

/// Place of most samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Samples of this kind.
    pub samples: usize,
    /// The library's function that the program calls; `None`: the program is in its own code, or the kernel is below it at once.
    pub called: Option<Frame>,
    /// The program's function.
    pub program: Option<Frame>,
    /// The kernel's innermost function below it that is neither the scheduler's nor on the way into the kernel: the
    /// most frequent one, with its samples.
    pub kernel: Option<(Frame, usize)>,
}

/// Counts the places of the chains. `program` is the name of the workload's own file.
pub fn fold(chains: &[Chain], program: &str) -> Folded {
    let broken = counted(chains.iter().filter_map(|chain| end(&chain.ended)));
    let leaving: Vec<Leaving> = chains.iter().map(|chain| leaving(&chain.frames, program)).collect();
    Folded {
        complete: chains.len() - broken.iter().map(|(_, samples)| samples).sum::<usize>(),
        broken,
        stacks: counted(chains.iter().map(|chain| chain.frames.clone())),
        functions: counted(chains.iter().filter_map(|chain| chain.frames.first().cloned())),
        way_out: way_out(&leaving),
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
        Ended::Broken(frame) => Some(frame.to_string()),
    }
}

/// Finds the most frequent way out of the program, and what the kernel does most often below it.
fn way_out(all: &[Leaving]) -> Option<WayOut> {
    let ((called, program), samples) = counted(all.iter().map(|(way, _)| way.clone())).into_iter().next()?;
    let below = all.iter().filter(|(other, _)| *other == (called.clone(), program.clone()));
    let kernel = counted(below.filter_map(|(_, kernel)| kernel.clone())).into_iter().next();
    Some(WayOut { samples, called, program, kernel })
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
        let folded = fold(&chains, "vpmu");
        assert_eq!((folded.complete, folded.stacks[0].0.len(), folded.stacks[0].1), (3, 9, 2));
        let names: Vec<_> = folded.broken.iter().map(|(at, _)| at.as_str()).collect();
        assert_eq!(names, ["f (x.so)", "the end of the 8192 bytes of stack that are copied"]);
        let leaves: Vec<_> = folded.functions.iter().map(|(frame, count)| (frame.symbol.as_str(), *count)).collect();
        assert_eq!(leaves, [("__schedule", 2), ("f", 1), ("schedule", 1), ("spin_lock", 1)]);
        let WayOut { samples, called, program, kernel } = folded.way_out.unwrap();
        let name = |frame: Option<Frame>| frame.map(|frame| frame.to_string()).unwrap_or_default();
        assert_eq!([name(called), name(program)], ["rand (libc.so.6)", "draw_shared (vpmu)"]);
        assert_eq!((samples, kernel.map(|(frame, count)| (frame.symbol, count))), (3, Some(("futex_wait".into(), 2))));
    }

    #[test]
    fn a_program_in_its_own_code_calls_nothing() {
        let found = leaving(&chain(&[("spin_lock", "vpmu"), ("main", "vpmu")], Ended::Bottom).frames, "vpmu");
        let ((called, own), kernel) = found;
        assert!(called.is_none() && own.unwrap().symbol == "spin_lock" && kernel.is_none());
        let fault = leaving(&chain(&[("clear_page", KERNEL), ("touch", "vpmu")], Ended::Bottom).frames, "vpmu");
        assert!(fault.0.0.is_none() && fault.1.unwrap().symbol == "clear_page");
        assert!(fold(&[], "vpmu").way_out.is_none());
    }

    #[test]
    fn samples_say_where_most_are_and_what_is_missing() {
        let frame = |symbol: &str, module: &str| Frame { symbol: symbol.into(), module: module.into() };
        let waits = ["schedule", "native_queued_spin_lock_slowpath"].map(|name| frame(name, KERNEL));
        let waits = [&waits[..], &[frame("rand", "libc.so.6"), frame("draw_shared", "vpmu")]].concat();
        let mut chains = vec![Chain { frames: waits, ended: Ended::Bottom }; 9];
        chains[0].frames.remove(0);
        chains.push(Chain { frames: vec![frame("f", "x.so")], ended: Ended::Broken(frame("f", "x.so")) });
        let folded = fold(&chains, "vpmu");
        let losses = Losses { lost: 3, damaged: 1, throttled: 2 };
        let said = folded.said(10, "10 samples by context-switches, one in 120", losses);
        assert_eq!(
            said,
            [
                "90 % of the samples are in rand (libc.so.6), called by draw_shared (vpmu); in the kernel they are most often in \
                 native_queued_spin_lock_slowpath (100 % of these)",
                "10 samples by context-switches, one in 120, 3 lost, 1 not readable, throttled by the kernel: 2; 90 % of the chains \
                 are complete",
                "1 chains are broken at f (x.so)",
                "80 % of the samples: schedule ([kernel]) < native_queued_spin_lock_slowpath ([kernel]) < rand (libc.so.6) < draw_shared \
                 (vpmu)",
                "10 % of the samples: f (x.so)",
            ]
        );
        assert_eq!(folded.in_spin_locks(), Some(1));
        chains[1].frames[0].symbol = HIDDEN.into();
        assert_eq!((fold(&chains, "vpmu").in_spin_locks(), Folded::default().in_spin_locks()), (None, None));
    }
}
