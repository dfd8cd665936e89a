//! The `vpmu` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    vpmu::terminal::console::guarded(|| vpmu::cli::app::run(std::env::args_os())).into()
}
