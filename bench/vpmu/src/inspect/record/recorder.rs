//! The thread that takes samples out of the vCPUs' queues, compresses and writes them. No vCPU waits for it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::attr::Event;
use perf_data::feature::Facts;
use perf_data::record::{Mapping, Record};
use perf_data::writer::{self, Output, Writer};
use results::error::{Error, Exit};
use vmm::sample::{Channel, Sample, Sampling};

use super::beside::KALLSYMS;
use super::layout::{Kind, build_id_of};
use super::spec::RecordSpec;
use super::tables::{Names, Tables};
use crate::inspect::sampled::{beside, take_turn};
use crate::sys;

/// Interval at which queues are emptied: each time costs CPU time that the guest may want.
const OFTEN: Duration = Duration::from_millis(10);
/// Longer interval, where no more than so many samples come meanwhile, a tenth of a queue's room at least.
const SELDOM: (Duration, u64) = (Duration::from_millis(50), 100);
/// Interval at which a file is brought up to date.
const FLUSH: Duration = Duration::from_millis(500);

/// Counts of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Samples of each event, in the order of the specification; none beyond the last that had one.
    pub by_event: Vec<u64>,
    /// Samples for which there was no room: in a queue of this program's, in the kernel's ring.
    pub lost: [u64; 2],
    /// Times the kernel throttled an event.
    pub throttled: u64,
    /// Samples that were taken while the host handled an exit.
    pub at_exit: u64,
    /// Samples with a part of the chain at level 0, and at level 3.
    pub parts: [u64; 2],
    /// Number of them that were followed to their end.
    pub complete: [u64; 2],
    /// Samples whose chain broke at code of the kernel without an unwind table.
    pub no_table: u64,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Counts of samples and losses.
    pub counts: Counts,
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
    (sampling, output, subject): (Arc<Sampling>, Output, Subject),
    spec: &RecordSpec,
    (events, mut facts): (&[Event], Facts),
    guest: impl FnOnce() -> Result<Exit, Error>,
) -> Result<(Recorded, Exit), Error> {
    let cannot = |error: io::Error| {
        let what = format!("cannot begin the recording in {}", spec.output.display());
        Error::usage(what, error.to_string(), "make room, or give another --output")
    };
    facts.build_ids.extend(build_id_of(&subject.mappings));
    let Subject { kind, mappings, names } = subject;
    let work = Work {
        known: vec![false; sampling.channels.len()],
        tables: spec.interval.map(|interval| Tables::begin(interval, &sampling.events, names)).transpose()?,
        sampling,
        writer: Writer::begin(output, events, spec.chains, spec.writing(), facts).map_err(cannot)?,
        kind,
        chains: spec.chains,
        counts: Counts::default(),
        failed: None,
        until: u64::MAX,
        pid: std::process::id(),
    };
    let kallsyms = spec.beside(KALLSYMS);
    let (recorded, exit) = beside(|done| work.run(done, &mappings, spec.duration, &kallsyms), guest)?;
    Ok((recorded, exit?))
}

/// Returns the interval at which queues are emptied, by the samples that a vCPU has at the most.
fn poll(events: &[SampledEvent], rate: Rate) -> Duration {
    // Nobody knows how often events other than clocks happen.
    let hertz = |event: &SampledEvent| event.is_clock().then(|| 1_000_000_000 / rate.of(event).0.max(1));
    let Some(all) = events.iter().map(hertz).sum::<Option<u64>>() else { return OFTEN };
    Duration::from_millis(1000 * SELDOM.1 / all.max(1)).clamp(OFTEN, SELDOM.0)
}

/// Returns the samples that were lost, in a queue of this program's and in the kernel's ring, and the times that an event was throttled.
fn totals(sampling: &Sampling) -> [u64; 3] {
    let lost = sampling.channels.iter().map(|channel| channel.queue.lost());
    lost.fold([0; 3], |[a, b, c], (queue, kernel, throttled)| [a + queue, b + kernel, c + throttled])
}

struct Work {
    sampling: Arc<Sampling>,
    writer: Writer,
    tables: Option<Tables>,
    kind: Kind,
    chains: bool,
    /// vCPUs whose thread has its name in the file.
    known: Vec<bool>,
    counts: Counts,
    failed: Option<io::Error>,
    /// Samples after this time are left out.
    until: u64,
    pid: u32,
}

