//! Makes a plan from an image's bytes: what to copy where, and how to enter.
//!
//! A multiboot 1 header, if there is one, decides; else the file must be ELF. Nothing is copied or allocated by what
//! the file claims: a plan refers to ranges of the file and has been checked against the guest's memory.

use std::ops::Range;

use super::elf::{Elf, elf_segments, physical_entry};
use super::multiboot::Header;
pub use super::segment::{Entry, LoadError, Segment};

/// Most guest memory: above it lie the LAPIC's, the IOAPIC's and KVM's own pages, and no memory follows them.
pub const MAX_MEMORY: u64 = 3 << 30;
/// Least guest memory: the first megabyte and room for an image.
pub const MIN_MEMORY: u64 = 2 << 20;

/// Segments to copy, and the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    /// Ascending, without overlap, within guest memory.
    pub segments: Vec<Segment>,
    /// Entry of the image.
    pub entry: Entry,
    ram: u64,
}

/// Range for the loader's own additions: above the real-mode vectors and start-up code of other CPUs, below the EBDA.
const LOW: Range<u64> = 0x9000..0x9_f000;

impl LoadPlan {
    /// Plans `image` for a guest with `ram` bytes of memory from address 0 without a hole.
    ///
    /// # Errors
    /// [`LoadError`], the first thing wrong with the image.
    pub fn of(image: &[u8], ram: u64) -> Result<Self, LoadError> {
        let (segments, entry) = match Header::find(image)? {
            Some(header) => header.segments(image)?,
            None if Elf::is_elf(image) => from_elf(&Elf::parse(image)?)?,
            None => return Err(LoadError::NotAnImage),
        };
        Self::checked(segments, entry, ram)
    }

    fn checked(mut segments: Vec<Segment>, entry: Entry, ram: u64) -> Result<Self, LoadError> {
        segments.sort_by_key(|segment| segment.address);
        let mut end = 0;
        for segment in &segments {
            let (address, size) = (segment.address, segment.memory_size);
            if address.checked_add(size).is_none_or(|end| end > ram) {
                return Err(LoadError::OutsideMemory { address, size, ram });
            }
            if address < end {
                return Err(LoadError::Overlap { address });
            }
            end = segment.end();
        }
        let plan = Self { segments, entry, ram };
        match entry {
            Entry::Multiboot { eip } | Entry::Protected32 { eip } if !plan.covers(eip.into()) => {
                Err(LoadError::Entry { entry: eip.into() })
            }
            _ => Ok(plan),
        }
    }

    /// Copies the segments' bytes through `write(address, bytes)`. Guest memory is zero when a guest starts, so the
    /// part that the file does not fill is not written.
    ///
    /// # Errors
    /// The first error of `write`.
    ///
    /// # Panics
    /// If `image` is shorter than the one that was planned.
    pub fn copy<E>(&self, image: &[u8], mut write: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        for segment in &self.segments {
            if !segment.file.is_empty() {
                write(segment.address, &image[segment.file.clone()])?;
            }
        }
        Ok(())
    }

    /// Returns the page-aligned address of `size` bytes of memory below 4 GiB that no segment uses: low memory if it
    /// fits there, else the first gap above.
    ///
    /// # Errors
    /// [`LoadError::NoRoom`].
    pub fn free_range(&self, size: u64) -> Result<u64, LoadError> {
        let no_room = LoadError::NoRoom { size };
        let above = self.ram.min(1 << 32);
        let low = LOW.start..LOW.end.min(above);
        for area in [low, 0x10_0000..above] {
            let mut at = area.start;
            for segment in &self.segments {
                if segment.end() <= at {
                    continue;
                }
                if at.checked_add(size).is_none_or(|end| end <= segment.address) {
                    break;
                }
                at = segment.end().next_multiple_of(0x1000);
            }
            if at.checked_add(size).is_some_and(|end| end <= area.end) {
                return Ok(at);
            }
        }
        Err(no_room)
    }

    fn covers(&self, address: u64) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| (segment.address..segment.end()).contains(&address))
    }
}

