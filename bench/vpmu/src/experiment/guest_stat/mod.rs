//! `guest-stat`: how long a guest's own set-up of counting events takes on its vPMU, by strategy.

pub mod spec;
