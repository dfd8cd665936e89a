//! What really starts guests and asks KVM: the one place where the experiment meets the VMM.

use crate::backend::BackendKey;
use crate::error::Error;
use crate::experiment::ArmRunner;
use crate::experiment::plan::Plan;
use crate::host::probe::{EventProbe, KvmProbe, KvmReport};

const WHY: &str = "not built in yet";

/// Makes the runner of `plan`'s arms.
///
/// # Errors
/// Exit 4 where this host cannot run guests.
pub fn make(_plan: &Plan) -> Result<Box<dyn ArmRunner>, Error> {
    Err(Error::host(
        "cannot start a guest",
        WHY,
        "use a build of this tool that has its VMM",
    ))
}

/// Asks KVM and perf of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisHost;

impl KvmProbe for ThisHost {
    fn probe(&self) -> Result<KvmReport, String> {
        Err(WHY.to_owned())
    }
}

impl EventProbe for ThisHost {
    fn try_open(&self, _backend: &BackendKey) -> Result<(), String> {
        Err(WHY.to_owned())
    }
}
