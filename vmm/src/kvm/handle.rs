//! The answer to an exit, without a file descriptor.

use host_pmu::side::HostPmu;

use arch_pmu::Vpmu;

use super::exit::Exit;
use super::other_msrs::{OtherMsrs, Registers};
use super::stats::LoopStats;
use crate::devices::bus::{Bus, Next};
use crate::outcome::End;
use crate::sample::ReturnKind;

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

/// The vCPU behind an exit: its access's data in `kvm_run`, and its registers.
pub(super) trait ExitedVcpu: Registers {
    /// Returns the bytes of a port access.
    fn port_data(&mut self) -> &mut [u8];
    /// Returns the bytes of a memory access.
    fn memory_data(&mut self) -> &mut [u8];
    /// Returns the instruction that KVM could not emulate, after an internal error; empty if KVM gave none.
    fn instruction(&mut self) -> Vec<u8>;
}

/// Everything that an exit may touch.
#[derive(Debug)]
pub(super) struct Parts<'a, H, B> {
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
        Exit::Rdmsr { index } => (index, false, pmu.rdmsr(index)),
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
    parts: &mut Parts<'_, H, B>,
    vcpu: &mut V,
) -> Action {
    let Some(other_msrs) = &mut parts.other_msrs else {
        return match access(exit, parts.pmu, parts.stats) {
            Some(Answer(value)) => Action::AnswerMsr(value),
            None => handle_other(exit, at, parts, vcpu),
        };
    };
    match exit {
        Exit::Wrmsr { index, value } => {
            let done = OtherMsrs::wrmsr(vcpu, parts.pmu, index, value);
            parts.stats.count_msr(index, true, done.is_err());
            Action::AnswerMsr(done.is_ok().then_some(value))
        }
        Exit::Rdmsr { index } => {
            let value = other_msrs.rdmsr(vcpu, parts.pmu, index);
            parts.stats.count_msr(index, false, value.is_err());
            Action::AnswerMsr(value.ok())
        }
        other => handle_other(other, at, parts, vcpu),
    }
}

/// Handles an exit other than one of an MSR.
fn handle_other<H: HostPmu, B: Bus, V: ExitedVcpu>(
    exit: Exit,
    at: u64,
    parts: &mut Parts<'_, H, B>,
    vcpu: &mut V,
) -> Action {
    let next = match exit {
        Exit::PortOut { port } => {
            parts.stats.count_other(ReturnKind::Port);
            parts.bus.write_port(port, vcpu.port_data(), at)
        }
        Exit::PortIn { port } => {
            parts.stats.count_other(ReturnKind::Port);
            parts.bus.read_port(port, vcpu.port_data())
        }
        Exit::MemoryWrite { address } => {
            parts.stats.count_other(ReturnKind::Memory);
            parts.bus.write_memory(address, vcpu.memory_data())
        }
        Exit::MemoryRead { address } => {
            parts.stats.count_other(ReturnKind::Memory);
            parts.bus.read_memory(address, vcpu.memory_data())
        }
        // A signal ends a wait in KVM_RUN.
        Exit::Interrupted => {
            parts.stats.count_other(ReturnKind::Signal);
            Next::Continue
        }
        // A step that was not asked for needs no action.
        Exit::Debug => Next::Continue,
        other => return Action::End(end_of(other, vcpu)),
    };
    match next {
        Next::Continue => Action::Resume,
        Next::NoteHeld => {
            parts.bus.note_held(parts.pmu.host().held());
            Action::Resume
        }
        Next::Phase(phase) => {
            parts.stats.phases.begin(phase, parts.pmu.host().ops());
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
        Exit::EntryFailed { reason } => End::EntryFailed { reason },
        Exit::InternalError { suberror } => End::InternalError { suberror, instruction: vcpu.instruction() },
        Exit::Failed { errno } => End::Host(format!("KVM_RUN: {}", std::io::Error::from_raw_os_error(errno))),
        Exit::Other { reason } => End::UnknownExit(format!("{reason} ({})", reason_name(reason))),
        other => End::UnknownExit(format!("{other:?}")),
    }
}

/// Returns the name of `KVM_EXIT_*` of <linux/kvm.h>, for those that x86 has.
fn reason_name(reason: u32) -> &'static str {
    match reason {
        kvm_bindings::KVM_EXIT_UNKNOWN => "KVM_EXIT_UNKNOWN",
        kvm_bindings::KVM_EXIT_EXCEPTION => "KVM_EXIT_EXCEPTION",
        kvm_bindings::KVM_EXIT_HYPERCALL => "KVM_EXIT_HYPERCALL",
        kvm_bindings::KVM_EXIT_HLT => "KVM_EXIT_HLT",
        kvm_bindings::KVM_EXIT_IRQ_WINDOW_OPEN => "KVM_EXIT_IRQ_WINDOW_OPEN",
        kvm_bindings::KVM_EXIT_SET_TPR => "KVM_EXIT_SET_TPR",
        kvm_bindings::KVM_EXIT_TPR_ACCESS => "KVM_EXIT_TPR_ACCESS",
        kvm_bindings::KVM_EXIT_NMI => "KVM_EXIT_NMI",
        kvm_bindings::KVM_EXIT_SYSTEM_EVENT => "KVM_EXIT_SYSTEM_EVENT",
        kvm_bindings::KVM_EXIT_IOAPIC_EOI => "KVM_EXIT_IOAPIC_EOI",
        kvm_bindings::KVM_EXIT_HYPERV => "KVM_EXIT_HYPERV",
        _ => "of <linux/kvm.h>",
    }
}

#[cfg(test)]
mod tests;
