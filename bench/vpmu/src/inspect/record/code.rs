//! The code of a Linux guest's kernel in a recording: mappings and build-ids of the kernel and its modules.

use std::collections::BTreeSet;
use std::sync::Arc;

use perf_data::feature::BuildId;
use perf_data::record::{Mapping, Mode};

use super::layout::{EVERY_TASK, KERNEL, of_module};
use crate::machine::linux::symbols::CodeReports;

/// The code of a guest's kernel while it is recorded.
#[derive(Debug)]
pub struct KernelCode {
    reports: Arc<CodeReports>,
    /// Modules that have a mapping.
    mapped: BTreeSet<(u64, String)>,
    build_ids: Vec<BuildId>,
    left_out: usize,
}

impl KernelCode {
    /// Starts with the build-id of the kernel's image.
    pub fn new(reports: Arc<CodeReports>, build_id: Option<Vec<u8>>) -> Self {
        let mut code = Self { reports, mapped: BTreeSet::new(), build_ids: Vec::new(), left_out: 0 };
        code.identify(KERNEL.to_owned(), build_id);
        code
    }

    /// Takes what the guest said since the last call: the mappings to write.
    pub fn poll(&mut self) -> Vec<Mapping> {
        let mut mappings = Vec::new();
        while let Some(code) = self.reports.take() {
            self.identify(KERNEL.to_owned(), code.build_id);
            self.left_out = self.left_out.max(code.left_out);
            for (at, module) in code.modules.iter().enumerate() {
                if self.mapped.insert((module.address, module.name.clone())) {
                    let next = code.modules.get(at + 1).map(|next| next.address);
                    let mapping = of_module(module, next);
                    self.identify(mapping.file.clone(), module.build_id.clone());
                    mappings.push(mapping);
                }
            }
        }
        mappings
    }

    /// The build-ids, and lines of the guest's list that were left out.
    pub fn finish(self) -> (Vec<BuildId>, usize) {
        (self.build_ids, self.left_out)
    }

    /// Notes a build-id. What the guest says is newer than what its image says.
    fn identify(&mut self, file: String, id: Option<Vec<u8>>) {
        let Some(id) = id else { return };
        self.build_ids.retain(|known| known.file != file);
        self.build_ids.push(BuildId { misc: Mode::Kernel as u16, pid: EVERY_TASK.cast_signed(), id, file });
    }
}

#[cfg(test)]
mod tests {
    use linux_guest::loaded::{Code, Module};

    use super::*;

    fn module(name: &str, address: u64) -> Module {
        Module { name: name.to_owned(), address, size: 0x3000, build_id: Some(vec![address as u8; 20]) }
    }

    #[test]
    fn a_module_is_mapped_once_and_has_its_build_id() {
        let reports = Arc::new(CodeReports::default());
        let mut code = KernelCode::new(Arc::clone(&reports), Some(vec![9; 20]));
        assert_eq!(code.poll(), Vec::new());
        let (first, second) = (module("one", 0xffff_ffff_c000_0001), module("two", 0xffff_ffff_c000_2001));
        reports.push(Code { build_id: None, modules: vec![first.clone()], left_out: 1 });
        reports.push(Code { build_id: Some(vec![8; 20]), modules: vec![first, second], left_out: 0 });
        let mapped: Vec<_> = code.poll().into_iter().map(|m| (m.file, m.length, m.build_id)).collect();
        assert_eq!(mapped, [("[one]".to_owned(), 0x3000, vec![1; 20]), ("[two]".to_owned(), 0x3000, vec![1; 20])]);
        assert_eq!(code.poll(), Vec::new());
        let (ids, left_out) = code.finish();
        let ids: Vec<_> = ids.iter().map(|id| (id.misc, id.pid, id.file.as_str(), id.id[0])).collect();
        assert_eq!(ids, [(1, -1, "[one]", 1), (1, -1, "[kernel.kallsyms]", 8), (1, -1, "[two]", 1)]);
        assert_eq!(left_out, 1);
    }
}
