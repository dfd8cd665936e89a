//! Samples as stacks: from the outermost function to the innermost, with how often each was met.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::record::{CONTEXTS, Mode, Sample};

/// Name of the frame outside of which a call chain could not be followed.
pub const BROKEN: &str = "[broken]";

/// The entry at the outer end of a call chain that could not be followed to its end. No code lies there, and perf shows it as unknown.
pub const BROKEN_END: u64 = 0;

/// Stacks with their weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks(BTreeMap<Vec<String>, u64>);

impl Stacks {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds a stack, its root first.
    pub fn add(&mut self, frames: Vec<String>, weight: u64) {
        let sum = self.0.entry(frames).or_default();
        *sum = sum.saturating_add(weight);
    }

    /// Stacks and weights in ascending order of the stacks.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.0.iter().map(|(frames, &weight)| (frames.as_slice(), weight))
    }

    /// The sum of the weights.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, &weight| sum.saturating_add(weight))
    }

    /// As FlameGraph, inferno and speedscope read them: a line for each, frames apart by semicolons.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (frames, weight) in &self.0 {
            for (at, frame) in frames.iter().enumerate() {
                let clean = frame.replace([';', '\n', '\r'], ":");
                let _ = write!(text, "{}{clean}", if at == 0 { "" } else { ";" });
            }
            let _ = writeln!(text, " {weight}");
        }
        text
    }
}

/// A frame of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An address within the function, and its mode. Of a return address it is that of the call.
    At(Mode, u64),
    /// Outside of it the chain could not be followed.
    Broken,
}

/// The frames of a sample, its root first.
#[must_use]
pub fn frames_of(sample: &Sample) -> Vec<Frame> {
    let mut mode = Mode::of(sample.misc);
    let mut frames = Vec::new();
    for &entry in &sample.chain {
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
        frames.push(Frame::At(mode, sample.ip));
    }
    frames.reverse();
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a sample's frames, its root first: each address by `name`, which is given its mode.
    fn frames(sample: &Sample, mut name: impl FnMut(Mode, u64) -> String) -> Vec<String> {
        let named = |frame| match frame {
            Frame::At(mode, address) => name(mode, address),
            Frame::Broken => BROKEN.to_owned(),
        };
        frames_of(sample).into_iter().map(named).collect()
    }

    #[test]
    fn a_chain_is_folded_from_its_root() {
        let chain = vec![Mode::GuestKernel.context(), 10, 21, Mode::GuestUser.context(), 31, BROKEN_END];
        let sample = Sample { misc: 4, ip: 10, chain, ..Sample::default() };
        let name = |mode: Mode, at: u64| format!("{mode:?};{at}");
        let mut stacks = Stacks::new();
        stacks.add(frames(&sample, name), 2);
        stacks.add(frames(&sample, name), 1);
        assert_eq!(stacks.folded(), "[broken];GuestUser:30;GuestKernel:20;GuestKernel:10 3\n");
        let bare = Sample { misc: 2, ip: 9, ..Sample::default() };
        assert_eq!(frames(&bare, name), ["User;9"], "without a chain the instruction pointer");
        assert_eq!(stacks.total(), 3);
    }

    #[test]
    fn weights_of_a_damaged_file_saturate() {
        let mut stacks = Stacks::new();
        stacks.add(vec!["a".to_owned()], u64::MAX);
        stacks.add(vec!["a".to_owned()], 2);
        stacks.add(vec!["b".to_owned()], 2);
        assert_eq!(stacks.folded(), format!("a {}\nb 2\n", u64::MAX));
        assert_eq!(stacks.total(), u64::MAX);
    }
}
