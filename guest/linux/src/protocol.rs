//! The frames between the agent in the guest and its client.
//!
//! `build.rs` compiles this same file and writes `protocol.h` from it.
//!
//! A frame is a kind (u8), the length of its payload (u32) and the payload. Numbers are little-endian, strings end with a zero
//! byte. The agent begins with HELLO. Then each request has one reply, which is DONE, ENDED or ERROR, and the client sends
//! the next request after the reply; STDIN and KILL have no reply of their own.
//!
//! - RUN {flags u32, arguments u32, variables u32, argument…, variable…}: OUT and ERR carry the output, then ENDED.
//!   With RUN_STDIN the client sends STDIN, an empty one at the end of the input. At most STDIN_WINDOW of its bytes are
//!   on the way or in the agent; TAKEN {bytes u32} says how many the program has taken. KILL {signal u32} is for the
//!   program's process group.
//! - GET {flags u32, path}: ENTRY {type u8, mode u32, path, target of a link} and DATA for the file or, with GET_TREE, for
//!   everything below; then DONE. The paths in these entries are relative to the path asked for, which itself is "".
//! - WRITE {path, bytes}: one write(2) to a file that exists, then DONE.
//! - POWER_OFF: DONE, then the guest is switched off.
//!
//! DONE has no payload. ENDED {wait status u32, nanoseconds u64 by the guest's CLOCK_MONOTONIC}. ERROR {errno u32, operation,
//! path}. HELLO {version u32}.

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
    /// Revision of these frames.
    VERSION: u32 = 3;
    /// Bytes before the payload.
    HEADER: usize = 5;
    /// Most bytes of a payload. Such a frame is two buffers of Linux's virtio console, and no third one.
    MAX_PAYLOAD: usize = (1 << 16) - HEADER;
    /// Most bytes of input on the way to a program.
    STDIN_WINDOW: usize = MAX_PAYLOAD;
    /// Most bytes of a path, its zero byte included.
    MAX_PATH: usize = 4096;

    /// Frames of the client.
    RUN: u8 = 1;
    STDIN: u8 = 2;
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
    TAKEN: u8 = 67;
    ENDED: u8 = 68;
    DONE: u8 = 69;
    ERROR: u8 = 70;

    /// The program's input follows; without it the input is /dev/null.
    RUN_STDIN: u32 = 1;
    /// Most arguments and variables, each.
    MAX_STRINGS: usize = 1024;
    /// Everything below the path, too.
    GET_TREE: u32 = 1;

    /// Types of an entry.
    FILE: u8 = 0;
    FOLDER: u8 = 1;
    LINK: u8 = 2;
    /// Exists, and cannot be copied: a socket, a device.
    OTHER: u8 = 3;
}
