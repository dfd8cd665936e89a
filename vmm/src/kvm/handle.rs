//! The answer to an exit, without a file descriptor.

use arch_pmu::Vpmu;
use host_pmu::side::HostPmu;
use kvm_ioctls::VcpuFd;

use super::exit::Exit;
use super::other_msrs::{ExitedVcpu, OneMsr, OtherMsrs};
use super::stats::LoopStats;
use crate::devices::bus::{Bus, Next};
use crate::outcome::End;
use crate::sys;

/// Next step of the loop after an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Enter the guest again.
    Resume,
    /// Complete the MSR access with this value (ignored for a write), or with #GP; then enter the guest again.
    AnswerMsr(Option<u64>),
    /// End the vCPU.
    End(End),
}

/// Everything of a vCPU that an exit may touch.
#[derive(Debug)]
pub(super) struct Context<'a, H, B> {
    pub(super) pmu: &'a mut Vpmu<H>,
    pub(super) bus: &'a mut B,
    pub(super) other_msrs: Option<&'a mut OtherMsrs>,
    pub(super) stats: &'a mut LoopStats,
}

/// The answer to an MSR access: the value (ignored for a write), or #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer(pub(super) Option<u64>);

/// Does an access to a register of the PMU. `None`: the exit is another one.
#[expect(clippy::inline_always, reason = "the way of nearly every exit: its code is in one place")]
#[inline(always)]
pub(super) fn access<H: HostPmu>(exit: Exit, pmu: &mut Vpmu<H>, stats: &mut LoopStats) -> Option<Answer> {
    let (index, write, value) = match exit {
        Exit::Wrmsr { index, value } => (index, true, pmu.wrmsr(index, value).map(|()| value)),
        Exit::Rdmsr(index) => (index, false, pmu.rdmsr(index)),
        _ => return None,
    };
    stats.count_msr(index, write, value.is_err());
    Some(Answer(value.ok()))
}

/// Handles `exit`, which was seen at host TSC `at`.
#[inline]
pub(super) fn handle<H: HostPmu, B: Bus, V: ExitedVcpu>(
    exit: Exit,
    at: u64,
    context: &mut Context<'_, H, B>,
    vcpu: &mut V,
) -> Action {
    let Some(other_msrs) = &mut context.other_msrs else {
        return match access(exit, context.pmu, context.stats) {
            Some(Answer(value)) => Action::AnswerMsr(value),
            None => handle_other(exit, at, context, vcpu),
        };
    };
    match exit {
        Exit::Wrmsr { index, value } => {
            let done = OtherMsrs::wrmsr(vcpu, context.pmu, index, value);
            context.stats.count_msr(index, true, done.is_err());
            Action::AnswerMsr(done.is_ok().then_some(value))
        }
        Exit::Rdmsr(index) => {
            let value = other_msrs.rdmsr(vcpu, context.pmu, index);
            context.stats.count_msr(index, false, value.is_err());
            Action::AnswerMsr(value.ok())
        }
        other => handle_other(other, at, context, vcpu),
    }
}

/// Handles an exit other than one of an MSR.
fn handle_other<H: HostPmu, B: Bus, V: ExitedVcpu>(
    exit: Exit,
    at: u64,
    context: &mut Context<'_, H, B>,
    vcpu: &mut V,
) -> Action {
    let next = match exit {
        Exit::PortOut(port) => context.bus.write_port(port, vcpu.port_data(), at),
        Exit::PortIn(port) => context.bus.read_port(port, vcpu.port_data()),
        Exit::MemoryWrite(address) => context.bus.write_memory(address, vcpu.memory_data()),
        Exit::MemoryRead(address) => context.bus.read_memory(address, vcpu.memory_data()),
        // A signal ends a wait in KVM_RUN. A step that was not asked for needs no action.
        Exit::Interrupted | Exit::Debug => Next::Continue,
        other => return Action::End(end_of(other, vcpu)),
    };
    match next {
        Next::Continue => Action::Resume,
        Next::NoteHeld => {
            context.bus.note_held(context.pmu.host().held());
            Action::Resume
        }
        Next::Phase(phase) => {
            context.stats.phases.begin(phase, context.pmu.host().ops());
            Action::Resume
        }
        Next::TurnOver => Action::End(End::TurnOver),
        Next::End(end) => Action::End(end),
    }
}

/// Returns the end that an exit means which no guest recovers from.
#[cold]
fn end_of<V: ExitedVcpu>(exit: Exit, vcpu: &mut V) -> End {
    match exit {
        Exit::Shutdown => End::TripleFault,
        Exit::EntryFailed(reason) => End::EntryFailed(reason),
        Exit::InternalError(suberror) => End::InternalError { suberror, instruction: vcpu.instruction() },
        Exit::Failed(errno) => End::Host(format!("KVM_RUN: {}", std::io::Error::from_raw_os_error(errno))),
        Exit::Other(reason) => End::UnknownExit(format!("{reason} (KVM_EXIT_* of <linux/kvm.h>)")),
        other => End::UnknownExit(format!("{other:?}")),
    }
}

/// A vCPU of KVM's behind an exit.
pub(super) struct KvmVcpu<'a> {
    pub(super) fd: &'a mut VcpuFd,
    pub(super) one: &'a mut OneMsr,
}

impl ExitedVcpu for KvmVcpu<'_> {
    fn rip(&self) -> Option<u64> {
        self.fd.get_regs().ok().map(|regs| regs.rip)
    }

    fn msr(&mut self, index: u32) -> Option<u64> {
        self.one.read(self.fd, index)
    }

    fn set_msr(&mut self, index: u32, value: u64) -> bool {
        self.one.write(self.fd, index, value)
    }

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

