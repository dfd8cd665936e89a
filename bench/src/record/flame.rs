//! The flame graph page of a recording: one file, with its own script, that needs no network.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::profile::Profile;

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

/// The page.
#[must_use]
pub fn page(profile: &Profile, title: &str) -> String {
    let mut root = Node::default();
    for (frames, weight) in profile.stacks.iter() {
        root.weight += weight;
        let mut node = &mut root;
        for frame in frames {
            node = node.callees.entry(frame.clone()).or_default();
            node.weight += weight;
        }
    }
    let event = profile.events.first().cloned().unwrap_or_default();
    let about = json!({
        "title": title,
        "event": event,
        "lost": profile.lost,
        "command": profile.command_line.join(" "),
        "tree": root.value("all"),
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
            events: vec!["cpu-clock".into()],
            lost: 7,
            damage: Damage::default(),
            command_line: vec!["vpmu".into()],
        };
        let page = page(&profile, "x");
        assert!(
            page.contains(r#"["all",4,[["CPU 0/KVM",4,[["main",4,[["\u003c/script>\u003cb>",3,[]]]]]]]]"#),
            "{page}"
        );
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains("/*DATA*/") && !page.contains("http"));
    }
}
