//! The `vpmu` binary.
fn main() {}