impl Work {
    /// `kallsyms`: the list of the guest's symbols, once it has been.
    fn run(mut self, done: &AtomicBool, mappings: &[Mapping], duration: Option<Duration>, kallsyms: &Path) -> Recorded {
        let mut by_duration = false;
        let poll = poll(&self.sampling.events, self.sampling.rate);
        // The process and its code are ahead of all samples.
        self.add(&Record::Comm { pid: self.pid, tid: self.pid, name: "vpmu".to_owned() });
        mappings.iter().for_each(|mapping| self.add(&Record::Mapping(mapping.clone())));
        let (began, mut flushed) = (Instant::now(), Instant::now());
        loop {
            // Looked at before the queues: what is in them at the end is taken out.
            let last = done.load(Ordering::Acquire);
            let more = self.drain();
            if duration.is_some_and(|duration| began.elapsed() >= duration) && !by_duration && !last {
                by_duration = true;
                // Work of the guest on its way out is not to be recorded.
                self.until = sys::monotonic_ns();
                sys::interrupted().store(true, Ordering::Relaxed);
            }
            let lost_so_far = totals(&self.sampling);
            if let Some(printed) = self.tables.as_mut().map(|tables| tables.poll(lost_so_far)) {
                self.keep_table(printed);
            }
            // The guest has ended by then: the queues do not grow.
            if last && !more {
                break;
            }
            if flushed.elapsed() > FLUSH {
                flushed = Instant::now();
                let written = self.writer.flush();
                self.keep(written);
            }
            if !more && !done.load(Ordering::Relaxed) {
                let left = duration.filter(|_| !by_duration).map(|duration| duration.saturating_sub(began.elapsed()));
                std::thread::park_timeout(left.map_or(poll, |left| left.min(poll)));
            }
        }
        self.lost();
        if let Some(tables) = self.tables.take() {
            let printed = tables.end(totals(&self.sampling), kallsyms);
            self.keep_table(printed);
        }
        let (file, ended) = self.writer.finish();
        Recorded { counts: self.counts, file, failed: self.failed.or(ended.err()), by_duration }
    }

    /// Takes samples out; returns whether there may be more.
    fn drain(&mut self) -> bool {
        let sampling = Arc::clone(&self.sampling);
        let mut more = false;
        for (cpu, channel) in sampling.channels.iter().enumerate() {
            more |= take_turn(|| channel.queue.pop(), |taken| self.write(cpu, channel, &taken));
        }
        more
    }

    fn write(&mut self, cpu: usize, channel: &Channel, taken: &Sample) {
        if taken.time > self.until {
            return;
        }
        let tid = channel.tid.load(Ordering::Relaxed).cast_unsigned();
        if !std::mem::replace(&mut self.known[cpu], true) {
            self.add(&Record::Comm { pid: self.pid, tid, name: format!("CPU {cpu}/KVM") });
        }
        self.count(taken);
        if let Some(tables) = &mut self.tables {
            tables.add(taken);
        }
        let sample = self.kind.sample(taken, cpu as u32, self.pid, tid, self.chains);
        self.add(&Record::Sample(sample));
    }

    fn count(&mut self, taken: &Sample) {
        self.counts.samples += 1;
        let by_event = &mut self.counts.by_event;
        if by_event.len() <= taken.event {
            by_event.resize(taken.event + 1, 0);
        }
        by_event[taken.event] += 1;
        self.counts.at_exit += u64::from(taken.at_exit);
        if self.chains {
            self.counts.no_table += u64::from(taken.no_table);
            for part in 0..2 {
                let (any, complete) = (!taken.chain[part].is_empty(), taken.complete[part]);
                self.counts.parts[part] += u64::from(any || !complete);
                self.counts.complete[part] += u64::from(any && complete);
            }
        }
    }

    /// Writes the losses, as perf does.
    fn lost(&mut self) {
        let sampling = Arc::clone(&self.sampling);
        let [ours, kernels, throttled] = totals(&sampling);
        (self.counts.lost, self.counts.throttled) = ([ours, kernels], throttled);
        for channel in &sampling.channels {
            for event in 0..sampling.events.len() {
                let count = channel.queue.lost_of(event).iter().sum();
                if count > 0 {
                    self.add(&Record::Lost { id: event as u64 + 1, count });
                }
            }
        }
    }

    fn add(&mut self, record: &Record) {
        let added = self.writer.add(record);
        self.keep(added);
    }

    /// Keeps the error of a table, after which there are no more.
    fn keep_table(&mut self, printed: io::Result<()>) {
        if printed.is_err() {
            self.tables = None;
        }
        self.keep(printed);
    }

    /// Keeps the first error, and ends the guest: nothing more is recorded.
    fn keep(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
            sys::interrupted().store(true, Ordering::Relaxed);
        }
    }
}
