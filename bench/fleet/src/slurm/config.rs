//! The controller's description of itself, by `scontrol show config`.

use std::collections::BTreeMap;

use results::error::Error;
use serde::{Deserialize, Serialize};

use crate::slurm::command::{Slurm, arguments};

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
    /// The configuration; an answer also says that the controller is there.
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
