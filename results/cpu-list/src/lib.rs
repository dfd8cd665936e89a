//! Lists of CPUs as Linux writes them, e.g. `0,2,4-7`: parsed, and written again.

use std::fmt;
use std::str::FromStr;

/// The most a CPU number may be: Linux's largest CONFIG_NR_CPUS is 8192.
pub const MAX_CPU: u32 = 8191;

/// CPUs in the order given, without repeats, e.g. from `0,2,4-7`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CpuList(pub Vec<u32>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cpu = |part: &str| -> Result<u32, String> {
            let part = part.trim();
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return Err("not a CPU list; give e.g. 2 or 0,2 or 4-7".to_owned());
            }
            part.parse()
                .ok()
                .filter(|&n| n <= MAX_CPU)
                .ok_or_else(|| format!("CPU {part} is out of range; the largest is {MAX_CPU}"))
        };
        let mut list = Vec::new();
        let mut seen = vec![false; MAX_CPU as usize + 1];
        for part in text.split(',') {
            let (first, end) = match part.split_once('-') {
                Some((a, b)) => (cpu(a)?, cpu(b)?),
                None => (cpu(part)?, cpu(part)?),
            };
            if first > end {
                return Err(format!("{first}-{end} runs backwards; give {end}-{first}"));
            }
            for n in first..=end {
                if std::mem::replace(&mut seen[n as usize], true) {
                    return Err(format!("duplicate CPU {n}"));
                }
                list.push(n);
            }
        }
        Ok(Self(list))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(u32::to_string).collect(),
        });
        f.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!("0,2,4-7".parse::<CpuList>().unwrap().0, [0, 2, 4, 5, 6, 7]);
        assert_eq!("3,1".parse::<CpuList>().unwrap().0, [3, 1]);
        for bad in ["", ",", "1,", "a", "-1", "3-1", "1-", "0,0", "0-3,2", "8192", "0-99999999999", "+1"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let _ = text.parse::<CpuList>();
        }

        #[test]
        fn a_cpu_list_reads_back_as_written(cpus in prop::collection::hash_set(0_u32..=MAX_CPU, 1..40)) {
            let list = CpuList(cpus.into_iter().collect());
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
