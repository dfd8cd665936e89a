//! The bank over a scripted host: `sequences.txt` has sequences of what is asked of it, and behind each arrow what it asks of the
//! host for that, what it answers, and which of its figures change.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use arch_pmu::host::{AfterOverflow, HostCounters};
use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Source, Spec};
use proptest::prelude::*;

use super::{Bank, BankStats};
use crate::backend::model::{self, Event, ModelBackend, Op};
use crate::backend::scheduling::Assignment;
use crate::backend::{Facts, HostError, Overflow};
use crate::side::HostPmu;
use crate::stats::OpKind;
use crate::strategy::{MAX_POOL, Reuse, Strategy};

/// A host without clocks or descriptors: it logs each call and counts as scripted.
#[derive(Debug, Default)]
struct Script {
    log: Vec<String>,
    /// The counts of all events that were opened.
    counts: Vec<u64>,
    now: Cell<u64>,
    /// Words that hold for it: `slice` (one began), `peeks` (counts can be looked at without a call), `complete` (no record of an
    /// overflow was lost), `lost` (no event finds a counter); for others see [`Bank::facts_by`].
    flags: BTreeSet<String>,
    /// Part of the calls that it refuses.
    refused: Option<String>,
    records: Vec<Overflow>,
}

/// The number of an event in the script, from 0, and its period.
#[derive(Debug)]
struct Count {
    number: usize,
    period: u64,
}

type Host = ModelBackend<Script>;
type Events = crate::backend::model::Events<Count>;

impl Script {
    fn is(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    fn call(&mut self, call: String) -> Result<(), HostError> {
        let refuses = self.refused.as_ref().is_some_and(|part| call.contains(part));
        self.log.push(if refuses { call + " refused" } else { call });
        if refuses { Err(HostError::Os { call: "scripted", errno: 22, remedy: "" }) } else { Ok(()) }
    }
}

impl model::Host for Script {
    type Count = Count;

    fn pay(&mut self, op: Op, _: &mut Events) -> Result<(), HostError> {
        self.call(match op {
            Op::Open { spec, period } => {
                format!("open {} {:x} {period}", self.counts.len(), spec.raw_config().unwrap_or(0))
            }
            Op::Release(id) => format!("release {}", id - 1),
            Op::Pause(id) => format!("pause {}", id - 1),
            Op::Resume { id, .. } => format!("resume {}", id - 1),
            Op::Read(id) => format!("read {}", id - 1),
            Op::OpenGate => "open gate".to_owned(),
            Op::ShutGate => "shut gate".to_owned(),
            Op::LetIn | Op::Expiries(_) => return Ok(()),
        })
    }

    fn open(&mut self, _: Spec, period: u64, _: &mut Events) -> Count {
        self.counts.push(0);
        Count { number: self.counts.len() - 1, period }
    }

    fn set_period(&mut self, at: usize, period: u64, events: &mut Events) -> Result<(), HostError> {
        let count = &mut events.table[at].count;
        self.call(format!("period {} {period}", count.number))?;
        count.period = period;
        Ok(())
    }

    fn count(&mut self, count: &mut Count) -> u64 {
        self.counts[count.number]
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        self.records.drain(..).for_each(visit);
        self.is("complete")
    }

    fn peek(&mut self, event: &Event<Count>) -> Option<u64> {
        self.is("peeks").then(|| self.counts[event.count.number])
    }

    fn may_have_switched(&self) -> bool {
        self.is("slice")
    }

    fn sched_in(&mut self) -> bool {
        self.flags.remove("slice")
    }

    fn now_ns(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }
}

/// Shortest period of a host that is `slow`: a clock bears a signal that often.
const SHORTEST: u64 = 50_000;

/// Returns a bank with a pool of so many events, or the preset's, on a host of which the `flags` are true.
fn bank_of(preset: &str, pool: Option<usize>, flags: &[&str]) -> Bank<Host> {
    let mut strategy = Strategy::preset(preset).unwrap();
    strategy.reuse = pool.map_or(strategy.reuse, Reuse::Pool);
    let facts = Facts { gate: flags.contains(&"gated"), ..Facts::default() };
    let mut bank = Bank::new(ModelBackend::new(Script::default(), facts, None), strategy);
    bank.facts_by(flags);
    bank
}

/// Returns the event of a selector's bits beside OS, USR, INT and EN, in hexadecimal digits.
fn spec(digits: &str) -> Spec {
    match digits {
        "fixed" => Spec(Source::Fixed { index: 0, control: 3 }),
        _ => PerfEvtSel::from_bits(0x53_0000 | u64::from_str_radix(digits, 16).unwrap()).spec(),
    }
}

fn list<T: ToString>(of: impl IntoIterator<Item = T>) -> String {
    of.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" ")
}

