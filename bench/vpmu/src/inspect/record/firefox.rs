//! A recording as the Firefox profiler's processed profile.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, ProcessHandle, Profile, ReferenceTimestamp,
    SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp,
};
use perf_data::attr::Attr;
use perf_data::calls::{Place, TooMuch};
use perf_data::history::{MOST_KEPT, Shown};
use perf_data::record::Mode;

use super::flame;
use super::profile::{Contents, MOST_MADE};

/// PERF_TYPE_SOFTWARE, whose first two events are the clocks.
const SOFTWARE: u32 = 1;
const LAST_CLOCK: u64 = 1;
/// The interval of an event that does not say one: the profiler draws its graphs by it.
const USUAL: u64 = 1_000_000;

/// Bytes that a thread of a profile takes, and a function in a stack of a thread: each thread has tables of its own.
const OF_THREAD: u64 = 4 << 10;
const OF_FUNCTION: u64 = 256;

/// Formats the profile as JSON: a thread for each that was sampled, each sample with its time, its stack and a weight of 1.
///
/// # Errors
/// It would be too large.
pub fn json(contents: &Contents, product: &str) -> Result<String, TooMuch> {
    // The profiler wants the samples of a thread in their order, which is theirs.
    let samples = &contents.named.samples;
    let origin = samples.first().map_or(0, |sample| sample.time);
    let attr = contents.event.attr.clone();
    let mut profile = Profile::new(product, started(contents.clocks, origin), interval(&attr));
    profile.set_symbolicated(true);
    let mut making = Making {
        categories: [
            profile.add_category("Kernel", CategoryColor::Orange),
            profile.add_category("User", CategoryColor::Blue),
        ],
        profile,
        processes: BTreeMap::new(),
        threads: BTreeMap::new(),
        names: HashMap::new(),
        stacks: HashMap::new(),
        is_clock: is_clock(&attr),
    };
    for sample in samples {
        making.add(contents, sample, sample.time - origin);
        if making.threads.len() as u64 * OF_THREAD + making.stacks.len() as u64 * OF_FUNCTION > MOST_KEPT {
            return Err(TooMuch(MOST_KEPT));
        }
    }
    flame::json(&making.profile, MOST_MADE)
}

/// Returns the time of the first sample. A recording that does not say it was taken at the begin of 1970.
fn started(clocks: Option<(u64, u64)>, origin: u64) -> ReferenceTimestamp {
    let wall = clocks.map_or(0, |(wall, clock)| wall.saturating_add(origin).saturating_sub(clock));
    ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(wall))
}

const fn is_clock(attr: &Attr) -> bool {
    attr.type_ == SOFTWARE && attr.config <= LAST_CLOCK
}

fn interval(attr: &Attr) -> SamplingInterval {
    let nanos = match attr.period {
        0 => USUAL,
        hertz if attr.by_frequency => 1_000_000_000 / hertz,
        period if is_clock(attr) => period,
        _ => USUAL,
    };
    SamplingInterval::from_nanos(nanos.max(1))
}

/// A profile on its way.
struct Making {
    profile: Profile,
    /// The kernel's and the user's.
    categories: [CategoryHandle; 2],
    processes: BTreeMap<u32, ProcessHandle>,
    threads: BTreeMap<(u32, u32), ThreadHandle>,
    /// Names by their numbers.
    names: HashMap<u32, StringHandle>,
    /// Stacks of threads by their innermost functions.
    stacks: HashMap<(ThreadHandle, u32), StackHandle>,
    is_clock: bool,
}

impl Making {
    fn add(&mut self, contents: &Contents, sample: &Shown, time: u64) {
        let thread = self.thread(contents, sample);
        let stack = self.stack(contents, thread, sample.innermost);
        // A clock's period is time on a processor.
        let busy = if self.is_clock { CpuDelta::from_nanos(sample.period) } else { CpuDelta::ZERO };
        self.profile.add_sample(thread, Timestamp::from_nanos_since_reference(time), stack, busy, 1);
    }

    /// Returns the stack of a thread, which is not its root here.
    fn stack(&mut self, contents: &Contents, thread: ThreadHandle, innermost: u32) -> Option<StackHandle> {
        let (mut next, mut inner, mut stack) = (innermost, Vec::new(), None);
        while let (Some(caller), place) = contents.named.calls.get(next) {
            stack = self.stacks.get(&(thread, next)).copied();
            if stack.is_some() {
                break;
            }
            inner.push((next, place));
            next = caller;
        }
        for (number, place) in inner.into_iter().rev() {
            let info = self.info(contents, place);
            let frame = self.profile.intern_frame(thread, info);
            let below = self.profile.intern_stack(thread, stack, frame);
            self.stacks.insert((thread, number), below);
            stack = Some(below);
        }
        stack
    }

    fn thread(&mut self, contents: &Contents, sample: &Shown) -> ThreadHandle {
        let (pid, tid) = (sample.pid, sample.tid);
        if let Some(&known) = self.threads.get(&(pid, tid)) {
            return known;
        }
        let start = Timestamp::from_nanos_since_reference(0);
        let profile = &mut self.profile;
        let process =
            *self.processes.entry(pid).or_insert_with(|| profile.add_process(&contents.named.thread(pid), pid, start));
        let thread = profile.add_thread(process, tid, start, pid == tid);
        profile.set_thread_name(thread, &contents.named.thread(tid));
        // Without this the profiler shows the busiest ones only.
        profile.add_initial_visible_thread(thread);
        self.threads.insert((pid, tid), thread);
        thread
    }

