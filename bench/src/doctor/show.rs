//! The findings as text.

use comfy_table::{ContentArrangement, Table};

use super::{Diagnosis, Status};
use crate::error::one_line;
use crate::table::layout;

/// The findings for a terminal or a pipe.
#[must_use]
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut table = Table::new();
    table
        .load_style(layout::STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = layout::width() {
        table.set_width(width);
    }
    table.set_header(["check", "", "found", "why it matters, and what to do"]);
    for finding in &diagnosis.findings {
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Missing => "MISSING",
        };
        let advice = if finding.remedy.is_empty() {
            finding.why.to_owned()
        } else {
            format!("{}\n-> {}", finding.why, finding.remedy)
        };
        table.add_row([finding.check, status, &one_line(&finding.found), &advice]);
    }
    let auto = match &diagnosis.auto_backend {
        Some(key) => format!("{key}: {}", one_line(&diagnosis.auto_why)),
        None => format!("nothing: {}", one_line(&diagnosis.auto_why)),
    };
    format!(
        "{}\n\nhost class      {}\n--backend auto  {auto}\n",
        table.trim_fmt(),
        diagnosis.host_class
    )
}
