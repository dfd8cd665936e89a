//! Prerequisites that this host should have: judged by the kernel and the process's rights, without trying them.
//!
//! A test that tries the prerequisite and fails here has found a bug, or a host that CI must not run on.

use std::path::Path;

/// linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Returns whether perf events of a process's own threads should open: the kernel has them, and `perf_event_paranoid` or a
/// capability admits kernel mode.
#[must_use]
pub fn perf_events() -> bool {
    perf(1)
}

/// Returns whether perf events of a whole CPU should open.
#[must_use]
pub fn cpu_events() -> bool {
    perf(0)
}

fn perf(most: i32) -> bool {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    paranoid.is_ok_and(|level| perf_admitted(&level, &status, most))
}

/// Returns whether a thread should be able to install a seccomp filter.
#[must_use]
pub fn seccomp() -> bool {
    Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

/// Returns whether an ordinary process should get a user namespace of its own: the kernel and its security modules admit it, and no seccomp
/// filter, as containers have, is in the way.
#[must_use]
pub fn user_namespaces() -> bool {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    number("/proc/sys/user/max_user_namespaces").is_some_and(|most| most > 0)
        && number("/proc/sys/kernel/unprivileged_userns_clone") != Some(0)
        && number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") != Some(1)
        && status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "0"))
}

/// Returns whether `paranoid` is at most `most`, or `status` shows a capability that overrides it.
fn perf_admitted(paranoid: &str, status: &str, most: i32) -> bool {
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let capable = held & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON) != 0;
    capable || paranoid.trim().parse::<i32>().is_ok_and(|level| level <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_level_or_a_capability_admits_perf_events() {
        let plain = "Name:\tx\nCapEff:\t0000000000000000\n";
        assert!(perf_admitted("1\n", plain, 1) && perf_admitted("-1\n", plain, 0));
        assert!(!perf_admitted("2\n", plain, 1) && !perf_admitted("1\n", plain, 0));
        assert!(!perf_admitted("", plain, 1) && !perf_admitted("4\n", "", 1));
        for bit in [CAP_SYS_ADMIN, CAP_PERFMON] {
            assert!(perf_admitted("4\n", &format!("CapEff:\t{:016x}\n", 1u64 << bit), 0));
        }
    }
}
