//! The port and memory accesses of a vCPU: an interface between the vCPU loop and a guest's devices.

use crate::outcome::End;

/// The loop's next step after an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Continue,
    /// Call [`Bus::note_held`] with the number of host events held, and go on.
    NoteHeld,
    /// A phase of the guest's set-up begins (`PHASE_*`); go on.
    Phase(usize),
    /// The vCPU's turn is over: it waits for the next one.
    TurnOver,
    /// The vCPU ends.
    End(End),
}

/// The devices of one vCPU. Called between two KVM_RUNs: an implementation neither allocates, formats nor blocks on what a
/// guest does often.
pub trait Bus {
    /// Answers an OUT of `data` to `port`, seen at host TSC `tsc`. A string instruction gives all its units in one go.
    fn write_port(&mut self, port: u16, data: &[u8], tsc: u64) -> Next;

    /// Answers an IN from `port`: fills `data`.
    fn read_port(&mut self, port: u16, data: &mut [u8]) -> Next {
        data.fill(0xff);
        Next::End(End::UnknownExit(format!("IN from port {port:#x}")))
    }

    /// Answers a write to guest-physical memory that is not there.
    fn write_memory(&mut self, address: u64, _data: &[u8]) -> Next {
        Next::End(End::UnassignedAccess { address, write: true })
    }

    /// Answers a read from guest-physical memory that is not there.
    fn read_memory(&mut self, address: u64, data: &mut [u8]) -> Next {
        data.fill(0xff);
        Next::End(End::UnassignedAccess { address, write: false })
    }

    /// Takes the number of host events held now, after [`Next::NoteHeld`].
    fn note_held(&mut self, _held: u64) {}
}
