//! The two streams a command writes to.

use std::io::{self, Write as _};

use crate::error::Error;

/// Writes to stdout. A reader that went away (`vpmu | head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::usage("cannot write to stdout", error.to_string(), "look where it is redirected to"))
        }
        _ => Ok(()),
    }
}

/// One line on stderr, with the program's name. Nothing is left to do if stderr is closed.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "vpmu: {line}");
}
