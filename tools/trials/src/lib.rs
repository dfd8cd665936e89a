//! What tests of several crates share: documents ([`fixture`]), hosts as trees of files ([`hosts`]) and as sources of noise
//! ([`synthetic`]), and tests with prerequisites ([`Case`]).
//!
//! A test without its prerequisite is listed as ignored, with a `SKIP:` line for each reason. With `CI=true` on a host
//! that should have the prerequisite (`expects_…`), the test fails instead. Tests run one at a time, because guests share
//! this host's CPUs.

pub mod fixture;
pub mod hosts;
pub mod synthetic;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

/// A test that takes longer says how long.
const LONG: Duration = Duration::from_secs(5);

/// A test and the prerequisite it lacks.
pub struct Case {
    name: String,
    missing: Option<String>,
    expected: bool,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Case {
    /// Returns a test that fails by panicking.
    pub fn new(name: impl Into<String>, missing: Option<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self::fallible(name, missing, || {
            run();
            Ok::<_, String>(())
        })
    }

    /// Returns a test that fails by a panic or by an error's text.
    pub fn fallible<E: Display>(
        name: impl Into<String>,
        missing: Option<String>,
        run: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Self {
        let run = Box::new(|| run().map_err(|error| Failed::from(format!("{error:#}"))));
        Self { name: name.into(), missing, expected: true, run }
    }

    /// Marks a test's prerequisite; unless `expected`, this host may lack it even in CI.
    pub fn expected(self, expected: bool) -> Self {
        Self { expected, ..self }
    }

    /// Prefixes the name with that of the module which has the test.
    pub fn of(self, module: &str) -> Self {
        Self { name: format!("{module}::{}", self.name), ..self }
    }

    fn trial(self, must_run: bool) -> Trial {
        let (name, run) = (self.name, self.run);
        // Which of them a run waits for is seen in its log.
        let timed = move || {
            let (begun, result) = (Instant::now(), run());
            if begun.elapsed() > LONG {
                eprint!("({:.0} s) ", begun.elapsed().as_secs_f64());
            }
            result
        };
        match self.missing {
            None => Trial::test(name, timed),
            Some(why) if must_run && self.expected => {
                Trial::test(name, move || Err(format!("skipped in CI: {why}").into()))
            }
            Some(_) => Trial::test(name, timed).with_ignored_flag(true),
        }
    }
}

/// Runs the tests as a libtest binary does. With `CI=true` and `expected`, a missing prerequisite is a failure.
pub fn run(cases: impl IntoIterator<Item = Case>, expected: bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let must_run = expected && std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let cases: Vec<Case> = cases.into_iter().collect();
    if !arguments.list {
        let wanted = |case: &&Case| arguments.filter.as_ref().is_none_or(|filter| case.name.contains(filter));
        skipped(cases.iter().filter(wanted));
    }
    let trials = cases.into_iter().map(|case| case.trial(must_run)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Prints a line for each reason why tests are skipped.
fn skipped<'a>(cases: impl Iterator<Item = &'a Case>) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in cases {
        if let Some(why) = &case.missing {
            reasons.entry(why).or_default().push(&case.name);
        }
    }
    for (why, names) in reasons {
        let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        eprintln!("SKIP: {}{more}: {why}", names[0]);
    }
}

/// Compares a text with the file that holds it as it should be, or writes the file with `BLESS=1`.
///
/// # Panics
/// They differ.
pub fn golden(path: &Path, found: &str) {
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(path, found).expect("the file is written");
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let lines = || expected.lines().map(Some).chain(std::iter::repeat(None));
    let differs = found.lines().map(Some).chain([None]).zip(lines()).position(|(found, expected)| found != expected);
    if let Some(at) = differs.filter(|_| found != expected) {
        let part = |text: &str| text.lines().skip(at.saturating_sub(3)).take(12).collect::<Vec<_>>().join("\n");
        panic!(
            "{} differs from line {} on (BLESS=1 writes it)\n--- expected\n{}\n--- found\n{}",
            path.display(),
            at + 1,
            part(&expected),
            part(found)
        );
    }
}

// Prerequisites that this host should have: judged by the kernel and the process's rights, without trying them.
//
// A test that tries the prerequisite and fails here has found a bug, or a host that CI must not run on.

/// linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Returns whether perf events of a process's own threads should open: the kernel has them, and `perf_event_paranoid` or a
/// capability admits kernel mode.
pub fn expects_perf_events() -> bool {
    perf(1)
}

/// Returns whether perf events of a whole CPU should open.
pub fn expects_cpu_events() -> bool {
    perf(0)
}

fn perf(most: i32) -> bool {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    paranoid.is_ok_and(|level| perf_admitted(&level, &status, most))
}

/// Returns whether a thread should be able to install a seccomp filter.
pub fn expects_seccomp() -> bool {
    Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

/// Returns whether an ordinary process should get a user namespace of its own: the kernel and its security modules
/// admit it, and no seccomp filter, as containers have, is in the way.
pub fn expects_user_namespaces() -> bool {
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

    fn case(missing: Option<&str>) -> Case {
        Case::new("a_case", missing.map(str::to_owned), || {})
    }

    #[test]
    fn a_missing_prerequisite_is_ignored_or_in_ci_a_failure() {
        assert!(!case(None).trial(false).has_ignored_flag());
        assert!(case(Some("no KVM")).trial(false).has_ignored_flag());
        assert!(!case(Some("no KVM")).trial(true).has_ignored_flag());
        assert!(case(Some("no KVM")).expected(false).trial(true).has_ignored_flag());
    }

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
