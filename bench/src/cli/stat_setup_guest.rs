//! Options of `vpmu stat-setup --in guest`.

use clap::Args;

/// Options of `--in guest`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "With --in guest")]
pub struct StatSetupGuestArgs {}
