//! The flame graph page of a recording: one file, with its own script, that needs no network. With the payload's NMIs beside the
//! recording each leads to the samples around it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::nmis::Nmis;
use super::profile::{Profile, Timed};

const PAGE: &str = include_str!("flame.html");

/// A function in its place.
#[derive(Default)]
struct Node {
    weight: u64,
    callees: BTreeMap<String, Node>,
}

impl Node {
    /// `[name, weight, callees]`.
    fn value(&self, name: &str) -> Value {
        let callees: Vec<_> = self.callees.iter().map(|(name, node)| node.value(name)).collect();
        json!([name, self.weight, callees])
    }
}

/// NMIs and samples by the time since the first of either, ns, in order; `None` without both.
fn around(nmis: &Nmis, timed: &Timed) -> Option<Value> {
    let first = timed.samples.iter().map(|&(time, _)| time).min()?;
    let first = first.min(nmis.nmis.iter().map(|nmi| nmi.at).min()?);
    let mut slow: Vec<_> = nmis.nmis.iter().collect();
    slow.sort_by_key(|nmi| nmi.at);
    let mut samples: Vec<_> = timed.samples.iter().map(|&(time, stack)| (time - first, stack)).collect();
    samples.sort_unstable();
    let slow: Vec<_> = slow.into_iter().map(|nmi| (nmi.at - first, nmi.took, nmi.vcpu)).collect();
    Some(json!({ "nmis": slow, "samples": samples, "stacks": timed.stacks }))
}

/// The page; with the guest's NMIs, if it has any.
#[must_use]
pub fn page(profile: &Profile, title: &str, latency: Option<(&Nmis, &Timed)>) -> String {
    let mut root = Node::default();
    for (frames, weight) in profile.stacks.iter() {
        root.weight += weight;
        let mut node = &mut root;
        for frame in frames {
            node = node.callees.entry(frame.clone()).or_default();
            node.weight += weight;
        }
    }
    let about = json!({
        "title": title,
        "event": profile.event,
        "lost": profile.lost,
        "command": profile.command_line.join(" "),
        "tree": root.value("all"),
        "latency": latency.and_then(|(nmis, timed)| around(nmis, timed)),
    });
    // Whatever a symbol is called, it does not end the script.
    let data = about.to_string().replace('<', "\\u003c");
    PAGE.replace("/*DATA*/", &data)
}

#[cfg(test)]
mod tests {
    use perf_data::reader::Damage;
    use perf_data::stacks::Stacks;

    use super::*;

    #[test]
    fn the_page_has_the_tree_and_no_name_ends_its_script() {
        let mut stacks = Stacks::new();
        let stack = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect();
        stacks.add(stack(&["CPU 0/KVM", "main", "</script><b>"]), 3);
        stacks.add(stack(&["CPU 0/KVM", "main"]), 1);
        let profile = Profile {
            stacks,
            event: "cpu-clock".into(),
            lost: 7,
            damage: Damage::default(),
            command_line: vec!["vpmu".into()],
        };
        let page = page(&profile, "x", None);
        assert!(
            page.contains(r#"["all",4,[["CPU 0/KVM",4,[["main",4,[["\u003c/script>\u003cb>",3,[]]]]]]]]"#),
            "{page}"
        );
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains("/*DATA*/") && !page.contains("http"));
    }

    #[test]
    fn nmis_and_samples_have_the_time_since_the_first() {
        let timed = Timed { stacks: vec![vec!["CPU 0/KVM".into()]], samples: vec![(120, 0), (100, 0)] };
        let nmis = |at: &[u64]| {
            let all: Vec<_> = at.iter().map(|&at| json!({ "vcpu": 0, "at": at, "took": 7 })).collect();
            serde_json::from_value::<Nmis>(json!({ "nmis": all })).unwrap()
        };
        let found = around(&nmis(&[121, 115, 99]), &timed).unwrap();
        assert_eq!(found["nmis"], json!([[0, 7, 0], [16, 7, 0], [22, 7, 0]]));
        assert_eq!(found["samples"], json!([[1, 0], [21, 0]]));
        assert_eq!((around(&nmis(&[]), &timed), around(&nmis(&[5]), &Timed::default())), (None, None));
    }
}
