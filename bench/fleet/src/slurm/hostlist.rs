//! Slurm's host lists: `clx[001-004,7],icx1` names six hosts.

/// More names than this are refused: a typing error in a range must not fill the memory.
pub const MOST_HOSTS: usize = 100_000;

/// Lists the hosts of `list`, in its order.
///
/// # Errors
/// A fault of the list.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in split(list)? {
        for host in expand_item(item)? {
            push(&mut hosts, host)?;
        }
    }
    Ok(hosts)
}

fn push(hosts: &mut Vec<String>, host: String) -> Result<(), String> {
    if hosts.len() == MOST_HOSTS {
        return Err(format!("more than {MOST_HOSTS} hosts"));
    }
    hosts.push(host);
    Ok(())
}

/// Splits at the commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if inside => return Err("a bracket within brackets".into()),
            '[' => inside = true,
            ']' if !inside => return Err("']' without '['".into()),
            ']' => inside = false,
            ',' if !inside => {
                items.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("'[' without ']'".into());
    }
    items.push(&list[begin..]);
    let items: Vec<&str> = items.into_iter().map(str::trim).collect();
    if items.iter().any(|item| item.is_empty()) { Err("a host without a name".into()) } else { Ok(items) }
}

/// Lists the hosts of an item, which may have several pairs of brackets.
fn expand_item(item: &str) -> Result<Vec<String>, String> {
    let mut hosts = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(ranges)?;
        let mut longer = Vec::new();
        for host in &hosts {
            for number in &numbers {
                push(&mut longer, format!("{host}{before}{number}"))?;
            }
        }
        (hosts, rest) = (longer, after);
    }
    for host in &mut hosts {
        host.push_str(rest);
        // Names go to commands and into paths.
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if host.starts_with(['-', '.']) || !host.chars().all(fine) {
            return Err(format!("{host:?} is not a host name"));
        }
    }
    Ok(hosts)
}

/// Lists the numbers of `001-004,7`, as wide as the range's first.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(|| format!("{text:?} is not a number"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("range {range} runs backwards"));
        }
        for n in from..=to {
            push(&mut numbers, format!("{n:0width$}", width = first.len()))?;
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_scontrol_show_hostnames_does() {
        assert_eq!(expand("clx[001-003,7],icx1").unwrap(), ["clx001", "clx002", "clx003", "clx7", "icx1"]);
        assert_eq!(expand("r[1-2]n[08-10]-ib").unwrap()[..4], ["r1n08-ib", "r1n09-ib", "r1n10-ib", "r2n08-ib"]);
        assert_eq!(expand("one").unwrap(), ["one"]);
        assert_eq!(expand("n[9-11]").unwrap(), ["n9", "n10", "n11"]);
        assert_eq!(expand("a[00001-100000]").unwrap().len(), MOST_HOSTS);
    }

    #[test]
    fn wrong_lists_are_refused() {
        for (list, why) in [
            ("", "without a name"),
            ("a[1-2", "'[' without"),
            ("a1]", "']' without"),
            ("a[[1]]", "within brackets"),
            ("a[1-x]", "\"x\" is not a number"),
            ("a[3-1]", "backwards"),
            ("a[0-99999999]", "more than 100000"),
            ("a[0-999]b[0-999]", "more than 100000"),
            ("../x", "not a host name"),
            ("-w", "not a host name"),
        ] {
            let refused = expand(list).unwrap_err();
            assert!(refused.contains(why), "{list}: {refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_without_a_panic(list in "[a-c0-9\\[\\],-]{0,24}") {
            let _ = expand(&list);
        }
    }
}
