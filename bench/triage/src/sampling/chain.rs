//! Call chains with names, from samples.

use std::collections::HashMap;

use super::record::Sample;
use super::sampler::Sampled;
use crate::symbols::{Frame, Maps, Names};
use crate::unwind::{End, PLACE, STACK_POINTER};

/// Most frames of user code; a longer chain is one that runs in a circle.
const DEEPEST: usize = 128;

/// End of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Begin of its thread.
    Bottom,
    /// The copy of the stack ends before it does.
    Beyond,
    /// No rule leads further than this frame.
    Broken(Frame),
    /// Its task has no user part.
    Kernel,
}

/// A call chain, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its functions.
    pub frames: Vec<Frame>,
    /// Its end.
    pub ended: Ended,
}

/// The chains of all samples.
pub fn chains(sampled: &Sampled, names: &mut Names) -> Vec<Chain> {
    let (nothing, mut kernel) = (Maps::default(), HashMap::new());
    let of = |sample: &Sample| {
        let mut frames: Vec<Frame> = sample
            .kernel
            .iter()
            .map(|&address| kernel.entry(address).or_insert_with(|| names.in_kernel(address)).clone())
            .collect();
        let maps = sampled.maps.get(&sample.pid).unwrap_or(&nothing);
        let ended = user(sample, maps, names, &mut frames);
        Chain { frames, ended }
    };
    sampled.records.samples.iter().map(of).collect()
}

fn user(sample: &Sample, maps: &Maps, names: &mut Names, frames: &mut Vec<Frame>) -> Ended {
    let Some(mut registers) = sample.registers else { return Ended::Kernel };
    let base = registers[STACK_POINTER].unwrap_or_default();
    let memory = |address: u64| {
        let at = usize::try_from(address.checked_sub(base)?).ok()?;
        sample.stack.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
    };
    let mut exact = true;
    for _ in 0..DEEPEST {
        let Some(place) = registers[PLACE] else { break };
        // A return address may be the first of the next function: the call is before it.
        let place = if exact { place } else { place.wrapping_sub(1) };
        let frame = names.in_user(maps, place);
        frames.push(frame.clone());
        let map = maps.find(place);
        let module = map.and_then(|map| Some((map.offset_of(place), names.module(&map.path)?)));
        let caller = module.and_then(|(offset, module)| {
            module.address(offset).map(|address| module.table.caller(address, &registers, memory))
        });
        match caller.unwrap_or(Err(End::Unknown)) {
            Ok(caller) => (registers, exact) = (caller.registers, caller.interrupted),
            Err(End::Bottom) => return Ended::Bottom,
            Err(End::Beyond) => return Ended::Beyond,
            Err(End::Unknown) => return Ended::Broken(frame),
        }
    }
    Ended::Beyond
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::record::Records;

    #[test]
    fn chains_that_cannot_be_followed_say_where() {
        let mut registers = [Some(0); 17];
        registers[PLACE] = Some(0x1234);
        let of_user = Sample { pid: 1, kernel: vec![u64::MAX - 5000], registers: Some(registers), stack: vec![] };
        let of_kernel = Sample { registers: None, ..of_user.clone() };
        let records = Records { samples: vec![of_user, of_kernel], ..Records::default() };
        let found = chains(&Sampled { records, maps: HashMap::new() }, &mut Names::default());
        let unknown = Frame { symbol: "0x1234".to_owned(), module: "[unknown]".to_owned() };
        assert_eq!(found[0].ended, Ended::Broken(unknown.clone()));
        assert_eq!(found[0].frames[1], unknown);
        assert!(found[0].frames[0].in_kernel() && found[0].frames[0].symbol == "(hidden)");
        assert_eq!((found[1].frames.len(), &found[1].ended), (1, &Ended::Kernel));
    }
}
