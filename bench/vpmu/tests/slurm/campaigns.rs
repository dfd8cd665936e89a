//! A campaign that everything happens to, and a sweep in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use fleet::slurm::submit::Submitted;
use serde_json::Value;

use crate::campaign::{Campaign, QUICK, has, over, paced, read, text};
use crate::rig::{Rig, wait};

/// 24 elements on four nodes of two classes. One fails, one is requeued, a node is drained and the slurmd of another killed.
pub(crate) fn every_result_once_whatever_happens(rig: &mut Rig) -> Result<()> {
    let binary = paced(rig, 2, "clx2", "1_5")?;
    let plan = format!(
        "name = 'must-show'\nhosts = [{{ constraint = 'clx', count = 12 }}, {{ constraint = 'icx', count = 12 }}]\n\
         [[experiment]]\n{QUICK}[[variant]]\nname = 'paced'\nbinary = '{}'\n",
        binary.display()
    );
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    ensure!(campaign.jobs()? == [1, 2], "{:?}", campaign.jobs()?);

    let running = |node: &'static str| {
        move |elements: &[Value]| elements.iter().any(|element| has(element, "running") && element["host"] == node)
    };
    let on = |elements: &[Value], node: &str| -> Result<String> {
        let element = elements.iter().find(|element| has(element, "running") && element["host"] == node);
        Ok(element.and_then(|element| element["job"].as_str()).context("its job")?.to_owned())
    };
    let elements = campaign.until("an element on clx1", running("clx1"))?;
    let requeued = on(&elements, "clx1")?;
    rig.ask(&["scontrol", "requeue", &requeued])?;
    rig.ask(&["scontrol", "update", "nodename=icx2", "state=drain", "reason=a fan"])?;
    let elements = campaign.until("an element on clx2", running("clx2"))?;
    let orphaned = on(&elements, "clx2")?;
    let folder = campaign.folder.clone();
    rig.kill("clx2")?;
    let campaign = Campaign { rig, plan: rig.path("plan.toml"), folder };

    let elements = campaign.until("the outcomes", |elements| elements.iter().all(over))?;
    ensure!(elements.len() == 24, "{}", elements.len());
    let failed: Vec<&str> =
        elements.iter().filter(|element| !has(element, "ok")).filter_map(|element| element["name"].as_str()).collect();
    ensure!(failed == [elements[5]["name"].as_str().unwrap_or_default()], "{failed:?}");

    // Every result once, on a node of its class, with its job.
    let outcomes = campaign.outcomes()?;
    ensure!(outcomes.len() == 24, "{}", outcomes.len());
    for (number, (done, attempts)) in &outcomes {
        let class = if *number < 12 { "clx" } else { "icx" };
        let host = done["host"].as_str().context("a host")?;
        ensure!(host.starts_with(class), "element {number} of {class} on {host}");
        let task = format!("{}_{}", 1 + number / 12, number % 12);
        ensure!(done["job"]["task"] == *task, "{done}");
        let documents = done["documents"].as_array().context("documents")?;
        ensure!(documents.len() == usize::from(*number != 5), "{done}");
        ensure!(!attempts.is_empty() && attempts.len() <= 3, "{attempts:?}");
    }
    // Slurm has started two elements twice. The one on clx2 ran on without its slurmd: of two runs at a time the first to end counts.
    let jobs: Vec<Submitted> = fs::read_to_string(campaign.folder.join("submissions.jsonl"))?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let mut tasks = BTreeMap::new();
    wait("the end of all tasks", || {
        tasks = rig.slurm().states(&jobs, false).elements;
        Ok(tasks.values().all(|task| !task.state.is_active()))
    })?;
    for id in [&requeued, &orphaned] {
        let task = tasks.values().find(|task| task.id() == *id).context("a task")?;
        ensure!(task.restarts == 1 && task.node.as_deref() == Some("clx1"), "{task:?}");
    }
    ensure!(
        tasks.values().filter(|task| task.state == fleet::slurm::query::State::Completed).count() == 23,
        "{tasks:?}"
    );
    ensure!(tasks[&5].exit_code == Some(70), "{:?}", tasks[&5]);
    ensure!(campaign.outcomes()? == outcomes, "an outcome changed");

    let report = campaign.fleet("report", &[])?;
    ensure!(report.status.code() == Some(1), "{}", text(&report));
    let said = text(&report);
    ensure!(said.contains(failed[0]) && said.contains("1_5"), "{said}");

    // Nothing is left to run.
    let again = campaign.submit(&[])?;
    ensure!(again.contains("0 of 24 elements to run"), "{again}");
    ensure!(campaign.jobs()?.len() == 2 && campaign.outcomes()? == outcomes, "the second submission ran something");
    Ok(())
}

/// 10 000 points in 16 parts over the nodes: the bytes of one machine.
pub(crate) fn a_sweep_in_parts_is_the_same_to_the_byte(rig: &mut Rig) -> Result<()> {
    const OPTIONS: [(&str, &str); 5] =
        [("strategy", "reuse,gate"), ("seed", "1-5000"), ("workload", "counting1"), ("samples", "5"), ("tail", "0")];
    let options: Vec<String> = OPTIONS.iter().map(|(name, value)| format!("{name} = '{value}'")).collect();
    let plan =
        format!("name = 'sweep'\n[[experiment]]\nrun = 'sweep'\nparts = 16\noptions = {{ {} }}\n", options.join(", "));
    let campaign = Campaign::new(rig, &plan)?;
    campaign.submit(&[])?;
    // One machine runs the same meanwhile.
    let alone = rig.path("alone");
    let mut command = rig.command(env!("CARGO_BIN_EXE_vpmu"));
    command.args(["sweep", "--quiet", "-o"]).arg(&alone);
    for (name, value) in OPTIONS {
        command.args([format!("--{name}"), value.to_owned()]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "{}", text(&output));
    campaign.until("the parts", |elements| elements.iter().all(over))?;
    let collected = campaign.fleet("collect", &[])?;
    ensure!(collected.status.code() == Some(0), "{}", text(&collected));
    let merged = campaign.folder.join("sweeps/sweep-default");
    for file in ["sweep.jsonl", "pareto.json", "pareto.md"] {
        let (one, parts) = (read(&alone.join(file))?, read(&merged.join(file))?);
        ensure!(one == parts, "{file} differs: {} and {} bytes", one.len(), parts.len());
    }
    ensure!(fs::read_to_string(alone.join("sweep.jsonl"))?.lines().count() == 10_000, "not all points");
    let hosts: BTreeSet<String> =
        campaign.outcomes()?.values().filter_map(|(done, _)| Some(done["host"].as_str()?.to_owned())).collect();
    ensure!(hosts.len() == 4, "only on {hosts:?}");
    Ok(())
}
