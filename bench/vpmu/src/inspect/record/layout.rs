//! Form in which stock perf reads a guest: it names the functions of a user task and of its host's kernel, and drops call chains of
//! guests.

use std::path::Path;

use perf_data::feature::BuildId;
use perf_data::record::{Mapping, Mode, Sample};
use perf_data::symbols::build_id;
use vmm::boot::elf::Elf;
use vmm::boot::segment::Segment;
use vmm::sample::Sample as Taken;

/// The entry at the outer end of a call chain that could not be followed to its end. No code lies there, and perf shows
/// it as unknown.
const BROKEN_END: u64 = 0;

/// Form of a guest in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user task.
    Task,
    /// A host's kernel and its tasks.
    Host,
}

impl Kind {
    /// Builds the record of a sample; `chains` as the recording has them.
    pub fn sample(self, taken: &Taken, cpu: u32, pid: u32, tid: u32, chains: bool) -> Sample {
        let modes = if self == Self::Task { [Mode::User; 2] } else { [Mode::Kernel, Mode::User] };
        let mut chain = Vec::new();
        if chains {
            for (part, mode) in modes.into_iter().enumerate() {
                let entries = &taken.chain[part];
                let broken = !taken.complete[part];
                if entries.is_empty() && !broken {
                    continue;
                }
                if part == 0 || self != Self::Task || chain.is_empty() {
                    chain.push(mode.context());
                }
                chain.extend(entries);
                if broken {
                    chain.push(BROKEN_END);
                }
            }
        }
        Sample {
            misc: modes[usize::from(taken.user)] as u16,
            id: taken.event as u64 + 1,
            ip: taken.rip,
            pid,
            tid,
            time: taken.time,
            cpu,
            period: taken.period,
            chain,
            ..Sample::default()
        }
    }
}

/// Lists the mappings of an ELF file as a task; none for another image, of which no function has a name.
pub fn of_elf(bytes: &[u8], path: &Path, pid: u32) -> Vec<Mapping> {
    let Ok(elf) = Elf::parse(bytes) else { return Vec::new() };
    let build_id = build_id(bytes).unwrap_or_default();
    let executable = elf.segments.into_iter().filter(|load| load.executable);
    let mapping = |load: Segment| {
        // A mapping begins at a page, in memory and in the file.
        let inside = load.virtual_address % 0x1000;
        let inside = if load.file.start as u64 >= inside { inside } else { 0 };
        Mapping {
            misc: Mode::User as u16,
            pid,
            tid: pid,
            address: load.virtual_address - inside,
            length: (load.memory_size + inside).next_multiple_of(0x1000),
            offset: load.file.start as u64 - inside,
            file: path.to_string_lossy().into_owned(),
            build_id: build_id.clone(),
        }
    };
    executable.map(mapping).collect()
}

/// The kernel's name, as build-ids have it.
const KERNEL: &str = "[kernel.kallsyms]";
/// Process of what belongs to every task.
const EVERY_TASK: u32 = u32::MAX;

/// Maps a guest's kernel with its text at `text`, and its modules, which perf names by the same list.
pub fn of_kernel(text: u64, build_id: Option<Vec<u8>>) -> Mapping {
    Mapping {
        misc: Mode::Kernel as u16,
        pid: EVERY_TASK,
        tid: 0,
        address: text,
        length: u64::MAX - text,
        offset: text,
        file: format!("{KERNEL}_text"),
        build_id: build_id.unwrap_or_default(),
    }
}

/// Returns the build-id of what these are mappings of, by which perf tells another build.
pub fn build_id_of(mappings: &[Mapping]) -> Option<BuildId> {
    let Mapping { misc, build_id, file, .. } = mappings.first().filter(|mapping| !mapping.build_id.is_empty())?;
    let file = if *misc == Mode::Kernel as u16 { KERNEL } else { file };
    Some(BuildId { misc: *misc, pid: EVERY_TASK.cast_signed(), id: build_id.clone(), file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> Taken {
        Taken {
            event: 1,
            time: 5,
            period: 7,
            rip: 0x10,
            user: false,
            at_exit: false,
            complete: [true, false],
            no_table: false,
            chain: [vec![0x10, 0x11], vec![0x12]],
        }
    }

    #[test]
    fn chains_have_the_contexts_that_perf_knows() {
        let contexts = |kind: Kind| kind.sample(&taken(), 2, 3, 4, true).chain;
        let (kernel, user) = (Mode::Kernel.context(), Mode::User.context());
        assert_eq!(contexts(Kind::Host), [kernel, 0x10, 0x11, user, 0x12, BROKEN_END]);
        assert_eq!(contexts(Kind::Task), [user, 0x10, 0x11, 0x12, BROKEN_END]);
        let sample = Kind::Host.sample(&Taken { user: true, ..taken() }, 2, 3, 4, false);
        assert_eq!((sample.misc, sample.id, sample.cpu, sample.chain.len()), (2, 2, 2, 0));
    }
}
