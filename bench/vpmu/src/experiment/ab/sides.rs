//! Pairs the arms that the two sides have in common.

use results::error::Error;
use results::host::KVM_ARMS;

use super::protocol::Hello;

/// Arms that are on both sides whatever was asked for.
const NO_STRATEGY: [&str; 3] = ["floor", KVM_ARMS[0], KVM_ARMS[1]];

/// The sides, BASE first.
pub(super) type Both<T> = [T; 2];

/// Checks that the sides are comparable: figures of a simulation and of real guests have nothing in common, and a simulation is judged only
/// where it is `wanted`.
pub(super) fn check_sides(hello: &Both<Hello>, wanted: Both<bool>) -> Result<(), Error> {
    let simulated = |side: &Hello| side.backend.starts_with("sim:");
    if hello.iter().zip(wanted).any(|(side, wanted)| simulated(side) && !wanted) {
        return Err(Error::host(
            "nothing can be measured here",
            "with --backend auto a side fell back to a simulation, in which builds do not differ",
            "`vpmu doctor` says what is missing; --backend sim:MODEL compares simulations",
        ));
    }
    if simulated(&hello[0]) == simulated(&hello[1]) {
        return Ok(());
    }
    Err(Error::usage(
        "a simulation and real guests cannot be compared",
        format!("BASE has backend {}, NEW has {}", hello[0].backend, hello[1].backend),
        "give both the same --backend",
    ))
}

/// Returns the arms of both sides that can run on both, by their places.
pub(super) fn paired(hello: &Both<Hello>) -> Result<Vec<Both<usize>>, Error> {
    let [base, new] = hello;
    let names = |hello: &Hello| -> Vec<String> { hello.arms.iter().map(|arm| arm.name.clone()).collect() };
    let (of_base, of_new) = (names(base), names(new));
    let pairs: Vec<Both<usize>> = if of_base.len() == of_new.len() {
        (0..of_base.len()).map(|at| [at, of_new.iter().position(|name| *name == of_base[at]).unwrap_or(at)]).collect()
    } else {
        let same = |(at, name): (usize, &String)| of_new.iter().position(|other| other == name).map(|new| [at, new]);
        of_base.iter().enumerate().filter_map(same).collect()
    };
    let is_strategy = |name: &String| !NO_STRATEGY.contains(&name.as_str());
    let strategies = |names: &[String]| names.iter().any(is_strategy);
    if strategies(&of_base) && strategies(&of_new) && !pairs.iter().any(|&[at, _]| is_strategy(&of_base[at])) {
        return Err(Error::usage(
            "no strategy of BASE can be paired with one of NEW",
            format!("{} against {}", of_base.join(", "), of_new.join(", ")),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let mut seen: Vec<usize> = pairs.iter().map(|[_, new]| *new).collect();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < pairs.len() {
        return Err(Error::usage(
            "the arms of BASE and NEW cannot be paired",
            format!("{} against {}", of_base.join(", "), of_new.join(", ")),
            "give both the same strategies, or as many in the same order",
        ));
    }
    let runs = |[b, n]: &Both<usize>| base.arms[*b].not_available.is_none() && new.arms[*n].not_available.is_none();
    let pairs: Vec<Both<usize>> = pairs.into_iter().filter(runs).collect();
    if pairs.is_empty() {
        let why: Vec<&str> =
            hello.iter().flat_map(|side| &side.arms).filter_map(|arm| arm.not_available.as_deref()).collect();
        return Err(Error::host("no arm runs on both sides", why.join("; "), "`vpmu doctor` says what is missing"));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use results::document::Tool;
    use results::error::Exit;

    use super::super::protocol::TurnArm;
    use super::*;

    fn hello(arms: &[&str]) -> Hello {
        let arm = |name: &&str| {
            let (name, gone) = name.strip_suffix('!').map_or((*name, false), |name| (name, true));
            TurnArm { name: name.to_owned(), not_available: gone.then(|| "not here".to_owned()) }
        };
        Hello {
            protocol: String::new(),
            tool: Tool {
                name: "vpmu".to_owned(),
                version: "0".to_owned(),
                git_revision: "r".to_owned(),
                profile: "debug".to_owned(),
            },
            arms: arms.iter().map(arm).collect(),
            workload: "w".to_owned(),
            backend: "b".to_owned(),
            stand_in: true,
            host: "h".to_owned(),
            pin: None,
            samples: 1,
            turn_limit_ms: 1,
        }
    }

    #[test]
    fn arms_are_paired_by_name_or_by_place() {
        let pairs = |base: &[&str], new: &[&str]| paired(&[hello(base), hello(new)]);
        assert_eq!(pairs(&["a", "floor"], &["a", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "a", "floor"]), Ok(vec![[0, 1], [1, 0], [2, 2]]));
        assert_eq!(pairs(&["a", "floor"], &["mine", "floor"]), Ok(vec![[0, 0], [1, 1]]));
        assert_eq!(pairs(&["a", "b", "floor"], &["b", "floor"]), Ok(vec![[1, 0], [2, 1]]));
        assert_eq!(pairs(&["a!", "floor"], &["a", "floor"]), Ok(vec![[1, 1]]));
        assert_eq!(pairs(&["a!"], &["a"]).unwrap_err().exit, Exit::Host);
        assert_eq!(pairs(&["a", "b"], &["b", "c"]).unwrap_err().exit, Exit::Usage);
        let floor_alone = pairs(&["a", "b", "floor", "kvm!"], &["c", "floor", "kvm!"]).unwrap_err();
        let why = "a, b, floor, kvm against c, floor, kvm";
        assert_eq!((floor_alone.exit, floor_alone.why.as_str()), (Exit::Usage, why));
    }

    #[test]
    fn a_simulation_is_compared_with_simulations_only() {
        let checked = |backends: [&str; 2]| {
            check_sides(&backends.map(|backend| Hello { backend: backend.to_owned(), ..hello(&["floor"]) }), [true; 2])
        };
        assert_eq!((checked(["cpu-clock", "hardware"]), checked(["sim:a", "sim:b"])), (Ok(()), Ok(())));
        let error = checked(["cpu-clock", "sim:a"]).unwrap_err();
        assert_eq!((error.exit, error.why.as_str()), (Exit::Usage, "BASE has backend cpu-clock, NEW has sim:a"));
    }

    #[test]
    fn a_simulation_that_nobody_asked_for_is_no_comparison() {
        let hello = ["sim:a", "sim:a"].map(|backend| Hello { backend: backend.to_owned(), ..hello(&["floor"]) });
        for wanted in [[false, false], [true, false], [false, true]] {
            assert_eq!(check_sides(&hello, wanted).unwrap_err().exit, Exit::Host);
        }
        assert_eq!(check_sides(&hello, [true; 2]), Ok(()));
    }
}
