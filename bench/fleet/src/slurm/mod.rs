//! Slurm, by its commands: `sbatch` takes jobs, `squeue` and `sacct` say what became of them, `scontrol` what the cluster is. Their JSON
//! needs a plugin and changes between releases; named fields do not.

pub mod cluster;
pub mod command;
pub mod query;
