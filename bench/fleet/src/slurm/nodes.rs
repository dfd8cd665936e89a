//! Nodes, by `sinfo -N`, and the controller's configuration.

use std::collections::BTreeMap;

use results::error::Error;

use crate::slurm::command::{Slurm, arguments};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name in Slurm (NodeName).
    pub name: String,
    /// State as `sinfo` prints it: `idle`, `drained`, `down*`.
    pub state: String,
}

impl Slurm {
    /// Lists all nodes of the cluster, by name.
    ///
    /// # Errors
    /// Exit 4 if `sinfo` is not there or has no answer from the controller.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        let words = arguments(["-N", "-h", "-a", "-o", "%N|%T"]);
        let text = self.ask("sinfo", &words, "").map_err(|failure| failure.error("cannot list Slurm's nodes", ""))?;
        Ok(nodes(&text))
    }
}

/// Reads the nodes of `sinfo`'s output: a line for each node and partition.
fn nodes(text: &str) -> Vec<Node> {
    let nodes: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.trim().split_once('|')).collect();
    nodes.into_iter().map(|(name, state)| Node { name: name.to_owned(), state: state.to_owned() }).collect()
}

/// Slurm's own default of MaxArraySize.
const DEFAULT_MAX_ARRAY_SIZE: u32 = 1001;

/// The controller's configuration, as far as campaigns depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tasks that an array may have (MaxArraySize).
    pub max_array_size: u32,
    /// `sacct` has records.
    pub accounting: bool,
}

impl Slurm {
    /// Reads the configuration; an answer also says that the controller is there.
    ///
    /// # Errors
    /// Exit 4 if Slurm's commands are not there or have no answer from the controller.
    pub fn config(&self) -> Result<Config, Error> {
        let text = self
            .ask("scontrol", &arguments(["show", "config"]), "")
            .map_err(|failure| failure.error("cannot ask Slurm's controller", ""))?;
        Ok(config(&text))
    }
}

fn config(text: &str) -> Config {
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect();
    let field = |key: &str| fields.get(key).copied().unwrap_or_default();
    let storage = field("AccountingStorageType");
    Config {
        max_array_size: field("MaxArraySize").parse().unwrap_or(DEFAULT_MAX_ARRAY_SIZE),
        // "accounting_storage/none" until 22.05, "(null)" since 23.02.
        accounting: !storage.is_empty() && !storage.ends_with("none") && storage != "(null)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_two_partitions_is_listed_once() {
        let found = nodes("node3|down*\nnode1|idle\nnode1|idle\n\n");
        assert_eq!(
            found.iter().map(|node| (&*node.name, &*node.state)).collect::<Vec<_>>(),
            [("node1", "idle"), ("node3", "down*")]
        );
    }

    #[test]
    fn accounting_is_there_unless_the_storage_is_none() {
        let shown = "Configuration data as of 2026-11-22T11:53:41\nAccountingStorageType   = accounting_storage/none\n\
                     MaxArraySize            = 2001\n";
        assert_eq!(config(shown), Config { max_array_size: 2001, accounting: false });
        assert!(config("AccountingStorageType = accounting_storage/slurmdbd\n").accounting);
        assert!(!config("AccountingStorageType = (null)\n").accounting);
        assert_eq!(config("").max_array_size, DEFAULT_MAX_ARRAY_SIZE);
    }
}
