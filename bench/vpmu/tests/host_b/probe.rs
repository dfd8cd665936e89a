//! Actions of this test binary when it is started inside host B: it is itself the dynamically linked program that is
//! carried in.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context, Result};
use kvm_ioctls::{Cap, Kvm};

/// First argument that selects a probe instead of the tests.
pub(crate) const ARGUMENT: &str = "--inside-host-b";

/// Runs the probe `name`, on `file` if it takes one. Returns the exit code.
pub(crate) fn run(name: &str, file: Option<&str>) -> Result<u8> {
    let mut out = std::io::stdout().lock();
    match name {
        "kvm" => {
            let kvm = Kvm::new().context("cannot open /dev/kvm")?;
            let vm = kvm.create_vm().context("KVM_CREATE_VM")?;
            let _vcpu = vm.create_vcpu(0).context("KVM_CREATE_VCPU")?;
            writeln!(out, "version {}", kvm.get_api_version())?;
            for (name, cap) in [("user-space-msr", Cap::X86UserSpaceMsr), ("msr-filter", Cap::X86MsrFilter)] {
                writeln!(out, "{name} {}", kvm.check_extension(cap))?;
            }
            Ok(0)
        }
        // A loop of known length, and the time it took.
        "loop" => {
            let start = Instant::now();
            let mut x = 1_u64;
            for _ in 0..3_000_000 {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            writeln!(out, "{}", start.elapsed().as_nanos())?;
            Ok(0)
        }
        // As `setcap cap_perfmon=ep FILE`.
        "perfmon" => {
            let capability = perfmon();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(file.context("a file")?, "security.capability", &capability, flags)?;
            Ok(0)
        }
        other => {
            writeln!(out, "standard output of {other}: é €")?;
            eprintln!("standard error, not UTF-8 on the next line");
            std::io::stderr().write_all(b"\xff\x00\r\n")?;
            Ok(42)
        }
    }
}

/// CAP_PERFMON (38), permitted and effective: `struct vfs_cap_data` of revision 2, little-endian words.
fn perfmon() -> Vec<u8> {
    let (revision, effective, high) = (0x0200_0000_u32, 1, 1_u32 << (38 - 32));
    [revision | effective, 0, 0, high, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}
