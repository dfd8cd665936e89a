//! Published figures of programs with a bottleneck, measured on this host by the workloads of triage.
//!
//! [`practice`] runs them; [`document`] sets what was found beside what was published, with the reasons for the
//! difference; [`show`] prints it.

pub mod document;
pub mod show;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use document::{Figure, Practice};
use results::error::{Error, Exit};

use crate::account::{Account, Status};
use crate::counting::Event;
use crate::run::{Place, SAMPLES_PER_SECOND, Spec, run, steps};
use crate::workloads::Workload;

/// Length of a turn. One of rand() with eight threads on few CPUs has waits of a scheduler's slice.
const TURN: Duration = Duration::from_millis(200);

/// Lists the runs of a figure: workload, whether its variant is sampled, and by which event.
fn runs(figure: Figure) -> &'static [(&'static str, bool, Option<&'static str>)] {
    match figure {
        Figure::Rand => &[("rand", false, None)],
        Figure::SpinlockShare => &[("pagefault", true, Some("cpu-clock")), ("pagefault", false, Some("cpu-clock"))],
        Figure::ParallelProbing => &[("setup", false, None), ("setup-disks", false, None)],
    }
}

fn bug(what: &str, which: &str) -> Error {
    Error::new(Exit::Internal, format!("this is a bug of vpmu: {what}"), which, "")
}

/// Runs them. `begin` is told how many steps there are, `step` what the next one is.
///
/// # Errors
/// Returns the errors of triage: exit 4, no event opens or a workload cannot run.
pub fn practice(
    figure: Figure,
    rounds: usize,
    place: &Place,
    interrupted: &AtomicBool,
    begin: &mut dyn FnMut(u64),
    step: &mut dyn FnMut(&str),
) -> Result<Practice, Error> {
    let specs = runs(figure).iter().map(|&(name, sample_apart, event)| {
        let workload = Workload::named(name).ok_or_else(|| bug("no such workload", name))?;
        let event = event.and_then(Event::named);
        Ok(Spec {
            workload,
            threads: figure.threads(),
            rounds,
            turn: TURN,
            event,
            frequency: SAMPLES_PER_SECOND,
            sample_apart,
        })
    });
    let specs = specs.collect::<Result<Vec<Spec>, Error>>()?;
    begin(specs.iter().map(steps).sum());
    let mut accounts: Vec<Account> = Vec::new();
    for spec in &specs {
        let account = run(spec, place, interrupted, step)?;
        let over = account.status == Status::Interrupted;
        accounts.push(account);
        if over {
            break;
        }
    }
    Practice::of(figure, accounts).ok_or_else(|| bug("the published figures are not whole", figure.id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_of_a_workload_and_an_event_that_there_are() {
        for figure in [Figure::Rand, Figure::SpinlockShare, Figure::ParallelProbing] {
            assert!(Practice::of(figure, Vec::new()).is_some_and(|found| !found.is_whole()), "{figure:?}");
            for (name, _, event) in runs(figure) {
                let workload = Workload::named(name).unwrap();
                assert!(workload.check_threads(figure.threads()).is_ok());
                assert!(event.is_none_or(|event| Event::named(event).is_some()));
            }
        }
    }
}
