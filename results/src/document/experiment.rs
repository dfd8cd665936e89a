//! Parts of a document that differ from experiment to experiment.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A part of a document: written, read back, compared in tests.
pub trait Part: Serialize + DeserializeOwned + Clone + Debug + PartialEq {}
impl<T: Serialize + DeserializeOwned + Clone + Debug + PartialEq> Part for T {}

/// The parts of a document that an experiment has for itself. Each is an object in JSON; its fields lie beside the common ones.
pub trait Experiment: Clone + Debug + PartialEq {
    /// Its parameters.
    type Parameters: Part;
    /// Part of a document beside the arms.
    type Extra: Part;
    /// Part of an arm beside its metrics.
    type Arm: Part;
}
