//! Running an arm: one guest, on this host or simulated ([`arm`]), arms with Linux in the guest ([`linux`]), arms in rounds and the
//! document of them ([`rounds`], [`fold`]).

pub mod arm;
pub mod fold;
pub mod linux;
pub mod rounds;
