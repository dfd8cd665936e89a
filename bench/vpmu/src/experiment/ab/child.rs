//! One side of a session: runs the turns that it is asked for.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use results::error::{Error, Exit};

use super::protocol::{self, Answer, Ask, End, Figures, Hello, PROTOCOL, TurnArm};
use crate::arms::arm::runner::ArmRunner;
use crate::arms::rounds::experiment::{Experiment, Round, TurnEnd};
use crate::arms::rounds::plan::Plan;
use crate::setting::process;

/// The streams to the parent.
#[derive(Debug)]
pub struct Streams<R, W> {
    /// Requests of the parent.
    pub input: R,
    /// Answers to it.
    pub output: W,
}

impl<R: BufRead, W: Write> Streams<R, W> {
    fn send(&mut self, answer: &Answer) -> Result<(), Error> {
        protocol::send(&mut self.output, answer)
            .map_err(|error| Error::new(Exit::Inconclusive, "cannot answer the parent", error.to_string(), ""))
    }

    /// Reads the next ask; `None` if the parent has gone.
    fn next(&mut self) -> Result<Option<Ask>, Error> {
        let wrong = |why: String| Error::usage("cannot read what the parent asks", why, "vpmu ab runs this command");
        let line = protocol::line(&mut self.input).map_err(|error| wrong(error.to_string()))?;
        line.map(|line| protocol::message(&line).map_err(wrong)).transpose()
    }
}

/// Serves until the parent stops it or goes. `host` is the class of this host.
///
/// # Errors
/// Errors of the runner, and asks that make no sense.
pub fn serve<R: BufRead, W: Write>(
    plan: &Plan,
    runner: &mut dyn ArmRunner,
    host: &str,
    stop: &AtomicBool,
    streams: &mut Streams<R, W>,
) -> Result<Exit, Error> {
    let mut side = Side { plan, experiment: Experiment::new(plan, runner, Instant::now())?, stop };
    streams.send(&Answer::Hello(Box::new(side.hello(host))))?;
    while let Some(ask) = streams.next()? {
        let stops = ask == Ask::Stop;
        let answer = side.answer(ask).inspect_err(|error| {
            // The parent shows it; this process ends with it.
            let _ = streams.send(&Answer::Failed { exit: error.exit.code(), error: error.to_string() });
        })?;
        streams.send(&answer)?;
        if stops {
            return Ok(Exit::Done);
        }
    }
    side.experiment.end_session()?;
    Ok(Exit::Done)
}

struct Side<'a> {
    plan: &'a Plan,
    experiment: Experiment<'a>,
    stop: &'a AtomicBool,
}

