//! The thread that takes samples out of the vCPUs' queues, compresses and writes them. No vCPU waits for it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use perf_data::attr::Event;
use perf_data::feature::Facts;
use perf_data::record::{Mapping, Record};
use perf_data::writer::{self, Writer};
use results::error::{Error, Exit};
use rustix::time::ClockId;
use vmm::sample::{Channel, Sample, Sampling};

use super::beside::KALLSYMS;
use super::layout::{Kind, build_id_of};
use super::spec::RecordSpec;
use super::tables::{Names, Tables};
use crate::inspect::drain::{run_beside_drain, take_some};
use crate::sys;

/// Interval at which queues are emptied: each time costs CPU time that the guest may want, and a queue has room for twice the samples
/// that a vCPU can take meanwhile.
const POLL: Duration = Duration::from_millis(50);
/// Interval at which a file is brought up to date.
const FLUSH: Duration = Duration::from_millis(500);

/// Result of a recording.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Samples.
    pub samples: u64,
    /// Samples for which there was no room in a queue of this program's and in the kernel's ring; times the kernel throttled an event.
    pub lost: [u64; 3],
    /// Samples that were taken while the host handled an exit.
    pub at_exit: u64,
    /// Samples with a part of the chain at level 0, and at level 3.
    pub parts: [u64; 2],
    /// Number of them that were followed to their end.
    pub complete: [u64; 2],
    /// The file.
    pub file: writer::Summary,
    /// Why writing ended early.
    pub failed: Option<io::Error>,
    /// It ended by its duration.
    pub by_duration: bool,
}

/// The guest in the recording.
#[derive(Debug)]
pub struct Subject {
    /// Kind of the guest.
    pub kind: Kind,
    /// Its code.
    pub mappings: Vec<Mapping>,
    /// Names of its functions, for tables.
    pub names: Names,
}

/// Writes the samples of `sampling` by a thread while `guest` runs; returns what is there, and the guest's exit code. At the end of
/// `duration`, and when nothing more can be written, the guest is interrupted.
///
/// # Errors
/// The output's, the host gives no thread, or the guest did not begin.
pub fn record(
    (sampling, output, subject): (Arc<Sampling>, File, Subject),
    spec: &RecordSpec,
    (events, mut facts): (&[Event], Facts),
    guest: impl FnOnce() -> Result<Exit, Error>,
) -> Result<(Recorded, Exit), Error> {
    let cannot = |error: io::Error| {
        let what = format!("cannot begin the recording in {}", spec.output.display());
        Error::output(what, &error, "make room, or give another --output")
    };
    let Subject { kind, mappings, names } = subject;
    facts.build_ids.extend(build_id_of(&mappings));
    let mut work = Work {
        known: vec![false; sampling.channels.len()],
        tables: spec.interval.map(|interval| Tables::begin(interval, &sampling.events, names)).transpose()?,
        sampling,
        writer: Writer::begin(output, events, spec.chains, spec.writing(), facts).map_err(cannot)?,
        kind,
        spec,
        until: u64::MAX,
        pid: std::process::id(),
        began: Instant::now(),
        flushed: Instant::now(),
        out: Recorded::default(),
    };
    // The process and its code are ahead of all samples.
    work.add(&Record::Comm { pid: work.pid, tid: work.pid, name: "vpmu".to_owned() });
    for mapping in mappings {
        work.add(&Record::Mapping(mapping));
    }
    let (work, exit) = run_beside_drain(work, Work::look, guest)?;
    Ok((work.finish(), exit?))
}

struct Work<'a> {
    sampling: Arc<Sampling>,
    writer: Writer,
    tables: Option<Tables>,
    kind: Kind,
    spec: &'a RecordSpec,
    /// vCPUs whose thread has its name in the file.
    known: Vec<bool>,
    /// Samples after this time are left out: work of the guest on its way out.
    until: u64,
    pid: u32,
    began: Instant,
    flushed: Instant,
    out: Recorded,
}

impl Work<'_> {
    fn look(&mut self, last: bool) -> Option<Duration> {
        let sampling = Arc::clone(&self.sampling);
        let mut more = false;
        for (cpu, channel) in sampling.channels.iter().enumerate() {
            more |= take_some(|| channel.queue.pop(), |taken| self.write(cpu, channel, &taken));
        }
        let left = self.spec.duration.unwrap_or(Duration::MAX).saturating_sub(self.began.elapsed());
        if left.is_zero() && !self.out.by_duration && !last {
            (self.out.by_duration, self.until) = (true, sys::clock_ns(ClockId::Monotonic));
            sys::interrupted().store(true, Ordering::Relaxed);
        }
        let totals = self.totals();
        let printed = self.tables.as_mut().map_or(Ok(()), |tables| tables.poll(totals));
        self.keep(printed);
        if self.flushed.elapsed() > FLUSH {
            self.flushed = Instant::now();
            let written = self.writer.flush();
            self.keep(written);
        }
        (!more).then(|| if self.out.by_duration { POLL } else { POLL.min(left) })
    }

    fn finish(mut self) -> Recorded {
        self.out.lost = self.totals();
        let sampling = Arc::clone(&self.sampling);
        for (channel, event) in
            sampling.channels.iter().flat_map(|one| (0..sampling.events.len()).map(move |n| (one, n)))
        {
            let count = channel.queue.lost_of(event).iter().sum();
            if count > 0 {
                self.add(&Record::Lost { id: event as u64 + 1, count });
            }
        }
        let kallsyms = self.spec.beside(KALLSYMS);
        let printed = self.tables.take().map_or(Ok(()), |tables| tables.end(self.out.lost, &kallsyms));
        self.keep(printed);
        let (file, ended) = self.writer.finish();
        Recorded { file, failed: self.out.failed.or(ended.err()), ..self.out }
    }

    fn totals(&self) -> [u64; 3] {
        let lost = self.sampling.channels.iter().map(|channel| channel.queue.lost());
        lost.fold([0; 3], |[a, b, c], (queue, kernel, throttled)| [a + queue, b + kernel, c + throttled])
    }

    fn write(&mut self, cpu: usize, channel: &Channel, taken: &Sample) {
        if taken.time > self.until {
            return;
        }
        let tid = channel.tid.load(Ordering::Relaxed).cast_unsigned();
        if !std::mem::replace(&mut self.known[cpu], true) {
            self.add(&Record::Comm { pid: self.pid, tid, name: format!("CPU {cpu}/KVM") });
        }
        self.out.samples += 1;
        self.out.at_exit += u64::from(taken.at_exit);
        for part in 0..2 {
            let (any, complete) = (!taken.chain[part].is_empty(), taken.complete[part]);
            self.out.parts[part] += u64::from(any || !complete);
            self.out.complete[part] += u64::from(any && complete);
        }
        if let Some(tables) = &mut self.tables {
            tables.add(taken);
        }
        let sample = self.kind.sample(taken, cpu as u32, self.pid, tid, self.spec.chains);
        self.add(&Record::Sample(sample));
    }

    fn add(&mut self, record: &Record) {
        let added = self.writer.add(record);
        self.keep(added);
    }

    /// Keeps the first error, and ends the guest: nothing more is recorded or printed.
    fn keep(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.out.failed.get_or_insert(error);
            self.tables = None;
            sys::interrupted().store(true, Ordering::Relaxed);
        }
    }
}
