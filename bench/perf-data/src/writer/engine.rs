//! Writes to places of a file, one after the other or several at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::options::{Aio, Streaming};
use crate::sys::{Failure, Ring, earlier};

/// Who writes.
#[derive(Debug)]
pub(super) enum Engine {
    Serial,
    Ring(Box<Ring>, usize),
    Thread(Behind, Option<String>),
}

impl Engine {
    /// # Errors
    /// The host gives no thread.
    pub(super) fn start(file: &File, aio: Option<Aio>) -> io::Result<Self> {
        let Some(Aio { writes, ring }) = aio else { return Ok(Self::Serial) };
        let writes = writes.max(1);
        let refused = match ring.then(|| Ring::start(file, writes)) {
            Some(Ok(ring)) => return Ok(Self::Ring(Box::new(ring), writes)),
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        Ok(Self::Thread(Behind::start(file, writes)?, refused))
    }

    pub(super) fn streaming(&self) -> Streaming {
        match self {
            Self::Serial => Streaming::Serial,
            Self::Ring(_, writes) => Streaming::Ring(*writes),
            Self::Thread(behind, why) => Streaming::Thread { writes: behind.most, why: why.clone() },
        }
    }

    /// Writes, or begins to. The failure may be that of an earlier write.
    pub(super) fn write(&mut self, file: &File, at: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Serial => file.write_all_at(&bytes, at).map_err(|error| Failure { at, error }),
            Self::Ring(ring, _) => ring.write(at, bytes),
            Self::Thread(behind, _) => behind.write(at, bytes),
        }
    }

    /// Waits for all writes. The failure is the first one in the file.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        let mut failed = None;
        loop {
            let before = self.in_flight();
            if before == 0 {
                return failed.map_or(Ok(()), Err);
            }
            let waited = match self {
                Self::Serial => Ok(()),
                Self::Ring(ring, _) => ring.wait(),
                Self::Thread(behind, _) => behind.wait(),
            };
            if let Err(failure) = waited {
                failed = Some(earlier(failed, failure));
                // What cannot be waited for is not waited for again.
                if self.in_flight() == before {
                    return failed.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Self::Serial => 0,
            Self::Ring(ring, _) => ring.in_flight(),
            Self::Thread(behind, _) => behind.in_flight,
        }
    }
}

/// A thread that writes.
#[derive(Debug)]
pub(super) struct Behind {
    jobs: Option<Sender<(u64, Vec<u8>)>>,
    done: Receiver<Result<(), Failure>>,
    thread: Option<JoinHandle<()>>,
    most: usize,
    in_flight: usize,
}

impl Behind {
    fn start(file: &File, most: usize) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (jobs, taken) = channel::<(u64, Vec<u8>)>();
        let (tell, done) = channel();
        let work = move || {
            for (at, bytes) in taken {
                let written = file.write_all_at(&bytes, at).map_err(|error| Failure { at, error });
                if tell.send(written).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), most, in_flight: 0 })
    }

    fn write(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        while self.in_flight >= self.most {
            self.wait()?;
        }
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send((at, bytes)).is_ok());
        if !sent {
            return Err(Failure { at, error: io::Error::other("the writer's thread has ended") });
        }
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Failure> {
        match self.done.recv() {
            Ok(written) => {
                self.in_flight -= 1;
                written
            }
            Err(_) => {
                self.in_flight = 0;
                Err(Failure { at: 0, error: io::Error::other("the writer's thread has ended") })
            }
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It wrote what it was given, or said why not.
            let _ = thread.join();
        }
    }
}
