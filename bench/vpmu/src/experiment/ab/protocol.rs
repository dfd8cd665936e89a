//! Messages between `vpmu ab` and the process of one side: `vpmu-turns/2`, a JSON object a line.
//!
//! The parent asks on the child's stdin and reads one answer for each line from its stdout; the first line is the
//! child's greeting. Both sides bound a line's length and distrust its content: the child may be another build.

use std::io::{self, BufRead, ErrorKind, Read as _, Write};

use results::document::{Metrics, Tool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name and version of the protocol.
pub const PROTOCOL: &str = "vpmu-turns/2";
/// The command that speaks it.
pub const COMMAND: &str = "__turns";
/// Longest line, in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// Most arms of a side.
pub const MAX_ARMS: usize = 64;

/// A request of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum Ask {
    /// Start a guest for each arm. Answer: [`Answer::Opened`].
    Open,
    /// Let the guest of an arm run for one turn. Answer: [`Answer::TurnOver`].
    Turn {
        /// The arm, by its place in the greeting.
        arm: usize,
        /// The round, from 0.
        round: u64,
        /// Place of the turn in the round.
        position: u64,
        /// True if its figures are discarded.
        warmup: bool,
    },
    /// The round is whole: its figures count. Answer: [`Answer::Kept`].
    Keep,
    /// End the guests. Answer: [`Answer::Closed`].
    Close,
    /// End the process. Answer: [`Answer::Bye`].
    Stop,
}

/// An answer of the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Answer {
    /// The first line.
    Hello(Box<Hello>),
    /// The guests wait for their first turns.
    Opened,
    /// The turn is over.
    TurnOver {
        /// End of the turn.
        end: End,
    },
    /// The figures of the round, of each arm that has some.
    Kept {
        /// One per arm at most.
        figures: Vec<Figures>,
    },
    /// The guests have ended.
    Closed {
        /// Doubts about the figures, a sentence each; empty if they are whole.
        doubts: Vec<String>,
    },
    /// The process ends.
    Bye,
    /// It cannot go on.
    Failed {
        /// Exit code of the error.
        exit: u8,
        /// The error in one line.
        error: String,
    },
}

/// The greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: String,
    /// The build.
    pub tool: Tool,
    /// The arms, in order.
    pub arms: Vec<TurnArm>,
    /// Events and work of the guest.
    pub workload: String,
    /// Backend behind its counters.
    pub backend: String,
    /// True if that stands in for hardware events.
    pub stand_in: bool,
    /// Class of the host.
    pub host: String,
    /// CPUs that vCPUs are bound to, if they are.
    #[serde(default)]
    pub pin: Option<String>,
    /// Samples of a turn and vCPU.
    pub samples: u64,
    /// Longest time of a turn, ms.
    pub turn_limit_ms: u64,
}

/// An arm of a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnArm {
    /// Its name.
    pub name: String,
    /// Reason why it cannot run here; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_available: Option<String>,
}

/// End of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It ended as it should.
    Finished,
    /// The guest failed or hung.
    Failed,
    /// The child was interrupted.
    Interrupted,
}

/// One turn's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The arm.
    pub arm: usize,
    /// The round that was asked for.
    pub round: u64,
    /// Time of the throughput probe just before it, ns, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<f64>,
    /// Why they are not whole; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Its metrics.
    pub metrics: Metrics,
}

/// Writes one line.
///
/// # Errors
/// Errors of the stream.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.flush()
}

/// Reads one line; `None` at the end of the stream.
///
/// # Errors
/// Errors of the stream; `InvalidData` for a line that is too long, cut off, or not UTF-8.
pub fn line(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    stream.take(MAX_LINE as u64 + 1).read_until(b'\n', &mut bytes)?;
    let wrong = |why: &str| Err(io::Error::new(ErrorKind::InvalidData, why.to_owned()));
    match bytes.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(bytes).map(Some).or_else(|_| wrong("a line that is no UTF-8")),
        Some(_) if bytes.len() >= MAX_LINE => wrong("a line of more than 1 MiB"),
        Some(_) => wrong("a line that is cut off"),
    }
}

/// Reads a message from its line.
///
/// # Errors
/// Why it is none.
pub fn message<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_one_object() {
        let mut stream = Vec::new();
        let turn = Ask::Turn { arm: 2, round: 7, position: 1, warmup: false };
        send(&mut stream, &Ask::Open).unwrap();
        send(&mut stream, &turn).unwrap();
        let mut stream = stream.as_slice();
        assert_eq!(line(&mut stream).unwrap().as_deref(), Some(r#"{"ask":"open"}"#));
        let second = line(&mut stream).unwrap().unwrap();
        assert_eq!(second, r#"{"ask":"turn","arm":2,"round":7,"position":1,"warmup":false}"#);
        assert_eq!(message::<Ask>(&second), Ok(turn));
        assert_eq!(line(&mut stream).unwrap(), None);
    }

    #[test]
    fn lines_are_bounded_and_whole() {
        let mut endless = io::repeat(b'x');
        let mut endless = io::BufReader::new(&mut endless);
        assert_eq!(line(&mut endless).unwrap_err().to_string(), "a line of more than 1 MiB");
        assert_eq!(line(&mut &b"{\"is\""[..]).unwrap_err().to_string(), "a line that is cut off");
        assert_eq!(line(&mut &b"\xff\n"[..]).unwrap_err().to_string(), "a line that is no UTF-8");
        let longest = [vec![b'y'; MAX_LINE - 1], vec![b'\n']].concat();
        assert_eq!(line(&mut longest.as_slice()).unwrap().map(|line| line.len()), Some(MAX_LINE - 1));
    }

    #[test]
    fn fields_of_a_later_build_are_no_error() {
        let text = r#"{"is":"kept","figures":[{"arm":0,"round":1,"metrics":{},"more":1}],"also":2}"#;
        let Ok(Answer::Kept { figures }) = message(text) else { panic!() };
        assert_eq!((figures[0].arm, figures[0].round, figures[0].probe_ns), (0, 1, None));
        assert!(message::<Answer>(r#"{"is":"dancing"}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut stream = bytes.as_slice();
            while let Ok(Some(text)) = line(&mut stream) {
                let _ = message::<Answer>(&text);
                let _ = message::<Ask>(&text);
            }
        }
    }
}
