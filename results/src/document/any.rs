//! A document of any experiment.

use serde_json::{Map, Value};

use super::experiment::Experiment;
use super::guest::GuestArm;

/// Any experiment. Made for reading: parameters are kept as JSON, and arms have the counts of a guest, 0 where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any;

impl Experiment for Any {
    type Parameters = Map<String, Value>;
    type Extra = ();
    type Arm = GuestArm;
}