impl Side<'_> {
    fn hello(&self, host: &str) -> Hello {
        let arms = self.experiment.folds().map(|fold| {
            let result = fold.result();
            TurnArm { name: result.name, not_available: result.not_available }
        });
        Hello {
            protocol: PROTOCOL.to_owned(),
            tool: process::tool(),
            arms: arms.collect(),
            workload: self.plan.parameters.workload.clone(),
            backend: self.plan.parameters.backend.clone(),
            stand_in: self.plan.backend.is_stand_in(),
            host: host.to_owned(),
            pin: self.plan.parameters.pin.clone(),
            samples: self.plan.parameters.samples,
            turn_limit_ms: u64::try_from(self.plan.guest.machine.time_limit.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Answer, Error> {
        Ok(match ask {
            Ask::Open => {
                self.experiment.end_session()?;
                self.experiment.begin_session(&|| self.stop.load(Ordering::Relaxed))?;
                Answer::Opened
            }
            Ask::Turn { arm, round, position, warmup } => {
                if arm >= self.experiment.arms() {
                    return Err(Error::usage(format!("there is no arm {arm}"), "", ""));
                }
                let stopped = || self.stop.load(Ordering::Relaxed);
                let end = self.experiment.turn(arm, Round { index: round, warmup }, position, &stopped)?;
                Answer::TurnOver {
                    end: match end {
                        TurnEnd::Finished => End::Finished,
                        TurnEnd::Failed => End::Failed,
                        TurnEnd::Interrupted => End::Interrupted,
                    },
                }
            }
            Ask::Keep => {
                let before: Vec<usize> = self.rounds().collect();
                self.experiment.keep_round();
                let last = self.experiment.folds().zip(before).enumerate().filter_map(|(arm, (fold, before))| {
                    let rounds = fold.rounds();
                    let round = rounds.iter().skip(before).last().filter(|round| round.complete)?;
                    let metrics = rounds.metrics_at(round.at);
                    let doubt = fold.doubt(round.index).map(str::to_owned);
                    Some(Figures { arm, round: round.index, probe_ns: round.probe_ns, doubt, metrics })
                });
                Answer::Kept { figures: last.collect() }
            }
            Ask::Close => {
                self.experiment.end_session()?;
                Answer::Closed { doubts: self.doubts() }
            }
            Ask::Stop => {
                self.experiment.end_session()?;
                Answer::Bye
            }
        })
    }

    fn rounds(&self) -> impl Iterator<Item = usize> {
        self.experiment.folds().map(|fold| fold.rounds().len())
    }

    /// Lists what makes figures doubtful, by arm.
    fn doubts(&self) -> Vec<String> {
        let mut found = Vec::new();
        for arm in self.experiment.folds().map(crate::arms::fold::arm::ArmFold::result) {
            found.extend(arm.incomplete.iter().map(|why| format!("{}: {why}", arm.name)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::arm::sim::{self, SimRunner};
    use crate::experiment::nmi_latency::spec::NmiLatencySpec;
    use crate::setting::parse::defaults;

    /// Answers of a simulated side to these lines, and how it ended.
    fn served(lines: &str) -> (Vec<Answer>, Result<Exit, Error>) {
        let model = sim::model(sim::DEFAULT_MODEL).unwrap();
        let mut spec: NmiLatencySpec = defaults();
        (spec.arms.samples, spec.length.guest_rounds) = (5, Some(1000));
        let plan = spec.plan(&defaults(), &sim::chosen(&model, "test"), None).unwrap();
        let mut runner = SimRunner::new(model, &plan.guest, plan.parameters.period, plan.seed).unwrap();
        let mut streams = Streams { input: lines.as_bytes(), output: Vec::new() };
        let ended = serve(&plan, &mut runner, "a host", &AtomicBool::new(false), &mut streams);
        let text = String::from_utf8(streams.output).unwrap();
        (text.lines().map(|line| protocol::message(line).unwrap()).collect(), ended)
    }

    fn turn(arm: usize, round: u64) -> String {
        format!("{{\"ask\":\"turn\",\"arm\":{arm},\"round\":{round},\"position\":0,\"warmup\":false}}\n")
    }

    #[test]
    fn turns_are_figures_once_their_round_is_kept() {
        let lines = "{\"ask\":\"open\"}\n".to_owned() + &turn(1, 0) + &turn(3, 0) + "{\"ask\":\"keep\"}\n";
        let lines = lines + &turn(1, 1) + "{\"ask\":\"keep\"}\n{\"ask\":\"close\"}\n{\"ask\":\"stop\"}\n";
        let (answers, ended) = served(&lines);
        assert_eq!(ended, Ok(Exit::Done));
        let Answer::Hello(hello) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!((hello.protocol.as_str(), hello.arms[1].name.as_str(), hello.samples), (PROTOCOL, "reuse", 5));
        assert!(hello.arms[4].not_available.is_some() && hello.host == "a host");
        assert_eq!(answers[1..4], [Answer::Opened, Answer::TurnOver { end: End::Finished }, answers[2].clone()]);
        let Answer::Kept { figures } = &answers[4] else { panic!("{answers:?}") };
        assert_eq!(figures.iter().map(|one| (one.arm, one.round)).collect::<Vec<_>>(), [(1, 0), (3, 0)]);
        assert!(figures[0].metrics["nmi_handler_ns"].p50 > 0);
        let Answer::Kept { figures } = &answers[6] else { panic!("{answers:?}") };
        assert_eq!(figures.iter().map(|one| (one.arm, one.round)).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(answers[7..], [Answer::Closed { doubts: Vec::new() }, Answer::Bye]);
    }

    #[test]
    fn asks_that_make_no_sense_end_it_with_the_reason() {
        for lines in ["nonsense\n", "{\"ask\":\"fly\"}\n", "{\"ask\":\"open\""] {
            assert_eq!(served(lines).1.unwrap_err().exit, Exit::Usage, "{lines}");
        }
        let (answers, ended) = served(&turn(99, 0));
        assert!(ended.is_err());
        assert!(matches!(&answers[1], Answer::Failed { exit: 2, error } if error.contains("no arm 99")), "{answers:?}");
        // A turn without a guest fails, a parent that goes is the end.
        let (answers, ended) = served(&turn(0, 0));
        assert_eq!((&answers[1], ended), (&Answer::TurnOver { end: End::Failed }, Ok(Exit::Done)));
    }
}
