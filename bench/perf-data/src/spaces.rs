//! Which file is where in each process of a recording, while it is gone through in the order of time.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::record::Mapping;

/// The process whose mappings are those of all.
const ALL: u32 = u32::MAX;
/// Most mappings that are copied for processes that differ from the one that made them. Beyond, such a process begins without any.
const MOST_COPIED: usize = 1 << 22;
/// Bytes that a copied mapping takes.
const OF_COPY: u64 = 64;

/// A piece of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The address behind it.
    end: u64,
    /// The address of the mapping that it is of, and its place in the file.
    start: u64,
    offset: u64,
    file: usize,
}

/// The pieces of a process by their first address, apart from each other.
type Space = BTreeMap<u64, Piece>;

/// The processes of a recording, with what each has mapped.
#[derive(Debug, Default)]
pub struct Spaces {
    by_pid: HashMap<u32, Rc<Space>>,
    files: Vec<String>,
    numbers: HashMap<String, usize>,
    copied: usize,
}

impl Spaces {
    /// Maps a file; the mappings that were there are gone.
    pub fn map(&mut self, mapping: Mapping) {
        let Mapping { pid, address: start, length, offset, file, .. } = mapping;
        let end = start.saturating_add(length);
        if end == start {
            return;
        }
        let next = self.files.len();
        let file = *self.numbers.entry(file).or_insert_with_key(|name| {
            self.files.push(name.clone());
            next
        });
        let space = self.own(pid);
        let before = space.range(..start).next_back().map(|(&at, &piece)| (at, piece));
        if let Some((at, piece)) = before.filter(|(_, piece)| piece.end > start) {
            space.insert(at, Piece { end: start, ..piece });
            if piece.end > end {
                space.insert(end, piece);
            }
        }
        while let Some((at, piece)) = space.range(start..end).next().map(|(&at, &piece)| (at, piece)) {
            space.remove(&at);
            if piece.end > end {
                space.insert(end, piece);
            }
        }
        space.insert(start, Piece { end, start, offset, file });
    }

    /// Gives a process the mappings of its parent.
    pub fn fork(&mut self, parent: u32, child: u32) {
        if parent == child {
            return;
        }
        match self.by_pid.get(&parent) {
            Some(space) => drop(self.by_pid.insert(child, Rc::clone(space))),
            None => drop(self.by_pid.remove(&child)),
        }
    }

    /// Lets a process execute another program.
    pub fn exec(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
    }

    /// Returns the file at an address, and the place in it.
    pub fn find(&self, pid: u32, address: u64) -> Option<(usize, u64)> {
        [pid, ALL].iter().find_map(|pid| {
            let (_, piece) = self.by_pid.get(pid)?.range(..=address).next_back()?;
            (address < piece.end).then(|| (piece.file, (address - piece.start).wrapping_add(piece.offset)))
        })
    }

    /// Bytes of memory for copies.
    pub const fn bytes(&self) -> u64 {
        self.copied as u64 * OF_COPY
    }

    /// Returns the name of a file.
    pub fn file(&self, number: usize) -> &str {
        self.files.get(number).map_or("", String::as_str)
    }

    /// Returns the pieces of a process, for a change.
    fn own(&mut self, pid: u32) -> &mut Space {
        let space = self.by_pid.entry(pid).or_default();
        if Rc::strong_count(space) > 1 {
            self.copied = self.copied.saturating_add(space.len());
            if self.copied > MOST_COPIED {
                *space = Rc::default();
            }
        }
        Rc::make_mut(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(spaces: &mut Spaces, pid: u32, address: u64, length: u64, file: &str) {
        spaces.map(Mapping { pid, address, length, offset: 0x1000, file: file.into(), ..Mapping::default() });
    }

    fn found(spaces: &Spaces, pid: u32, addresses: &[u64]) -> Vec<String> {
        let one = |&address: &u64| match spaces.find(pid, address) {
            Some((file, place)) => format!("{}+{place:x}", spaces.file(file)),
            None => "-".to_owned(),
        };
        addresses.iter().map(one).collect()
    }

    #[test]
    fn a_later_mapping_takes_the_place_of_what_it_covers() {
        let mut spaces = Spaces::default();
        map(&mut spaces, 7, 0x1000, 0x4000, "a");
        map(&mut spaces, 7, 0x2000, 0x1000, "b");
        assert_eq!(
            found(&spaces, 7, &[0xfff, 0x1000, 0x2000, 0x2fff, 0x3000, 0x4fff, 0x5000]),
            ["-", "a+1000", "b+1000", "b+1fff", "a+3000", "a+4fff", "-"]
        );
        // Over the ends of two.
        map(&mut spaces, 7, 0x1800, 0x2000, "c");
        assert_eq!(found(&spaces, 7, &[0x17ff, 0x1800, 0x37ff, 0x3800]), ["a+17ff", "c+1000", "c+2fff", "a+3800"]);
        map(&mut spaces, 7, 0, u64::MAX, "d");
        assert_eq!(found(&spaces, 7, &[0x1800, 0x9000]), ["d+2800", "d+a000"]);
        map(&mut spaces, 7, 0x10, 0, "nothing");
        assert_eq!(found(&spaces, 7, &[0x10]), ["d+1010"]);
    }

    #[test]
    fn processes_are_apart_and_begin_as_their_parents() {
        let mut spaces = Spaces::default();
        map(&mut spaces, 7, 0x1000, 0x1000, "a");
        map(&mut spaces, 8, 0x1000, 0x1000, "b");
        map(&mut spaces, ALL, 0x8000, 0x1000, "all");
        assert_eq!(found(&spaces, 8, &[0x1000, 0x8000]), ["b+1000", "all+1000"]);
        assert_eq!(found(&spaces, 9, &[0x1000, 0x8000]), ["-", "all+1000"]);
        spaces.fork(7, 9);
        map(&mut spaces, 9, 0x3000, 0x1000, "c");
        assert_eq!(
            (found(&spaces, 9, &[0x1000, 0x3000]), found(&spaces, 7, &[0x3000])),
            (vec!["a+1000".to_owned(), "c+1000".to_owned()], vec!["-".to_owned()])
        );
        spaces.exec(9);
        assert_eq!(found(&spaces, 9, &[0x1000, 0x3000]), ["-", "-"]);
        spaces.fork(9, 7);
        assert_eq!(found(&spaces, 7, &[0x1000]), ["-"], "a parent without mappings has a child without any");
    }

    #[test]
    fn copies_are_bounded() {
        let mut spaces = Spaces::default();
        (0..64).for_each(|n| map(&mut spaces, 1, n << 13, 0x1000, "a"));
        for child in 2..100_000 {
            spaces.fork(1, child);
            map(&mut spaces, child, 1 << 40, 0x1000, "b");
        }
        assert!(spaces.copied > MOST_COPIED && found(&spaces, 2, &[0]) == ["a+1000"], "{}", spaces.copied);
        assert_eq!(found(&spaces, 99_999, &[0, 1 << 40]), ["-", "b+1000"]);
    }
}
