//! The vCPU state that an exit handler may read or change.

use kvm_ioctls::VcpuFd;

use super::handle::ExitedVcpu;
use super::other_msrs::{OneMsr, Registers};
use crate::sys;

/// A vCPU of KVM's behind an exit.
pub(super) struct KvmVcpu<'a> {
    pub(super) fd: &'a mut VcpuFd,
    pub(super) one: &'a mut OneMsr,
}

impl Registers for KvmVcpu<'_> {
    fn rip(&self) -> Option<u64> {
        self.fd.get_regs().ok().map(|regs| regs.rip)
    }

    fn msr(&mut self, index: u32) -> Option<u64> {
        self.one.read(self.fd, index)
    }

    fn set_msr(&mut self, index: u32, value: u64) -> bool {
        self.one.write(self.fd, index, value)
    }
}

impl ExitedVcpu for KvmVcpu<'_> {
    fn port_data(&mut self) -> &mut [u8] {
        sys::port_data(self.fd)
    }

    fn memory_data(&mut self) -> &mut [u8] {
        sys::memory_data(self.fd)
    }

    fn instruction(&mut self) -> Vec<u8> {
        sys::internal_error(self.fd).1
    }
}
