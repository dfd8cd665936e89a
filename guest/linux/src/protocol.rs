//! The frames between the agent in the guest and its client.
//!
//! `build.rs` compiles this same file and writes `protocol.h` from it.
//!
//! A frame is a kind (u8), the length of its payload (u32) and the payload. Numbers are little-endian, strings end with a zero
//! byte. The agent begins with HELLO. Then each request has one reply, which is DONE, ENDED or ERROR, and the client sends
//! the next request after the reply; KILL has no reply of its own.
//!
//! - RUN {argument…}: OUT and ERR carry the program's output, then ENDED. Its input is /dev/null. KILL {signal u32} is for
//!   its process group.
//! - GET {path}: ENTRY {type u8, mode u32, path, target of a link} and DATA for the file, or for the folder and everything
//!   below it; then DONE. The paths in these entries are relative to the path asked for, which itself is "".
//! - WRITE {path, bytes}: one write(2) to a file that exists, then DONE.
//! - POWER_OFF: DONE, then the guest is switched off.
//!
//! DONE and HELLO have no payload. ENDED {wait status u32, nanoseconds u64 by the guest's CLOCK_MONOTONIC}. ERROR {errno
//! u32, operation, path}.

/// Defines constants and the table from which `protocol.h` gets them.
macro_rules! shared_constants {
    ($( $(#[$meta:meta])* $name:ident : $ty:ty = $value:expr ; )+) => {
        $( $(#[$meta])* pub(crate) const $name: $ty = $value; )+
        /// Name and value of every constant.
        #[allow(dead_code, reason = "for the build script, which compiles this file, too")]
        pub(crate) const CONSTANTS: &[(&str, u64)] = &[ $( (stringify!($name), $name as u64), )+ ];
    };
}

shared_constants! {
    /// Bytes before the payload.
    HEADER: usize = 5;
    /// Most bytes of a payload. Such a frame is two buffers of Linux's virtio console, and no third one.
    MAX_PAYLOAD: usize = (1 << 16) - HEADER;
    /// Most bytes of a path, its zero byte included.
    MAX_PATH: usize = 4096;

    /// Frames of the client.
    RUN: u8 = 1;
    KILL: u8 = 3;
    GET: u8 = 5;
    WRITE: u8 = 6;
    POWER_OFF: u8 = 7;

    /// Frames of the agent.
    ENTRY: u8 = 32;
    DATA: u8 = 33;
    HELLO: u8 = 64;
    OUT: u8 = 65;
    ERR: u8 = 66;
    ENDED: u8 = 68;
    DONE: u8 = 69;
    ERROR: u8 = 70;

    /// Types of an entry.
    FILE: u8 = 0;
    FOLDER: u8 = 1;
    LINK: u8 = 2;
    /// Exists, and cannot be copied: a socket, a device.
    OTHER: u8 = 3;
}
