//! Vendor event names: the installed perf knows them by processor, and prints their encodings, which this parser takes.
//!
//! What perf prints is not trusted: it is bounded in time and size, and only numbers are taken from it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, POLL, Supervised};

use super::names::number;

/// Time that all questions may take together: each takes some 20 ms, and 100 ms beside other work.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of an answer.
const MAX_ANSWER: usize = 16 << 20;
/// Encodings of a name: an uncore event has one for each instance of its PMU.
const MAX_ENCODINGS: usize = 1024;

/// Type and config words of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Encoding {
    pub(super) kind: u32,
    pub(super) words: [u64; 4],
}

/// The installed perf, asked once for each name.
#[derive(Clone, Debug)]
pub(super) struct Perf {
    /// Variables of its environment.
    environment: Vec<(String, String)>,
    known: HashMap<String, Vec<Encoding>>,
    /// First question.
    began: Option<Instant>,
    /// Why it cannot be asked.
    pub(super) missing: Option<String>,
}

impl Perf {
    pub(super) fn new(environment: &[(&str, &str)]) -> Self {
        let environment = environment.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { environment, known: HashMap::new(), began: None, missing: None }
    }

    /// Returns the encodings of an event, without those that perf tried more than once; none if perf does not know it.
    pub(super) fn encodings(&mut self, event: &str) -> Vec<Encoding> {
        if let Some(known) = self.known.get(event) {
            return known.clone();
        }
        let found = if self.missing.is_some() { Ok(Vec::new()) } else { self.ask(event) };
        let found = found.unwrap_or_else(|error| {
            self.missing = Some(format!("perf cannot be asked for event names: {error}"));
            Vec::new()
        });
        self.known.insert(event.to_owned(), found.clone());
        found
    }

    fn ask(&mut self, event: &str) -> io::Result<Vec<Encoding>> {
        let mut command = Command::new("perf");
        command.args(["stat", "-vv", &format!("--event={event}"), "--", "true"]).env("LC_ALL", "C");
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        let began = *self.began.get_or_insert_with(Instant::now);
        let over = || began.elapsed() > LIMIT;
        let mut child = Supervised::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let pipe = child.process.stderr.take().ok_or_else(|| io::Error::other("it has no output"))?;
        let answer = Gathered::start(pipe, Keep::First(MAX_ANSWER));
        child
            .wait(POLL, over)?
            .ok_or_else(|| io::Error::other(format!("{} names take {LIMIT:?}", self.known.len())))?;
        let (answer, is_cut) = answer.text(LIMIT);
        if is_cut {
            return Err(io::Error::other("it prints too much"));
        }
        Ok(encodings(&answer).into_iter().take(MAX_ENCODINGS).collect())
    }
}

/// Reads every `perf_event_attr` that perf printed; fields of 0 are left out.
fn encodings(text: &str) -> BTreeSet<Encoding> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "perf_event_attr:") {
        let fields = lines.by_ref().map_while(|line| line.strip_prefix("  "));
        // Words of a kernel's union have two names: { bp_addr, config1 }.
        let fields = fields.filter_map(|field| {
            let (name, value) = field.rsplit_once("  ")?;
            let name = name.trim().trim_end_matches(" }").rsplit(' ').next()?.to_owned();
            // A newer perf has the name of the number behind it.
            Some((name, number(value.trim().split(' ').next()?)?))
        });
        let mut one = Encoding::default();
        for (name, value) in fields {
            match name.as_str() {
                "type" => one.kind = u32::try_from(value).unwrap_or(u32::MAX),
                "config" => one.words[0] = value,
                "config1" => one.words[1] = value,
                "config2" => one.words[2] = value,
                "config3" => one.words[3] = value,
                _ => {}
            }
        }
        found.insert(one);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_distinct_encodings_and_nothing_else() {
        let attr = |fields: &str| format!("----\nperf_event_attr:\n{fields}----\nsys_perf_event_open: pid 1\n");
        let first = attr(
            "  type                             4\n  config                           0x1b7\n  exclude_guest                    1\n  { bp_addr, config1 }             0x10001\n",
        );
        let newer = attr(
            "  type                             21 (uncore_imc_1)\n  size                             136\n  config                           0x304 (unc)\n",
        );
        let bad =
            attr("  type                             99999999999\n  config                           x\n  junk\n");
        let text = format!("Using CPUID x\n{first}Warning:\n{first}{newer}{bad}perf_event_attr:");
        let found = encodings(&text);
        let of = |kind, config, config1| Encoding { kind, words: [config, config1, 0, 0] };
        let expected = [Encoding::default(), of(4, 0x1b7, 0x10001), of(21, 0x304, 0), of(u32::MAX, 0, 0)];
        assert!(found.into_iter().eq(expected));
    }
}