    fn info(&mut self, contents: &Contents, place: Place) -> FrameInfo {
        let profile = &mut self.profile;
        let name =
            *self.names.entry(place.name).or_insert_with(|| profile.intern_string(contents.named.name(place.name)));
        let category = place.mode.map_or(CategoryHandle::OTHER, |mode| self.category(mode));
        FrameInfo { frame: Frame::Label(name), category_pair: category.into(), flags: FrameFlags::empty() }
    }

    const fn category(&self, mode: Mode) -> CategoryHandle {
        match mode {
            Mode::Kernel | Mode::GuestKernel => self.categories[0],
            Mode::User | Mode::GuestUser => self.categories[1],
            Mode::Unknown | Mode::Hypervisor => CategoryHandle::OTHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use perf_data::attr::Event;
    use perf_data::calls;
    use perf_data::feature::{Facts, HostFacts};
    use perf_data::record::{Record, Sample, Stamp};
    use perf_data::writer::{Options, Output, Writer};
    use serde_json::Value;

    use super::super::profile;
    use super::*;

    /// Writes two threads, five samples, one of another event; the second thread's out of order.
    fn recording(path: &std::path::Path) {
        let output: Output<Vec<u8>> = Output::File(File::create(path).unwrap());
        let event = |config, id| Event {
            attr: Attr { type_: 1, config, period: 2_000_000, ..Attr::default() },
            name: format!("event {id}"),
            ids: vec![id],
        };
        let host = HostFacts { version: "vpmu 1".to_owned(), ..HostFacts::default() };
        let facts = Facts { host, clocks: (5_000_000_000, 1_000_000_000), ..Facts::default() };
        let mut writer = Writer::begin(output, &[event(0, 1), event(9, 2)], true, Options::level(1), &facts).unwrap();
        let mut add = |record: &Record| writer.add(record, Stamp { id: 1, ..Stamp::default() }).unwrap();
        for (tid, name) in [(7, "vpmu"), (8, "CPU 0/KVM"), (9, "CPU 1/KVM")] {
            add(&Record::Comm { pid: 7, tid, name: name.to_owned(), exec: false });
        }
        let kernel = 0xffff_ffff_8100_0010;
        let chain =
            vec![Mode::Kernel.context(), kernel, kernel + 0x30, Mode::User.context(), 0x1000, calls::BROKEN_END];
        for (id, tid, time) in [(1, 8, 2), (1, 9, 5), (2, 8, 3), (1, 9, 4), (1, 8, 6)] {
            let time = 1_000_000_000 + time * 1_000_000;
            let sample = Sample {
                misc: 1,
                id,
                ip: kernel,
                pid: 7,
                tid,
                time,
                period: 2_000_000,
                cpu: 0,
                chain: chain.clone(),
                ..Sample::default()
            };
            add(&Record::Sample(sample));
        }
        writer.finish(&facts).1.unwrap();
    }

    #[test]
    fn a_profile_has_each_sample_in_its_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        recording(&path);
        fs::write(folder.path().join("x.data.kallsyms"), "ffffffff81000000 T inner\nffffffff81000020 T outer\n")
            .unwrap();
        let contents = profile::read(&path, None).unwrap();
        let found: Value = serde_json::from_str(&json(&contents, "x").unwrap()).unwrap();
        assert!(found["meta"]["preprocessedProfileVersion"].is_u64());
        assert_eq!(
            (found["meta"]["interval"].as_f64(), found["meta"]["startTime"].as_f64()),
            (Some(2.0), Some(5002.0))
        );
        let categories: Vec<_> =
            found["meta"]["categories"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(categories, ["Other", "Kernel", "User"]);
        let threads = found["threads"].as_array().unwrap();
        let names: Vec<_> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["CPU 0/KVM", "CPU 1/KVM"]);
        let deltas = [[0.0, 4.0], [2.0, 1.0]];
        for (thread, deltas) in threads.iter().zip(deltas) {
            let samples = &thread["samples"];
            assert_eq!((&samples["length"], &samples["weightType"]), (&Value::from(2), &Value::from("samples")));
            assert_eq!(samples["weight"], Value::from(vec![1, 1]));
            assert_eq!(samples["threadCPUDelta"], Value::from(vec![2000, 2000]));
            assert_eq!(samples["timeDeltas"], Value::from(deltas.to_vec()));
            assert_eq!(
                stack(thread, 0),
                [
                    ("[broken]".to_owned(), 0),
                    ("[user]".to_owned(), 2),
                    ("outer".to_owned(), 1),
                    ("inner".to_owned(), 1)
                ]
            );
        }
        assert_eq!(contents.named.samples.len(), 4, "they are still there");
    }

    /// Returns the names and categories of a sample's frames, the root first.
    fn stack(thread: &Value, sample: usize) -> Vec<(String, u64)> {
        let mut frames = Vec::new();
        let mut next = thread["samples"]["stack"][sample].as_u64();
        while let Some(at) = next {
            let at = at as usize;
            let frame = thread["stackTable"]["frame"][at].as_u64().unwrap() as usize;
            let func = thread["frameTable"]["func"][frame].as_u64().unwrap() as usize;
            let name = thread["funcTable"]["name"][func].as_u64().unwrap() as usize;
            let category = thread["frameTable"]["category"][frame].as_u64().unwrap();
            frames.push((thread["stringArray"][name].as_str().unwrap().to_owned(), category));
            next = thread["stackTable"]["prefix"][at].as_u64();
        }
        frames.reverse();
        frames
    }

    #[test]
    fn a_recording_without_samples_is_a_profile_without_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.data");
        let output: Output<Vec<u8>> = Output::File(File::create(&path).unwrap());
        Writer::begin(output, &[], true, Options::default(), &Facts::default())
            .unwrap()
            .finish(&Facts::default())
            .1
            .unwrap();
        let text = json(&profile::read(&path, None).unwrap(), "x").unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["threads"], Value::Array(Vec::new()));
    }
}
