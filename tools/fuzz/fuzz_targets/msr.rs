//! The MSR interface: the bytes are a PMU, a strategy and a script of accesses, guest work, signals and host failures.
//! The vPMU must do what the ideal PMU of `host-pmu/tests/differential/model` does.
#![no_main]

#[path = "../../../host-pmu/tests/differential/model/mod.rs"]
#[allow(dead_code, reason = "the differential test uses more of it")]
mod model;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = model::bytes::run(bytes) {
        panic!("{why}");
    }
});
