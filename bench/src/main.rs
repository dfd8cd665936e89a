//! The `vpmu` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    match bench::commands::run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            bench::console::complain(&format!("error: {error}"));
            error.exit.into()
        }
    }
}
