//! Running an arm: one guest, on this host or simulated ([`arm`]), a Linux guest ([`linux_boot`], [`linux`]), arms in rounds and the
//! document of them ([`rounds`], [`fold`]).

pub mod arm;
pub mod fold;
pub mod linux;
pub mod linux_boot;
pub mod machine;
pub mod rounds;
