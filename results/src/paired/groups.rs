//! Groups the rounds that belong together: those of one guest, in the order of time.

/// Fewest guests of an arm from which the spread between guests can be seen.
const MIN_GUESTS: usize = 5;
/// Most groups. Neighbouring guests are put together beyond, as modes of the CPU outlive a round.
const MAX_GROUPS: usize = 20;

/// Groups of rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Group of each round, from 0.
    pub group: Vec<usize>,
    /// Guests of each arm.
    pub guests: usize,
}

/// Groups rounds with these guests, which are in order of time.
///
/// With at least `MIN_GUESTS` guests a group is one guest or several neighbours. With fewer it is a stretch of rounds:
/// the groups then show how rounds differ, and nothing of how guests do.
pub fn groups(guests: &[u64]) -> Groups {
    let each = guests.chunk_by(|one, next| one == next).enumerate();
    let mut number: Vec<usize> = each.flat_map(|(number, rounds)| rounds.iter().map(move |_| number)).collect();
    let mut count = number.last().copied().unwrap_or(0);
    // A last guest that was cut short is too little to differ from others.
    let of_last = number.iter().filter(|guest| **guest == count).count();
    if count > 0 && 2 * of_last * count < number.len() - of_last {
        number.iter_mut().filter(|guest| **guest == count).for_each(|guest| *guest -= 1);
        count -= 1;
    }
    let guests = if number.is_empty() { 0 } else { count + 1 };
    let by_guest = guests >= MIN_GUESTS;
    let units = if by_guest { guests } else { number.len() };
    let wanted = units.min(MAX_GROUPS);
    let group_of = |unit: usize| unit * wanted / units;
    let group =
        number.iter().enumerate().map(|(round, guest)| group_of(if by_guest { *guest } else { round })).collect();
    Groups { group, guests }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_kept_whole() {
        let found = groups(&[3, 3, 4, 4, 5, 5, 6, 6, 9]);
        assert_eq!((found.guests, found.group), (5, vec![0, 0, 1, 1, 2, 2, 3, 3, 4]));
        let many: Vec<u64> = (0..100).map(|round| round / 2).collect();
        let found = groups(&many);
        assert_eq!((found.guests, found.group[99]), (50, 19));
        assert!(found.group.chunks(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_last_guest_of_few_rounds_goes_with_the_one_before() {
        let guests = |last: usize| {
            let whole = (0..80).map(|round| round / 20);
            groups(&whole.chain(std::iter::repeat_n(4, last)).collect::<Vec<u64>>())
        };
        assert_eq!((guests(1).guests, guests(9).guests), (4, 4));
        assert_eq!((guests(10).guests, guests(20).guests), (5, 5));
        assert_eq!(groups(&[0, 1, 2, 3, 4]).guests, 5);
    }

    #[test]
    fn few_guests_leave_stretches_of_rounds() {
        let found = groups(&[0; 40]);
        assert_eq!((found.guests, found.group[39]), (1, 19));
        assert_eq!(groups(&[]).guests, 0);
        assert_eq!(groups(&[0, 0, 1]).group, [0, 1, 2]);
    }
}
