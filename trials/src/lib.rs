//! Tests with prerequisites.
//!
//! A test whose prerequisite is missing is listed as ignored, with a `SKIP:` line that says why. Where `CI=true` and KVM
//! opens, a missing prerequisite is a failure: nothing is passed over silently there. Tests run one at a time, because guests
//! share this host's CPUs.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test and what it lacks.
pub struct Case {
    name: String,
    missing: Option<String>,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Case {
    /// A test that fails by panicking.
    pub fn new(name: impl Into<String>, missing: Option<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self::fallible(name, missing, || {
            run();
            Ok(())
        })
    }

    /// A test that fails by an error's text, too.
    pub fn fallible(
        name: impl Into<String>,
        missing: Option<String>,
        run: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), missing, run: Box::new(|| run().map_err(Failed::from)) }
    }

    fn trial(self, must_run: bool, listing: bool) -> Trial {
        match self.missing {
            None => Trial::test(self.name, self.run),
            Some(why) if must_run => Trial::test(self.name, move || Err(format!("skipped in CI: {why}").into())),
            Some(why) => {
                if !listing {
                    eprintln!("SKIP: {}: {why}", self.name);
                }
                Trial::test(self.name, self.run).with_ignored_flag(true)
            }
        }
    }
}

/// Runs the tests as a libtest binary does; `kvm_opens` is whether `/dev/kvm` does.
#[must_use]
pub fn run(cases: impl IntoIterator<Item = Case>, kvm_opens: bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let must_run = kvm_opens && std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let trials = cases.into_iter().map(|case| case.trial(must_run, arguments.list)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(missing: Option<&str>) -> Case {
        Case::new("a_case", missing.map(str::to_owned), || {})
    }

    #[test]
    fn what_is_missing_is_ignored_or_in_ci_a_failure() {
        assert!(!case(None).trial(false, true).has_ignored_flag());
        assert!(case(Some("no KVM")).trial(false, true).has_ignored_flag());
        assert!(!case(Some("no KVM")).trial(true, true).has_ignored_flag());
    }
}
