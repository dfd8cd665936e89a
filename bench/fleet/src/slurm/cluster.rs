//! The cluster: lists of hosts, and the bound of an array.

use results::error::Error;

use crate::slurm::command::Slurm;

/// Slurm's own default of MaxArraySize.
const DEFAULT_MAX_ARRAY_SIZE: usize = 1001;

impl Slurm {
    /// Returns the number of tasks that an array may have; an answer also says that the controller is there.
    ///
    /// # Errors
    /// Exit 4 if Slurm's commands are not there or have no answer from the controller.
    pub fn max_array_size(&self) -> Result<usize, Error> {
        let text = self
            .ask("scontrol", &["show", "config"], "")
            .map_err(|failure| failure.error("cannot ask Slurm's controller", ""))?;
        let fields = text.lines().filter_map(|line| line.split_once('='));
        let size =
            fields.filter(|(key, _)| key.trim() == "MaxArraySize").find_map(|(_, size)| size.trim().parse().ok());
        Ok(size.unwrap_or(DEFAULT_MAX_ARRAY_SIZE).max(1))
    }

    /// Lists the hosts of a list such as `clx[001-004,7],icx1`, in its order. One without brackets needs no Slurm.
    ///
    /// # Errors
    /// A fault of the list, or why `scontrol` cannot read it.
    pub fn hostnames(&self, list: &str) -> Result<Vec<String>, String> {
        let hosts: Vec<String> = if list.contains('[') {
            let text = self.ask("scontrol", &["show", "hostnames", list], "").map_err(|failure| {
                format!("scontrol reads lists with brackets, and {}; write the names out, with commas", failure.why())
            })?;
            text.lines().map(str::to_owned).collect()
        } else {
            list.split(',').map(|name| name.trim().to_owned()).collect()
        };
        // scontrol says nothing of most faults. Names go to commands and into the names of elements.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let wrong = |name: &&String| name.is_empty() || name.starts_with(['-', '.']) || !name.chars().all(plain);
        match hosts.iter().find(wrong) {
            Some(name) => Err(format!("{name:?} of {list:?} is not a host name")),
            None if hosts.is_empty() => Err(format!("{list:?} is no list of hosts")),
            None => Ok(hosts),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::slurm::command::tests::fakes;

    #[test]
    fn lists_with_brackets_are_scontrols_and_all_names_are_checked() {
        // As Slurm 22.05 does, which ends with 0 whatever the list is.
        let scontrol = r#"case "$3" in
            'clx[001-002],icx1') printf 'clx001\nclx002\nicx1\n';;
            'a[3-1]') echo 'Invalid hostlist: a[3-1]' >&2;;
            'a[3-1') echo 'a]';;
            esac"#;
        let (_folder, slurm) = fakes(&[("scontrol", scontrol)]);
        assert_eq!(slurm.hostnames("clx[001-002],icx1").unwrap(), ["clx001", "clx002", "icx1"]);
        for (list, why) in [
            ("a[3-1]", "no list of hosts"),
            ("a[3-1", "not a host name"),
            ("", "not a host name"),
            ("a,,b", "not a host name"),
            ("../x", "not a host name"),
            ("-w", "not a host name"),
        ] {
            let refused = slurm.hostnames(list).unwrap_err();
            assert!(refused.contains(why), "{list}: {refused}");
        }
        let (_folder, none) = fakes(&[]);
        assert_eq!(none.hostnames("a, b").unwrap(), ["a", "b"]);
        assert!(none.hostnames("a[1-2]").unwrap_err().contains("no scontrol in PATH; write the names out"));
    }
}
