//! Stacks as a tree: a function is there once below each of its callers, and a sample is the number of its innermost
//! function. Nothing here calls itself: how deep a tree is, a file says.

use std::collections::HashMap;

use thiserror::Error;

use crate::record::{CONTEXTS, Mode};

/// More than a bound that is not the format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {} MiB", .0 >> 20)]
pub struct TooMuch(pub u64);

/// Bytes that a function in its place takes at the most, here and in what is made of it.
const OF_NODE: u64 = 192;
/// The caller of the outermost function.
const NOBODY: u32 = u32::MAX;

/// A function of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The processor's mode; `None`: it is no code, but says what is known of the stack.
    pub mode: Option<Mode>,
    /// The number of its name.
    pub name: u32,
}

/// Functions below their callers.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Caller and function. A caller has the lower number.
    nodes: Vec<(u32, Place)>,
    known: HashMap<(u32, Place), u32>,
}

impl Calls {
    /// Numbers a function below its caller.
    pub fn below(&mut self, caller: Option<u32>, place: Place) -> u32 {
        let key = (caller.unwrap_or(NOBODY), place);
        *self.known.entry(key).or_insert_with(|| {
            self.nodes.push(key);
            self.nodes.len() as u32 - 1
        })
    }

    /// Returns the caller of a function, and the function.
    pub fn get(&self, number: u32) -> (Option<u32>, Place) {
        let (caller, place) = self.nodes[number as usize];
        (Some(caller).filter(|&caller| caller != NOBODY), place)
    }

    /// Adds the functions of `other`, whose names have other numbers here; returns the number here of each.
    pub fn add(&mut self, other: &Self, mut name: impl FnMut(u32) -> u32) -> Vec<u32> {
        let mut of = Vec::with_capacity(other.nodes.len());
        for &(caller, place) in &other.nodes {
            let caller = of.get(caller as usize).copied();
            of.push(self.below(caller, Place { mode: None, name: name(place.name) }));
        }
        of
    }

    /// Bytes of memory for it.
    pub const fn bytes(&self) -> u64 {
        self.nodes.len() as u64 * OF_NODE
    }

    /// Returns the tree by names alone, with how many of `samples` are in each function.
    pub fn tree(&self, names: &[String], samples: impl Iterator<Item = u32>) -> Tree {
        // A function in two modes is one node.
        let mut merged = Self::default();
        let of = merged.add(self, |name| name);
        let mut own = vec![0_u64; merged.nodes.len()];
        samples.for_each(|number| own[of[number as usize] as usize] += 1);
        let mut all = own.clone();
        for (at, &(caller, _)) in merged.nodes.iter().enumerate().rev() {
            if caller != NOBODY {
                all[caller as usize] += all[at];
            }
        }
        // Callees beside each other, by name; from there each function behind its caller.
        let mut order: Vec<u32> = (0..names.len() as u32).collect();
        order.sort_unstable_by_key(|&name| &names[name as usize]);
        let mut ranks = vec![0_u32; names.len()];
        order.iter().zip(0..).for_each(|(&name, rank)| ranks[name as usize] = rank);
        let key = |at: u32| {
            let (caller, place) = merged.nodes[at as usize];
            (caller, ranks[place.name as usize])
        };
        let mut beside: Vec<u32> = (0..merged.nodes.len() as u32).collect();
        beside.sort_unstable_by_key(|&at| key(at));
        let callees = |caller: u32| {
            let start = beside.partition_point(|&at| key(at).0 < caller);
            beside[start..].iter().copied().take_while(move |&at| key(at).0 == caller)
        };
        let push = |waiting: &mut Vec<(u32, u32, u32)>, caller: u32, number: u32, depth: u32| {
            let start = waiting.len();
            waiting.extend(callees(caller).map(|at| (at, number, depth)));
            waiting[start..].reverse();
        };
        let (mut waiting, mut nodes, mut numbers) = (Vec::new(), Vec::new(), vec![0; merged.nodes.len()]);
        push(&mut waiting, NOBODY, NOBODY, 0);
        while let Some((at, caller, depth)) = waiting.pop() {
            let (number, place) = (nodes.len() as u32, merged.nodes[at as usize].1);
            numbers[at as usize] = number;
            nodes.push(Node { name: place.name, caller, depth, own: own[at as usize], all: all[at as usize] });
            push(&mut waiting, at, number, depth + 1);
        }
        Tree { nodes, of: of.into_iter().map(|number| numbers[number as usize]).collect() }
    }
}

/// A function of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The number of its name.
    pub name: u32,
    caller: u32,
    depth: u32,
    /// Samples in itself.
    pub own: u64,
    /// Samples in it and in all below it.
    pub all: u64,
}

impl Node {
    /// Returns the number of its caller in the tree.
    pub fn caller(&self) -> Option<u32> {
        Some(self.caller).filter(|&caller| caller != NOBODY)
    }
}

/// Functions by name below their callers: each behind its caller, and those of one caller in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Its functions.
    pub nodes: Vec<Node>,
    /// The number here of each function of the [`Calls`] that it was made of.
    pub of: Vec<u32>,
}

