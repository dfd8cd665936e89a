//! Sessions of two processes, rounds of turns, until there is enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpu_list::CpuList;
use host_pmu::stats::ns;
use results::document::{KVM_ARMS, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::paired::{Looks, Statistic};
use results::verdict::Verdict;
use results::write::now_unix;

use super::document::{AbDocument, AbSide, SCHEMA};
use super::peer::{Peer, same};
use super::protocol::{Answer, Ask, End, Figures, Hello};
use super::spec::AbSpec;
use super::verdict::{self, AbArm, AbRound, AbTurn};
use crate::arms::rounds::schedule::Schedule;
use crate::setting::process::{self, Claim};
use crate::terminal::console::complain;
use crate::terminal::progress::Progress;

/// Fewest rounds of a session.
const LEAST: u64 = 2;
/// Sessions in a row without a whole round after which the run ends.
const GIVE_UP: u64 = 2;
/// Most doubts that a side is asked about in a session.
const PER_SESSION: usize = 20;
/// Most different doubts that are kept.
const MOST_DOUBTS: usize = 100;
/// Steps of the progress display.
const STEPS: u64 = 100;

/// Surroundings of a run.
pub struct Context<'a> {
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Source of the host's facts.
    pub fs: &'a HostFs,
    /// The host before the run.
    pub host: HostFacts,
    /// The command line, program name first.
    pub command_line: Vec<String>,
    /// Progress display.
    pub progress: &'a mut dyn Progress,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Runs both sides.
///
/// # Errors
/// A side that does not start, or fails before there is a round. A later failure ends the run; the rounds before it count.
pub fn run(spec: &AbSpec, mut context: Context<'_>) -> Result<(AbDocument, Option<Error>), Error> {
    let started_unix = now_unix();
    let mut run = Run {
        spec,
        stop: context.stop,
        schedule: Schedule::new(spec.seed),
        began: Instant::now(),
        wall: Duration::ZERO,
        greetings: None,
        arms: Vec::new(),
        rounds: 0,
        sessions: 0,
        looks: Looks::default(),
        claims: Vec::new(),
        doubts: Doubts::default(),
        steps: 0,
    };
    context.progress.begin(STEPS);
    let ended = run.sessions(context.progress);
    context.progress.end();
    let error = ended.err();
    let Some(greetings) = run.greetings.take() else {
        return Err(error.unwrap_or_else(|| Error::new(Exit::Inconclusive, "interrupted", "", "")));
    };
    if run.rounds == 0
        && let Some(error) = error
    {
        return Err(error);
    }
    if greetings[1].backend.starts_with("sim:") {
        // Nothing of this machine enters the result.
        context.host = HostFacts { class: greetings[1].host.clone(), ..HostFacts::default() };
    } else {
        context.host.finish(context.fs);
    }
    let interrupted = context.stop.load(Ordering::Relaxed);
    let status = match (&error, interrupted) {
        (_, true) => Status::Interrupted,
        (Some(_), _) => Status::Incomplete,
        (None, false) => Status::Complete,
    };
    let rows = verdict::rows(&run.arms, Statistic::P50, &spec.rules);
    let doubts = run.doubts.into_lines();
    let whole = status == Status::Complete && doubts.is_empty();
    let [base, new] = &greetings;
    let document = AbDocument {
        schema: SCHEMA,
        tool: process::tool(),
        command_line: context.command_line,
        started_unix,
        wall_ns: ns(run.wall),
        status,
        seed: spec.seed,
        host: context.host,
        base: AbSide::new(&spec.base, base),
        new: AbSide::new(&spec.new, new),
        same_build: same(&spec.base, &spec.new),
        rules: spec.rules,
        sessions: run.sessions,
        verdict: if whole { verdict::overall(&rows) } else { Verdict::Inconclusive },
        rows,
        doubts,
        arms: run.arms,
    };
    Ok((document, error))
}

/// Doubts that keep a run from being whole, each once, in the order of their first appearance.
#[derive(Debug, Default)]
struct Doubts {
    lines: Vec<String>,
    /// Further ones that were not kept.
    more: usize,
}

impl Doubts {
    /// Adds a doubt unless it is known: a side may say anything, and as much as it likes.
    fn add(&mut self, doubt: String) {
        if self.lines.contains(&doubt) {
            return;
        }
        if self.lines.len() < MOST_DOUBTS {
            self.lines.push(doubt);
        } else {
            self.more += 1;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more, which were not kept", self.more));
        }
        self.lines
    }
}

struct Run<'a> {
    spec: &'a AbSpec,
    stop: &'a AtomicBool,
    schedule: Schedule,
    began: Instant,
    wall: Duration,
    greetings: Option<Both<Hello>>,
    arms: Vec<AbArm>,
    /// Whole rounds.
    rounds: u64,
    /// Sessions with a whole round.
    sessions: u64,
    looks: Looks,
    /// The CPUs of both sides.
    claims: Vec<Claim>,
    doubts: Doubts,
    steps: u64,
}

