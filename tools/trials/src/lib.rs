//! What tests of several crates share: documents ([`fixture`]), hosts as trees of files ([`hosts`]) and as sources of noise
//! ([`synthetic`]), and tests with prerequisites ([`Case`]).
//!
//! A test without its prerequisite is ignored, with `SKIP:` and the reason. With `CI=true` the test fails instead. Tests run one
//! at a time, because guests that are measured share this host's CPUs; those that mostly wait, or compute and judge no time, run
//! beside the others ([`Case::beside`]).

pub mod fixture;
pub mod hosts;
pub mod synthetic;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// A test that takes longer says how long.
const LONG: Duration = Duration::from_secs(5);

/// Places of tests, each for one at a time: the first for all but those that run beside.
static PLACES: [Mutex<()>; 5] = [const { Mutex::new(()) }; 5];

/// A test and the prerequisite it lacks.
#[expect(missing_debug_implementations, reason = "what it runs is code")]
pub struct Case {
    name: String,
    missing: Option<String>,
    expected: bool,
    place: usize,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
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
        Self { name: name.into(), missing, expected: true, place: 0, run }
    }

    /// Marks a test's prerequisite; unless `expected`, this host may lack it even in CI.
    pub fn expected(self, expected: bool) -> Self {
        Self { expected, ..self }
    }

    /// Gives the test one of the places beside the others: 1 to 3 for tests that mostly wait, 4 for those that compute.
    ///
    /// # Panics
    /// There is no such place.
    pub fn beside(self, place: usize) -> Self {
        assert!((1..PLACES.len()).contains(&place));
        Self { place, ..self }
    }

    /// Prefixes the name with that of the module which has the test.
    pub fn of(self, module: &str) -> Self {
        Self { name: format!("{module}::{}", self.name), ..self }
    }

    fn trial(self, must_run: bool) -> Trial {
        let Self { name, missing, expected, place, run } = self;
        Trial::ignorable_test(name.clone(), move || match missing {
            Some(why) if must_run && expected => Err(format!("skipped in CI: {why}").into()),
            Some(why) => Ok(Completion::ignored_with(format!("SKIP: {why}"))),
            None => {
                // Which of them a run waits for is seen in its log.
                let _place = PLACES[place].lock().unwrap_or_else(PoisonError::into_inner);
                let (begun, result) = (Instant::now(), run());
                if begun.elapsed() > LONG {
                    eprintln!("({:.0} s) {name}", begun.elapsed().as_secs_f64());
                }
                result.map(|()| Completion::Completed)
            }
        })
    }
}

/// Runs the tests as a libtest binary does.
pub fn run(cases: impl IntoIterator<Item = Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let must_run = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let mut cases: Vec<Case> = cases.into_iter().collect();
    // Each of those that run beside has a thread that waits for its place, from the start.
    arguments.test_threads = Some(1 + cases.iter().filter(|case| case.place > 0).count());
    cases.sort_by_key(|case| case.place == 0);
    let trials = cases.into_iter().map(|case| case.trial(must_run)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
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
    let at = found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    let part = |text: &str| text.lines().skip(at.saturating_sub(3)).take(12).collect::<Vec<_>>().join("\n");
    assert!(
        [found, &expected].iter().all(|text| text.lines().count() == at),
        "{} differs from line {} on (BLESS=1 writes it)\n--- expected\n{}\n--- found\n{}",
        path.display(),
        at + 1,
        part(&expected),
        part(found)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_prerequisite_is_ignored_or_in_ci_a_failure() {
        for (missing, expected, must_run, ignored, failed) in
            [(false, true, false, 0, 0), (true, true, false, 1, 0), (true, true, true, 0, 1), (true, false, true, 1, 0)]
        {
            let case = Case::new("a_case", missing.then(|| "no KVM".to_owned()), || {}).expected(expected);
            let unseen = Arguments { logfile: Some("/dev/null".to_owned()), ..Arguments::default() };
            let found = libtest_mimic::run(&unseen, vec![case.trial(must_run)]);
            assert_eq!((found.num_ignored, found.num_failed), (ignored, failed));
        }
    }
}
