//! Elements on this machine, one after the other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use results::error::Error;

use super::attempt::{self, Ended};
use crate::terminal::console::complain;
use crate::terminal::progress::Progress;
use fleet::campaign::folder::{Campaign, Folder};

/// Runs the elements of these numbers in order. False if it was interrupted.
///
/// # Errors
/// Those of [`attempt::run`]; outcomes until then are kept.
pub fn run(
    folder: &Folder,
    campaign: &Campaign,
    due: &BTreeSet<u64>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<bool, Error> {
    progress.begin(due.len() as u64);
    let elements = campaign.elements.iter().filter(|element| due.contains(&element.number));
    for element in elements {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.run(&element.name);
        let ended = attempt::run(folder, campaign, element, None, stop).inspect_err(|_| progress.end())?;
        if let Ended::Stopped(why) = ended
            && !stop.load(Ordering::Relaxed)
        {
            complain(&format!("warning: {}: {why}; it runs again with the next submission", element.name));
        }
        progress.step();
    }
    progress.end();
    Ok(!stop.load(Ordering::Relaxed))
}