#[cfg(test)]
mod tests {
    use arch_pmu::amd::{AmdCaps, PERF_CTL0};
    use arch_pmu::caps::PmuCaps;
    use host_pmu::floor::Floor;

    use super::*;
    use crate::boot::rdpmc::Site;

    /// A vCPU of arrays.
    #[derive(Default)]
    struct Fake {
        memory: Vec<u8>,
        rip: u64,
        msr: Option<(u32, u64)>,
        instruction: Vec<u8>,
    }

    impl ExitedVcpu for Fake {
        fn rip(&self) -> Option<u64> {
            Some(self.rip)
        }
        fn msr(&mut self, index: u32) -> Option<u64> {
            self.msr.filter(|&(known, _)| known == index).map(|(_, value)| value)
        }
        fn set_msr(&mut self, index: u32, value: u64) -> bool {
            self.msr = Some((index, value));
            true
        }
        fn port_data(&mut self) -> &mut [u8] {
            &mut []
        }
        fn memory_data(&mut self) -> &mut [u8] {
            &mut self.memory
        }
        fn instruction(&mut self) -> Vec<u8> {
            self.instruction.clone()
        }
    }

    /// A bus without devices.
    struct Nothing;

    impl Bus for Nothing {
        fn write_port(&mut self, _: u16, _: &[u8], _: u64) -> Next {
            Next::Continue
        }
    }

    struct World {
        pmu: Vpmu<Floor>,
        bus: Nothing,
        other_msrs: Option<OtherMsrs>,
        stats: LoopStats,
        vcpu: Fake,
    }

    impl World {
        fn new(other_msrs: Option<OtherMsrs>) -> Self {
            Self {
                pmu: Vpmu::new(PmuCaps::default(), Floor::new(1_000_000, 1_000_000).unwrap()),
                bus: Nothing,
                other_msrs,
                stats: LoopStats::new(1_000_000, 0),
                vcpu: Fake::default(),
            }
        }

        fn handle(&mut self, exit: Exit) -> Action {
            let other_msrs = self.other_msrs.as_mut();
            let mut context = Context { pmu: &mut self.pmu, bus: &mut self.bus, other_msrs, stats: &mut self.stats };
            handle(exit, 77, &mut context, &mut self.vcpu)
        }
    }

    const FS_BASE: u32 = 0xc000_0100;

    #[test]
    fn an_images_rewritten_rdpmc_is_distinguished_from_rdmsr_by_rip() {
        let site = Site { address: 0x1000, length: 2, offset: 0 };
        let mut world = World::new(Some(OtherMsrs::new(&[site])));
        world.handle(Exit::Wrmsr { index: 0xc1, value: 5 });
        world.vcpu.rip = 0x1000;
        assert_eq!(world.handle(Exit::Rdmsr(0)), Action::AnswerMsr(Some(5)));
        world.vcpu.rip = 0x1002;
        assert_eq!(world.handle(Exit::Rdmsr(0)), Action::AnswerMsr(None), "no MSR 0 here");
        world.vcpu.msr = Some((0, 9));
        assert_eq!(world.handle(Exit::Rdmsr(0)), Action::AnswerMsr(Some(9)));
        let other_msrs = world.other_msrs.unwrap();
        assert_eq!((other_msrs.rdpmcs(), other_msrs.elsewhere()), (1, 1), "KVM's answer to a true RDMSR is none");
        // Addresses that are not canonical fault, and others reach KVM.
        let mut world = World::new(Some(OtherMsrs::new(&[])));
        for (value, answer) in [(1 << 47, None), (0x7000, Some(0x7000))] {
            assert_eq!(world.handle(Exit::Wrmsr { index: FS_BASE, value }), Action::AnswerMsr(answer));
            assert_eq!(world.vcpu.msr, answer.map(|value| (FS_BASE, value)));
        }
    }

    #[test]
    fn a_write_of_efer_reaches_kvm_and_turns_host_only_counters_on() {
        const EFER: u32 = 0xc000_0080;
        let mut world = World::new(Some(OtherMsrs::new(&[])));
        world.pmu = Vpmu::new(AmdCaps { svm: true, ..AmdCaps::default() }, Floor::new(1_000_000, 1_000_000).unwrap());
        assert_eq!(world.handle(Exit::Wrmsr { index: EFER, value: 0xd01 }), Action::AnswerMsr(None), "KVM has none");
        world.vcpu.msr = Some((EFER, 0xd01));
        world.handle(Exit::Wrmsr { index: PERF_CTL0, value: 1 << 41 | 0x53_0076 });
        for (value, answer, svm) in
            [(0x1d01, Some(0x1d01), true), (0x1c01, None, true), (0xd01, Some(0xd01), false), (0xc01, None, false)]
        {
            assert_eq!(world.handle(Exit::Wrmsr { index: EFER, value }), Action::AnswerMsr(answer), "{value:#x}");
            assert_eq!(world.pmu.depends_on_svm(), svm, "{value:#x}");
        }
    }

    #[test]
    fn memory_that_is_absent_ends_the_run_unless_the_bus_says_otherwise() {
        let mut world = World::new(None);
        world.vcpu.memory = vec![0; 4];
        for (exit, write) in [(Exit::MemoryRead(0xd000_0000), false), (Exit::MemoryWrite(0xd000_0000), true)] {
            let end = End::UnassignedAccess { address: 0xd000_0000, write };
            assert_eq!(world.handle(exit), Action::End(end));
        }
        assert_eq!(world.vcpu.memory, [0xff; 4]);
    }
}
