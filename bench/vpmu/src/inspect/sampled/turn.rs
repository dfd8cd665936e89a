//! Turns of vCPUs at the one thread that takes samples out of all queues.

/// Most samples of one vCPU that are taken out before the others have their turn: the guest decides how many it makes.
const MOST_AT_ONCE: usize = 2048;

/// Takes no more of a queue than a turn has; returns whether there may be more.
pub fn take_turn<T>(mut next: impl FnMut() -> Option<T>, mut take: impl FnMut(T)) -> bool {
    for _ in 0..MOST_AT_ONCE {
        let Some(one) = next() else { return false };
        take(one);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_that_never_stops_leaves_the_others_their_turn() {
        let mut taken = 0;
        assert!(take_turn(|| Some(()), |()| taken += 1));
        assert_eq!(taken, MOST_AT_ONCE);
        let mut three = 0..3;
        let mut found = Vec::new();
        assert!(!take_turn(|| three.next(), |one| found.push(one)));
        assert_eq!(found, [0, 1, 2]);
    }
}