fn numbers(of: CounterSet) -> String {
    match of {
        CounterSet::ALL => "all".to_owned(),
        CounterSet::EMPTY => "none".to_owned(),
        _ => list(of.into_iter().map(CounterId::index)),
    }
}

impl Bank<Host> {
    /// Returns the script of its host.
    fn script(&mut self) -> &mut Script {
        &mut self.host.backend.host
    }

    /// Makes these true of the host, or false behind a `!`.
    fn facts_by(&mut self, flags: &[&str]) {
        for flag in flags {
            match flag.strip_prefix('!') {
                Some(flag) => _ = self.script().flags.remove(flag),
                None => _ = self.script().flags.insert((*flag).to_owned()),
            }
        }
        let is = |flag| self.host.backend.host.is(flag);
        let (virtual_pauses, one_pace, lost) = (is("virtual"), is("paced"), is("lost"));
        let shortest_period = if is("slow") { SHORTEST } else { 1 };
        let facts = &mut self.host.backend.facts;
        *facts = Facts { virtual_pauses, one_pace, shortest_period, ..*facts };
        self.host.backend.set_others(lost.then(Assignment::default));
    }

    /// Starts a counter anew at each of so many entries at which it is due; returns those. `beside` it another gets an event at each.
    fn tries(&mut self, event: Spec, entries: u64, beside: bool) -> String {
        let mut tried_at = Vec::new();
        let other = CounterId::gp(1).unwrap();
        for entry in 1..=entries {
            if beside {
                self.pause(other);
                self.start(other, spec(if entry % 2 == 0 { "3c" } else { "c0" }), 100);
            }
            for counter in self.due() {
                tried_at.push(entry);
                self.pause(counter);
                self.start(counter, event, 100);
            }
        }
        self.script().log.clear();
        list(tried_at)
    }

    /// Asks one thing of the bank or of its host; returns the answer.
    fn ask(&mut self, words: &[&str]) -> String {
        let n = |at: usize| words[at].parse::<u64>().unwrap();
        let counter = || CounterId::gp(n(1) as usize).unwrap();
        match words[0] {
            "host" => self.facts_by(&words[1..]),
            "refuse" => self.script().refused = words.get(1).map(ToString::to_string),
            "counts" => (1..words.len()).for_each(|at| self.script().counts[at - 1] = n(at)),
            "record" => {
                let at = words.get(3).map(|_| n(3));
                self.script().records.push(Overflow { id: n(1) + 1, count: n(2), at });
            }
            "now" => self.script().now.set(n(1)),
            "start" => self.start(counter(), spec(words[2]), n(3)),
            "stop" => self.stop(counter(), words.get(2) == Some(&"globally")),
            "period" => self.set_period(counter(), n(2)),
            "touch" => self.touch(counter()),
            "changing" => {
                self.changing(words[1..].iter().map(|n| CounterId::gp(n.parse().unwrap()).unwrap()).collect());
            }
            "enter" => self.on_entry(CounterSet::EMPTY),
            "retry" => self.retry(counter()),
            "rest" => self.rest(),
            "restart" => self.restart_account(),
            "late" => self.host.stats.overflowed(n(1)),
            "pause" => return self.pause(counter()).to_string(),
            "take" => return self.take(counter()).to_string(),
            "due" => return format!("due {}", numbers(self.due())),
            "overflowed" => return format!("{:?}", self.overflowed(counter(), false)),
            "tries" => return self.tries(spec(words[1]), n(2), words.len() > 3),
            "records" => return self.script().records.len().to_string(),
            "pass" => return self.passes_entry().to_string(),
            "passes" => return (0..1000).take_while(|_| self.passes_entry()).count().to_string(),
            "passes-entry" => return format!("{} {}", self.passes_entry(), self.stats().counts.entries),
            "nothing-overflowed" => return self.nothing_overflowed().to_string(),
            "signal" => {
                let signalled = self.signalled();
                let certain = if signalled.certain { "" } else { ", maybe" };
                return format!("signalled {}{certain}", numbers(signalled.counters));
            }
            "seen" => {
                self.saw_signals(n(1));
                let all = self.stats().signal_ns.histogram();
                return format!("{}: {}", all.len(), list(all.iter_recorded().map(|step| step.value_iterated_to())));
            }
            "ops" => return list(OpKind::ALL.map(|kind| format!("{kind:?} {}", self.stats().ops.count(kind)))),
            "account" => {
                let mut counts = counts::Counts::default();
                self.account(&mut counts);
                let counts::Counts { held_max, held_ns, ungated, .. } = counts;
                return format!("at most {held_max} for {held_ns} ns, ungated {ungated}");
            }
            other => panic!("{other}"),
        }
        String::new()
    }