fn from_elf(elf: &Elf) -> Result<(Vec<Segment>, Entry), LoadError> {
    let physical = physical_entry(elf)?;
    let entry = if elf.is_64 {
        Entry::Long64 { rip: elf.entry }
    } else {
        let eip = u32::try_from(physical).map_err(|_| LoadError::Entry { entry: elf.entry })?;
        Entry::Protected32 { eip }
    };
    Ok((elf_segments(elf), entry))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Part, TestElf};
    use super::*;

    const RAM: u64 = 16 << 20;

    fn elf(is_64: bool) -> TestElf {
        let data = Part {
            virtual_address: 0x20_0000,
            physical_address: 0x20_0000,
            bytes: b"data".to_vec(),
            memory_size: 0x2000,
            executable: false,
        };
        TestElf::new(is_64, 0x10_0001).code(0x10_0000, &[0x90, 0xf4]).part(data)
    }

    #[test]
    fn plans_both_classes() {
        for is_64 in [false, true] {
            let file = elf(is_64).bytes();
            let plan = LoadPlan::of(&file, RAM).unwrap();
            let entry = if is_64 { Entry::Long64 { rip: 0x10_0001 } } else { Entry::Protected32 { eip: 0x10_0001 } };
            assert_eq!(plan.entry, entry);
            let mut written = Vec::new();
            let copied = plan.copy(&file, |address, bytes| {
                written.push((address, bytes.to_vec()));
                Ok::<_, ()>(())
            });
            assert_eq!(copied, Ok(()));
            assert_eq!(written, [(0x10_0000, vec![0x90, 0xf4]), (0x20_0000, b"data".to_vec())]);
            assert_eq!(plan.segments[1].end(), 0x20_2000);
            assert_eq!(plan.copy(&file, |_, _| Err(7)), Err(7));
        }
    }

    #[test]
    fn a_higher_half_kernel_is_entered_at_its_physical_address() {
        let part = Part {
            virtual_address: 0xc010_0000,
            physical_address: 0x10_0000,
            bytes: vec![0x90; 16],
            memory_size: 16,
            executable: true,
        };
        let file = TestElf::new(false, 0xc010_0004).part(part).bytes();
        let plan = LoadPlan::of(&file, RAM).unwrap();
        assert_eq!(plan.entry, Entry::Protected32 { eip: 0x10_0004 });
    }

    #[test]
    fn every_cut_is_an_error() {
        for is_64 in [false, true] {
            let file = elf(is_64).bytes();
            for length in 0..file.len() {
                assert!(LoadPlan::of(&file[..length], RAM).is_err(), "cut to {length}");
            }
        }
    }

    #[test]
    fn segments_must_lie_in_memory_and_apart() {
        let file = elf(true).bytes();
        let error = LoadPlan::of(&file, 0x20_1fff).unwrap_err();
        assert!(matches!(error, LoadError::OutsideMemory { address: 0x20_0000, size: 0x2000, .. }));
        assert!(error.to_string().contains("--memory"));
        assert!(LoadPlan::of(&file, 0x20_2000).is_ok());

        let mut wraps = elf(true);
        wraps.parts[1].physical_address = u64::MAX - 0xfff;
        let error = LoadPlan::of(&wraps.bytes(), u64::MAX).unwrap_err();
        assert!(matches!(error, LoadError::OutsideMemory { .. }));

        let mut overlaps = elf(true);
        overlaps.parts[0].physical_address = 0x20_1fff;
        assert_eq!(LoadPlan::of(&overlaps.bytes(), RAM), Err(LoadError::Overlap { address: 0x20_1fff }));
    }

    #[test]
    fn what_is_not_for_us_is_refused() {
        let refuse = |change: fn(&mut TestElf)| {
            let mut file = elf(false);
            change(&mut file);
            LoadPlan::of(&file.bytes(), RAM).unwrap_err().to_string()
        };
        assert!(refuse(|file| file.machine = 183).contains("another processor"));
        assert!(refuse(|file| file.kind = 3).contains("position-independent"));
        assert!(refuse(|file| file.kind = 1).contains("not an executable"));
        assert!(refuse(|file| file.parts.clear()).contains("nothing to load"));
        assert!(refuse(|file| file.parts[1].memory_size = 3).contains("larger in the file"));
        assert!(refuse(|file| file.entry = 0x10_0002).contains("entry point 0x100002"));
        assert_eq!(LoadPlan::of(b"#!/bin/sh\n", RAM), Err(LoadError::NotAnImage));
        assert_eq!(LoadPlan::of(b"", RAM), Err(LoadError::NotAnImage));
    }

    #[test]
    fn the_loaders_own_data_goes_where_nothing_is() {
        let plan = |parts: &[(u64, u64)], ram| {
            let segments = parts.iter().map(|&(address, memory_size)| Segment {
                address,
                virtual_address: address,
                file: 0..0,
                memory_size,
            });
            LoadPlan::checked(segments.collect(), Entry::Long64 { rip: 0 }, ram).unwrap()
        };
        assert_eq!(plan(&[(0x10_0000, 0x1000)], RAM).free_range(0x1000), Ok(0x9000));
        assert_eq!(plan(&[(0x8000, 0x1001)], RAM).free_range(0x1000), Ok(0xa000));
        assert_eq!(plan(&[(0xa000, 0x10)], RAM).free_range(0x2000), Ok(0xb000));
        // Too large for low memory, then for the gap between two segments.
        let two = plan(&[(0x10_0000, 0x1234), (0x20_0000, 0x1000)], RAM);
        assert_eq!(two.free_range(0xa_0000), Ok(0x10_2000));
        assert_eq!(two.free_range(0x10_0000), Ok(0x20_1000));
        assert_eq!(two.free_range(RAM), Err(LoadError::NoRoom { size: RAM }));
        assert!(two.free_range(u64::MAX).is_err());
        assert!(plan(&[(0, 0x10_0000)], 0x10_0000).free_range(1).is_err());
    }

    proptest! {
        /// A plan holds what it promises, whatever the file says.
        #[test]
        fn mutated_files_are_planned_soundly_or_refused(
            is_64: bool,
            changes in prop::collection::vec((0_usize..512, any::<u8>()), 0..6),
            ram in 0_u64..(64 << 20),
        ) {
            let mut file = elf(is_64).bytes();
            for (at, value) in changes {
                let length = file.len();
                file[at % length] = value;
            }
            if let Ok(plan) = LoadPlan::of(&file, ram) {
                let mut end = 0;
                for segment in &plan.segments {
                    prop_assert!(segment.address >= end && segment.end() <= ram);
                    prop_assert!(segment.file.len() as u64 <= segment.memory_size);
                    end = segment.end();
                }
                plan.copy(&file, |_, _| Ok::<_, ()>(())).unwrap();
                if let Ok(at) = plan.free_range(0x3000) {
                    let mut segments = plan.segments.iter();
                    prop_assert!(at + 0x3000 <= ram);
                    prop_assert!(segments.all(|s| s.end() <= at || at + 0x3000 <= s.address));
                }
            }
        }
    }
}