impl Tree {
    /// Formats the stacks as FlameGraph, inferno and speedscope read them: a line for each, frames apart by semicolons.
    ///
    /// # Errors
    /// The text would have more bytes than `most`.
    pub fn folded(&self, names: &[String], most: u64) -> Result<String, TooMuch> {
        let mut clean = vec![None; names.len()];
        let (mut text, mut line, mut ends) = (String::new(), String::new(), Vec::new());
        for node in &self.nodes {
            ends.truncate(node.depth as usize);
            line.truncate(ends.last().copied().unwrap_or(0));
            if !line.is_empty() || node.depth > 0 {
                line.push(';');
            }
            let name = node.name as usize;
            line.push_str(clean[name].get_or_insert_with(|| names[name].replace([';', '\n', '\r'], ":")));
            ends.push(line.len());
            if node.own > 0 {
                let samples = node.own.to_string();
                if (text.len() + line.len() + samples.len() + 2) as u64 > most {
                    return Err(TooMuch(most));
                }
                text.extend([line.as_str(), " ", &samples, "\n"]);
            }
        }
        Ok(text)
    }
}

// The frames of samples, from the outermost to the innermost.

/// Name of the frame outside of which a call chain could not be followed.
pub const BROKEN: &str = "[broken]";

/// Name of the frame outside of which a call chain has more frames than are read.
pub const CUT: &str = "[cut]";

/// The entry at the outer end of a call chain that could not be followed to its end. No code lies there, and perf shows
/// it as unknown.
pub const BROKEN_END: u64 = 0;

/// A frame of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An address within the function, and its mode. Of a return address it is that of the call.
    At(Mode, u64),
    /// Outside of it the chain could not be followed.
    Broken,
    /// Outside of it the chain has more frames than are read.
    Cut,
}

/// Returns the frames of a sample, its root first: by `misc` and instruction pointer of its record, and its call chain,
/// which may be the inner part of a longer one.
pub fn frames_of(misc: u16, ip: u64, chain: &[u64], cut: bool) -> Vec<Frame> {
    let mut mode = Mode::of(misc);
    let mut frames = Vec::new();
    for &entry in chain {
        if entry >= CONTEXTS {
            let modes = [Mode::Kernel, Mode::User, Mode::GuestKernel, Mode::GuestUser];
            mode = modes.into_iter().find(|mode| mode.context() == entry).unwrap_or(mode);
            continue;
        }
        frames.push(match entry {
            BROKEN_END => Frame::Broken,
            // A return address is behind the call, maybe behind its function.
            entry => Frame::At(mode, if frames.is_empty() { entry } else { entry - 1 }),
        });
    }
    if frames.is_empty() {
        frames.push(Frame::At(mode, ip));
    }
    if cut {
        frames.push(Frame::Cut);
    }
    frames.reverse();
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    /// Numbers a stack, the root first.
    fn stack(calls: &mut Calls, frames: &[(u32, Option<Mode>)]) -> u32 {
        let below = |caller, &(name, mode): &_| Some(calls.below(caller, Place { mode, name }));
        frames.iter().fold(None, below).unwrap()
    }

    #[test]
    fn stacks_are_in_the_order_of_their_names_and_modes_are_not_told_apart() {
        let names = names(&["z", "a;b\n", "m"]);
        let (user, kernel) = (Some(Mode::User), Some(Mode::Kernel));
        let mut calls = Calls::default();
        let stacks: [&[_]; 4] =
            [&[(0, None), (2, user)], &[(0, None), (1, kernel), (2, kernel)], &[(0, None), (2, kernel)], &[(1, None)]];
        let samples = stacks.map(|frames| stack(&mut calls, frames));
        assert_eq!(samples, stacks.map(|frames| stack(&mut calls, frames)));
        let tree = calls.tree(&names, samples.iter().chain(&samples[..1]).copied());
        let text = "a:b: 1\nz;a:b:;m 1\nz;m 3\n";
        assert_eq!(tree.folded(&names, text.len() as u64).as_deref(), Ok(text));
        assert_eq!(tree.folded(&names, text.len() as u64 - 1), Err(TooMuch(text.len() as u64 - 1)));
        let found: Vec<_> = tree.nodes.iter().map(|node| (node.name, node.caller(), node.own, node.all)).collect();
        let expected = [(1, None, 1, 1), (0, None, 0, 4), (1, Some(1), 0, 1), (2, Some(2), 1, 1), (2, Some(1), 3, 3)];
        assert_eq!(found, expected);
        assert_eq!(samples.map(|at| tree.of[at as usize]), [4, 3, 4, 0]);
        assert_eq!(calls.get(samples[1]).1, Place { mode: kernel, name: 2 });
    }

    #[test]
    fn a_deep_tree_takes_no_stack_of_its_own() {
        let names = names(&["f"]);
        let mut calls = Calls::default();
        let deepest = (0..100_000).fold(None, |caller, _| Some(calls.below(caller, Place { mode: None, name: 0 })));
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let work = move || calls.tree(&names, deepest.into_iter()).folded(&names, 1 << 20);
        let text = thread.spawn(work).unwrap().join().unwrap().unwrap();
        assert_eq!(text, format!("{} 1\n", vec!["f"; 100_000].join(";")));
    }

    #[test]
    fn a_chain_begins_at_its_root() {
        let chain = vec![Mode::GuestKernel.context(), 10, 21, Mode::GuestUser.context(), 31, BROKEN_END];
        let [kernel, user] = [Mode::GuestKernel, Mode::GuestUser].map(|mode| move |at| Frame::At(mode, at));
        let expected = [Frame::Broken, user(30), kernel(20), kernel(10)];
        assert_eq!(frames_of(4, 10, &chain, false), expected);
        let cut = frames_of(4, 10, &chain, true);
        assert_eq!((cut[0], &cut[1..]), (Frame::Cut, &expected[..]));
        assert_eq!(frames_of(2, 9, &[], false), [Frame::At(Mode::User, 9)], "without a chain the instruction pointer");
    }
}
