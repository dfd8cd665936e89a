//! The small JSON beside the segments.

use std::collections::BTreeMap;

use host_pmu::stats::OpKind;
use results::error::Error;
use serde::{Deserialize, Serialize};

/// Its name in the folder: readers of Parquet folders pass over one that begins so.
pub const NAME: &str = "_trace.json";
/// Name and version of the form.
pub const FORM: &str = "vpmu-trace/1";
/// Rows of a segment: some megabytes in memory.
pub(crate) const SEGMENT: usize = 1 << 18;
/// A query for `DuckDB`, in the folder: each row with its time, and with the value that was read or written.
pub(crate) const DUCKDB: &str = "\
select filename, vcpu, sum(step_ns) over before + coalesce(sum(entry_ns) over before, 0) - coalesce(entry_ns, 0) as ns, \
kind, register, case when count is not null then count when counter is null then value \
else sum(coalesce(count, value)) over (partition by filename, vcpu, counter order by file_row_number) % (1::hugeint << 48) \
end as value, rip, entry_ns \
from (select *, case when kind in ('count', 'overflow') then register \
when kind = 'rdpmc' then case when register >= 1073741824 then register - 1073741824 + 8 else register end \
when kind not in ('read', 'write') then null \
when register between 193 and 200 then register - 193 when register between 1217 and 1224 then register - 1217 \
when register between 777 and 780 then register - 777 + 8 \
when register between 3221291012 and 3221291015 then register - 3221291012 \
when register between 3221291520 and 3221291531 and register % 2 = 1 then (register - 3221291521) // 2 end as counter \
from read_parquet('*.parquet', filename = true, file_row_number = true)) \
window before as (partition by filename, vcpu order by file_row_number) order by filename, file_row_number";
/// Most vCPUs of a trace.
pub const MOST_VCPUS: usize = 4096;

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
    /// The strategy's name, and its definition as TOML.
    pub strategy: String,
    /// The definition.
    pub definition: String,
    /// The host class; of a simulated guest its model.
    pub host: String,
    /// The guest, as the command named it.
    pub guest: String,
    /// Host operations of the run in the order of [`OpKind::ALL`]; none where they were not counted, as of an import.
    pub ops: Vec<u64>,
    /// PMIs that reached the guest; none where they were not counted, as of an import.
    pub pmis: Option<u64>,
    /// The recording that it was imported from does not tell these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// The meaning of the columns.
    pub columns: BTreeMap<String, String>,
    /// A query for `DuckDB`, in the folder: each row with its time and its value.
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
        if meta.form != FORM {
            return Err(refuse(format!("its form is '{}', and this program reads {FORM}", meta.form)));
        }
        if meta.vcpus == 0 || meta.vcpus > MOST_VCPUS {
            return Err(refuse(format!("it has {} vCPUs, and 1 to {MOST_VCPUS} are possible", meta.vcpus)));
        }
        if !meta.ops.is_empty() && meta.ops.len() != OpKind::ALL.len() {
            return Err(refuse(format!("{NAME} has {} kinds of host operations", meta.ops.len())));
        }
        Ok(meta)
    }
}
