//! The code of a Linux guest's kernel in a recording: mappings and build-ids of the kernel and its modules, and the
//! modules' unwind tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use linux_guest::loaded::Module;
use perf_data::feature::BuildId;
use perf_data::record::Mapping;
use vmm::sample::{ModulePlace, Sampling, TablesRead};

use super::layout::{Kind, kernel_name, of_module};
use crate::machine::linux::symbols::CodeReports;

/// The guest that perf takes `--guestkallsyms` for.
const DEFAULT_GUEST: i32 = 0;
/// Times that tables which are not in memory are looked for: ten seconds of polls.
const MOST_TRIES: u32 = 1000;

/// Outcome of reading the modules' unwind tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unwinding {
    /// The guest said nothing of its modules, or chains need none.
    #[default]
    NotAsked,
    /// There was no sample of the kernel in whose memory the tables of so many modules are.
    Unread(usize),
    /// They were read.
    Read(TablesRead),
}

/// The code of a guest's kernel while it is recorded.
#[derive(Debug)]
pub struct KernelCode {
    reports: Arc<CodeReports>,
    kind: Kind,
    pid: u32,
    /// Modules that have a mapping.
    mapped: BTreeSet<(u64, String)>,
    /// Modules whose tables are to be read, and how often that was tried.
    waiting: Option<(Vec<ModulePlace>, u32)>,
    asked: bool,
    unwinding: Unwinding,
    build_ids: Vec<BuildId>,
    left_out: usize,
}

impl KernelCode {
    /// Starts for a guest that is `kind` in the recording. `build_id` is that of the kernel's image.
    pub fn new(reports: Arc<CodeReports>, kind: Kind, pid: u32, build_id: Option<Vec<u8>>) -> Self {
        let mut code = Self {
            reports,
            kind,
            pid,
            mapped: BTreeSet::new(),
            waiting: None,
            asked: false,
            unwinding: Unwinding::NotAsked,
            build_ids: Vec::new(),
            left_out: 0,
        };
        code.identify(kernel_name(kind).to_owned(), build_id);
        code
    }

    /// Begin and end of the guest's command, where they have been.
    pub fn command(&self) -> [Option<u64>; 2] {
        self.reports.command()
    }

    /// Takes what the guest said since the last call: the mappings to write. Reads unwind tables if they are wanted.
    pub fn poll(&mut self, sampling: &Sampling) -> Vec<Mapping> {
        let mut mappings = Vec::new();
        while let Some(code) = self.reports.take() {
            self.identify(kernel_name(self.kind).to_owned(), code.build_id);
            self.left_out = self.left_out.max(code.left_out);
            // Tables of modules that came later are not read: vCPUs look at the first ones without a lock.
            if !std::mem::replace(&mut self.asked, true) && sampling.chains && sampling.orc.is_some() {
                self.waiting = Some((code.modules.iter().map(place).collect(), 0));
            }
            for (at, module) in code.modules.iter().enumerate() {
                if self.mapped.insert((module.address, module.name.clone())) {
                    let next = code.modules.get(at + 1).map(|next| next.address);
                    let mapping = of_module(self.kind, module, next, self.pid);
                    self.identify(mapping.file.clone(), module.build_id.clone());
                    mappings.push(mapping);
                }
            }
        }
        if let Some((places, tries)) = &mut self.waiting {
            *tries += 1;
            let read = sampling.read_modules(places);
            if read.is_some() || *tries >= MOST_TRIES {
                self.unwinding = read.map_or(Unwinding::Unread(places.len()), Unwinding::Read);
                self.waiting = None;
            }
        }
        mappings
    }

    /// The build-ids; what became of unwind tables; lines of the guest's list that were left out.
    pub fn finish(self) -> (Vec<BuildId>, Unwinding, usize) {
        let unread = self.waiting.map(|(places, _)| Unwinding::Unread(places.len()));
        (self.build_ids, unread.unwrap_or(self.unwinding), self.left_out)
    }

    /// Notes a build-id. What the guest says is newer than what its image says.
    fn identify(&mut self, file: String, id: Option<Vec<u8>>) {
        let Some(id) = id else { return };
        self.build_ids.retain(|known| known.file != file);
        let kernel = of_module(self.kind, &Module::default(), None, self.pid);
        // A guest's own id would give it a machine of its own in perf, which has no --guestkallsyms: those are the
        // default guest's, 0.
        let pid = if self.kind == Kind::Guest { DEFAULT_GUEST } else { kernel.pid.cast_signed() };
        self.build_ids.push(BuildId { misc: kernel.misc, pid, id, file });
    }
}

fn place(module: &Module) -> ModulePlace {
    ModulePlace { name: module.name.clone(), sections: module.sections.clone() }
}

#[cfg(test)]
mod tests {
    use host_pmu::sampler::Rate;
    use linux_guest::loaded::Code;

    use super::*;

    fn module(name: &str, address: u64) -> Module {
        Module {
            name: name.to_owned(),
            address,
            size: 0x3000,
            build_id: Some(vec![address as u8; 20]),
            ..Module::default()
        }
    }

    #[test]
    fn a_module_is_mapped_once_and_has_its_build_id() {
        let reports = Arc::new(CodeReports::default());
        let mut code = KernelCode::new(Arc::clone(&reports), Kind::Host, 7, Some(vec![9; 20]));
        let sampling = Sampling::new(Vec::new(), Rate::Hertz(1), true, 1);
        assert_eq!(code.poll(&sampling), Vec::new());
        let (first, second) = (module("one", 0xffff_ffff_c000_0001), module("two", 0xffff_ffff_c000_2001));
        reports.push(Code { build_id: None, modules: vec![first.clone()], left_out: 1 });
        reports.push(Code { build_id: Some(vec![8; 20]), modules: vec![first, second], left_out: 0 });
        let mapped: Vec<_> = code.poll(&sampling).into_iter().map(|m| (m.file, m.length, m.build_id)).collect();
        assert_eq!(mapped, [("[one]".to_owned(), 0x3000, vec![1; 20]), ("[two]".to_owned(), 0x3000, vec![1; 20])]);
        assert_eq!(code.poll(&sampling), Vec::new());
        let (ids, unwinding, left_out) = code.finish();
        let ids: Vec<_> = ids.iter().map(|id| (id.misc, id.pid, id.file.as_str(), id.id[0])).collect();
        assert_eq!(ids, [(1, -1, "[one]", 1), (1, -1, "[kernel.kallsyms]", 8), (1, -1, "[two]", 1)]);
        assert_eq!((unwinding, left_out), (Unwinding::NotAsked, 1), "a kernel without tables has none for modules");
        let guest = KernelCode::new(Arc::default(), Kind::Guest, 7, Some(vec![9; 20]));
        let ids: Vec<_> = guest.finish().0.iter().map(|id| (id.misc, id.pid, id.file.clone())).collect();
        assert_eq!(ids, [(4, DEFAULT_GUEST, "[guest.kernel.kallsyms]".to_owned())]);
    }
}