impl Run<'_> {
    fn sessions(&mut self, progress: &mut dyn Progress) -> Result<(), Error> {
        let mut empty = 0;
        while !self.over() {
            let before = self.rounds;
            self.session(progress)?;
            if self.rounds == before {
                empty += 1;
                if empty == GIVE_UP && !self.stopped() {
                    let what = format!("{GIVE_UP} sessions without a whole round");
                    return Err(Error::new(Exit::Inconclusive, what, self.doubts.lines.join("; "), ""));
                }
            } else {
                empty = 0;
                self.sessions += 1;
                if self.is_sure() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns whether the run is over: asked after a round.
    fn over(&self) -> bool {
        let all = self.spec.rounds.is_some_and(|bound| self.rounds >= bound);
        self.stopped() || all || self.began.elapsed() >= self.spec.duration
    }

    /// Returns whether every judged ratio is known as wanted: asked after a session with a whole round.
    fn is_sure(&mut self) -> bool {
        let Some(share) = self.spec.until_ci else { return false };
        let (arms, rules) = (&self.arms, &self.spec.rules);
        self.looks.are_enough(|| verdict::known_to(&verdict::rows(arms, Statistic::P50, rules), share))
    }

    /// Runs two fresh processes, until the session's time is over.
    fn session(&mut self, progress: &mut dyn Progress) -> Result<(), Error> {
        progress.run(&format!("session {}", self.sessions + 1));
        let began = Instant::now();
        let spec = self.spec;
        let sides = [("BASE", &spec.base), ("NEW", &spec.new)];
        let mut started: Both<Option<Peer>> = [None, None];
        let mut greetings: Both<Option<Hello>> = [None, None];
        for side in self.schedule.next_round(2) {
            let (name, of) = sides[side];
            let Some((mut peer, hello)) = Peer::start(name, of, &spec.common, self.stop)? else { return Ok(()) };
            if !self.open(&mut peer)? {
                return Ok(());
            }
            started[side] = Some(peer);
            greetings[side] = Some(hello);
        }
        let ([Some(base), Some(new)], [Some(hello_base), Some(hello_new)]) = (started, greetings) else {
            return Ok(());
        };
        let arms = self.greeted([hello_base, hello_new])?;
        let mut peers = [base, new];
        if !self.round(&mut peers, &arms, None)? {
            return Ok(());
        }
        for index in 0.. {
            if !self.round(&mut peers, &arms, Some(index))? {
                break;
            }
            self.show(progress);
            if self.over() || (index + 1 >= LEAST && began.elapsed() >= spec.session()) {
                break;
            }
        }
        for (peer, (name, _)) in peers.iter_mut().zip(sides) {
            match peer.ask(&Ask::Close, self.stop)? {
                Some(Answer::Closed { doubts }) => {
                    let own = doubts.iter().map(|doubt| format!("{name}: {}", results::error::one_line(doubt)));
                    own.take(PER_SESSION).for_each(|doubt| self.doubts.add(doubt));
                }
                Some(_) => return Err(peer.unexpected()),
                None => {}
            }
        }
        peers.into_iter().for_each(Peer::stop);
        Ok(())
    }

    fn open(&self, peer: &mut Peer) -> Result<bool, Error> {
        match peer.ask(&Ask::Open, self.stop)? {
            Some(Answer::Opened) => Ok(true),
            Some(_) => Err(peer.unexpected()),
            None => Ok(false),
        }
    }

    /// Checks both greetings, and pairs the arms that can run: by name, or by place where each side has its own names.
    fn greeted(&mut self, hello: Both<Hello>) -> Result<Vec<Both<usize>>, Error> {
        check_sides(&hello)?;
        let pairs = paired(&hello)?;
        if let Some(before) = &self.greetings {
            if *before != hello {
                return Err(Error::usage("a side changed during the run", "its greeting is another one", "begin anew"));
            }
            return Ok(pairs);
        }
        self.arms = pairs
            .iter()
            .map(|&[base, new]| {
                let (base, new) = (&hello[0].arms[base].name, &hello[1].arms[new].name);
                let name = if base == new { base.clone() } else { format!("{base} → {new}") };
                AbArm { name, rounds: Vec::new() }
            })
            .collect();
        self.claim(&hello);
        self.greetings = Some(hello);
        Ok(pairs)
    }

    /// Keeps the sides' CPUs from other runs.
    fn claim(&mut self, hello: &Both<Hello>) {
        let pins = hello.iter().filter_map(|side| side.pin.as_deref()?.parse::<CpuList>().ok());
        let mut cpus: Vec<u32> = pins.flat_map(|list| list.0).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let (claims, warning) = process::claim(&cpus);
        self.claims = claims;
        if let Some(warning) = warning {
            complain(&warning);
        }
    }

    /// Runs every arm once on both sides; `None`: a warm-up. False if the session is over.
    fn round(&mut self, peers: &mut Both<Peer>, arms: &[Both<usize>], index: Option<u64>) -> Result<bool, Error> {
        let (round, warmup) = (index.unwrap_or(0), index.is_none());
        let mut position = 0;
        for arm in self.schedule.next_round(arms.len()) {
            for side in self.schedule.next_round(2) {
                if self.stopped() {
                    return Ok(false);
                }
                let ask = Ask::Turn { arm: arms[arm][side], round, position, warmup };
                position += 1;
                match peers[side].ask(&ask, self.stop)? {
                    Some(Answer::TurnOver { end: End::Finished }) => {}
                    Some(Answer::TurnOver { end: End::Failed }) => {
                        let name = ["BASE", "NEW"][side];
                        self.doubts.add(format!("{name}: a guest of arm {} failed", self.arms[arm].name));
                        return Ok(false);
                    }
                    Some(Answer::TurnOver { end: End::Interrupted }) | None => return Ok(false),
                    Some(_) => return Err(peers[side].unexpected()),
                }
            }
        }
        if warmup {
            return Ok(true);
        }
        let mut turns: Both<Vec<Option<AbTurn>>> = [vec![None; arms.len()], vec![None; arms.len()]];
        for (side, peer) in peers.iter_mut().enumerate() {
            match peer.ask(&Ask::Keep, self.stop)? {
                Some(Answer::Kept { figures }) => {
                    for one in figures {
                        let is_its_arm = |pair: &Both<usize>| pair[side] == one.arm;
                        let Some(arm) = arms.iter().position(is_its_arm).filter(|_| one.round == round) else {
                            continue;
                        };
                        turns[side][arm] = checked(one);
                    }
                }
                Some(_) => return Err(peer.unexpected()),
                None => return Ok(false),
            }
        }
        let [base, new] = turns;
        for (arm, turns) in self.arms.iter_mut().zip(base.into_iter().zip(new)) {
            if let (Some(base), Some(new)) = turns {
                arm.rounds.push(AbRound { round: self.rounds, session: self.sessions, base, new });
            }
        }
        self.rounds += 1;
        self.wall = self.began.elapsed();
        Ok(true)
    }

    fn show(&mut self, progress: &mut dyn Progress) {
        let by_time = self.began.elapsed().as_secs_f64() / self.spec.duration.as_secs_f64();
        let by_rounds = self.spec.rounds.map_or(0.0, |bound| self.rounds as f64 / bound.max(1) as f64);
        while self.steps < STEPS && (self.steps as f64) < by_time.max(by_rounds) * STEPS as f64 {
            self.steps += 1;
            progress.step();
        }
    }
}

/// Returns the figures that may be calculated with: another build may have sent anything.
fn checked(figures: Figures) -> Option<AbTurn> {
    let probe_ns = figures.probe_ns.filter(|ns| ns.is_finite() && *ns > 0.0);
    let sound = figures.metrics.values().all(|metric| metric.count > 0 && metric.mean.is_none_or(f64::is_finite));
    sound.then_some(AbTurn { probe_ns, metrics: figures.metrics })
}

/// Arms that are on both sides whatever was asked for.
const NO_STRATEGY: [&str; 3] = ["floor", KVM_ARMS[0], KVM_ARMS[1]];

/// The sides, BASE first.
pub(super) type Both<T> = [T; 2];

/// Checks that the sides are comparable: figures of a simulation and of real guests have nothing in common.
pub(super) fn check_sides(hello: &Both<Hello>) -> Result<(), Error> {
    let simulated = |side: &Hello| side.backend.starts_with("sim:");
    if simulated(&hello[0]) == simulated(&hello[1]) {
        return Ok(());
    }
    Err(Error::usage(
        "a simulation and real guests cannot be compared",
        format!("BASE has backend {}, NEW has {}", hello[0].backend, hello[1].backend),
        "give both the same --backend",
    ))
}

/// Returns the arms of both sides that can run on both, by their places.
pub(super) fn paired(hello: &Both<Hello>) -> Result<Vec<Both<usize>>, Error> {
    let [base, new] = hello;
    let names = |hello: &Hello| -> Vec<String> { hello.arms.iter().map(|arm| arm.name.clone()).collect() };
    let (of_base, of_new) = (names(base), names(new));
    let pairs: Vec<Both<usize>> = if of_base.len() == of_new.len() {
        (0..of_base.len()).map(|at| [at, of_new.iter().position(|name| *name == of_base[at]).unwrap_or(at)]).collect()
    } else {
        let same = |(at, name): (usize, &String)| of_new.iter().position(|other| other == name).map(|new| [at, new]);
        of_base.iter().enumerate().filter_map(same).collect()
    };
    let is_strategy = |name: &String| !NO_STRATEGY.contains(&name.as_str());
    let strategies = |names: &[String]| names.iter().any(is_strategy);
    if strategies(&of_base) && strategies(&of_new) && !pairs.iter().any(|&[at, _]| is_strategy(&of_base[at])) {
        return Err(Error::usage(
            "no strategy of BASE can be paired with one of NEW",
            format!("{} against {}", of_base.join(", "), of_new.join(", ")),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let mut seen: Vec<usize> = pairs.iter().map(|[_, new]| *new).collect();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < pairs.len() {
        return Err(Error::usage(
            "the arms of BASE and NEW cannot be paired",
            format!("{} against {}", of_base.join(", "), of_new.join(", ")),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let runs = |[b, n]: &Both<usize>| base.arms[*b].not_available.is_none() && new.arms[*n].not_available.is_none();
    let pairs: Vec<Both<usize>> = pairs.into_iter().filter(runs).collect();
    if pairs.is_empty() {
        let why: Vec<&str> =
            hello.iter().flat_map(|side| &side.arms).filter_map(|arm| arm.not_available.as_deref()).collect();
        return Err(Error::host("no arm runs on both sides", why.join("; "), "`vpmu doctor` says what is missing"));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use results::document::Tool;
    use results::error::Exit;

    use super::super::protocol::TurnArm;
    use super::*;

    #[test]
    fn a_doubt_is_kept_once_and_those_that_do_not_fit_are_counted() {
        let mut doubts = Doubts::default();
        for _ in 0..3 {
            doubts.add("BASE: lost".to_owned());
            doubts.add("NEW: throttled".to_owned());
        }
        (0..110).for_each(|n| doubts.add(format!("NEW: {n}")));
        let lines = doubts.into_lines();
        assert_eq!(lines[..3], ["BASE: lost", "NEW: throttled", "NEW: 0"]);
        assert_eq!((lines.len(), lines[100].as_str()), (101, "and 12 more, which were not kept"));
    }

    #[test]
    fn figures_that_cannot_be_are_left_out() {
        let text = |count: u64, probe: f64| {
            format!(
                "{{\"arm\":0,\"round\":0,\"probe_ns\":{probe},\"nmis\":1,\"metrics\":{{\"x_ns\":{{\"count\":{count},\"p50\":5}}}}}}"
            )
        };
        let read = |text: String| checked(serde_json::from_str(&text).unwrap());
        assert_eq!(read(text(3, -1.0)).unwrap().probe_ns, None);
        assert_eq!(read(text(3, 7.0)).unwrap().probe_ns, Some(7.0));
        assert_eq!(read(text(0, 7.0)), None);
    }

    fn hello(arms: &[&str]) -> Hello {
        let arm = |name: &&str| {
            let (name, gone) = name.strip_suffix('!').map_or((*name, false), |name| (name, true));
            TurnArm { name: name.to_owned(), not_available: gone.then(|| "not here".to_owned()) }
        };
        Hello {
            protocol: String::new(),
            tool: Tool {
                name: "vpmu".to_owned(),
                version: "0".to_owned(),
                git_revision: "r".to_owned(),
                profile: "debug".to_owned(),
            },
            arms: arms.iter().map(arm).collect(),
            workload: "w".to_owned(),
            backend: "b".to_owned(),
            stand_in: true,
            host: "h".to_owned(),
            pin: None,
            samples: 1,
            turn_limit_ms: 1,
        }
    }

    #[test]
    fn arms_are_paired_by_name_or_by_place() {
        let pairs = |base: &[&str], new: &[&str]| paired(&[hello(base), hello(new)]);
        assert_eq!(pairs(&["a", "floor"], &["a", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "a", "floor"]), Ok(vec![[0, 1], [1, 0], [2, 2]]));
        assert_eq!(pairs(&["a", "floor"], &["mine", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "floor"]), Ok(vec![[1, 0], [2, 1]]));
        assert_eq!(pairs(&["a!", "floor"], &["a", "floor"]), Ok(vec![[1, 1]]));
        assert_eq!(pairs(&["a!"], &["a"]).unwrap_err().exit, Exit::Host);
        assert_eq!(pairs(&["a", "b"], &["b", "c"]).unwrap_err().exit, Exit::Usage);
        let floor_alone = pairs(&["a", "b", "floor", "kvm!"], &["c", "floor", "kvm!"]).unwrap_err();
        let why = "a, b, floor, kvm against c, floor, kvm";
        assert_eq!((floor_alone.exit, floor_alone.why.as_str()), (Exit::Usage, why));
    }

    #[test]
    fn a_simulation_is_compared_with_simulations_only() {
        let checked = |backends: [&str; 2]| {
            check_sides(&backends.map(|backend| Hello { backend: backend.to_owned(), ..hello(&["floor"]) }))
        };
        assert_eq!((checked(["cpu-clock", "hardware"]), checked(["sim:a", "sim:b"])), (Ok(()), Ok(())));
        let error = checked(["cpu-clock", "sim:a"]).unwrap_err();
        assert_eq!((error.exit, error.why.as_str()), (Exit::Usage, "BASE has backend cpu-clock, NEW has sim:a"));
    }
}
