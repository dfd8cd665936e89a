//! The `vpmu` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::console::guarded(|| bench::cli::app::run(std::env::args_os())).into()
}
