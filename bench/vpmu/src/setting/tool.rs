//! This binary, as its results name it.

use results::document::Tool;

/// The version line.
pub const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("VPMU_GIT_REVISION"), ", ", env!("VPMU_PROFILE"), ")");

/// Name, version, revision and profile.
#[must_use]
pub fn this() -> Tool {
    Tool {
        name: "vpmu".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_revision: revision(),
        profile: env!("VPMU_PROFILE").to_owned(),
    }
}

fn revision() -> String {
    let planted = if cfg!(feature = "planted-slowdown") { "+planted-slowdown" } else { "" };
    format!("{}{planted}", env!("VPMU_GIT_REVISION"))
}
