//! Nodes, by `sinfo -N`.

use std::collections::BTreeMap;

use results::error::Error;
use serde::{Deserialize, Serialize};

use crate::slurm::command::{Slurm, arguments};

/// Fields of a line; the reason is last, because it is free text.
const FORMAT: &str = "%N|%T|%f|%c|%P|%E";

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name in Slurm (NodeName).
    pub name: String,
    /// State as `sinfo` prints it: `idle`, `drained`, `down*`.
    pub state: String,
    /// Features, which `--constraint` selects by.
    pub features: Vec<String>,
    /// CPUs.
    pub cpus: u32,
    /// Partitions, by name.
    pub partitions: Vec<String>,
    /// Why it is drained or down.
    pub reason: Option<String>,
}

impl Slurm {
    /// Lists all nodes of the cluster, by name.
    ///
    /// # Errors
    /// Exit 4 if `sinfo` is not there or has no answer from the controller.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        let words = arguments(["-N", "-h", "-a", "-o", FORMAT]);
        let text = self.ask("sinfo", &words, "").map_err(|failure| failure.error("cannot list Slurm's nodes", ""))?;
        Ok(nodes(&text))
    }
}

/// Reads the nodes of `sinfo`'s output: a line for each node and partition.
fn nodes(text: &str) -> Vec<Node> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
        let [name, state, features, cpus, partition, reason] = fields[..] else { continue };
        let given = |text: &str| !matches!(text, "" | "(null)" | "none" | "N/A");
        let node = nodes.entry(name.to_owned()).or_insert_with(|| Node {
            name: name.to_owned(),
            state: state.to_owned(),
            features: features.split(',').filter(|name| given(name)).map(str::to_owned).collect(),
            cpus: cpus.parse().unwrap_or(0),
            partitions: Vec::new(),
            reason: given(reason).then(|| reason.to_owned()),
        });
        // The default partition has a '*'.
        let partition = partition.trim_end_matches('*').to_owned();
        if given(&partition) && !node.partitions.contains(&partition) {
            node.partitions.push(partition);
            // sinfo prints them in no particular order.
            node.partitions.sort();
        }
    }
    nodes.into_values().collect()
}

/// Slurm's own default of MaxArraySize.
const DEFAULT_MAX_ARRAY_SIZE: u32 = 1001;

/// The controller's configuration, as far as campaigns depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Name of the cluster.
    pub cluster: String,
    /// Version of the controller.
    pub version: String,
    /// Tasks that an array may have (MaxArraySize).
    pub max_array_size: u32,
    /// `sacct` has records.
    pub accounting: bool,
    /// Seconds until `scontrol` forgets a job that ended (MinJobAge).
    pub min_job_age: u64,
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
    let number = |key: &str| field(key).split(' ').next().and_then(|word| word.parse::<u32>().ok());
    let storage = field("AccountingStorageType");
    Config {
        cluster: field("ClusterName").to_owned(),
        version: field("SLURM_VERSION").to_owned(),
        max_array_size: number("MaxArraySize").unwrap_or(DEFAULT_MAX_ARRAY_SIZE),
        // "accounting_storage/none" until 22.05, "(null)" since 23.02.
        accounting: !storage.is_empty() && !storage.ends_with("none") && storage != "(null)",
        min_job_age: number("MinJobAge").unwrap_or(300).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::command::tests::fakes;

    #[test]
    fn nodes_of_two_partitions_are_listed_once() {
        let (_folder, slurm) = fakes(&[(
            "sinfo",
            "cat <<'E'\nnode1|idle|clx,ib|2|urgent|none\nnode1|idle|clx,ib|2|fleet*|none\n\
             node3|down*|icx|2|fleet*|Not responding\nnode4|drained|(null)|2|fleet*|fan | PSU\nE",
        )]);
        let nodes = slurm.nodes().unwrap();
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node1", "node3", "node4"]);
        assert_eq!(
            (&nodes[0].features, &nodes[0].partitions),
            (&vec!["clx".into(), "ib".into()], &vec!["fleet".into(), "urgent".into()])
        );
        assert_eq!(
            (nodes[1].reason.as_deref(), nodes[2].reason.as_deref()),
            (Some("Not responding"), Some("fan | PSU"))
        );
        assert!(nodes[2].features.is_empty());
    }

    const SHOWN: &str = "Configuration data as of 2026-11-22T11:53:41\n\
        AccountingStorageType   = accounting_storage/none\nClusterName             = vpmu\n\
        MaxArraySize            = 2001\nMinJobAge               = 3600 sec\nSLURM_VERSION           = 22.05.8\n";

    #[test]
    fn the_configuration_is_read() {
        let (_folder, slurm) = fakes(&[("scontrol", &format!("cat <<'E'\n{SHOWN}E"))]);
        let expected = Config {
            cluster: "vpmu".into(),
            version: "22.05.8".into(),
            max_array_size: 2001,
            accounting: false,
            min_job_age: 3600,
        };
        assert_eq!(slurm.config().unwrap(), expected);
    }

    #[test]
    fn accounting_is_there_unless_the_storage_is_none() {
        assert!(config("AccountingStorageType = accounting_storage/slurmdbd\n").accounting);
        assert!(!config("AccountingStorageType = (null)\n").accounting);
        assert_eq!(config("").max_array_size, DEFAULT_MAX_ARRAY_SIZE);
    }
}
