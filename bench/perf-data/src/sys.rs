//! io_uring: the kernel reads a buffer while this program goes on.
#![expect(unsafe_code, reason = "the kernel is given the addresses of buffers")]

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};

/// A write that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Where in the file.
    pub(crate) at: u64,
    /// Why.
    pub(crate) error: io::Error,
}

/// A write on its way.
#[derive(Debug)]
struct Write {
    at: u64,
    bytes: Vec<u8>,
    /// How many of them are written.
    done: usize,
}

/// A ring that does nothing but write to one file.
pub(crate) struct Ring {
    kernel: IoUring,
    file: File,
    /// Places by the number that the kernel gives back. A buffer stays in its place until the kernel is done with it.
    places: Vec<Option<Write>>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for so many writes at once.
    ///
    /// # Errors
    /// The kernel's: it has none, or does not allow it.
    pub(crate) fn start(file: &File, writes: usize) -> io::Result<Self> {
        let kernel = IoUring::builder().setup_r_disabled().build(writes.next_power_of_two() as u32)?;
        // The ring's memory is that of the process: whoever reaches it can write to files that are open, and nothing more.
        kernel.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::Write::CODE)])?;
        kernel.submitter().register_enable_rings()?;
        let places = (0..writes).map(|_| None).collect();
        Ok(Self { kernel, file: file.try_clone()?, places })
    }

    /// Writes that are not done.
    pub(crate) fn in_flight(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Begins to write `bytes` to the place `at` of the file, once there is room.
    pub(crate) fn write(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        loop {
            if let Some(place) = self.places.iter().position(Option::is_none) {
                self.places[place] = Some(Write { at, bytes, done: 0 });
                return self.submit(place);
            }
            self.wait()?;
        }
    }

    /// Hands the rest of a write to the kernel.
    fn submit(&mut self, place: usize) -> Result<(), Failure> {
        let Some(write) = &self.places[place] else { return Ok(()) };
        let (at, rest) = (write.at + write.done as u64, &write.bytes[write.done..]);
        let entry = opcode::Write::new(types::Fd(self.file.as_raw_fd()), rest.as_ptr(), rest.len() as u32);
        let entry = entry.offset(at).build().user_data(place as u64);
        // SAFETY: the buffer is on the heap and stays in `places`, unmoved and unchanged, until the kernel says that it is done
        // with it; `drop` waits for that, and leaks what it cannot wait for. The file is open as long as the ring.
        let pushed = unsafe { self.kernel.submission().push(&entry) };
        let submitted = pushed.map_err(io::Error::other).and_then(|()| self.enter(0));
        submitted.map_err(|error| Failure { at, error })
    }

    fn enter(&self, wait: usize) -> io::Result<()> {
        loop {
            match self.kernel.submit_and_wait(wait) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until at least one write is done.
    pub(crate) fn wait(&mut self) -> Result<(), Failure> {
        let before = self.in_flight();
        while before > 0 && self.in_flight() == before {
            let first = self.places.iter().flatten().map(|write| write.at).min().unwrap_or(0);
            self.enter(1).map_err(|error| Failure { at: first, error })?;
            let done: Vec<_> = self.kernel.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            let mut failed = None;
            for (place, result) in done {
                if let Err(failure) = self.done(place as usize, result) {
                    failed = Some(earlier(failed, failure));
                }
            }
            if let Some(failure) = failed {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// What the kernel says of a write.
    fn done(&mut self, place: usize, result: i32) -> Result<(), Failure> {
        let Some(Some(write)) = self.places.get_mut(place) else { return Ok(()) };
        let at = write.at;
        match usize::try_from(result) {
            Ok(0) if write.done < write.bytes.len() => {
                self.places[place] = None;
                Err(Failure { at, error: io::ErrorKind::WriteZero.into() })
            }
            Ok(length) => {
                write.done += length;
                if write.done < write.bytes.len() {
                    return self.submit(place);
                }
                self.places[place] = None;
                Ok(())
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => self.submit(place),
            Err(_) => {
                self.places[place] = None;
                Err(Failure { at, error: io::Error::from_raw_os_error(-result) })
            }
        }
    }
}

/// Of two failures the one that is nearer to the begin of the file.
pub(crate) fn earlier(known: Option<Failure>, new: Failure) -> Failure {
    known.filter(|known| known.at <= new.at).unwrap_or(new)
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut tries = self.places.len();
        while self.in_flight() > 0 {
            if self.wait().is_err() {
                if tries == 0 {
                    break;
                }
                tries -= 1;
            }
        }
        // The kernel may still read these.
        self.places.drain(..).for_each(std::mem::forget);
    }
}
