//! Link of the tool: the work of its start, and the memory that a guest which broke out could write to.

use std::process::Command;

/// Addresses that the loader settles are read-only before `main`: full RELRO. `.cargo/config.toml` asks rustc for the
/// partial one, and `build.rs` the linker for the rest.
#[test]
fn the_tool_has_full_relro() {
    let output = Command::new("readelf").args(["-lWd", env!("CARGO_BIN_EXE_vpmu")]).output();
    let Ok(output) = output else {
        eprintln!("skipped: no readelf (binutils)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("GNU_RELRO"), "{text}");
    assert!(text.contains("BIND_NOW") || text.contains("Flags: NOW"), "{text}");
}
