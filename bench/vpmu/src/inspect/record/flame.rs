//! The flame graph page of a recording: one file, with its own script, that needs no network. With the payload's NMIs beside the
//! recording each leads to the samples around it.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};

use perf_data::calls::{Calls, TooMuch, Tree};
use perf_data::history::Named;
use serde::Serialize;

use super::beside::Nmis;
use super::profile::{Contents, MOST_MADE};

const PAGE: &str = include_str!("flame.html");

/// Data of the page.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    event: &'a str,
    lost: u64,
    command: String,
    /// Names by their numbers.
    names: &'a [String],
    /// Number of the name, samples, and the number of the caller, of each function behind its caller.
    tree: Vec<(u32, u64, Option<u32>)>,
    latency: Option<Around>,
    /// Samples of each function in the recording that this one is compared with.
    before: Option<Vec<u64>>,
}

/// Makes one tree of the stacks of two recordings: names, functions, and the samples of each in the first recording.
fn difference(before: &Named, after: &Named) -> (Vec<String>, Tree, Vec<u64>) {
    let (mut names, mut numbers, mut calls) = (Vec::new(), HashMap::new(), Calls::default());
    let [first, second] = [before, after].map(|named| {
        let of = calls.add(&named.calls, |name| {
            *numbers.entry(named.name(name).to_owned()).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() as u32 - 1
            })
        });
        named.samples.iter().map(|sample| of[sample.innermost as usize]).collect::<Vec<_>>()
    });
    let tree = calls.tree(&names, first.iter().chain(&second).copied());
    let mut counts = vec![0; tree.nodes.len()];
    for &number in &first {
        counts[tree.of[number as usize] as usize] += 1;
    }
    for (at, node) in tree.nodes.iter().enumerate().rev() {
        if let Some(caller) = node.caller() {
            counts[caller as usize] += counts[at];
        }
    }
    (names, tree, counts)
}

/// NMIs and samples by the time since the first of either, ns, in order.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Around {
    /// Entry, time taken, vCPU.
    nmis: Vec<(u64, u64, usize)>,
    /// Time, and the number of the innermost function in the tree.
    samples: Vec<(u64, u32)>,
}

/// Places samples around NMIs; `None` without both.
fn around(nmis: &Nmis, samples: impl Iterator<Item = (u64, u32)>) -> Option<Around> {
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    let mut slow: Vec<_> = nmis.nmis.iter().collect();
    slow.sort_by_key(|nmi| nmi.at);
    let first = samples.first()?.0.min(slow.first()?.at);
    let nmis = slow.into_iter().map(|nmi| (nmi.at - first, nmi.took, nmi.vcpu)).collect();
    for (time, _) in &mut samples {
        *time -= first;
    }
    Some(Around { nmis, samples })
}

