//! The frames of samples, from the outermost to the innermost.

use crate::record::{CONTEXTS, Mode};

/// Name of the frame outside of which a call chain could not be followed.
pub const BROKEN: &str = "[broken]";

/// Name of the frame outside of which a call chain has more frames than are read.
pub const CUT: &str = "[cut]";

/// The entry at the outer end of a call chain that could not be followed to its end. No code lies there, and perf shows it as unknown.
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

/// Returns the frames of a sample, its root first: by `misc` and instruction pointer of its record, and its call chain, which may be the inner part of
/// a longer one.
#[must_use]
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