    /// Returns those of its figures that the sequences show.
    fn figures(&self) -> [String; 8] {
        let BankStats { counts, last_error, .. } = self.stats();
        let error = last_error.as_ref().map_or("none".to_owned(), |error| format!("{error:?}"));
        [
            format!("held {}", self.held()),
            format!("reused {}", counts.reused),
            format!("refused periods {}", counts.refused_periods),
            format!("failed opens {}", counts.failed_opens),
            format!("opens fixed {}", counts.opens_fixed),
            format!("pinned errors {}", counts.pinned_errors),
            format!("slices {}", counts.sched_ins),
            format!("error {}", error.split(' ').next().unwrap_or_default()),
        ]
    }
}

#[test]
fn sequences() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bank/sequences.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut found, mut bank) = (String::new(), bank_of("recreate", None, &[]));
    for line in text.lines() {
        // A line that fails without an answer is the last one of the output.
        println!("{line}");
        let asked = line.split(" -> ").next().unwrap_or_default();
        let mut before = bank.figures();
        if let Some(of) = asked.strip_prefix("bank ") {
            let mut words = of.split(' ').peekable();
            let (preset, pool) = (words.next().unwrap(), words.next_if(|word| word.parse::<usize>().is_ok()));
            bank = bank_of(preset, pool.map(|pool| pool.parse().unwrap()), &words.collect::<Vec<_>>());
            before = bank.figures();
        } else if !asked.is_empty() && !asked.starts_with(['#', '/']) {
            for ask in asked.split(", ") {
                let (times, ask) = ask.split_once("x ").map_or((1, ask), |(times, ask)| (times.parse().unwrap(), ask));
                for _ in 0..times {
                    let answer = bank.ask(&ask.split(' ').collect::<Vec<_>>());
                    bank.script().log.extend((!answer.is_empty()).then_some(format!("= {answer}")));
                }
            }
        }
        let mut said = std::mem::take(&mut bank.script().log);
        said.extend(bank.figures().into_iter().filter(|figure| !before.contains(figure)));
        let arrow = if said.is_empty() { "" } else { " -> " };
        writeln!(found, "{asked}{arrow}{}", said.join(", ")).unwrap();
    }
    trials::golden(&path, &found);
}

proptest! {
    /// Whatever guest and signals do, the events of a thread expire at most twice in the host's shortest period, and each
    /// once in 32 such periods beyond that.
    #[test]
    fn no_sequence_starves_the_thread(
        preset in prop::sample::select(vec!["recreate", "reuse", "reuse-lazy", "paused-flag", "pool", "gate", "virtual"]),
        steps in prop::collection::vec((0..13u8, 0..40usize, 0..6u64, any::<u64>(), 1..40u32), 0..120),
    ) {
        let own = if preset == "gate" { "gated" } else { preset };
        let mut bank = bank_of(preset, None, &["slow", "paced", "complete", "peeks", own]);
        let mut on = CounterSet::EMPTY;
        for (kind, n, spec, period, bits) in steps {
            let period = (period & ((1 << bits) - 1)) + 1;
            match (kind, CounterId::from_index(n % MAX_COUNTERS)) {
                (0..4, Some(counter)) => {
                    bank.pause(counter);
                    bank.start(counter, PerfEvtSel::from_bits(0x53_0000 | spec).spec(), period);
                    on.insert(counter);
                }
                (4..7, Some(counter)) => {
                    bank.pause(counter);
                    bank.stop(counter, spec % 2 == 0);
                    on.remove(counter);
                }
                (7..9, Some(counter)) if on.contains(counter) => bank.set_period(counter, period),
                (9..11, _) if n < bank.script().counts.len() => {
                    bank.script().counts[n] += period;
                    let count = bank.script().counts[n];
                    bank.script().records = vec![Overflow { id: n as u64 + 1, count, at: None }];
                    for counter in bank.signalled().counters.and(on) {
                        bank.take(counter);
                        if bank.overflowed(counter, false) == AfterOverflow::Aim {
                            bank.take(counter);
                            bank.set_period(counter, 1 << 47);
                        }
                    }
                }
                _ => bank.on_entry(CounterSet::EMPTY),
            }
            let events = &bank.host.backend.events;
            let shares = || events.iter().filter(|event| event.enabled).map(|event| 1024 * SHORTEST / event.count.period);
            let (all, events) = (shares().sum::<u64>(), shares().count());
            prop_assert!(events <= MAX_COUNTERS + MAX_POOL);
            prop_assert!(all <= 2 * 1024 + 32 * events as u64 && shares().all(|one| one <= 1024), "{} of {}", all, events);
        }
    }
}
