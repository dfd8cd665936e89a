//! Constants of a simulation, read from a TOML file or drafted for one.
//!
//! A constant is a table with a value, whose key is the unit, and a `source`. A cost is a number of nanoseconds or a list of
//! equally spaced quantiles, from minimum to maximum. Constants fitted to a published figure are listed in `fitted`; all others
//! come from their source.

mod cost;
mod costs;
mod draft;
mod file;
mod published;

pub use cost::Cost;
pub use costs::{Costs, MediatedCosts};
pub use draft::{Draft, whole};
pub use file::{CountBase, EMBEDDED, Fitted, HostModel, HostPmu, Model, ModelError, Others, Rate};
pub use published::{Number, Origin};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_embedded_model_reads_and_names_itself_and_its_sources() {
        for (name, _) in EMBEDDED {
            let model = Model::embedded(name).unwrap();
            assert_eq!(model.name, name);
            assert!(model.fitted.len() <= 2, "{name}: at most two constants are fitted");
            assert!(model.sources.len() >= 20);
            for fitted in &model.fitted {
                assert!(model.sources[&fitted.constant].contains("fitted"), "{name}: {}", fitted.constant);
            }
        }
        assert!(Model::embedded("clx").unwrap_err().to_string().contains("clx-ap-watchdog-on"));
    }

    #[test]
    fn bad_models_are_refused_with_their_key_in_one_line() {
        let exit = EMBEDDED[0].1.lines().find(|line| line.starts_with("exit = ")).unwrap();
        let as_exit = |value: &str| (0, exit, format!("exit = {{ {value}, source = 'x' }}"));
        let on_clx = |from, to: &str| (1, from, to.to_owned());
        for ((model, from, to), needle) in [
            (as_exit("ns = -3"), "-3 is not a number from 0 to 1000000000000 in `cost.exit`"),
            (as_exit("ns = nan"), "nan is not a number"),
            (as_exit("ns = 1e13"), "is not a number from"),
            (as_exit("ns = []"), "1 to 1001 quantiles"),
            (as_exit(&format!("ns = [{}]", "1,".repeat(1002))), "not 1002"),
            (as_exit("ns = [2, 1]"), "quantiles must ascend"),
            (as_exit("ns = 'fast'"), "cost.exit"),
            (as_exit("us = 3"), "cost.exit.ns: missing"),
            (as_exit("ns = 3, unit = 'ns'"), "cost.exit.unit: unknown key"),
            ((0, exit, "exit = { ns = 3 }".to_owned()), "cost.exit.source: missing"),
            ((0, exit, "exit = { ns = 1, source = '' }".to_owned()), "cost.exit.source: missing"),
            ((0, exit, "exitt = { ns = 3, source = 'x' }".to_owned()), "unknown field `exitt`"),
            ((0, "follow = \"thread-time\"", "follow = \"time\"".to_owned()), "counts.follow"),
            ((0, "follow = \"thread-time\"", "follow = \"exits\"".to_owned()), "counts.default.per-exit: missing"),
            ((0, "shortest-period = { ns = 57000", "shortest-period = { ns = 0".to_owned()), "host.shortest-period: 0"),
            ((0, "others.every = { ns = [1000000,", "others.every = { ns = [0,".to_owned()), "host.others.every: 0"),
            ((0, "taken = { value = 0", "taken = { value = 65".to_owned()), "host.taken: 65"),
            ((0, "counters = { value = 64", "processor = { name = 'zen-4'".to_owned()), "unknown field `taken`"),
            ((0, "khz = 2000000", "khz = 0".to_owned()), "tsc: 0"),
            ((0, "fitted = []", "fitted = [{ constant = 'cost.x', figure = 'y' }]".to_owned()), "no constant 'cost.x'"),
            ((0, "name = ", "name = \n#".to_owned()), "line "),
            (on_clx("cascade-lake-no-smt", "z80"), "`z80`, expected one of `cascade-lake`,"),
            (on_clx("[0x3c]", "[0x10000]"), "pinned"),
            (on_clx("[0x3c]", &format!("[{}]", "0x3c,".repeat(65))), "host.pinned: 65"),
            (on_clx("pinned = { events = [0x3c]", "counters = { value = 1"), "unknown field `counters`"),
            ((0, "name = ", "base = 'clx'\nname = ".to_owned()), "base: no such model; there are development-host"),
        ] {
            let (name, text) = EMBEDDED[model];
            assert!(text.contains(from), "{from}");
            let error = Model::from_toml(name, &text.replacen(from, &to, 1)).unwrap_err().to_string();
            assert!(error.contains(needle) && !error.contains('\n'), "{error:?} lacks {needle:?}");
        }
        let (name, text) = EMBEDDED[1];
        let exits = text.replacen("guest-time", "exits", 1).replacen("per-us", "per-exit", 1);
        let error = Model::from_toml(name, &exits).unwrap_err().to_string();
        assert!(error.contains("host.processor: events that follow exits"), "{error}");
    }

    #[test]
    fn a_model_with_a_base_has_the_constants_that_it_leaves_out() {
        let [base, in_kernel] = ["clx-ap-watchdog-on", "clx-in-kernel"].map(|name| Model::embedded(name).unwrap());
        assert_eq!((&base.costs.peek, &in_kernel.costs.peek), (&None, &Some(Cost::fixed(40))));
        assert_eq!((&base.costs.resume, &base.host), (&in_kernel.costs.resume, &in_kernel.host));
        assert!(!base.fitted.is_empty() && in_kernel.fitted.is_empty(), "what was fitted holds for the base's costs");
        // One key of a table of tables.
        let base = Model::embedded("development-host").unwrap();
        let own = "base = 'development-host'\nname = 'own'\nhost.others.every = { ns = 7000000, source = 'x' }";
        let [own, base] = [Model::from_toml("own", own).unwrap(), base].map(|model| model.host.others.unwrap());
        assert_eq!((own.every, own.length), (Cost::fixed(7_000_000), base.length));
    }

    #[test]
    fn what_a_model_leaves_out_has_its_default() {
        let model = Model::embedded("icx-2021").unwrap();
        assert_eq!((&model.costs.io, model.host.shortest_period), (&model.costs.exit, 50_000));
        assert_eq!((&model.costs.tick_exit, &model.host.others), (&Cost::fixed(0), &None));
        let model = Model::embedded("development-host-tracepoint").unwrap();
        assert_eq!((&model.costs.io, model.rate(0x3c).counts(7)), (&Cost::fixed(17_100), 7), "counts are exits");
    }

    #[test]
    fn every_cost_can_be_scaled_and_nothing_else() {
        let model = Model::embedded("icx-2021").unwrap();
        for &key in Costs::SCALABLE {
            let mut dearer = model.clone();
            dearer.scale(key, 3.0).unwrap();
            // A cost of 0 stays 0.
            let absent =
                ["vmm", "resume-other", "tick-exit", "switch", "switch-held", "switch-running", "expiry", "peek"];
            assert!(dearer.costs != model.costs || absent.contains(&key), "{key}");
            dearer.scale(key, 1e6).unwrap();
            dearer.scale(key, 1e6).unwrap();
        }
        let mut dearer = model.clone();
        dearer.scale("open", 2.0).unwrap();
        let twice = |cost: &Cost| Cost::fixed(2 * cost.smallest());
        assert_eq!(dearer.costs.open_first, twice(&model.costs.open_first));
        assert_eq!(dearer.costs.open_more, twice(&model.costs.open_more));
        for (key, factor, needle) in [
            ("opne", 1.0, "there are exit, tick-exit"),
            ("open", -1.0, "not a factor"),
            ("open", f64::NAN, "not a factor"),
        ] {
            let error = dearer.scale(key, factor).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    proptest! {
        /// A model with random damage is read or refused in one line, and a model that was read has costs within bounds.
        #[test]
        fn a_damaged_model_is_read_or_refused(
            which in 0..EMBEDDED.len(),
            damages in proptest::collection::vec((0..4000_usize, 0..12_usize, "[-+0-9a-z.=,{}\\[\\]'\"\n\u{e9}]{0,12}"), 1..4),
        ) {
            let (name, text) = EMBEDDED[which];
            let mut text = text.to_owned();
            for (at, cut, with) in damages {
                let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                let (begin, end) = (boundary(at), boundary(at + cut));
                text.replace_range(begin..end, &with);
            }
            match Model::from_toml(name, &text) {
                Err(error) => prop_assert!(!error.to_string().contains('\n'), "{error}"),
                Ok(mut model) => {
                    for &key in Costs::SCALABLE {
                        model.scale(key, 1e6).unwrap();
                    }
                    let costs = &model.costs;
                    let largest = [&costs.exit, &costs.open_first, &costs.resume_other].map(Cost::smallest);
                    prop_assert!(largest.into_iter().all(|ns| ns <= 1_000_000_000_000));
                }
            }
        }
    }
}
