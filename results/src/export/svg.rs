//! A picture: strategies against the floor of one result.

use crate::document::Record;
use crate::error::Error;
use crate::report::strategies;

/// Draws the plot of the only record.
///
/// # Errors
/// Exit 2 for more than one record, and for one without a floor.
pub fn text(records: &[Record]) -> Result<String, Error> {
    let [record] = records else {
        let why = format!("{} results were given", records.len());
        return Err(Error::usage("a picture shows one result", why, "give one FILE"));
    };
    strategies::against_floor(record).ok_or_else(|| {
        let file = record.path.display();
        Error::usage(format!("cannot draw {file}"), "it has no floor with rounds", "give a result with a floor arm")
    })
}
