//! Single-stepping: reports each instruction that retires to a host side that counts them (backend `step`).
//!
//! # How an instruction is stepped
//! KVM's guest debugging (KVM_GUESTDBG_SINGLESTEP) is armed for each instruction, and only while a counter runs.
//! [`instruction`] decodes the instruction at RIP as 64-bit code from its linear address, by the guest's page tables; other code is
//! refused. After the step, RIP says whether it retired.
//!
//! # Events
//! The delivery of an interrupt, an NMI or an exception clears RFLAGS.TF, and the handler would run without steps. Hardware
//! breakpoints are too few for 256 vectors, and QEMU's software emulation (host B) ignores them in a nested guest, just
//! as the intercept of INT3. Therefore the first two bytes of each handler in the guest's IDT ([`gates`]) hold an OUT to a
//! port that only the stepper knows ([`traps`]) while steps are made: any delivery ends in an exit at the handler's first instruction. The saved RIP on the guest's stack
//! ([`traps::Frame`]) says whether the interrupted instruction retired. The frame's TF, which the delivery saved, is
//! cleared. The traps are lifted when no counter runs, and from the instruction that is stepped. They are visible to a
//! guest that reads its own handlers, and to other vCPUs: backend `step` takes one vCPU only.
//!
//! # Ring 3
//! IRET loads RFLAGS without TF, so TF is set in what it loads ([`aim`]). PUSHF saves it; there it is cleared. SYSCALL, SYSENTER
//! and their returns are refused. On stock KVM the trap of a ring-3 instruction is an exit. KVM without hardware virtualization
//! delivers it to the guest as #DB: it arrives at the trap of vector 1 and is undone from its frame, so a guest without
//! a gate for vector 1 cannot be counted there in ring 3.
//!
//! # Exits in the middle of an instruction
//! MSR, port and memory accesses exit before the instruction is complete. A KVM_RUN with `immediate_exit` completes it, so
//! that the next instruction is stepped from its start. HLT is carried out here (KVM_SET_MP_STATE), since KVM would sleep
//! before it reports the step; but not if an event comes before it ([`registers`]).
//!
//! # What is not counted is refused
//! If RIP after a step is neither a successor of the instruction nor a handler, instructions have run without steps:
//! the vCPU ends with a reason that names the place. The traps are compared with memory and the page tables before each
//! entry, unless the instruction before it wrote no memory. One case is not detected: an event whose handler is the
//! instruction that is stepped, as that one has no trap.

mod aim;
mod gates;
mod instruction;
mod registers;
mod stepper;
mod traps;

pub(super) use stepper::{Step, Stepper};
