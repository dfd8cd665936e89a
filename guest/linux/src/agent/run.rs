//! Running a program in the guest.

use std::io::Write;
use std::time::{Duration, Instant};

use super::client::{Agent, SLICE, refusal, zero_ended};
use super::error::AgentError;
use super::wire::Fields;
use crate::protocol::{ENDED, ERR, ERROR, KILL, OUT, RUN};

/// Time for a program that is killed to be gone.
const GRACE: Duration = Duration::from_secs(30);

const SIGKILL: u32 = 9;

/// The reason for which a program was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its time limit.
    Limit,
    /// The caller asked to stop.
    Interrupted,
}

/// A program that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status, as a shell has it: 128 + N for signal N.
    pub status: i32,
    /// Its time by the guest's CLOCK_MONOTONIC, in nanoseconds.
    pub wall_ns: u64,
    /// The client had it killed.
    pub cut: Option<Cut>,
}

impl Agent<'_> {
    /// Runs a program with its arguments until it ends, or kills it after `limit`. A name without a slash is searched for in
    /// the guest's PATH; it runs in `/root`, with PATH, HOME and TERM, and without input. What it writes to standard output and
    /// standard error goes to `out` and `err` meanwhile. What its own children write after its end is lost.
    pub fn run(
        &mut self,
        argv: &[String],
        limit: Option<Duration>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Ended, AgentError> {
        let strings = argv.iter().map(|argument| zero_ended(argument)).collect::<Result<Vec<_>, _>>()?;
        self.request(RUN, &strings.concat())?;
        let due = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (mut killed, mut cut, mut broken) = (None::<Instant>, None, None);
        loop {
            // At its time limit a program is killed once; waiting for its end is no busy loop.
            let left = due.filter(|_| killed.is_none()).map(|due| due.saturating_duration_since(Instant::now()));
            if let Some(frame) = self.wire.next(left.map_or(SLICE, |left| left.min(SLICE)))? {
                let (what, to): (_, &mut dyn Write) = match frame.kind {
                    OUT => ("standard output", &mut *out),
                    ERR => ("standard error", &mut *err),
                    ERROR => {
                        self.replied();
                        return Err(refusal(&frame.payload));
                    }
                    ENDED => {
                        self.replied();
                        return broken.map_or_else(|| ended(&frame.payload, cut), Err);
                    }
                    _ => return Err(AgentError::Protocol("a reply of another request while a program runs")),
                };
                if broken.is_none()
                    && let Err(error) = to.write_all(&frame.payload).and_then(|()| to.flush())
                {
                    broken = Some(AgentError::Host { what: what.to_owned(), error });
                }
            }
            match killed.map(|since| since.elapsed()) {
                Some(after) if after > GRACE => {
                    return Err(AgentError::Silent { after, during: "a program is killed" });
                }
                Some(_) => continue,
                None if self.is_stopped() => cut = Some(Cut::Interrupted),
                None if due.is_some_and(|due| Instant::now() >= due) => cut = Some(Cut::Limit),
                None => {}
            }
            if cut.is_some() || broken.is_some() {
                killed = Some(Instant::now());
                self.wire.send(KILL, &SIGKILL.to_le_bytes())?;
            }
        }
    }
}

fn ended(payload: &[u8], cut: Option<Cut>) -> Result<Ended, AgentError> {
    let mut fields = Fields(payload);
    let status = fields.u32()?.cast_signed();
    let signal = status & 0x7f;
    let status = if signal == 0 { status >> 8 & 0xff } else { 128 + signal };
    Ok(Ended { status, wall_ns: fields.u64()?, cut })
}
