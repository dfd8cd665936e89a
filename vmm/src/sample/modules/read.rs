//! Reads the tables of one module from guest memory.

use super::super::orc::{ENTRY, Layout, Orc};
use super::super::space::Space;
use super::place::{Content, ModulePlace, Plan, Refusal};

/// Reads the tables of a module, of code that stays. `left` is how many entries may still be read: a guest can map one page any number of
/// times.
///
/// The kernel has sorted them. They end where the next section begins, and at the first entry that is not of the module's code or is below
/// the one before it: behind the last entry there may be anything.
pub(super) fn read(
    space: &mut Space<'_>,
    place: &ModulePlace,
    layout: Layout,
    left: &mut usize,
) -> Result<Orc, Refusal> {
    let plan = Plan::of(place)?;
    let (mut addresses, mut rules) = (Vec::new(), Vec::new());
    let (mut at, mut rule_at, mut last) = (plan.addresses.0, plan.rules.0, 0);
    if space.u32(at).is_none() || rule(space, rule_at).is_none() {
        return Err(Refusal::Unmapped);
    }
    loop {
        let (next, next_rule) = (at.wrapping_add(4), rule_at.wrapping_add(ENTRY as u64));
        if next <= at || next > plan.addresses.1 || next_rule <= rule_at || next_rule > plan.rules.1 {
            break;
        }
        *left = left.checked_sub(1).ok_or(Refusal::TooMany)?;
        let (Some(offset), Some(rule)) = (space.u32(at), rule(space, rule_at)) else { break };
        let address = at.wrapping_add_signed(offset.cast_signed().into());
        let content = plan.content(address);
        if address < last || content == Content::Data {
            break;
        }
        if content == Content::Code {
            addresses.push(address);
            rules.push(rule);
        }
        (at, rule_at, last) = (next, next_rule, address);
    }
    Orc::of_entries(addresses, rules, layout).ok_or(Refusal::Nonsense)
}

fn rule(space: &mut Space<'_>, at: u64) -> Option<[u8; ENTRY]> {
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&space.u32(at)?.to_le_bytes());
    for (n, byte) in bytes[4..].iter_mut().enumerate() {
        *byte = space.u8(at.wrapping_add(4 + n as u64))?;
    }
    Some(bytes)
}
