//! Tests with prerequisites.
//!
//! A test without its prerequisite is listed as ignored, with a `SKIP:` line that gives the reason. With `CI=true` on a host
//! that should have the prerequisite ([`expected`]), the test fails instead. Tests run one at a time, because guests share
//! this host's CPUs.

pub mod expected;
pub mod schema;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

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
    /// A test that fails by panicking.
    pub fn new(name: impl Into<String>, missing: Option<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self::fallible(name, missing, || {
            run();
            Ok(())
        })
    }

    /// A test that fails by a panic or by an error's text.
    pub fn fallible(
        name: impl Into<String>,
        missing: Option<String>,
        run: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), missing, expected: true, run: Box::new(|| run().map_err(Failed::from)) }
    }

    /// Marks a test's prerequisite; unless `expected`, this host may lack it even in CI.
    #[must_use]
    pub fn expected(self, expected: bool) -> Self {
        Self { expected, ..self }
    }

    fn trial(self, must_run: bool, listing: bool) -> Trial {
        match self.missing {
            None => Trial::test(self.name, self.run),
            Some(why) if must_run && self.expected => {
                Trial::test(self.name, move || Err(format!("skipped in CI: {why}").into()))
            }
            Some(why) => {
                if !listing {
                    eprintln!("SKIP: {}: {why}", self.name);
                }
                Trial::test(self.name, self.run).with_ignored_flag(true)
            }
        }
    }
}

/// Runs the tests as a libtest binary does. With `CI=true` and `expected`, a missing prerequisite is a failure.
#[must_use]
pub fn run(cases: impl IntoIterator<Item = Case>, expected: bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let must_run = expected && std::env::var_os("CI").is_some_and(|ci| ci == "true");
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
    fn a_missing_prerequisite_is_ignored_or_in_ci_a_failure() {
        assert!(!case(None).trial(false, true).has_ignored_flag());
        assert!(case(Some("no KVM")).trial(false, true).has_ignored_flag());
        assert!(!case(Some("no KVM")).trial(true, true).has_ignored_flag());
        assert!(case(Some("no KVM")).expected(false).trial(true, true).has_ignored_flag());
    }
}
