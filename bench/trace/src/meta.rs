//! The small JSON beside the segments.

use std::collections::BTreeMap;

use host_pmu::stats::OpKind;
use results::error::Error;
use serde::{Deserialize, Serialize};

/// Its name in the folder: readers of folders pass over one that begins so.
pub const NAME: &str = "_trace.json";
/// Name and version of the form.
pub const FORM: &str = "vpmu-trace/2";
/// Rows of a segment: some megabytes in memory.
pub(crate) const SEGMENT: usize = 1 << 18;
/// A query for `DuckDB`, in the folder: each row with its time.
pub(crate) const DUCKDB: &str = "\
select filename, vcpu, sum(step_ns) over before + coalesce(sum(entry_ns) over before, 0) - coalesce(entry_ns, 0) as ns, \
kind, register, value, rip, entry_ns from (select *, row_number() over () as line from \
read_csv('*.csv.zst', filename = true, types = {'value': 'UBIGINT', 'rip': 'UBIGINT', 'entry_ns': 'UBIGINT'})) \
window before as (partition by filename, vcpu order by line) order by line";
/// Most vCPUs of a trace.
const MOST_VCPUS: usize = 4096;

/// The facts that hold for a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Name and version of the form.
    pub form: String,
    /// The program that wrote it.
    pub tool: String,
    /// True once nothing more will come: the last segment is there.
    pub finished: bool,
    /// Segments, their rows, and the accesses among them; counted when it is finished.
    pub segments: u64,
    /// Rows, with the entries that are in the row before.
    pub rows: u64,
    /// Accesses to registers.
    pub accesses: u64,
    /// Rows that were lost because the reader was too slow.
    pub lost: u64,
    /// vCPUs.
    pub vcpus: usize,
    /// The guest's processor, as `--cpu` names it.
    pub cpu: String,
    /// Version of its architectural PMU.
    pub pmu_version: u64,
    /// The key of the backend: host events by `strategy` stood behind the counters, or none.
    pub backend: String,
    /// The strategy's name.
    pub strategy: String,
    /// Its definition as TOML.
    pub definition: String,
    /// The host class; of a simulated guest its model.
    pub host: String,
    /// The guest, as the command named it.
    pub guest: String,
    /// Host operations of the run in the order of [`OpKind::ALL`]; none where they were not counted, as of an import.
    pub ops: Vec<u64>,
    /// PMIs that reached the guest; none where they were not counted, as of an import.
    pub pmis: Option<u64>,
    /// The meaning of the columns.
    pub columns: BTreeMap<String, String>,
    /// A query for `DuckDB`, in the folder: each row with its time.
    pub duckdb: String,
}

impl Meta {
    /// Reads it, and checks what everything else depends on.
    ///
    /// # Errors
    /// Exit 2, with the reason.
    pub fn parse(text: &str, place: &str) -> Result<Self, Error> {
        let refuse = |why: String| {
            Error::usage(
                format!("cannot read the trace {place}"),
                why,
                "record it with this version: vpmu trace record",
            )
        };
        let meta: Self = serde_json::from_str(text).map_err(|error| refuse(format!("{NAME}: {error}")))?;
        Err(refuse(if meta.form != FORM {
            format!("its form is '{}', and this program reads {FORM}", meta.form)
        } else if !(1..=MOST_VCPUS).contains(&meta.vcpus) {
            format!("it has {} vCPUs, and 1 to {MOST_VCPUS} are possible", meta.vcpus)
        } else if !meta.ops.is_empty() && meta.ops.len() != OpKind::ALL.len() {
            format!("{NAME} has {} kinds of host operations", meta.ops.len())
        } else {
            return Ok(meta);
        }))
    }
}
