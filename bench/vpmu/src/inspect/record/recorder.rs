//! The thread that takes samples out of the vCPUs' queues, compresses and writes them. No vCPU waits for it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_pmu::sampler::{Rate, SampledEvent};
use perf_data::feature::{BuildId, Facts};
use perf_data::record::{Mapping, Record, Stamp};
use perf_data::writer::{self, Output, Writer};
use results::error::{Error, Exit};
use vmm::sample::{Channel, Sample, Sampling};

use super::beside::{self, KALLSYMS};
use super::code::KernelCode;
use super::layout::Kind;
use super::spec::RecordSpec;
use super::tables::{Names, Tables};
use crate::inspect::sampled;
use crate::inspect::sampled::take_turn;
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
    /// Samples after `--duration`, which are left out.
    pub too_late: u64,
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
    /// Lines of the guest's list of modules that could not be used.
    pub left_out: usize,
}

/// The guest in the recording.
#[derive(Debug)]
pub struct Subject {
    /// Kind of the guest.
    pub kind: Kind,
    /// Its code.
    pub mappings: Vec<Mapping>,
    /// The code of its kernel, which it says as it runs.
    pub code: Option<KernelCode>,
    /// Names of its functions, for tables.
    pub names: Names,
}

/// Opens the output. A file of the same name is kept as perf keeps it, with `.old` behind its name.
///
/// # Errors
/// Exit 2: it cannot be written.
pub fn output(spec: &RecordSpec) -> Result<(Output<File>, bool), Error> {
    let cannot = |error: io::Error| {
        let what = format!("cannot write the recording to {}", spec.output.display());
        Error::output(what, &error, "give another --output")
    };
    if spec.is_pipe() {
        beside::remove(&spec.beside(KALLSYMS)).map_err(cannot)?;
        // Whatever the guest writes to stdout goes to stderr from here on.
        return sys::take_stdout().map(|fd| (Output::Pipe(File::from(fd)), false)).map_err(cannot);
    }
    beside::begin(&spec.output).map(|(file, displaces)| (Output::File(file), displaces)).map_err(cannot)
}

/// Writes the samples of `sampling` by a thread while `guest` runs; returns what is there, and the guest's exit code. At the end of
/// `duration`, and when nothing more can be written, the guest is interrupted.
///
/// # Errors
/// The output's, the host gives no thread, or the guest did not begin; exit 70 for a panic of the thread.
pub fn record(
    (sampling, output, mut subject): (Arc<Sampling>, Output<File>, Subject),
    spec: &RecordSpec,
    facts: Facts,
    guest: impl FnOnce() -> Result<Exit, Error>,
) -> Result<(Recorded, Exit), Error> {
    let cannot = |error: io::Error| {
        let what = format!("cannot begin the recording in {}", spec.output.display());
        Error::usage(what, error.to_string(), "make room, or give another --output")
    };
    let events = sampled::described(&sampling, subject.kind == Kind::Task)?;
    let writer = Writer::begin(output, &events, spec.chains, spec.writing(), &facts).map_err(cannot)?;
    let names = std::mem::take(&mut subject.names);
    let work = Work {
        known: vec![false; sampling.channels.len()],
        tables: spec.interval.map(|interval| Tables::begin(interval, &sampling.events, names)).transpose()?,
        sampling,
        writer,
        kallsyms: spec.beside(KALLSYMS),
        subject,
        facts,
        chains: spec.chains,
        counts: Counts::default(),
        failed: None,
        until: u64::MAX,
        pid: std::process::id(),
    };
    let done = Arc::new(AtomicBool::new(false));
    let (until, duration) = (Arc::clone(&done), spec.duration);
    let thread = std::thread::Builder::new().name("recorder".to_owned());
    let thread = thread.spawn(move || work.run(&until, duration)).map_err(cannot)?;
    let ended = guest();
    done.store(true, Ordering::Relaxed);
    thread.thread().unpark();
    let panicked = |_| Error::new(Exit::Internal, "this is a bug of vpmu: the recorder panicked", "", "");
    Ok((thread.join().map_err(panicked)?, ended?))
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
    writer: Writer<File>,
    tables: Option<Tables>,
    /// The list of the guest's symbols, once it has been.
    kallsyms: PathBuf,
    subject: Subject,
    facts: Facts,
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
    fn run(mut self, done: &AtomicBool, duration: Option<Duration>) -> Recorded {
        let mut by_duration = false;
        let poll = if self.subject.code.is_some() { OFTEN } else { poll(&self.sampling.events, self.sampling.rate) };
        self.begin();
        let (began, mut flushed) = (Instant::now(), Instant::now());
        loop {
            // Looked at before the queues: what is in them at the end is taken out.
            let last = done.load(Ordering::Relaxed);
            self.code();
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
            let printed = tables.end(totals(&self.sampling), &self.kallsyms);
            self.keep_table(printed);
        }
        let Self { writer, mut facts, counts, mut failed, subject, .. } = self;
        let (build_ids, left_out) = subject.code.map(KernelCode::finish).unwrap_or_default();
        facts.build_ids.extend(build_ids);
        // perf names no function of an image by a file of another build.
        let images = subject.mappings.iter().filter(|_| subject.kind == Kind::Task);
        for Mapping { misc, build_id, file, .. } in images.filter(|mapping| !mapping.build_id.is_empty()) {
            if facts.build_ids.iter().all(|known| known.file != *file) {
                facts.build_ids.push(BuildId { misc: *misc, pid: -1, id: build_id.clone(), file: file.clone() });
            }
        }
        let (file, ended) = writer.finish(&facts);
        failed = failed.or(ended.err());
        Recorded { counts, file, failed, by_duration, left_out }
    }

    /// Writes the process and its code, ahead of all samples.
    fn begin(&mut self) {
        let pid = self.pid;
        self.add(&Record::Comm { pid, tid: pid, name: "vpmu".to_owned() }, Stamp::default());
        for mapping in self.subject.mappings.clone() {
            self.add(&Record::Mapping(mapping), Stamp::default());
        }
    }

    /// Reads the guest's lists of its kernel's code.
    fn code(&mut self) {
        let Some(code) = &mut self.subject.code else { return };
        for mapping in code.poll() {
            self.add(&Record::Mapping(mapping), Stamp::default());
        }
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
            self.counts.too_late += 1;
            return;
        }
        let tid = channel.tid.load(Ordering::Relaxed).cast_unsigned();
        if !std::mem::replace(&mut self.known[cpu], true) {
            let comm = Record::Comm { pid: self.pid, tid, name: format!("CPU {cpu}/KVM") };
            self.add(&comm, Stamp { pid: self.pid, tid, cpu: cpu as u32, ..Stamp::default() });
        }
        self.count(taken);
        if let Some(tables) = &mut self.tables {
            tables.add(taken);
        }
        let sample = self.subject.kind.sample(taken, cpu as u32, self.pid, tid, self.chains);
        self.add(&Record::Sample(sample), Stamp::default());
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
        for (cpu, channel) in sampling.channels.iter().enumerate() {
            for event in 0..sampling.events.len() {
                let (id, count) = (event as u64 + 1, channel.queue.lost_of(event).iter().sum());
                if count > 0 {
                    let stamp = Stamp { pid: self.pid, cpu: cpu as u32, id, ..Stamp::default() };
                    self.add(&Record::Lost { id, count }, stamp);
                }
            }
        }
    }

    fn add(&mut self, record: &Record, stamp: Stamp) {
        let stamp = Stamp { id: stamp.id.max(1), ..stamp };
        let added = self.writer.add(record, stamp);
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
