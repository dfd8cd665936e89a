//! Pairs of threads that hand a byte to and fro through two pipes; or one thread of each pair that does both sides.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::Mutex;

use super::crew::{Set, Worked, over, together};
use crate::child::Job;

/// Ends of a thread's pipes: the one it writes to and the one it reads from.
type Ends = (PipeWriter, PipeReader);

/// Operations are round trips.
pub(super) fn run(job: &Job, set: Set<'_>) -> std::io::Result<Worked> {
    let pairs = job.threads / 2;
    let mut ends = Vec::with_capacity(2 * pairs);
    for _ in 0..pairs {
        let ((there_out, there_in), (back_out, back_in)) = (pipe()?, pipe()?);
        if job.apart {
            ends.push(Mutex::new(Some((there_in, there_out))));
        } else {
            ends.push(Mutex::new(Some((there_in, back_out))));
            ends.push(Mutex::new(Some((back_in, there_out))));
        }
    }
    together(ends.len(), job.duration, set, |index, stop| {
        let taken = ends[index].lock().map_or(None, |mut ends| ends.take());
        let Some((writer, reader)) = taken else { return Ok(0) };
        if job.apart {
            return alone((writer, reader), || over(stop));
        }
        if index % 2 == 0 { first((writer, reader), || over(stop)) } else { second((writer, reader)) }
    })
}

/// Begins each trip; its end closes the pipe, which ends the other thread.
fn first((mut writer, mut reader): Ends, over: impl Fn() -> bool) -> std::io::Result<u64> {
    let mut trips = 0;
    loop {
        hand_over(&mut writer, &mut reader)?;
        trips += 1;
        if over() {
            break Ok(trips);
        }
    }
}

#[inline(never)]
fn hand_over(writer: &mut PipeWriter, reader: &mut PipeReader) -> std::io::Result<()> {
    writer.write_all(b"x")?;
    reader.read_exact(&mut [0])
}

/// Answers until the other has closed its pipe.
fn second((mut writer, mut reader): Ends) -> std::io::Result<u64> {
    while reader.read(&mut [0])? == 1 {
        writer.write_all(b"x")?;
    }
    Ok(0)
}

/// Does both sides of each trip: as many calls, and nobody to wait for.
fn alone((mut writer, mut reader): Ends, over: impl Fn() -> bool) -> std::io::Result<u64> {
    let mut trips = 0;
    loop {
        hand_over(&mut writer, &mut reader)?;
        hand_over(&mut writer, &mut reader)?;
        trips += 1;
        if over() {
            break Ok(trips);
        }
    }
}
