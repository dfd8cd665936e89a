//! The `vpmu` tool: experiments on what stands behind a guest's performance counters.
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line: the options of commands, their help (`help.txt`), what carries each out; nothing below imports it |
//! | [`campaign`] | many experiments on many hosts |
//! | [`inspect`] | what looks into a guest or at this host: images, recordings, the doctor |
//! | [`experiment`] | a file or a folder for each experiment, with its plain specification |
//! | [`arms`] | what runs a guest's arm, and guests in rounds |
//! | [`engine`] | arms that take turns, of every experiment |
//! | [`machine`] | the machine of an image or a Linux guest: its counters, its files, its report |
//! | [`setting`] | what is measured, with what, and on which host |
//! | [`terminal`] | what a person sees while a command runs |

pub mod arms;
pub mod campaign;
pub mod cli;
pub mod engine;
pub mod experiment;
pub mod inspect;
pub mod machine;
pub mod setting;
pub mod sys;
pub mod terminal;
