//! RLIMIT_NOFILE, raised once before a set-up.

use crate::sys;

/// RLIMIT_NOFILE before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// Soft limit before.
    pub before: u64,
    /// Soft limit now.
    pub now: u64,
    /// Hard limit now.
    pub hard: u64,
    /// Events that fit into one descriptor table.
    pub room: u64,
}

/// Raises the limit of open files to fit `descriptors` beside the files that are open: the soft limit, and the hard one
/// where the user may (CAP_SYS_RESOURCE), as perf does. What cannot be raised stays as it is.
///
/// # Errors
/// Errors of getrlimit.
pub fn raise_file_limit(descriptors: u64) -> std::io::Result<FileLimit> {
    let (before, mut hard) = sys::file_limit()?;
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let most = most.unwrap_or(u64::MAX);
    let open = open_files();
    let wanted = descriptors.saturating_add(open + SPARE);
    // A table stops growing at fs.nr_open even if both limits are above it.
    let mut now = before.min(most);
    if wanted > now {
        let raised =
            limits(wanted, hard, most).into_iter().find(|&(soft, hard)| sys::set_file_limit(soft, hard).is_ok());
        (now, hard) = raised.unwrap_or((now, hard));
    }
    Ok(FileLimit { before, now, hard, room: now.saturating_sub(open) })
}

/// Returns the number of files that this process has open.
fn open_files() -> u64 {
    // The listing itself is one of them.
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

/// Returns the soft and hard limits to try in turn for `wanted` descriptors under the hard limit `hard` and fs.nr_open.
/// setrlimit refuses a hard limit above fs.nr_open, even the present one.
fn limits(wanted: u64, hard: u64, nr_open: u64) -> [(u64, u64); 2] {
    [hard.max(wanted), hard].map(|hard| (wanted.min(hard).min(nr_open), hard.min(nr_open)))
}

/// Descriptors raised for other files, such as the monitor's: asked for, and not held against a set-up that needs none.
const SPARE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_raised_where_it_is_too_low_and_kept_below_nr_open() {
        assert_eq!(limits(5700, 4096, 1 << 20), [(5700, 5700), (4096, 4096)]);
        assert_eq!(limits(5700, 20_000, 1 << 20)[0], (5700, 20_000), "no more than needed");
        // fs.nr_open below the hard limit: setrlimit takes no hard limit above it.
        assert_eq!(limits(2400, 20_000, 4096)[0], (2400, 4096));
        assert_eq!(limits(9000, 20_000, 4096)[0], (4096, 4096));
    }
}