/// A text that does not grow beyond a bound.
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    pub(super) most: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.most {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats `value` as JSON, of `most` bytes at the most.
///
/// # Errors
/// It would have more.
pub(super) fn json(value: &impl Serialize, most: u64) -> Result<String, TooMuch> {
    let mut text = Bounded { bytes: Vec::new(), most };
    // Writing fails by the bound alone: no key is anything but text.
    serde_json::to_writer(&mut text, value).map_err(|_| TooMuch(most))?;
    Ok(String::from_utf8_lossy(&text.bytes).into_owned())
}

/// Makes the page; with the guest's NMIs, if it has any, or as the difference from another recording.
///
/// # Errors
/// It would be too large.
pub fn page(
    contents: &Contents,
    title: &str,
    nmis: Option<&Nmis>,
    before: Option<&Contents>,
) -> Result<String, TooMuch> {
    let samples = &contents.named.samples;
    let both = before.map(|before| difference(&before.named, &contents.named));
    let (names, tree, before) = match both {
        Some((names, tree, counts)) => (names, tree, Some(counts)),
        None => (contents.named.names.clone(), contents.named.tree(), None),
    };
    let after = |at: usize, all: u64| all - before.as_ref().map_or(0, |counts| counts[at]);
    let timed = samples.iter().map(|sample| (sample.time, tree.of[sample.innermost as usize]));
    let data = Data {
        title,
        event: &contents.event.name,
        lost: contents.lost,
        command: contents.command_line.join(" "),
        names: &names,
        latency: nmis.and_then(|nmis| around(nmis, timed)),
        tree: tree.nodes.iter().enumerate().map(|(at, node)| (node.name, after(at, node.all), node.caller())).collect(),
        before,
    };
    let data = json(&data, MOST_MADE)?;
    // Whatever a symbol is called, it does not end the script.
    if (data.len() + 5 * data.matches('<').count()) as u64 > MOST_MADE {
        return Err(TooMuch(MOST_MADE));
    }
    Ok(PAGE.replace("/*STYLE*/", results::plot::STYLE).replace("/*DATA*/", &data.replace('<', "\\u003c")))
}

#[cfg(test)]
mod tests {
    use perf_data::attr::Event;
    use perf_data::calls::Place;
    use perf_data::history::Shown;
    use perf_data::reader::Damage;
    use serde_json::json as value;

    use super::*;

    /// Builds a recording of these stacks, the root first.
    fn recording(stacks: &[&[&str]]) -> Contents {
        let (mut calls, mut names, mut samples) = (Calls::default(), Vec::<String>::new(), Vec::new());
        for (stack, time) in stacks.iter().zip(100..) {
            let below = |caller, name: &&str| {
                let known = names.iter().position(|known| known == name);
                let name = known.unwrap_or_else(|| {
                    names.push((*name).to_owned());
                    names.len() - 1
                });
                Some(calls.below(caller, Place { mode: None, name: name as u32 }))
            };
            let innermost = stack.iter().fold(None, below).unwrap();
            samples.push(Shown { time, pid: 1, tid: 1, period: 1, innermost });
        }
        let mut all = Named::default();
        (all.calls, all.names, all.samples) = (calls, names, samples);
        Contents {
            named: all,
            event: Event { name: "cpu-clock".to_owned(), ..Event::default() },
            others: Vec::new(),
            clocks: None,
            lost: 7,
            of_ring: false,
            throttled: 0,
            damage: Damage::default(),
            command_line: vec!["vpmu".to_owned()],
            nmis: None,
            older: Vec::new(),
        }
    }

    #[test]
    fn the_page_has_the_tree_and_no_name_ends_its_script() {
        let evil: &[&str] = &["CPU 0/KVM", "main", "</script><b>"];
        let page = page(&recording(&[evil, evil, &evil[..2]]), "x", None, None).unwrap();
        assert!(page.contains(r#""names":["CPU 0/KVM","main","\u003c/script>\u003cb>"],"#), "{page}");
        assert!(page.contains(r#""tree":[[0,3,null],[1,3,0],[2,2,1]],"#), "{page}");
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains("/*DATA*/") && !page.contains("http"));
    }

    #[test]
    fn a_difference_has_the_samples_of_both() {
        let (before, after) = (recording(&[&["t", "b"], &["t", "a"]]), recording(&[&["t", "c"], &["t", "b"], &["t"]]));
        let page = page(&after, "x", None, Some(&before)).unwrap();
        // t; a, b and c below it, by name.
        assert!(page.contains(r#""tree":[[0,3,null],[2,0,0],[1,1,0],[3,1,0]],"#), "{page}");
        assert!(page.contains(r#""before":[2,1,1,0]"#), "{page}");
    }

    #[test]
    fn names_are_there_once_and_a_text_has_a_bound() {
        let long = "n".repeat(10_000);
        let stacks: Vec<Vec<&str>> = (1..100).map(|depth| vec![long.as_str(); depth]).collect();
        let stacks: Vec<&[&str]> = stacks.iter().map(Vec::as_slice).collect();
        let page = page(&recording(&stacks), "x", None, None).unwrap();
        assert!(page.len() < PAGE.len() + results::plot::STYLE.len() + 20_000, "{}", page.len());
        assert_eq!((json(&"four", 6), json(&"four", 5)), (Ok("\"four\"".to_owned()), Err(TooMuch(5))));
    }

    #[test]
    fn nmis_and_samples_have_the_time_since_the_first() {
        let nmis = |at: &[u64]| {
            let all: Vec<_> = at.iter().map(|&at| value!({ "vcpu": 0, "at": at, "took": 7 })).collect();
            serde_json::from_value::<Nmis>(value!({ "nmis": all })).unwrap()
        };
        let found = around(&nmis(&[121, 115, 99]), [(120, 3), (100, 4)].into_iter()).unwrap();
        assert_eq!(found.nmis, [(0, 7, 0), (16, 7, 0), (22, 7, 0)]);
        assert_eq!(found.samples, [(1, 4), (21, 3)]);
        let none = std::iter::empty;
        assert_eq!((around(&nmis(&[]), [(1, 1)].into_iter()), around(&nmis(&[5]), none())), (None, None));
    }
}
