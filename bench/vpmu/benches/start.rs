//! Work of the tool before its command begins: `cargo bench -p vpmu --bench start`.
//!
//! Times of the parser alone; `valgrind --tool=callgrind vpmu --version` counts the instructions of the whole start.
#![allow(missing_docs, reason = "functions of a benchmark")]

use divan::black_box;
use vpmu::cli::app::parse;

fn main() {
    divan::main();
}

#[divan::bench]
fn version() {
    let _ = parse(black_box(["vpmu", "--version"]));
}

#[divan::bench(args = ["sim", "compare", "stat-setup", "doctor"])]
fn help(command: &str) {
    let _ = parse(black_box(["vpmu", command, "--help"]));
}

#[divan::bench(args = ["sim", "doctor"])]
fn command(command: &str) {
    let _ = parse(black_box(["vpmu", command, "--json"]));
}

#[divan::bench]
fn main_job() {
    let _ = parse(black_box(["vpmu", "--rounds", "3"]));
}
